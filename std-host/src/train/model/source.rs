//! Sources of batches.

use gradlet_core::random::Stream;
use gradlet_core::{DType, Device, Error, Result, Tensor};
use std::iter::Peekable;
use std::ops::Range;

/// The data of one step: inputs, targets, and optional sample weights. The first axis of each tensor is the sample.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The inputs.
    pub x: Tensor,
    /// The targets: labels, or values.
    pub y: Tensor,
    /// Weight of each sample.
    pub sample_weight: Option<Tensor>,
    /// Index of each sample in the data, if known, for error messages.
    pub samples: Option<Vec<usize>>,
}

impl From<(&Tensor, &Tensor)> for Batch {
    fn from((x, y): (&Tensor, &Tensor)) -> Batch {
        Batch { x: x.clone(), y: y.clone(), sample_weight: None, samples: None }
    }
}

impl From<(&Tensor, &Tensor, &Tensor)> for Batch {
    fn from((x, y, sample_weight): (&Tensor, &Tensor, &Tensor)) -> Batch {
        Batch { sample_weight: Some(sample_weight.clone()), ..(x, y).into() }
    }
}

impl Batch {
    /// Returns the inputs, the targets and the weights on `device`.
    pub(crate) fn on(&self, device: &Device) -> Result<(Tensor, Tensor, Option<Tensor>)> {
        let weights = self.sample_weight.as_ref().map(|weights| weights.to(device)).transpose()?;
        Ok((self.x.to(device)?, self.y.to(device)?, weights))
    }

    /// Returns the number of samples. Fails if there are none, or if the tensors have different numbers of samples.
    pub fn samples(&self) -> Result<usize> {
        let types = || {
            let weights =
                self.sample_weight.as_ref().map_or(String::new(), |weights| format!(", sample_weight is {}", weights.tensor_type()));
            format!("x is {}, y is {}{weights}", self.x.tensor_type(), self.y.tensor_type())
        };
        let count = |tensor: &Tensor| tensor.dims().first().copied();
        let all = [Some(&self.x), Some(&self.y), self.sample_weight.as_ref()];
        match count(&self.x) {
            Some(samples) if all.iter().flatten().any(|tensor| count(tensor) != Some(samples)) => {
                Err(Error::message(format!("the first dimensions must be the same: {}", types())))
            }
            Some(samples @ 1..) => Ok(samples as usize),
            _ => Err(Error::message(format!("there are no samples: {}", types()))),
        }
    }

    /// Returns the samples at these indices.
    fn at(&self, indices: &[usize]) -> Result<Batch> {
        let rows: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
        let rows = Tensor::new(&self.x.device()?, &rows, &[rows.len() as u32])?;
        let some = |tensor: &Tensor| tensor.gather(&rows, 0);
        let sample_weight = self.sample_weight.as_ref().map(some).transpose()?;
        Ok(Batch { x: some(&self.x)?, y: some(&self.y)?, sample_weight, samples: Some(indices.to_vec()) })
    }

    /// Returns the batch with each sample weighted by its class. Classes not listed in `weights` get a weight of 1.
    pub(super) fn class_weighted(self, weights: &[(i64, f32)]) -> Result<Batch> {
        if weights.is_empty() {
            return Ok(self);
        }
        if self.sample_weight.is_some() {
            return Err(Error::message("sample weights and class weights cannot be combined"));
        }
        let labels = match self.y.dims() {
            [_] | [_, 1] => self.y.cast(DType::I64)?.to_vec::<i64>()?,
            [_, _] => self.y.argmax(-1, DType::I64)?.to_vec::<i64>()?,
            _ => return Err(Error::message(format!("class weights need one label for each sample, but y is {}", self.y.tensor_type()))),
        };
        let weight = |label| weights.iter().find(|(class, _)| *class == label).map_or(1.0, |(_, weight)| *weight);
        let weights: Vec<f32> = labels.into_iter().map(weight).collect();
        let sample_weight = Tensor::new(&self.x.device()?, &weights, &[weights.len() as u32])?;
        Ok(Batch { sample_weight: Some(sample_weight), ..self })
    }
}

