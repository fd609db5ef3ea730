//! The tables of TensorFlow Lite's `schema.fbs` that gradlet reads, with the fields that it reads.
//!
//! A table is declared by the slots of its fields, as in the schema: `slot name: type = default`. The macros turn a declaration into a view
//! of verified bytes, with a method for each field.

// The traits of the flatbuffers crate are unsafe: they follow offsets of bytes that its verifier has accepted.
#![allow(unsafe_code)]
// The tables are described as far as operators may need them.
#![allow(dead_code)]

use flatbuffers::{Follow, ForwardsUOffset, InvalidFlatbuffer, Table, Vector, Verifiable, Verifier};

/// A text.
type Text<'a> = ForwardsUOffset<&'a str>;
/// A list of numbers.
type List<'a, T> = ForwardsUOffset<Vector<'a, T>>;
/// A list of tables.
type Tables<'a, T> = ForwardsUOffset<Vector<'a, ForwardsUOffset<T>>>;
/// A table.
type One<T> = ForwardsUOffset<T>;

/// Returns the position in the vtable of a field's slot.
const fn position(slot: u16) -> u16 {
    4 + 2 * slot
}

macro_rules! tables {
    ($a:lifetime: $($table:ident { $($slot:literal $field:ident: $type:ty $(= $default:expr)?,)* })*) => {$(
        #[derive(Clone, Copy)]
        pub(crate) struct $table<$a>(Table<$a>);

        impl<$a> Follow<$a> for $table<$a> {
            type Inner = $table<$a>;

            // SAFETY: the caller promises that a table is at `at`.
            unsafe fn follow(bytes: &$a [u8], at: usize) -> $table<$a> {
                $table(unsafe { Table::new(bytes, at) })
            }
        }

        impl<$a> Verifiable for $table<$a> {
            fn run_verifier(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
                verifier.visit_table(at)?$(.visit_field::<$type>(stringify!($field), position($slot), false)?)*.finish();
                Ok(())
            }
        }

        impl<$a> $table<$a> {
            $(field!($a $slot $field: $type $(= $default)?);)*
        }
    )*};
}

macro_rules! field {
    ($a:lifetime $slot:literal $field:ident: $type:ty = $default:expr) => {
        pub(crate) fn $field(self) -> $type {
            // SAFETY: the verifier has checked that the slot has this type.
            unsafe { self.0.get::<$type>(position($slot), Some($default)) }.unwrap_or($default)
        }
    };
    ($a:lifetime $slot:literal $field:ident: $type:ty) => {
        pub(crate) fn $field(self) -> Option<<$type as Follow<$a>>::Inner> {
            // SAFETY: the verifier has checked that the slot has this type.
            unsafe { self.0.get::<$type>(position($slot), None) }
        }
    };
}

tables! { 'a:
    Model {
        0 version: u32 = 0,
        1 operator_codes: Tables<'a, OperatorCode<'a>>,
        2 subgraphs: Tables<'a, SubGraph<'a>>,
        3 description: Text<'a>,
        4 buffers: Tables<'a, Buffer<'a>>,
        7 signature_defs: Tables<'a, SignatureDef<'a>>,
        8 external_buffer_groups: Tables<'a, Unread<'a>>,
        9 external_buffers: Tables<'a, Unread<'a>>,
    }
    OperatorCode {
        0 deprecated_builtin_code: i8 = 0,
        1 custom_code: Text<'a>,
        2 version: i32 = 1,
        3 builtin_code: i32 = 0,
    }
    SubGraph {
        0 tensors: Tables<'a, Tensor<'a>>,
        1 inputs: List<'a, i32>,
        2 outputs: List<'a, i32>,
        3 operators: Tables<'a, Operator<'a>>,
        4 name: Text<'a>,
    }
    Tensor {
        0 shape: List<'a, i32>,
        1 kind: i8 = 0,
        2 buffer: u32 = 0,
        3 name: Text<'a>,
        4 quantization: One<QuantizationParameters<'a>>,
        5 is_variable: bool = false,
        6 sparsity: One<Unread<'a>>,
        7 shape_signature: List<'a, i32>,
        10 external_buffer: u32 = 0,
    }
    QuantizationParameters {
        2 scale: List<'a, f32>,
        3 zero_point: List<'a, i64>,
        4 details_type: u8 = 0,
        6 quantized_dimension: i32 = 0,
    }
    Buffer {
        0 data: List<'a, u8>,
        1 offset: u64 = 0,
        2 size: u64 = 0,
    }
    SignatureDef {
        0 inputs: Tables<'a, TensorMap<'a>>,
        1 outputs: Tables<'a, TensorMap<'a>>,
        2 signature_key: Text<'a>,
        4 subgraph_index: u32 = 0,
    }
    TensorMap {
        0 name: Text<'a>,
        1 tensor_index: u32 = 0,
    }
    Unread {}
}

