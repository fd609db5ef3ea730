//! Optimizers: Keras's, with its defaults. Their state is in variables, so a traced step updates it, and an exported one
//! does on the device.

use crate::error::Result;
use crate::layers::Module;
use crate::ops::adam_step;
use crate::scope::Scope;
use crate::sync::{Lock, ThreadSafe};
use crate::tensor::Tensor;
use crate::variable::Variable;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// An optimizer.
pub trait Optimizer: Module + ThreadSafe {
    /// Changes each variable by its gradient; those whose gradient is `None` stay as they are.
    ///
    /// Optimizer state is created on the first call, which in a traced function must be in its first trace.
    fn apply_gradients(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Tensor>)]) -> Result<()>;
}

/// What every optimizer has: a learning rate, and a count of its steps.
struct Common {
    initial_rate: f32,
    learning_rate: Variable,
    iterations: Variable,
}

impl Common {
    fn new(learning_rate: f32) -> Common {
        Common {
            initial_rate: learning_rate,
            learning_rate: Variable::untrained("learning_rate"),
            iterations: Variable::untrained("iteration"),
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        visit("iteration", &self.iterations);
        visit("learning_rate", &self.learning_rate);
    }

    /// The learning rate for a variable: `rate` in its element type.
    fn rate_for(rate: &Tensor, variable: &Variable) -> Result<Tensor> {
        let dtype = variable.tensor_type()?.dtype;
        if rate.dtype() == dtype { Ok(rate.clone()) } else { rate.cast(dtype) }
    }

    /// The learning rate and the number of steps taken; counts this one.
    fn step(&self, scope: &dyn Scope) -> Result<(Tensor, Tensor)> {
        let device = scope.device();
        self.learning_rate.create(scope, &Tensor::scalar(&device, self.initial_rate))?;
        self.iterations.create(scope, &Tensor::scalar(&device, 0i64))?;
        let iterations = scope.read(&self.iterations)?;
        scope.assign(&self.iterations, &iterations.add(&Tensor::scalar(&device, 1i64))?)?;
        Ok((scope.read(&self.learning_rate)?, iterations))
    }
}

/// Keras's `SGD` without momentum: `w -= learning_rate * gradient`.
///
/// ```
/// use gradlet_core::optimizers::{Optimizer, Sgd};
/// use gradlet_core::{Eager, Record, Scope, Tensor, Variable, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 3.0f32))?;
/// let tape = scope.tape();
/// let x = tape.read(&w)?;
/// let gradients = tape.gradient(&x.mul(&x)?, &vec![w.clone()])?;
/// Sgd::new(0.5).apply_gradients(&scope, &gradients)?;
/// assert_eq!(scope.read(&w)?.item::<f32>()?, 0.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub struct Sgd(Common);

impl Sgd {
    /// With this learning rate; Keras's default is 0.01.
    pub fn new(learning_rate: f32) -> Sgd {
        Sgd(Common::new(learning_rate))
    }
}

impl Default for Sgd {
    fn default() -> Sgd {
        Sgd::new(0.01)
    }
}

impl Module for Sgd {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.0.visit(visit);
    }
}

impl Optimizer for Sgd {
    fn apply_gradients(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Tensor>)]) -> Result<()> {
        let (rate, _) = self.0.step(scope)?;
        for (variable, gradient) in gradients {
            let Some(gradient) = gradient else { continue };
            let rate = Common::rate_for(&rate, variable)?;
            scope.assign(variable, &scope.read(variable)?.sgd_step(gradient, &rate)?)?;
        }
        Ok(())
    }
}

/// Keras's `Adam` (Kingma and Ba, 2015).
pub struct Adam {
    common: Common,
    attributes: adam_step::Attributes,
    slots: Lock<Vec<Slots>>,
}

#[derive(Clone)]
struct Slots {
    variable: Variable,
    moments: [Variable; 2],
}

impl Adam {
    /// With this learning rate, and Keras's defaults: beta_1 0.9, beta_2 0.999, epsilon 1e-7.
    pub fn new(learning_rate: f32) -> Adam {
        Adam::with(learning_rate, 0.9, 0.999, 1e-7)
    }

    /// With all of its constants.
    pub fn with(learning_rate: f32, beta_1: f64, beta_2: f64, epsilon: f64) -> Adam {
        let attributes = adam_step::Attributes {
            beta_1: beta_1 as f32,
            beta_2: beta_2 as f32,
            epsilon: epsilon as f32,
            rate_1: (1.0 - beta_1) as f32,
            rate_2: (1.0 - beta_2) as f32,
        };
        Adam { common: Common::new(learning_rate), attributes, slots: Lock::new(Vec::new()) }
    }

    fn slots(&self, scope: &dyn Scope, variable: &Variable) -> Result<Slots> {
        let mut all = self.slots.lock();
        if let Some(slots) = all.iter().find(|slots| slots.variable == *variable) {
            return Ok(slots.clone());
        }
        let zeros = Tensor::zeros(&scope.device(), variable.tensor_type()?)?;
        let slot = |kind: &str| {
            let slot = Variable::untrained(&format!("{}_{kind}", variable.name()));
            slot.create(scope, &zeros).map(|()| slot)
        };
        let slots = Slots { variable: variable.clone(), moments: [slot("momentum")?, slot("velocity")?] };
        all.push(slots.clone());
        Ok(slots)
    }
}

impl Default for Adam {
    fn default() -> Adam {
        Adam::new(0.001)
    }
}

impl Module for Adam {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        self.common.visit(visit);
        let slots = self.slots.lock().clone();
        for (index, slots) in slots.iter().enumerate() {
            let path = |slot: &Variable| -> String { format!("{index}/{}", slot.name()) };
            slots.moments.iter().for_each(|slot| visit(&path(slot), slot));
        }
    }
}

impl Optimizer for Adam {
    fn apply_gradients(&self, scope: &dyn Scope, gradients: &[(Variable, Option<Tensor>)]) -> Result<()> {
        let (rate, iterations) = self.common.step(scope)?;
        for (variable, gradient) in gradients {
            let Some(gradient) = gradient else { continue };
            let [m, v] = self.slots(scope, variable)?.moments;
            let rate = Common::rate_for(&rate, variable)?;
            let inputs = [&scope.read(variable)?, &scope.read(&m)?, &scope.read(&v)?, gradient, &rate, &iterations];
            let words: [u32; 5] = bytemuck::cast(self.attributes);
            let updated = scope.emit(&adam_step::OP, &words, &inputs)?;
            for (variable, value) in [variable, &m, &v].into_iter().zip(&updated) {
                scope.assign(variable, value)?;
            }
        }
        Ok(())
    }
}
