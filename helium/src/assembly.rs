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

pub(crate) use requantize;
