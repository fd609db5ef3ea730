//! Datasets as sources of batches for `fit`, `evaluate` and `predict`.

use super::source::{Arrays, BATCH_SIZE, Batch, Order, Pass, Source};
use crate::data::dataset::{Cardinality, Dataset};
use gradlet_core::{Error, Result, Tensor};

impl From<(Tensor, Tensor)> for Batch {
    fn from((x, y): (Tensor, Tensor)) -> Batch {
        Batch { x, y, sample_weight: None, samples: None }
    }
}

impl From<(Tensor, Tensor, Tensor)> for Batch {
    fn from((x, y, sample_weight): (Tensor, Tensor, Tensor)) -> Batch {
        Batch { x, y, sample_weight: Some(sample_weight), samples: None }
    }
}

/// A dataset whose elements are batches of inputs and targets, optionally with sample weights. The dataset determines the order of
/// the batches; see [`Dataset::shuffle`](crate::data::dataset::Dataset::shuffle).
///
/// ```
/// use gradlet::data::{AUTOTUNE, Dataset};
/// use gradlet::layers::Dense;
/// use gradlet::losses::MeanSquaredError;
/// use gradlet::train::{Compile, Evaluate, Fit, Model};
/// use gradlet::optimizers::Sgd;
/// use gradlet::{Eager, Tensor};
/// let cpu = gradlet::cpu();
/// let line = Dataset::range(0..64).map(|x| Ok(x as f32 / 64.0)).map(move |x| {
///     Ok((Tensor::constant(&cpu, [x])?, Tensor::constant(&cpu, [2.0 * x + 1.0])?))
/// });
/// let mut model = Model::new(&Eager::with_seed(&gradlet::cpu(), 1), Dense::new(1));
/// model.compile(Compile::new(Sgd::new(0.2), MeanSquaredError::default()))?;
/// let batches = line.shuffle(64).batch(8).prefetch(AUTOTUNE);
/// model.fit(&batches, Fit::new().epochs(30))?;
/// assert!(model.evaluate(&batches, Evaluate::new())?.get("loss") < Some(1e-2));
/// assert_eq!(model.predict(&batches)?.dims(), [64, 1]);
/// # Ok::<(), gradlet::Error>(())
/// ```
impl<B: Into<Batch> + Send + 'static> Source for Dataset<B> {
    fn steps(&self, batch_size: Option<usize>) -> Result<Option<usize>> {
        if let Some(size) = batch_size {
            let text = format!("a dataset already produces batches: omit batch_size({size}), and call batch({size}) on the dataset");
            return Err(Error::message(text));
        }
        Ok(match self.cardinality() {
            Cardinality::Finite(count) => usize::try_from(count).ok(),
            _ => None,
        })
    }

    fn pass(&self, order: Order) -> Result<Pass<'_>> {
        self.steps(order.batch_size)?;
        self.check()?;
        Ok((Box::new(self.iter().map(|batch| Ok(batch?.into()))) as Box<dyn Iterator<Item = Result<Batch>>>).peekable())
    }
}

impl<S: Source> Source for &S {
    fn steps(&self, batch_size: Option<usize>) -> Result<Option<usize>> {
        (**self).steps(batch_size)
    }

    fn pass(&self, order: Order) -> Result<Pass<'_>> {
        (**self).pass(order)
    }

    fn split(&self, share: f64) -> Result<(Arrays, Arrays)> {
        (**self).split(share)
    }
}

/// Inputs of [`Model::predict`](super::Model::predict): a tensor of samples, a dataset of batches of samples, or a dataset of
/// batches of inputs and targets. The targets are ignored.
pub trait Inputs {
    /// Returns the samples, in batches.
    fn inputs(&self) -> Result<Box<dyn Iterator<Item = Result<Tensor>> + '_>>;
}

impl Inputs for &Tensor {
    fn inputs(&self) -> Result<Box<dyn Iterator<Item = Result<Tensor>> + '_>> {
        batches_of(self, BATCH_SIZE)
    }
}

/// Divides the samples of a tensor into batches of `batch_size`.
pub(super) fn batches_of(x: &Tensor, batch_size: usize) -> Result<Box<dyn Iterator<Item = Result<Tensor>> + '_>> {
    let batches = Arrays::new((x, x))?.into_pass(Order { batch_size: Some(batch_size), shuffle: None })?;
    Ok(Box::new(batches.map(|batch| Ok(batch?.x))))
}

impl Inputs for &Dataset<Tensor> {
    fn inputs(&self) -> Result<Box<dyn Iterator<Item = Result<Tensor>> + '_>> {
        Ok(Box::new(self.iter()))
    }
}

impl Inputs for &Dataset<(Tensor, Tensor)> {
    fn inputs(&self) -> Result<Box<dyn Iterator<Item = Result<Tensor>> + '_>> {
        Ok(Box::new(self.iter().map(|batch| Ok(batch?.0))))
    }
}
