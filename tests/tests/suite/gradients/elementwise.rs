//! Gradient tests of elementwise ops.

use super::{Maker, Trial};
use gradlet_core::{DType, Result, Tensor};
use gradlet_tests::random::Random;

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "add" => maker.binary(Tensor::add),
        "sub" => maker.binary(Tensor::sub),
        "mul" => maker.binary(Tensor::mul),
        "div" => maker.binary(Tensor::div),
        "neg" => maker.unary(Tensor::neg),
        "relu" => maker.unary(Tensor::relu),
        "exp" => maker.unary(Tensor::exp),
        "abs" => maker.unary(Tensor::abs),
        "tanh" => maker.unary(Tensor::tanh),
        "sigmoid" => maker.unary(Tensor::sigmoid),
        "expm1" => maker.unary(Tensor::expm1),
        "softplus" => maker.unary(Tensor::softplus),
        "sin" => maker.unary(Tensor::sin),
        "cos" => maker.unary(Tensor::cos),
        "erf" => maker.unary(Tensor::erf),
        "log" => maker.positive(Tensor::log),
        "sqrt" => maker.positive(Tensor::sqrt),
        "rsqrt" => maker.positive(Tensor::rsqrt),
        "log1p" => maker.positive(Tensor::log1p),
        "maximum" => maker.apart(Tensor::maximum),
        "minimum" => maker.apart(Tensor::minimum),
        "multiply_no_nan" => maker.binary(Tensor::multiply_no_nan),
        "divide_no_nan" => maker.binary(Tensor::divide_no_nan),
        "floormod" => maker.floormod(),
        "pow" => maker.pow(),
        "select" => maker.select(),
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
    fn positive(&mut self, compute: fn(&Tensor) -> Result<Tensor>) -> Trial {
        let dims = self.dims((0, 4), 4);
        let x = self.tensor_of(&dims, |random| 1.5 + random.unit());
        Trial::new(vec![x], move |x| compute(&x[0]))
    }

    /// Returns a trial of `compute` with two operands whose elements are not close to each other.
    fn apart(&mut self, compute: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Trial {
        let [a, b] = self.operands();
        let inputs = vec![self.tensor_of(&a, |random| random.below(9) as f64), self.tensor_of(&b, |random| random.below(9) as f64 + 0.5)];
        Trial::new(inputs, move |x| compute(&x[0], &x[1]))
    }

    /// Returns a trial of `floormod` with quotients that are not close to integers.
    fn floormod(&mut self) -> Trial {
        let [a, b] = self.operands();
        let odd = |random: &mut Random| (random.below(4) as f64 + 1.0) * if random.coin() { 1.0 } else { -1.0 };
        let inputs = vec![self.tensor_of(&a, |random| random.below(9) as f64 - 4.5), self.tensor_of(&b, odd)];
        Trial::new(inputs, |x| x[0].floormod(&x[1]))
    }

    fn pow(&mut self) -> Trial {
        let [a, b] = self.operands();
        let inputs = vec![self.tensor_of(&a, |random| 1.5 + random.unit()), self.tensor(&b)];
        Trial::new(inputs, |x| x[0].pow(&x[1]))
    }

    fn select(&mut self) -> Trial {
        let dims = self.dims((0, 4), 4);
        let [x, y, c] = [(); 3].map(|()| self.operand(&dims));
        let inputs = vec![self.tensor(&x), self.tensor(&y), self.tensor(&c).greater(&Tensor::scalar(&self.device, 0.0f64)).unwrap()];
        Trial::new(inputs, |x| x[2].select(&x[0], &x[1]))
    }

    /// Returns a trial of a cast to f32 and back to f64. It is linear up to rounding in f32, so the trial uses large steps and a larger
    /// tolerance.
    fn cast(&mut self) -> Trial {
        Trial { step: 0.01, tolerance: 1e-4, ..self.unary(|x| x.cast(DType::F32)?.cast(DType::F64)) }
    }
}
