//! Descriptions of small models, for tests.

use crate::formats::tflite::write::{Described, Graph, Operator, Options, write};
use crate::formats::tflite::{ElementType, Quantization};
use gradlet_core::Tensor;

impl Described {
    /// A tensor with the type of `tensor`, without a value.
    pub(super) fn like(tensor: &Tensor) -> Described {
        let dims = tensor.dims().iter().map(|&dim| dim as i32).collect();
        Described { dims, ..Described::of(tensor.dtype()) }
    }

    /// A constant.
    pub(super) fn constant(tensor: &Tensor) -> Described {
        Described { data: Some(tensor.bytes().unwrap().to_vec()), ..Described::like(tensor) }
    }

    /// A tensor with this element type.
    pub(super) fn of(kind: impl Into<ElementType>) -> Described {
        Described { name: String::new(), kind: kind.into(), dims: Vec::new(), data: None, quantization: None }
    }

    pub(super) fn quantized(self, scale: f32, zero_point: i64) -> Described {
        Described { quantization: Some(Quantization { scales: vec![scale], zero_points: vec![zero_point], axis: 0 }), ..self }
    }
}

/// Returns an operator.
pub(super) fn operator(name: &'static str, inputs: Vec<i32>, outputs: Vec<i32>, options: Options) -> Operator {
    Operator { name, inputs, outputs, options }
}

/// Returns the bytes of a model.
pub(super) fn model(graphs: &[Graph]) -> Vec<u8> {
    write(graphs, &[]).unwrap()
}
