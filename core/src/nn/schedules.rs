//! Learning-rate schedules with Keras's names, arguments and defaults. Ops compute the rate from the number of completed steps, so
//! a traced and exported training step follows its schedule on the device too.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::sync::ThreadSafe;
use crate::tensor::Tensor;
use alloc::format;
use alloc::vec::Vec;

/// A learning-rate schedule.
///
/// ```
/// use gradlet_core::optimizers::schedules::Schedule;
/// use gradlet_core::{DType, Result, Tensor, ops};
///
/// struct Halved;
/// impl Schedule for Halved {
///     fn rate(&self, step: &Tensor) -> Result<Tensor> {
///         step.like(0.5)?.cast(DType::F32)?.pow(&step.cast(DType::F32)?)
///     }
/// }
/// ```
pub trait Schedule: ThreadSafe {
    /// Returns the learning rate, an f32 scalar, after `step` steps. `step` is an i64 scalar.
    fn rate(&self, step: &Tensor) -> Result<Tensor>;
}

/// Returns `steps` as a constant with the element type of `step`. Fails if `steps` is 0. The error then calls it `name`.
fn period(name: &str, steps: u32, step: &Tensor) -> Result<Tensor> {
    match steps {
        0 => Err(Error::message(format!("{name} must be more than 0, but it is 0"))),
        _ => step.like(f64::from(steps)),
    }
}

/// Returns `step / decay_steps`, the number of periods that have passed. With `staircase`, it is rounded down to a whole number.
fn passed(step: &Tensor, decay_steps: u32, staircase: bool) -> Result<Tensor> {
    let passed = step.div(&period("decay_steps", decay_steps, step)?)?;
    if staircase { passed.floor() } else { Ok(passed) }
}

/// Keras's `ExponentialDecay`: `initial · decay_rate ^ (step / decay_steps)`.
///
/// ```
/// use gradlet_core::optimizers::schedules::{ExponentialDecay, Schedule};
/// use gradlet_core::{Tensor, ops};
/// let schedule = ExponentialDecay::new(0.1, 10, 0.5).staircase(true);
/// let step = Tensor::scalar(&ops::portable_cpu(), 25i64);
/// assert_eq!(schedule.rate(&step)?.item::<f32>()?, 0.025);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct ExponentialDecay {
    initial: f64,
    decay_steps: u32,
    decay_rate: f64,
    staircase: bool,
}

impl ExponentialDecay {
    /// Creates a schedule that starts with `initial_learning_rate` and multiplies the rate by `decay_rate` every `decay_steps`
    /// steps.
    pub fn new(initial_learning_rate: f64, decay_steps: u32, decay_rate: f64) -> ExponentialDecay {
        ExponentialDecay { initial: initial_learning_rate, decay_steps, decay_rate, staircase: false }
    }

    /// Sets whether the rate changes only at the end of a whole period (default false).
    pub fn staircase(self, staircase: bool) -> ExponentialDecay {
        ExponentialDecay { staircase, ..self }
    }
}

impl Schedule for ExponentialDecay {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        let step = step.cast(DType::F32)?;
        let passed = passed(&step, self.decay_steps, self.staircase)?;
        step.like(self.initial)?.mul(&step.like(self.decay_rate)?.pow(&passed)?)
    }
}

/// Keras's `InverseTimeDecay`: `initial / (1 + decay_rate · step / decay_steps)`.
#[derive(Clone, Debug)]
pub struct InverseTimeDecay {
    initial: f64,
    decay_steps: u32,
    decay_rate: f64,
    staircase: bool,
}

impl InverseTimeDecay {
    /// Creates a schedule that starts with `initial_learning_rate`. After `n · decay_steps` steps, the rate is the initial rate
    /// divided by `1 + n · decay_rate`.
    pub fn new(initial_learning_rate: f64, decay_steps: u32, decay_rate: f64) -> InverseTimeDecay {
        InverseTimeDecay { initial: initial_learning_rate, decay_steps, decay_rate, staircase: false }
    }

    /// Sets whether the rate changes only at the end of a whole period (default false).
    pub fn staircase(self, staircase: bool) -> InverseTimeDecay {
        InverseTimeDecay { staircase, ..self }
    }
}

impl Schedule for InverseTimeDecay {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        let step = step.cast(DType::F32)?;
        let passed = passed(&step, self.decay_steps, self.staircase)?;
        let divisor = step.like(1.0)?.add(&step.like(self.decay_rate)?.mul(&passed)?)?;
        step.like(self.initial)?.div(&divisor)
    }
}

/// Keras's `PolynomialDecay`: `(initial - end) · (1 - step / decay_steps) ^ power + end`, and `end` after `decay_steps` steps.
#[derive(Clone, Debug)]
pub struct PolynomialDecay {
    initial: f64,
    decay_steps: u32,
    end: f64,
    power: f64,
    cycle: bool,
}

