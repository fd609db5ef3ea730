//! The catalogue of ops. Each op has one file. To add an op, write its file, declare its `mod`, and list it in the macro
//! `catalogue!` here.

mod array;
#[cfg(feature = "alloc")]
mod composed;
mod conv;
mod effects;
mod elementwise;
mod linalg;
mod quantized;
mod reduce;
pub(crate) mod shared;
mod steps;

pub use array::{
    broadcast_to, concat, gather, gather_grad, gather_nd, pad, reshape, scatter_add, scatter_nd, strided_slice, tensor_scatter_update,
    transpose,
};
#[cfg(feature = "alloc")]
pub use composed::{conv1d, resize, sequences, slicing};
pub use conv::{
    avg_pool2d, avg_pool2d_grad, conv2d, conv2d_filter_grad, conv2d_input_grad, conv2d_max_pool2d, conv2d_max_pool2d_filter_grad,
    conv2d_max_pool2d_input_grad, depthwise_conv2d, depthwise_conv2d_filter_grad, depthwise_conv2d_input_grad, max_pool2d, max_pool2d_grad,
    max_pool2d_pick,
};
pub use effects::{assert, check_numerics, cond, print, random_uniform, summary, while_loop};
pub use elementwise::{
    abs, add, cast, ceil, cos, div, divide_no_nan, equal, erf, exp, expm1, floor, floordiv, floormod, identity, less, less_equal, log,
    log1p, logical_and, logical_not, logical_or, logical_xor, maximum, minimum, mul, multiply_no_nan, neg, not_equal, pow, relu, relu_grad,
    round, rsqrt, select, sigmoid, sign, sin, softplus, sqrt, sub, tanh, truncatediv, truncatemod,
};
pub use linalg::{dense, matmul};
#[cfg(feature = "alloc")]
pub(crate) use quantized::packing;
#[cfg(feature = "alloc")]
pub use quantized::{LstmQuantization, PairQuantization, Requantization, SvdfQuantization, tables};
pub use quantized::{
    Multiplier, dequantize, lookup, packed_conv2d, packed_dense, packed_depthwise_conv2d, quantize, quantized_add, quantized_avg_pool2d,
    quantized_conv2d, quantized_dense, quantized_depthwise_conv2d, quantized_l2_normalize, quantized_lstm_step, quantized_matmul,
    quantized_mean, quantized_mul, quantized_resize_bilinear, quantized_sigmoid, quantized_softmax, quantized_squared_difference,
    quantized_svdf_step, requantize,
};
pub use reduce::{
    all, any, argmax, argmin, cumprod, cumsum, log_softmax, max, mean, min, prod, softmax, sparse_softmax_cross_entropy,
    sparse_softmax_cross_entropy_grad, sum, top_k,
};
pub use steps::{adam_step, matmul_adam, matmul_sgd, sgd_step};

use crate::base::op::Kernel;

/// Defines one kernel for each element type. All kernels call the same generic function. They are constants, not statics: a crate compiles
/// the function only for the kernels that it names.
macro_rules! kernels {
    ($run:ident: $($name:ident = $ty:ty),*) => {
        $(
            #[doc = concat!("Portable kernel for ", stringify!($ty), ".")]
            pub const $name: Kernel = Kernel { def: &DEF, dtype: <$ty as crate::base::dtype::Element>::DTYPE, run: $run::<$ty> };
        )*
    };
}
use kernels;

/// Defines one kernel for each element type, for a function that moves elements and computes nothing. With `sized`, the function is
/// generic over an unsigned integer of the element's size. With `bytes`, one function serves all types.
macro_rules! moving_kernels {
    (sized $run:ident) => {
        crate::ops::moving_kernels!(each
            F32 F32 = $run::<u32>, F64 F64 = $run::<u64>, F16 F16 = $run::<u16>, BF16 Bf16 = $run::<u16>,
            I8 I8 = $run::<u8>, U8 U8 = $run::<u8>, I32 I32 = $run::<u32>, I64 I64 = $run::<u64>, BOOL Bool = $run::<u8>,
            I16 I16 = $run::<u16>);
    };
    (bytes $run:path) => {
        crate::ops::moving_kernels!(each
            F32 F32 = $run, F64 F64 = $run, F16 F16 = $run, BF16 Bf16 = $run, I8 I8 = $run, U8 U8 = $run, I32 I32 = $run,
            I64 I64 = $run, BOOL Bool = $run, I16 I16 = $run);
    };
    (each $($name:ident $dtype:ident = $run:expr),*) => {
        $(
            #[doc = concat!("Portable kernel for ", stringify!($dtype), ".")]
            pub const $name: Kernel = Kernel { def: &DEF, dtype: crate::base::dtype::DType::$dtype, run: $run };
        )*
    };
}
use moving_kernels;