/// An operator. Its options are a union, whose verification depends on the number of their table.
#[derive(Clone, Copy)]
pub(crate) struct Operator<'a>(Table<'a>);

impl<'a> Follow<'a> for Operator<'a> {
    type Inner = Operator<'a>;

    // SAFETY: the caller promises that a table is at `at`.
    unsafe fn follow(bytes: &'a [u8], at: usize) -> Operator<'a> {
        Operator(unsafe { Table::new(bytes, at) })
    }
}

impl Verifiable for Operator<'_> {
    fn run_verifier(verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
        let operator = verifier
            .visit_table(at)?
            .visit_field::<u32>("opcode_index", position(0), false)?
            .visit_field::<List<'_, i32>>("inputs", position(1), false)?
            .visit_field::<List<'_, i32>>("outputs", position(2), false)?;
        let mut operator = operator.visit_field::<List<'_, i32>>("intermediates", position(8), false)?.visit_field::<u64>(
            "large_custom_options_offset",
            position(9),
            false,
        )?;
        if let (Some(key), Some(options)) = (operator.deref(position(3))?, operator.deref(position(4))?) {
            let key = operator.verifier().get_u8(key)?;
            verify_options(key, operator.verifier(), options)?;
        }
        operator.finish();
        Ok(())
    }
}

impl<'a> Operator<'a> {
    field!('a 0 opcode_index: u32 = 0);
    field!('a 1 inputs: List<'a, i32>);
    field!('a 2 outputs: List<'a, i32>);
    field!('a 3 options_type: u8 = 0);
    field!('a 8 intermediates: List<'a, i32>);
    field!('a 9 large_custom_options_offset: u64 = 0);

    /// Returns the options, or `None` if the operator has none or if gradlet does not read their table.
    pub(crate) fn options(self) -> Option<Options<'a>> {
        let key = Some(self.options_type()).filter(|key| KEYS.contains(key))?;
        // SAFETY: the verifier has checked the table of a known number.
        let table = unsafe { self.0.get::<ForwardsUOffset<Table<'a>>>(position(4), None) }?;
        Some(Options { key, table })
    }
}

/// The options of an operator, which are one of the tables below.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options<'a> {
    key: u8,
    table: Table<'a>,
}

impl<'a> Options<'a> {
    /// Returns the options as table `T`, or `None` if they are another table.
    pub(crate) fn get<T: OptionsTable<'a>>(self) -> Option<T> {
        // SAFETY: the verifier has checked that the table of this number is `T`.
        (self.key == T::KEY).then(|| unsafe { T::follow(self.table.buf(), self.table.loc()) })
    }
}

/// A table of options.
pub(crate) trait OptionsTable<'a>: Follow<'a, Inner = Self> + Sized {
    /// Number of the table in the schema's union.
    const KEY: u8;