impl PolynomialDecay {
    /// Creates a schedule that decays linearly from `initial_learning_rate` to 0.0001.
    pub fn new(initial_learning_rate: f64, decay_steps: u32) -> PolynomialDecay {
        PolynomialDecay { initial: initial_learning_rate, decay_steps, end: 0.0001, power: 1.0, cycle: false }
    }

    /// Sets the final learning rate (default 0.0001).
    pub fn end_learning_rate(self, end: f64) -> PolynomialDecay {
        PolynomialDecay { end, ..self }
    }

    /// Sets the power (default 1).
    pub fn power(self, power: f64) -> PolynomialDecay {
        PolynomialDecay { power, ..self }
    }

    /// Sets whether the decay restarts after every `decay_steps` steps (default false). After `n` restarts, the polynomial extends
    /// over `(n + 1) · decay_steps` steps instead of `decay_steps`, and the rate continues from its value there.
    pub fn cycle(self, cycle: bool) -> PolynomialDecay {
        PolynomialDecay { cycle, ..self }
    }
}

impl Schedule for PolynomialDecay {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        let step = step.cast(DType::F32)?;
        let (steps, one) = (period("decay_steps", self.decay_steps, &step)?, step.like(1.0)?);
        let passed = if self.cycle {
            // At step 0, `ceil` returns 0, but the step belongs to the first period.
            let periods = step.div(&steps)?.ceil()?.maximum(&one)?;
            step.div(&steps.mul(&periods)?)?
        } else {
            step.minimum(&steps)?.div(&steps)?
        };
        let (initial, end) = (step.like(self.initial)?, step.like(self.end)?);
        let left = one.sub(&passed)?.pow(&step.like(self.power)?)?;
        initial.sub(&end)?.mul(&left)?.add(&end)
    }
}

/// Keras's `PiecewiseConstantDecay`: a constant rate up to and including each boundary, and another after the last boundary.
#[derive(Clone, Debug)]
pub struct PiecewiseConstantDecay {
    boundaries: Vec<i64>,
    values: Vec<f64>,
}

impl PiecewiseConstantDecay {
    /// Creates a schedule with these boundaries, in increasing order. There must be one more value than boundaries.
    pub fn new(boundaries: &[i64], values: &[f64]) -> PiecewiseConstantDecay {
        PiecewiseConstantDecay { boundaries: boundaries.into(), values: values.into() }
    }
}

impl Schedule for PiecewiseConstantDecay {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        let (boundaries, values) = (self.boundaries.len(), self.values.len());
        let Some((&first, later)) = self.values.split_first().filter(|_| values == boundaries + 1) else {
            return Err(Error::message(format!("there must be {} values, one more than boundaries, not {values}", boundaries + 1)));
        };
        if !self.boundaries.is_sorted() {
            return Err(Error::message(format!("the boundaries {:?} are not in increasing order", self.boundaries)));
        }
        let device = step.device()?;
        let mut rate = Tensor::scalar(&device, first as f32);
        for (&boundary, &value) in self.boundaries.iter().zip(later) {
            let over = step.greater(&Tensor::scalar(&device, boundary))?;
            rate = over.select(&Tensor::scalar(&device, value as f32), &rate)?;
        }
        Ok(rate)
    }
}

/// Returns `(1 + cos(π · completed)) / 2`. It falls from 1 to 0 while `completed`, the completed fraction of a decay, rises from 0 to 1.
fn half_cosine(completed: &Tensor) -> Result<Tensor> {
    let angle = completed.mul_scalar(core::f64::consts::PI)?;
    angle.cos()?.add_scalar(1.0)?.mul_scalar(0.5)
}

/// Maps `decayed`, from 0 to 1, to the range from `alpha` to 1: returns `(1 - alpha) · decayed + alpha`.
fn no_less(decayed: &Tensor, alpha: f64) -> Result<Tensor> {
    decayed.mul_scalar(1.0 - alpha)?.add_scalar(alpha)
}

/// Keras's `CosineDecay` (Loshchilov and Hutter, arXiv:1608.03983), with an optional linear warm-up.
///
/// ```
/// use gradlet_core::optimizers::schedules::{CosineDecay, Schedule};
/// use gradlet_core::{Tensor, ops};
/// let schedule = CosineDecay::new(0.0, 100).warmup(0.5, 10);
/// let rate = |step: i64| schedule.rate(&Tensor::scalar(&ops::portable_cpu(), step))?.item::<f32>();
/// assert_eq!([rate(0)?, rate(5)?, rate(10)?, rate(110)?], [0.0, 0.25, 0.5, 0.0]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct CosineDecay {
    initial: f64,
    decay_steps: u32,
    alpha: f64,
    warmup: Option<(f64, u32)>,
}

