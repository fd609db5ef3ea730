//! Activations, composed of other ops. Values and gradients match TensorFlow and Keras, also at the kinks.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::{Backward, InputGradients, custom_gradient};
use alloc::vec::Vec;

/// Keras's constants α and scale of [`Tensor::selu`]. They preserve a mean of 0 and a variance of 1.
const SELU: (f64, f64) = (1.673_263_242_354_377_3, 1.050_700_987_355_480_5);

impl Tensor {
    /// Returns `min(max(self, 0), 6)`, like `tf.nn.relu6`. The gradient at 6 is 0.
    pub fn relu6(&self) -> Result<Tensor> {
        // The constant comes first: of equal operands, the first gets the gradient.
        self.like(6.0)?.minimum(&self.relu()?)
    }

    /// Returns `self` above 0, and `alpha · self` elsewhere, like `tf.nn.leaky_relu`. Integers are cast to f32.
    pub fn leaky_relu(&self, alpha: f64) -> Result<Tensor> {
        let x = if self.dtype().is_float() { self.clone() } else { self.cast(DType::F32)? };
        x.greater(&x.like(0.0)?)?.select(&x, &x.mul_scalar(alpha)?)
    }

    /// Returns `self` above 0, and `alpha · (eˣ - 1)` elsewhere, like Keras's `elu`.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.relu()?.add(&self.below_zero()?.expm1()?.scaled(alpha)?)
    }

    /// Returns `max(self, 0) + alpha · (e^(min(self, 0) / alpha) - 1)`, like Keras's `celu`.
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        let below = self.below_zero()?.scaled(1.0 / alpha)?.expm1()?.scaled(alpha)?;
        self.maximum(&self.like(0.0)?)?.add(&below)
    }

    /// Returns the scaled exponential linear unit, which preserves a mean of 0 and a variance of 1, like `tf.nn.selu`.
    pub fn selu(&self) -> Result<Tensor> {
        let below = self.below_zero()?.expm1()?.mul_scalar(SELU.0)?;
        self.less(&self.like(0.0)?)?.select(&below, self)?.mul_scalar(SELU.1)
    }

    /// Returns `self / (1 + |self|)`, like `tf.nn.softsign`. The gradient is computed as `1 / (1 + |self|)²`, because the
    /// gradients of the individual ops cancel for large `self`.
    pub fn softsign(&self) -> Result<Tensor> {
        fn divisor(x: &Tensor) -> Result<Tensor> {
            x.abs()?.add_scalar(1.0)
        }
        let rule = |of: &Backward<'_>| -> Result<InputGradients> {
            let dx = of.if_wanted(0, || {
                // Two divisions, because the square overflows earlier.
                let divisor = divisor(&of.inputs[0])?;
                of.dy()?.div(&divisor)?.div(&divisor)
            })?;
            Ok([dx].into_iter().collect())
        };
        let forward = |x: &[&Tensor]| Ok(alloc::vec![x[0].div(&divisor(x[0])?)?]);
        custom_gradient(&[self], forward, rule)?.pop().ok_or(Error::Arity { got: 0 })
    }

    /// Returns `self · sigmoid(self)`, like `tf.nn.silu`. Also called swish.
    pub fn silu(&self) -> Result<Tensor> {
        self.mul(&self.sigmoid()?)
    }

    /// Returns `relu6(self + 3) / 6`, like Keras's `hard_sigmoid`.
    pub fn hard_sigmoid(&self) -> Result<Tensor> {
        let six = self.like(6.0)?;
        self.add_scalar(3.0)?.relu6()?.div(&six)
    }

    /// Returns `self · hard_sigmoid(self)`, like Keras's `hard_silu`. Also called hard swish.
    pub fn hard_silu(&self) -> Result<Tensor> {
        self.mul(&self.hard_sigmoid()?)
    }

    /// Returns `ln(sigmoid(self))`, like `tf.math.log_sigmoid`.
    pub fn log_sigmoid(&self) -> Result<Tensor> {
        self.neg()?.softplus()?.neg()
    }

    /// Returns `self · Φ(self)`, like `tf.nn.gelu`. Φ is the cumulative distribution function of the standard normal distribution.
    /// With `approximate`, Φ is approximated by a hyperbolic tangent.
    pub fn gelu(&self, approximate: bool) -> Result<Tensor> {
        let phi = if approximate {
            let cubic = self.square()?.mul(self)?.mul_scalar(0.044_715)?;
            self.add(&cubic)?.mul_scalar(libm::sqrt(core::f64::consts::FRAC_2_PI))?.tanh()
        } else {
            self.div(&self.like(core::f64::consts::SQRT_2)?)?.erf()
        };
        self.mul_scalar(0.5)?.mul(&phi?.add_scalar(1.0)?)
    }

    /// Returns `self · tanh(softplus(self))`, like Keras's `mish`.
    pub fn mish(&self) -> Result<Tensor> {
        self.mul(&self.softplus()?.tanh()?)
    }

    /// Returns `self - tanh(self)`, like Keras's `tanh_shrink`.
    pub fn tanh_shrink(&self) -> Result<Tensor> {
        self.sub(&self.tanh()?)
    }

    /// Returns `self` where its absolute value is above `threshold`, and 0 elsewhere, like Keras's `hard_shrink`.
    pub fn hard_shrink(&self, threshold: f64) -> Result<Tensor> {
        self.abs()?.greater(&self.like(threshold)?)?.select(self, &self.like(0.0)?)
    }

    /// Returns `self` moved by `threshold` toward 0, and 0 where its absolute value is at most `threshold`, like Keras's
    /// `soft_shrink`.
    pub fn soft_shrink(&self, threshold: f64) -> Result<Tensor> {
        let (above, below) = (self.like(threshold)?, self.like(-threshold)?);
        let raised = self.less(&below)?.select(&self.add(&above)?, &self.like(0.0)?)?;
        self.greater(&above)?.select(&self.sub(&above)?, &raised)
    }

    /// Returns `self` above `threshold`, and `value` elsewhere, like Keras's `threshold`.
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        self.greater(&self.like(threshold)?)?.select(self, &self.like(value)?)
    }

    /// Returns `self` clipped to the range from -1 to 1, like Keras's `hard_tanh`.
    pub fn hard_tanh(&self) -> Result<Tensor> {
        self.clip_by_value(-1.0, 1.0)
    }

    /// Returns 0 up to -1, 1 from 1 on, and `(self + 1) / 2` between them, like Keras's `sparse_sigmoid`.
    pub fn sparse_sigmoid(&self) -> Result<Tensor> {
        let one = self.like(1.0)?;
        let up = self.greater_equal(&one)?.select(&one, &self.add(&one)?.mul_scalar(0.5)?)?;
        self.less_equal(&self.like(-1.0)?)?.select(&self.like(0.0)?, &up)
    }

    /// Returns 0 up to -1, `self` from 1 on, and `(self + 1)² / 4` between them, like Keras's `sparse_plus`.
    pub fn sparse_plus(&self) -> Result<Tensor> {
        let one = self.like(1.0)?;
        let up = self.less(&one)?.select(&self.add(&one)?.square()?.mul_scalar(0.25)?, self)?;
        self.less_equal(&self.like(-1.0)?)?.select(&self.like(0.0)?, &up)
    }

    /// Returns `(self + √(self² + b)) / 2`, like Keras's `squareplus`.
    pub fn squareplus(&self, b: f64) -> Result<Tensor> {
        self.add(&self.square()?.add_scalar(b)?.sqrt()?)?.mul_scalar(0.5)
    }

    /// Returns the sparsemax of the logits along the last axis: `max(self − threshold, 0)`. Like Keras's `sparsemax`.
    ///
    /// Keras computes the threshold from the sum of all cumulative sums of the support. Martins and Astudillo (2016) use only the
    /// last of them.
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

    /// Returns the first half along `axis`, times the sigmoid of the second half, like Keras's `glu`.
    ///
    /// Fails if the axis has an odd dimension.
    pub fn glu(&self, axis: i32) -> Result<Tensor> {
        let halves = self.split(2, axis)?;
        halves[0].mul(&halves[1].sigmoid()?)
    }

    /// Returns `min(self, 0)`, whose exponential cannot overflow.
    fn below_zero(&self) -> Result<Tensor> {
        self.minimum(&self.like(0.0)?)
    }

    /// Returns `self · factor`. For a factor of 1, returns `self` and emits no op.
    fn scaled(&self, factor: f64) -> Result<Tensor> {
        if factor == 1.0 { Ok(self.clone()) } else { self.mul_scalar(factor) }
    }
}
