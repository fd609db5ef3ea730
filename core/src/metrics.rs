//! Metrics: running results over batches. Their state is in variables, so they work in traced functions too.

use crate::dtype::DType;
use crate::error::Result;
use crate::layers::Module;
use crate::scope::Scope;
use crate::tensor::Tensor;
use crate::variable::Variable;
use alloc::vec::Vec;

/// A metric: updated with each batch, asked for its result at any time.
pub trait Metric: Module {
    /// Takes a batch in.
    fn update_state(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor) -> Result<()>;
    /// The result over all batches since the last reset.
    fn result(&self, scope: &dyn Scope) -> Result<Tensor>;
    /// Forgets all batches.
    fn reset_state(&self, scope: &dyn Scope) -> Result<()>;
}

/// Keras's `SparseCategoricalAccuracy`: how often the largest of `y_pred[…, classes]` (the first, of equal ones) is at the
/// label `y_true[…]`.
///
/// ```
/// use gradlet_core::metrics::{Metric, SparseCategoricalAccuracy};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let accuracy = SparseCategoricalAccuracy::default();
/// let y_pred = Tensor::new(&scope.device(), &[0.1f32, 0.9, 0.8, 0.2], &[2, 2])?;
/// accuracy.update_state(&scope, &Tensor::new(&scope.device(), &[1i32, 1], &[2])?, &y_pred)?;
/// assert_eq!(accuracy.result(&scope)?.item::<f32>()?, 0.5);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub struct SparseCategoricalAccuracy {
    total: Variable,
    count: Variable,
}

impl Default for SparseCategoricalAccuracy {
    fn default() -> Self {
        SparseCategoricalAccuracy { total: Variable::untrained("total"), count: Variable::untrained("count") }
    }
}

impl SparseCategoricalAccuracy {
    fn build(&self, scope: &dyn Scope) -> Result<()> {
        let zero = Tensor::scalar(&scope.device(), 0.0f32);
        self.total.create(scope, &zero)?;
        self.count.create(scope, &zero)
    }
}

impl Module for SparseCategoricalAccuracy {
    fn visit(&self, visit: &mut dyn FnMut(&str, &Variable)) {
        visit("total", &self.total);
        visit("count", &self.count);
    }
}

impl Metric for SparseCategoricalAccuracy {
    fn update_state(&self, scope: &dyn Scope, y_true: &Tensor, y_pred: &Tensor) -> Result<()> {
        self.build(scope)?;
        let best = y_pred.argmax(-1, y_true.dtype())?;
        let mut hits = best.equal(&y_true.reshape(best.dims())?)?.cast(DType::F32)?;
        // A sample that is a sequence counts as one, by the mean over it.
        let inner: Vec<i32> = (1..hits.dims().len() as i32).collect();
        if !inner.is_empty() {
            hits = hits.mean(&inner, false)?;
        }
        let samples = Tensor::scalar(&scope.device(), hits.shape().elements().unwrap_or(0) as f32);
        scope.assign(&self.total, &scope.read(&self.total)?.add(&hits.sum(&[], false)?)?)?;
        scope.assign(&self.count, &scope.read(&self.count)?.add(&samples)?)
    }

    /// The share of hits; 0 before the first batch.
    fn result(&self, scope: &dyn Scope) -> Result<Tensor> {
        self.build(scope)?;
        let (total, count) = (scope.read(&self.total)?, scope.read(&self.count)?);
        let empty = count.equal(&Tensor::scalar(&scope.device(), 0.0f32))?.cast(DType::F32)?;
        total.div(&count.add(&empty)?)
    }

    fn reset_state(&self, scope: &dyn Scope) -> Result<()> {
        self.build(scope)?;
        let zero = Tensor::scalar(&scope.device(), 0.0f32);
        scope.assign(&self.total, &zero)?;
        scope.assign(&self.count, &zero)
    }
}
