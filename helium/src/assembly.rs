//! Parts of assembly that several kernels share.

/// Converts four sums, the lanes of q0, to results. The registers have the multiplier, the offset and the negative shift. Changes q1.
#[rustfmt::skip]
macro_rules! requantize {
    ($multiplier:literal, $offset:literal, $shift:literal) => {
        concat!(
            "vqrdmulh.s32 q0, q0, ", $multiplier,
            "\nvshr.s32 q1, q0, #31",
            "\nvadd.i32 q0, q0, q1",
            "\nvadd.i32 q0, q0, ", $offset,
            "\nvshl.s32 q0, ", $shift,
            "\nvqmovnb.s32 q0, q0",
            "\nvqmovnb.s16 q0, q0",
        )
    };
}

/// Rounds the product of `$x` and the mantissa `$mantissa`, and then its quotient by the power of two with the negative exponent `$shift`,
/// with ties away from zero: negative numbers become one less, unless they are not shifted. Changes `$work`.
#[rustfmt::skip]
macro_rules! twice {
    ($x:literal, $mantissa:literal, $shift:literal, $work:literal) => {
        concat!(
            "vqrdmulh.s32 ", $x, ", ", $x, ", ", $mantissa,
            "\nvand ", $work, ", ", $x, ", ", $shift,
            "\nvshr.s32 ", $work, ", ", $work, ", #31",
            "\nvqadd.s32 ", $x, ", ", $x, ", ", $work,
            "\nvrshl.s32 ", $x, ", ", $x, ", ", $shift,
        )
    };
}

/// Converts the sums in `$x` to results. Changes q7. The negative shift is in q4, the range in q5 and q6. r7, r8 and r9 have the shift to
/// the left, the mantissa and the zero point.
#[rustfmt::skip]
macro_rules! finish {
    ($x:literal) => {
        concat!(
            "vshl.s32 ", $x, ", r7\n",
            twice!($x, "r8", "q4", "q7"),
            "\nvadd.i32 ", $x, ", ", $x, ", r9",
            "\nvmax.s32 ", $x, ", ", $x, ", q5",
            "\nvmin.s32 ", $x, ", ", $x, ", q6",
        )
    };
}

pub(crate) use {finish, requantize, twice};