impl CosineDecay {
    /// Creates a schedule that decays from `initial_learning_rate` to 0 in `decay_steps` steps.
    pub fn new(initial_learning_rate: f64, decay_steps: u32) -> CosineDecay {
        CosineDecay { initial: initial_learning_rate, decay_steps, alpha: 0.0, warmup: None }
    }

    /// Sets the final learning rate, as a fraction of the rate at which the decay begins (default 0).
    pub fn alpha(self, alpha: f64) -> CosineDecay {
        CosineDecay { alpha, ..self }
    }

    /// Adds a warm-up before the decay. The rate rises linearly to `target` in `steps` steps, and decays from there.
    pub fn warmup(self, target: f64, steps: u32) -> CosineDecay {
        CosineDecay { warmup: Some((target, steps)), ..self }
    }

    /// Returns the rate `step` steps after the beginning of the decay, which begins at the rate `peak`.
    fn decayed(&self, step: &Tensor, peak: f64) -> Result<Tensor> {
        let steps = period("decay_steps", self.decay_steps, step)?;
        let completed = step.minimum(&steps)?.div(&steps)?;
        no_less(&half_cosine(&completed)?, self.alpha)?.mul_scalar(peak)
    }
}

impl Schedule for CosineDecay {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        let step = step.cast(DType::F32)?;
        let Some((target, steps)) = self.warmup.filter(|&(_, steps)| steps > 0) else {
            return self.decayed(&step, self.warmup.map_or(self.initial, |(target, _)| target));
        };
        let (initial, steps) = (step.like(self.initial)?, step.like(f64::from(steps))?);
        let rise = step.like(target)?.sub(&initial)?;
        let warming = rise.mul(&step.div(&steps)?)?.add(&initial)?;
        step.less(&steps)?.select(&warming, &self.decayed(&step.sub(&steps)?, target)?)
    }
}

/// Keras's `CosineDecayRestarts`: repeated cosine decays. Each is `t_mul` times as long as the one before, and begins at `m_mul`
/// times its rate.
#[derive(Clone, Debug)]
pub struct CosineDecayRestarts {
    initial: f64,
    first_decay_steps: u32,
    t_mul: f64,
    m_mul: f64,
    alpha: f64,
}

impl CosineDecayRestarts {
    /// Creates a schedule that decays from `initial_learning_rate` to 0 in `first_decay_steps` steps. Each following decay takes
    /// twice as many steps.
    pub fn new(initial_learning_rate: f64, first_decay_steps: u32) -> CosineDecayRestarts {
        CosineDecayRestarts { initial: initial_learning_rate, first_decay_steps, t_mul: 2.0, m_mul: 1.0, alpha: 0.0 }
    }

    /// Sets the ratio of each decay's length to the length of the one before (default 2).
    pub fn t_mul(self, t_mul: f64) -> CosineDecayRestarts {
        CosineDecayRestarts { t_mul, ..self }
    }

    /// Sets the ratio of each decay's initial rate to the initial rate of the one before (default 1).
    pub fn m_mul(self, m_mul: f64) -> CosineDecayRestarts {
        CosineDecayRestarts { m_mul, ..self }
    }

    /// Sets the lowest learning rate, as a fraction of the initial one (default 0).
    pub fn alpha(self, alpha: f64) -> CosineDecayRestarts {
        CosineDecayRestarts { alpha, ..self }
    }

    /// Returns the number of completed decays, and the completed fraction of the current one. `completed` is the number of steps
    /// divided by the length of the first decay.
    fn restarts(&self, completed: &Tensor) -> Result<(Tensor, Tensor)> {
        if self.t_mul == 1.0 {
            let restarts = completed.floor()?;
            let fraction = completed.sub(&restarts)?;
            return Ok((restarts, fraction));
        }
        let (one, t_mul) = (completed.like(1.0)?, completed.like(self.t_mul)?);
        let shrink = one.sub(&t_mul)?;
        let restarts = one.sub(&completed.mul(&shrink)?)?.log()?.div(&t_mul.log()?)?.floor()?;
        let length = t_mul.pow(&restarts)?;
        let before = one.sub(&length)?.div(&shrink)?;
        let fraction = completed.sub(&before)?.div(&length)?;
        Ok((restarts, fraction))
    }
}

impl Schedule for CosineDecayRestarts {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        let step = step.cast(DType::F32)?;
        let completed = step.div(&period("first_decay_steps", self.first_decay_steps, &step)?)?;
        let (restarts, fraction) = self.restarts(&completed)?;
        let scale = step.like(self.m_mul)?.pow(&restarts)?;
        no_less(&half_cosine(&fraction)?.mul(&scale)?, self.alpha)?.mul_scalar(self.initial)
    }
}
