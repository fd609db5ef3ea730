//! Dropout, composed of other ops.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

impl Tensor {
    /// Sets elements to 0 with probability `rate`, and divides the others by `1 − rate`. Like `tf.nn.dropout`.
    ///
    /// `noise` is the shape of the random decisions. With the dimensions of `self`, each element is decided separately. Along an
    /// axis where `noise` is 1, all elements share one decision. The gradient flows only through the kept elements.
    ///
    /// The random numbers come from the scope, like those of [`Tensor::random_uniform`].
    ///
    /// Fails on integers, if the rate is not between 0 and 1, or if `noise` does not broadcast to the tensor's dimensions.
    pub fn dropout(&self, scope: &dyn Scope, rate: f64, noise: &[u32]) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&rate) {
            return Err(Error::message(alloc::format!("expected a dropout rate between 0 and 1, but got {rate}")));
        }
        let numbers = Tensor::random_uniform(scope, noise)?;
        let kept = numbers.greater_equal(&numbers.like(rate)?)?;
        let factor = if rate < 1.0 { 1.0 / (1.0 - rate) } else { 0.0 };
        let y = kept.select(&self.mul_scalar(factor)?, &self.like(0.0)?)?;
        if y.dims() == self.dims() {
            return Ok(y);
        }
        Err(Error::message(alloc::format!("noise of shape {noise:?} does not broadcast to {}", self.tensor_type())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::autodiff::Differentiate;
    use crate::ops;
    use crate::trace::eager::Eager;
    use alloc::vec::Vec;

    #[test]
    fn the_gradient_goes_through_what_was_kept() {
        let scope = Eager::new(&ops::portable_cpu());
        for rate in [0.0, 0.25, 1.0] {
            let tape = scope.tape();
            let x = tape.watch(&Tensor::new(&scope.device(), &[f32::NAN, 3.0, f32::INFINITY, -2.0].repeat(10), &[40]).unwrap()).unwrap();
            let y = x.dropout(&tape, rate, &[40]).unwrap();
            let dx = tape.gradient(&y, &x).unwrap().unwrap().to_vec::<f32>().unwrap();
            let factor = 1.0 / (1.0 - rate) as f32;
            for ((x, y), dx) in x.to_vec::<f32>().unwrap().iter().zip(y.to_vec::<f32>().unwrap()).zip(dx) {
                let kept = dx == factor;
                assert!(kept && (y == x * factor || x.is_nan() && y.is_nan()) || dx == 0.0 && y == 0.0, "{x} {y} {dx}");
            }
        }
    }

    #[test]
    fn noise_is_shared_along_axes_of_one() {
        let scope = Eager::new(&ops::portable_cpu());
        let x = Tensor::full(&scope.device(), 1.0f32, &[20, 5]).unwrap();
        let rows: Vec<f32> = x.dropout(&scope, 0.5, &[20, 1]).unwrap().to_vec().unwrap();
        assert!(rows.chunks(5).all(|row| row == [row[0]; 5]) && rows.contains(&0.0) && rows.contains(&2.0));
        assert!(x.dropout(&scope, 1.5, &[20, 5]).is_err() && x.dropout(&scope, 0.5, &[2, 20, 5]).is_err());
    }
}