/// Calls the macro `$callback` with the catalogue: for each op its code, its name, and its kernels.
#[doc(hidden)]
#[macro_export]
macro_rules! catalogue {
    ($callback:ident) => {
        $callback! {
            1 add: F32, F64, I32, I64, I8, U8, I16;
            2 relu: F32, F64;
            3 relu_grad: F32, F64;
            4 sub: F32, F64, I32, I64, I8, U8, I16;
            5 mul: F32, F64, I32, I64, I8, U8, I16;
            6 div: F32, F64;
            7 neg: F32, F64, I32, I64, I8, I16;
            8 matmul: F32, F64, I32;
            9 dense: F32, F64;
            10 conv2d: F32, F64;
            11 conv2d_input_grad: F32, F64;
            12 conv2d_filter_grad: F32, F64;
            13 max_pool2d: F32, F64, I8, U8, I16;
            14 max_pool2d_grad: F32, F64;
            15 softmax: F32, F64;
            16 log_softmax: F32, F64;
            17 sparse_softmax_cross_entropy: F32, F64;
            18 sparse_softmax_cross_entropy_grad: F32, F64;
            19 sum: F32, F64, I32, I64, I8, U8, I16;
            20 mean: F32, F64;
            21 argmax: F32, F64, I32, I64, I8, U8, I16;
            22 equal: F32, F64, I32, I64, I8, U8, BOOL, I16;
            23 cast: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            24 reshape: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            25 transpose: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            26 broadcast_to: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            27 sgd_step: F32, F64;
            28 adam_step: F32, F64;
            29 identity: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            30 matmul_sgd: F32, F64;
            31 exp: F32, F64;
            32 log: F32, F64;
            33 sqrt: F32, F64;
            34 rsqrt: F32, F64;
            35 abs: F32, F64, I8, I32, I64, I16;
            36 sign: F32, F64, I8, I32, I64, I16;
            37 floor: F32, F64;
            38 ceil: F32, F64;
            39 round: F32, F64;
            40 sin: F32, F64;
            41 cos: F32, F64;
            42 tanh: F32, F64;
            43 sigmoid: F32, F64;
            44 erf: F32, F64;
            45 log1p: F32, F64;
            46 expm1: F32, F64;
            47 softplus: F32, F64;
            48 multiply_no_nan: F32, F64;
            52 logical_not: BOOL;
            53 maximum: F32, F64, I32, I64, I8, U8, I16;
            54 minimum: F32, F64, I32, I64, I8, U8, I16;
            55 pow: F32, F64, I32, I64, I8, I16;
            56 floordiv: F32, F64, I32, I64, I8, U8, I16;
            57 floormod: F32, F64, I32, I64, I8, U8, I16;
            58 truncatediv: F32, F64, I32, I64, I8, U8, I16;
            59 truncatemod: F32, F64, I32, I64, I8, U8, I16;
            60 not_equal: F32, F64, I32, I64, I8, U8, BOOL, I16;
            61 less: F32, F64, I32, I64, I8, U8, I16;
            62 less_equal: F32, F64, I32, I64, I8, U8, I16;
            63 logical_and: BOOL;
            64 logical_or: BOOL;
            65 logical_xor: BOOL;
            66 select: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            67 divide_no_nan: F32, F64;
            70 max: F32, F64, I32, I64, I8, U8, I16;
            71 min: F32, F64, I32, I64, I8, U8, I16;
            72 prod: F32, F64, I32, I64, I8, U8, I16;
            73 any: BOOL;
            74 all: BOOL;
            75 argmin: F32, F64, I32, I64, I8, U8, I16;
            76 cumsum: F32, F64, I32, I64, I8, U8, I16;
            77 cumprod: F32, F64, I32, I64, I8, U8, I16;
            78 top_k: F32, F64, I32, I64, I8, U8, I16;
            80 concat: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            81 strided_slice: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            82 pad: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            83 gather: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            84 gather_grad: F32, F64, I32, I64, I8, U8, I16;
            85 gather_nd: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            86 scatter_nd: F32, F64, I32, I64, I8, U8, I16;
            87 tensor_scatter_update: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            90 avg_pool2d: F32, F64;
            91 avg_pool2d_grad: F32, F64;
            92 depthwise_conv2d: F32, F64;
            93 depthwise_conv2d_input_grad: F32, F64;
            94 depthwise_conv2d_filter_grad: F32, F64;
            97 max_pool2d_pick: F32, F64;
            100 random_uniform: I64;
            101 cond: BOOL, I32;
            102 while_loop: BOOL;
            103 print: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            104 assert: BOOL;
            105 check_numerics: F32, F64, F16, BF16;
            111 matmul_adam: F32, F64;
            112 summary: F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16;
            113 conv2d_max_pool2d: F32, F64;
            114 conv2d_max_pool2d_filter_grad: F32, F64;
            115 conv2d_max_pool2d_input_grad: F32, F64;
            116 scatter_add: F32, F64, I32, I64, I8, U8, I16;
            120 quantize: F32;
            121 dequantize: I8, U8, I16;
            122 requantize: I8, U8, I16;
            123 lookup: I8, U8, I16;
            124 quantized_dense: I8, I16;
            125 quantized_conv2d: I8, I16;
            126 quantized_depthwise_conv2d: I8, I16;
            127 quantized_add: I8, I16;
            128 quantized_mul: I8, I16;
            129 quantized_avg_pool2d: I8, I16;
            130 quantized_mean: I8, I16;
            131 quantized_softmax: I8, I16;
            132 quantized_sigmoid: I16;
            133 quantized_lstm_step: I8;
            134 packed_conv2d: I8;
            135 packed_depthwise_conv2d: I8;
            136 packed_dense: I8;
            137 quantized_matmul: I8, I16;
            138 quantized_squared_difference: I8;
            139 quantized_resize_bilinear: I8, I16;
            140 quantized_l2_normalize: I8;
            141 quantized_svdf_step: I8;
        }
    };
}