    /// Returns options in which every field has its default, for operators without options.
    fn defaults() -> Self {
        // A vtable without slots, and a table that points to it.
        static EMPTY: [u8; 8] = [4, 0, 4, 0, 4, 0, 0, 0];
        // SAFETY: byte 4 has the distance to the vtable at byte 0.
        unsafe { Self::follow(&EMPTY, 4) }
    }
}

macro_rules! options {
    ($a:lifetime: $($key:literal $table:ident { $($slot:literal $field:ident: $type:ty $(= $default:expr)?,)* })*) => {
        /// Numbers of the tables that gradlet reads.
        const KEYS: &[u8] = &[$($key),*];

        fn verify_options(key: u8, verifier: &mut Verifier<'_, '_>, at: usize) -> Result<(), InvalidFlatbuffer> {
            match key {
                $($key => verifier.verify_union_variant::<ForwardsUOffset<$table<'_>>>(stringify!($table), at),)*
                _ => Ok(()),
            }
        }

        $(impl<$a> OptionsTable<$a> for $table<$a> {
            const KEY: u8 = $key;
        })*

        tables! { $a: $($table { $($slot $field: $type $(= $default)?,)* })* }
    };
}

options! { 'a:
    1 Conv2DOptions {
        0 padding: i8 = 0,
        1 stride_w: i32 = 0,
        2 stride_h: i32 = 0,
        3 fused_activation_function: i8 = 0,
        4 dilation_w_factor: i32 = 1,
        5 dilation_h_factor: i32 = 1,
    }
    2 DepthwiseConv2DOptions {
        0 padding: i8 = 0,
        1 stride_w: i32 = 0,
        2 stride_h: i32 = 0,
        4 fused_activation_function: i8 = 0,
        5 dilation_w_factor: i32 = 1,
        6 dilation_h_factor: i32 = 1,
    }
    5 Pool2DOptions {
        0 padding: i8 = 0,
        1 stride_w: i32 = 0,
        2 stride_h: i32 = 0,
        3 filter_width: i32 = 0,
        4 filter_height: i32 = 0,
        5 fused_activation_function: i8 = 0,
    }
    6 SvdfOptions {
        0 rank: i32 = 0,
        1 fused_activation_function: i8 = 0,
        2 asymmetric_quantize_inputs: bool = false,
    }
    8 FullyConnectedOptions {
        0 fused_activation_function: i8 = 0,
        1 weights_format: i8 = 0,
        2 keep_num_dims: bool = false,
        3 asymmetric_quantize_inputs: bool = false,
        4 quantized_bias_type: i8 = 0,
    }
    9 SoftmaxOptions {
        0 beta: f32 = 0.0,
    }
    10 ConcatenationOptions {
        0 axis: i32 = 0,
        1 fused_activation_function: i8 = 0,
    }
    11 AddOptions {
        0 fused_activation_function: i8 = 0,
        1 pot_scale_int16: bool = true,
    }
    15 ResizeBilinearOptions {
        2 align_corners: bool = false,
        3 half_pixel_centers: bool = false,
    }
    17 ReshapeOptions {
        0 new_shape: List<'a, i32>,
    }
    19 SpaceToDepthOptions {
        0 block_size: i32 = 0,
    }
    21 MulOptions {
        0 fused_activation_function: i8 = 0,
    }
    23 GatherOptions {
        0 axis: i32 = 0,
        1 batch_dims: i32 = 0,
    }
    27 ReducerOptions {
        0 keep_dims: bool = false,
    }
    28 SubOptions {
        0 fused_activation_function: i8 = 0,
        1 pot_scale_int16: bool = true,
    }
    29 DivOptions {
        0 fused_activation_function: i8 = 0,
    }
    30 SqueezeOptions {
        0 squeeze_dims: List<'a, i32>,
    }
    31 SequenceRnnOptions {
        0 time_major: bool = false,
        1 fused_activation_function: i8 = 0,
        2 asymmetric_quantize_inputs: bool = false,
    }
    32 StridedSliceOptions {
        0 begin_mask: i32 = 0,
        1 end_mask: i32 = 0,
        2 ellipsis_mask: i32 = 0,
        3 new_axis_mask: i32 = 0,
        4 shrink_axis_mask: i32 = 0,
        5 offset: bool = false,
    }
    35 SplitOptions {
        0 num_splits: i32 = 0,
    }
    49 TransposeConvOptions {
        0 padding: i8 = 0,
        1 stride_w: i32 = 0,
        2 stride_h: i32 = 0,
        3 fused_activation_function: i8 = 0,
    }
    59 PackOptions {
        0 values_count: i32 = 0,
        1 axis: i32 = 0,
    }
    61 OneHotOptions {
        0 axis: i32 = 0,
    }
    64 UnpackOptions {
        0 num: i32 = 0,
        1 axis: i32 = 0,
    }
    71 UnidirectionalSequenceLstmOptions {
        0 fused_activation_function: i8 = 0,
        1 cell_clip: f32 = 0.0,
        2 proj_clip: f32 = 0.0,
        3 time_major: bool = false,
        4 asymmetric_quantize_inputs: bool = false,
        5 diagonal_recurrent_tensors: bool = false,
    }
    74 ResizeNearestNeighborOptions {
        0 align_corners: bool = false,
        1 half_pixel_centers: bool = false,
    }
    75 LeakyReluOptions {
        0 alpha: f32 = 0.0,
    }
    77 MirrorPadOptions {
        0 mode: i8 = 0,
    }
    79 SplitVOptions {
        0 num_splits: i32 = 0,
    }
    92 IfOptions {
        0 then_subgraph_index: i32 = 0,
        1 else_subgraph_index: i32 = 0,
    }
    93 WhileOptions {
        0 cond_subgraph_index: i32 = 0,
        1 body_subgraph_index: i32 = 0,
    }
    94 DepthToSpaceOptions {
        0 block_size: i32 = 0,
    }
    101 BatchMatMulOptions {
        0 adj_x: bool = false,
        1 adj_y: bool = false,
        2 asymmetric_quantize_inputs: bool = false,
    }
    102 CumsumOptions {
        0 exclusive: bool = false,
        1 reverse: bool = false,
    }
    103 CallOnceOptions {
        0 init_subgraph_index: i32 = 0,
    }
    111 VarHandleOptions {
        0 container: Text<'a>,
        1 shared_name: Text<'a>,
    }
    116 GeluOptions {
        0 approximate: bool = false,
    }
}
