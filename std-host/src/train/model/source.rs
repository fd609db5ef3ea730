//! Where batches come from.

use gradlet_core::random::Stream;
use gradlet_core::{DType, Error, Result, Tensor};
use std::iter::Peekable;
use std::ops::Range;

/// What a step is given: inputs, what they should become, and how much each sample counts. Their first axis is the sample.
#[derive(Clone, Debug)]
pub struct Batch {
    /// The inputs.
    pub x: Tensor,
    /// The targets: labels, or values.
    pub y: Tensor,
    /// A weight for each sample.
    pub sample_weight: Option<Tensor>,
    /// Where each sample stands in the data, if that is known: errors name it.
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
    /// How many samples there are. Fails where there is none, and where the tensors differ in it.
    pub fn samples(&self) -> Result<usize> {
        let types = || {
            let weights = self.sample_weight.as_ref().map_or(String::new(), |weights| format!(", sample_weight {}", weights.tensor_type()));
            format!("x is {}, y {}{weights}", self.x.tensor_type(), self.y.tensor_type())
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

    /// The samples at these indices.
    fn at(&self, indices: &[usize]) -> Result<Batch> {
        let rows: Vec<i64> = indices.iter().map(|&index| index as i64).collect();
        let rows = Tensor::new(&self.x.device()?, &rows, &[rows.len() as u32])?;
        let some = |tensor: &Tensor| tensor.gather(&rows, 0);
        let sample_weight = self.sample_weight.as_ref().map(some).transpose()?;
        Ok(Batch { x: some(&self.x)?, y: some(&self.y)?, sample_weight, samples: Some(indices.to_vec()) })
    }

    /// The batch with the weights that the classes have. Others weigh 1.
    pub(super) fn class_weighted(self, weights: &[(i64, f32)]) -> Result<Batch> {
        if weights.is_empty() {
            return Ok(self);
        }
        if self.sample_weight.is_some() {
            return Err(Error::message("samples and classes cannot both have weights"));
        }
        let labels = match self.y.dims() {
            [_] | [_, 1] => self.y.cast(DType::I64)?.to_vec::<i64>()?,
            [_, _] => self.y.argmax(-1, DType::I64)?.to_vec::<i64>()?,
            _ => return Err(Error::message(format!("class weights need a label for each sample; y is {}", self.y.tensor_type()))),
        };
        let weight = |label| weights.iter().find(|(class, _)| *class == label).map_or(1.0, |(_, weight)| *weight);
        let weights: Vec<f32> = labels.into_iter().map(weight).collect();
        let sample_weight = Tensor::new(&self.x.device()?, &weights, &[weights.len() as u32])?;
        Ok(Batch { sample_weight: Some(sample_weight), ..self })
    }
}

/// How a pass goes through the data.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    /// The samples of a batch, if the caller said.
    pub batch_size: Option<usize>,
    /// What decides the order of the samples, if they are to be shuffled.
    pub shuffle: Option<Stream>,
}

/// The batches of a pass.
pub type Pass<'a> = Peekable<Box<dyn Iterator<Item = Result<Batch>> + 'a>>;

/// Where batches come from: arrays, as `(&x, &y)` or `(&x, &y, &sample_weight)`, or anything else that gives batches.
pub trait Source {
    /// How many batches a pass has, if that is known.
    fn steps(&self, batch_size: Option<usize>) -> Result<Option<usize>>;

    /// A pass through the data.
    fn pass(&self, order: Order) -> Result<Pass<'_>>;

    /// The data without its last part, and that part, which is to be this share of it.
    fn split(&self, share: f64) -> Result<(Arrays, Arrays)> {
        let _ = share;
        Err(Error::message("only arrays can be split: give validation_data in place of validation_split"))
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

/// Samples in memory.
#[derive(Clone, Debug)]
pub struct Arrays {
    all: Batch,
    range: Range<usize>,
}

/// The samples of a batch where nobody says: Keras's number.
pub(super) const BATCH_SIZE: usize = 32;

impl Arrays {
    /// All samples of these tensors. Fails where there is none, and where the tensors do not have the same number of them.
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
                "a validation_split of {share} leaves nothing to train on or nothing to validate of {samples} samples"
            )));
        }
        let middle = self.range.start + first;
        let part = |range| Arrays { all: self.all.clone(), range };
        Ok((part(self.range.start..middle), part(middle..self.range.end)))
    }
}
