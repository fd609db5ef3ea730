//! Element by element.

use super::{Maker, Trial};
use gradlet_core::{DType, Tensor};

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "add" => maker.binary(Tensor::add),
        "sub" => maker.binary(Tensor::sub),
        "mul" => maker.binary(Tensor::mul),
        "div" => maker.binary(Tensor::div),
        "neg" => maker.unary(Tensor::neg),
        "relu" => maker.unary(Tensor::relu),
        "identity" => maker.unary(Tensor::identity),
        "relu_grad" => {
            let dims = maker.dims((0, 4), 4);
            let inputs = vec![maker.tensor(&dims), maker.away_from_zero(&dims)];
            Trial::new(inputs, |x| x[0].relu_grad(&x[1]))
        }
        "cast" => maker.cast(),
        _ => return None,
    })
}

impl Maker {
    /// Linear in f32: with large steps, and less exact.
    fn cast(&mut self) -> Trial {
        Trial { step: 0.01, tolerance: 1e-4, ..self.unary(|x| x.cast(DType::F32)?.cast(DType::F64)) }
    }
}