macro_rules! define {
    ($($code:literal $name:ident: $($kernel:ident),*;)*) => {
        /// Code of each op in artifacts. A code is never reused for another op.
        pub mod code {
            use crate::base::op::OpCode;
            $(
                #[doc = concat!("Code of [`", stringify!($name), "`](super::", stringify!($name), ").")]
                #[allow(non_upper_case_globals)]
                pub const $name: OpCode = OpCode($code);
            )*
        }

        /// All portable kernels. A firmware that names only the kernels of its model, instead of using this list, links no others.
        #[cfg(not(feature = "alloc"))]
        pub const KERNELS: &[&Kernel] = &[$($(&$name::$kernel,)*)*];

        /// All portable kernels. A firmware that names only the kernels of its model, instead of using this list, links no others.
        // A static: eager devices use all kernels, and this crate compiles them once for all crates above it.
        #[cfg(feature = "alloc")]
        pub static KERNELS: &[&Kernel] = &[$($(&$name::$kernel,)*)*];

        /// All ops.
        #[cfg(feature = "alloc")]
        pub static OPS: &[&crate::tensor::scope::Op] = &[$(&$name::OP,)*];
    };
}
catalogue!(define);

/// Returns the part of an instruction's attribute words that holds block numbers: the blocks of the program that the instruction
/// can run. Returns an empty slice for ops without blocks.
pub(crate) fn blocks(op: crate::base::op::OpCode, attributes: &[u32]) -> &[u32] {
    match op {
        code::cond => attributes,
        code::while_loop => attributes.get(..2).unwrap_or(&[]),
        _ => &[],
    }
}

/// Returns TensorFlow's type name of the op with this definition, like [`Op::type_name`](crate::tensor::scope::Op::type_name). Use
/// this function where only the definition is available. For an op outside the catalogue, the result is the op's name in
/// TensorFlow's spelling.
#[cfg(feature = "alloc")]
pub fn type_name(def: &crate::base::op::OpDef) -> alloc::string::String {
    match OPS.iter().find(|op| core::ptr::eq(op.def, def)) {
        Some(op) => op.type_name(),
        None => crate::tensor::facts::camel(def.name),
    }
}

/// Returns a CPU device that computes with the portable kernels. They give the same bits on every target. The device prints
/// nothing until [`printing`](crate::tensor::device::Device::printing) sets its output.
#[cfg(feature = "alloc")]
pub fn portable_cpu() -> crate::tensor::device::Device {
    crate::tensor::device::Device::cpu("portable CPU:0", KERNELS)
}
