//! Activations, made of ops, with TensorFlow's and Keras's values and gradients at the kinks.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::{Backward, InputGradients, custom_gradient};
use alloc::vec::Vec;

/// Keras's constants of [`Tensor::selu`]: the fixed point of mean 0 and variance 1.
const SELU: (f64, f64) = (1.673_263_242_354_377_3, 1.050_700_987_355_480_5);

impl Tensor {
    /// `min(max(self, 0), 6)`, as `tf.nn.relu6`. No gradient flows at 6.
    pub fn relu6(&self) -> Result<Tensor> {
        // The constant comes first: of equals, the first gets the gradient.
        self.like(6.0)?.minimum(&self.relu()?)
    }

    /// `self` above 0, `alpha · self` elsewhere, as `tf.nn.leaky_relu`. Integers are cast to f32.
    pub fn leaky_relu(&self, alpha: f64) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.clone() } else { self.cast(DType::F32)? };
        x.greater(&x.like(0.0)?)?.select(&x, &x.mul_scalar(alpha)?)
    }

    /// `self` above 0, `alpha · (eˣ - 1)` elsewhere, as Keras's `elu`.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.relu()?.add(&self.below_zero()?.expm1()?.scaled(alpha)?)
    }

    /// `max(self, 0) + alpha · (e^(min(self, 0) / alpha) - 1)`, as Keras's `celu`.
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        let below = self.below_zero()?.scaled(1.0 / alpha)?.expm1()?.scaled(alpha)?;
        self.maximum(&self.like(0.0)?)?.add(&below)
    }

    /// The exponential linear unit that keeps mean 0 and variance 1, as `tf.nn.selu`.
    pub fn selu(&self) -> Result<Tensor> {
        let below = self.below_zero()?.expm1()?.mul_scalar(SELU.0)?;
        self.less(&self.like(0.0)?)?.select(&below, self)?.mul_scalar(SELU.1)
    }

    /// `self / (1 + |self|)`, as `tf.nn.softsign`. Its gradient is `1 / (1 + |self|)²`: those of its ops cancel where `self` is large.
    pub fn softsign(&self) -> Result<Tensor> {
        fn divisor(x: &Tensor) -> Result<Tensor> {
            x.abs()?.add_scalar(1.0)
        }
        let rule = |of: &Backward<'_>| -> Result<InputGradients> {
            let dx = of.if_wanted(0, || {
                // Two divisions, because the square overflows before they do.
                let divisor = divisor(&of.inputs[0])?;
                of.dy()?.div(&divisor)?.div(&divisor)
            })?;
            Ok([dx].into_iter().collect())
        };
        let forward = |x: &[&Tensor]| Ok(alloc::vec![x[0].div(&divisor(x[0])?)?]);
        custom_gradient(&[self], forward, rule)?.pop().ok_or(Error::Arity { got: 0 })
    }

    /// `self · sigmoid(self)`, as `tf.nn.silu`; also called swish.
    pub fn silu(&self) -> Result<Tensor> {
        self.mul(&self.sigmoid()?)
    }

    /// `relu6(self + 3) / 6`, as Keras's `hard_sigmoid`.
    pub fn hard_sigmoid(&self) -> Result<Tensor> {
        let six = self.like(6.0)?;
        self.add_scalar(3.0)?.relu6()?.div(&six)
    }

    /// `self · hard_sigmoid(self)`, as Keras's `hard_silu`; also called hard swish.
    pub fn hard_silu(&self) -> Result<Tensor> {
        self.mul(&self.hard_sigmoid()?)
    }

    /// `ln(sigmoid(self))`, as `tf.math.log_sigmoid`.
    pub fn log_sigmoid(&self) -> Result<Tensor> {
        self.neg()?.softplus()?.neg()
    }

    /// `self · Φ(self)`, where Φ is the normal distribution, or approximated by a hyperbolic tangent: as `tf.nn.gelu`.
    pub fn gelu(&self, approximate: bool) -> Result<Tensor> {
        let phi = if approximate {
            let cubic = self.square()?.mul(self)?.mul_scalar(0.044_715)?;
            self.add(&cubic)?.mul_scalar(libm::sqrt(core::f64::consts::FRAC_2_PI))?.tanh()
        } else {
            self.div(&self.like(core::f64::consts::SQRT_2)?)?.erf()
        };
        self.mul_scalar(0.5)?.mul(&phi?.add_scalar(1.0)?)
    }

    /// `self · tanh(softplus(self))`, as Keras's `mish`.
    pub fn mish(&self) -> Result<Tensor> {
        self.mul(&self.softplus()?.tanh()?)
    }

    /// `self - tanh(self)`, as Keras's `tanh_shrink`.
    pub fn tanh_shrink(&self) -> Result<Tensor> {
        self.sub(&self.tanh()?)
    }

    /// `self` where its absolute value is above `threshold`, else 0, as Keras's `hard_shrink`.
    pub fn hard_shrink(&self, threshold: f64) -> Result<Tensor> {
        self.abs()?.greater(&self.like(threshold)?)?.select(self, &self.like(0.0)?)
    }

    /// `self` moved by `threshold` toward 0, and 0 where it would pass it, as Keras's `soft_shrink`.
    pub fn soft_shrink(&self, threshold: f64) -> Result<Tensor> {
        let (above, below) = (self.like(threshold)?, self.like(-threshold)?);
        let raised = self.less(&below)?.select(&self.add(&above)?, &self.like(0.0)?)?;
        self.greater(&above)?.select(&self.sub(&above)?, &raised)
    }

    /// `self` above `threshold`, `value` elsewhere, as Keras's `threshold`.
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        self.greater(&self.like(threshold)?)?.select(self, &self.like(value)?)
    }

    /// `self` between -1 and 1, else the nearer of them, as Keras's `hard_tanh`.
    pub fn hard_tanh(&self) -> Result<Tensor> {
        self.clip_by_value(-1.0, 1.0)
    }

    /// 0 up to -1, 1 from 1, a line between, as Keras's `sparse_sigmoid`.
    pub fn sparse_sigmoid(&self) -> Result<Tensor> {
        let one = self.like(1.0)?;
        let up = self.greater_equal(&one)?.select(&one, &self.add(&one)?.mul_scalar(0.5)?)?;
        self.less_equal(&self.like(-1.0)?)?.select(&self.like(0.0)?, &up)
    }

    /// 0 up to -1, `self` from 1, `(self + 1)² / 4` between, as Keras's `sparse_plus`.
    pub fn sparse_plus(&self) -> Result<Tensor> {
        let one = self.like(1.0)?;
        let up = self.less(&one)?.select(&self.add(&one)?.square()?.mul_scalar(0.25)?, self)?;
        self.less_equal(&self.like(-1.0)?)?.select(&self.like(0.0)?, &up)
    }

    /// `(self + √(self² + b)) / 2`, as Keras's `squareplus`.
    pub fn squareplus(&self, b: f64) -> Result<Tensor> {
        self.add(&self.square()?.add_scalar(b)?.sqrt()?)?.mul_scalar(0.5)
    }

    /// The logits moved down until few of them are above 0, and the others 0, along the last axis. As Keras's `sparsemax`, whose threshold
    /// has the sum of all cumulative sums of the support, where Martins and Astudillo (2016) have the last of them.
    ///
    /// Fails on integers and scalars.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[0.5f32, 2.0, -1.0], &[3])?;
    /// assert_eq!(x.sparsemax()?.to_vec::<f32>()?, [0.0, 1.0, 0.0]);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn sparsemax(&self) -> Result<Tensor> {
        let &extent = self.dims().last().ok_or(Error::Rank { input: 0 })?;
        let zero = self.like(0.0)?;
        let (descending, _) = self.top_k(extent)?;
        let sums = descending.cumsum(-1, false, false)?;
        let counts: Vec<f32> = (1..=extent).map(|count| count as f32).collect();
        let counts = Tensor::new(&self.device()?, &counts, &[extent])?.cast(self.dtype())?;
        let support = descending.sub(&sums.add_scalar(-1.0)?.div(&counts)?)?.greater(&zero)?;
        let size = support.cast(self.dtype())?.sum(&[-1], true)?;
        let threshold = support.select(&sums, &zero)?.sum(&[-1], true)?.add_scalar(-1.0)?.div(&size)?;
        self.sub(&threshold)?.maximum(&zero)
    }

    /// The first half along `axis`, times the sigmoid of the second, as Keras's `glu`.
    ///
    /// Fails where the axis does not halve.
    pub fn glu(&self, axis: i32) -> Result<Tensor> {
        let halves = self.split(2, axis)?;
        halves[0].mul(&halves[1].sigmoid()?)
    }

    /// `min(self, 0)`: what an exponential may be taken of without overflow.
    fn below_zero(&self) -> Result<Tensor> {
        self.minimum(&self.like(0.0)?)
    }

    /// `self · factor`, which is nothing to do for 1.
    fn scaled(&self, factor: f64) -> Result<Tensor> {
        if factor == 1.0 { Ok(self.clone()) } else { self.mul_scalar(factor) }
    }
}