/// Batch size and order of a pass through the data.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// Number of samples per batch, if the caller set it.
    pub batch_size: Option<usize>,
    /// Random stream that determines the order of the samples, if they are shuffled.
    pub shuffle: Option<Stream>,
}

/// Iterator over the batches of a pass.
pub type Pass<'a> = Peekable<Box<dyn Iterator<Item = Result<Batch>> + 'a>>;

/// A source of batches: arrays, as `(&x, &y)` or `(&x, &y, &sample_weight)`, or any other type that produces batches.
pub trait Source {
    /// Returns the number of batches in a pass, if it is known.
    fn steps(&self, batch_size: Option<usize>) -> Result<Option<usize>>;

    /// Starts a pass through the data.
    fn pass(&self, order: Order) -> Result<Pass<'_>>;

    /// Splits the data into two parts. The second part is the fraction `share` of the samples, from the end.
    fn split(&self, share: f64) -> Result<(Arrays, Arrays)> {
        let _ = share;
        Err(Error::message("only arrays can be split: use validation_data instead of validation_split"))
    }
}

macro_rules! tuples {
    ($($ty:ty),*) => {$(
        impl Source for $ty {
            fn steps(&self, batch_size: Option<usize>) -> Result<Option<usize>> {
                Arrays::new(*self)?.steps(batch_size)
            }
            fn pass(&self, order: Order) -> Result<Pass<'_>> {
                Arrays::new(*self)?.into_pass(order)
            }
            fn split(&self, share: f64) -> Result<(Arrays, Arrays)> {
                Arrays::new(*self)?.split(share)
            }
        }
    )*};
}
tuples!((&Tensor, &Tensor), (&Tensor, &Tensor, &Tensor));

/// A source of samples that are in memory.
#[derive(Clone, Debug)]
pub struct Arrays {
    all: Batch,
    range: Range<usize>,
}

/// Default number of samples per batch, as in Keras.
pub(super) const BATCH_SIZE: usize = 32;

impl Arrays {
    /// Creates a source of all samples of these tensors. Fails if there are none, or if the tensors have different numbers of samples.
    pub fn new(all: impl Into<Batch>) -> Result<Arrays> {
        let all = all.into();
        let range = 0..all.samples()?;
        Ok(Arrays { all, range })
    }

    fn batch_size(batch_size: Option<usize>) -> Result<usize> {
        match batch_size.unwrap_or(BATCH_SIZE) {
            0 => Err(Error::message("batch_size must be at least 1")),
            size => Ok(size),
        }
    }

    pub(super) fn into_pass<'a>(self, order: Order) -> Result<Pass<'a>> {
        let size = Arrays::batch_size(order.batch_size)?;
        let start = self.range.start;
        let indices: Vec<usize> = match order.shuffle {
            Some(stream) => stream.permutation(self.range.len()).into_iter().map(|index| start + index).collect(),
            None => self.range.collect(),
        };
        let batches = (0..indices.len()).step_by(size).map(move |first| self.all.at(&indices[first..indices.len().min(first + size)]));
        Ok((Box::new(batches) as Box<dyn Iterator<Item = Result<Batch>>>).peekable())
    }
}

impl Source for Arrays {
    fn steps(&self, batch_size: Option<usize>) -> Result<Option<usize>> {
        Ok(Some(self.range.len().div_ceil(Arrays::batch_size(batch_size)?)))
    }

    fn pass(&self, order: Order) -> Result<Pass<'_>> {
        self.clone().into_pass(order)
    }

    fn split(&self, share: f64) -> Result<(Arrays, Arrays)> {
        let first = (self.range.len() as f64 * (1.0 - share)).floor() as usize;
        if !(0.0..1.0).contains(&share) || first == 0 || first >= self.range.len() {
            let samples = self.range.len();
            return Err(Error::message(format!(
                "a validation_split of {share} of {samples} samples leaves none for training or none for validation"
            )));
        }
        let middle = self.range.start + first;
        let part = |range| Arrays { all: self.all.clone(), range };
        Ok((part(self.range.start..middle), part(middle..self.range.end)))
    }
}
