//! Stages that group elements by a key.

use super::pad::{Pad, PaddedBatch};
use super::{Cardinality, Dataset, Elements, Stage};
use gradlet_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

type Key<T> = dyn Fn(&T) -> Result<i64> + Send + Sync;
type Reduce<T, U> = dyn Fn(i64, Dataset<T>) -> Result<Dataset<U>> + Send + Sync;
type Size = dyn Fn(i64) -> usize + Send + Sync;

/// Iterator of [`Dataset::group_by_window`].
struct Groups<T, U> {
    from: Elements<T>,
    stage: Stage,
    index: u64,
    key: Arc<Key<T>>,
    reduce: Arc<Reduce<T, U>>,
    size: Arc<Size>,
    groups: BTreeMap<i64, Vec<T>>,
    /// Elements, not returned yet, of the dataset into which `reduce` converted the last group.
    given: Option<Elements<U>>,
}

impl<T: Clone + Send + Sync + 'static, U: Send + 'static> Groups<T, U> {
    /// Returns the next full group. At the end of the input, returns the incomplete groups one by one, then `None`.
    fn group(&mut self) -> Result<Option<(i64, Vec<T>)>> {
        for element in self.from.by_ref() {
            let (element, index) = (element?, self.index);
            self.index += 1;
            let key = (self.key)(&element).map_err(|error| self.stage.at(index, error))?;
            let size = (self.size)(key);
            if size == 0 {
                return Err(self.stage.at(index, Error::message("Window size must be greater than zero, but got 0.")));
            }
            let group = self.groups.entry(key).or_default();
            group.push(element);
            if group.len() >= size {
                return Ok(self.groups.remove_entry(&key));
            }
        }
        Ok(self.groups.pop_first())
    }

    fn reduced(&mut self) -> Result<bool> {
        let Some((key, group)) = self.group()? else { return Ok(false) };
        let reduced = (self.reduce)(key, group.into_iter().collect()).and_then(|reduced| reduced.start());
        self.given = Some(reduced.map_err(|error| error.context(format!("{}, key {key}", self.stage)))?);
        Ok(true)
    }
}

impl<T: Clone + Send + Sync + 'static, U: Send + 'static> Iterator for Groups<T, U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        loop {
            if let Some(element) = self.given.as_mut().and_then(Iterator::next) {
                return Some(element);
            }
            self.given = None;
            match self.reduced() {
                Ok(true) => {}
                Ok(false) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl<T: Clone + Send + Sync + 'static> Dataset<T> {
    /// Collects elements with the same `key` into groups of `size(key)` elements. `reduce` converts each full group into a dataset, whose
    /// elements are the result. At the end of the input, the incomplete groups are reduced too, in ascending order of their keys.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let even_odd = Dataset::range(0..10).group_by_window(|x| Ok(x % 2), |_, group| Ok(group.batch(5)), |_| 5);
    /// let rows: Vec<_> = even_odd.iter().map(|row| row?.to_vec::<i64>()).collect::<Result<_, _>>()?;
    /// assert_eq!(rows, [[0, 2, 4, 6, 8], [1, 3, 5, 7, 9]]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn group_by_window<U: Send + 'static>(
        &self,
        key: impl Fn(&T) -> Result<i64> + Send + Sync + 'static,
        reduce: impl Fn(i64, Dataset<T>) -> Result<Dataset<U>> + Send + Sync + 'static,
        size: impl Fn(i64) -> usize + Send + Sync + 'static,
    ) -> Dataset<U> {
        self.group_as("group_by_window", Arc::new(key), Arc::new(reduce), Arc::new(size))
    }

    fn group_as<U: Send + 'static>(&self, name: &'static str, key: Arc<Key<T>>, reduce: Arc<Reduce<T, U>>, size: Arc<Size>) -> Dataset<U> {
        let pass = move |from: Elements<T>, stage: Stage| {
            let (key, reduce, size) = (key.clone(), reduce.clone(), size.clone());
            Box::new(Groups { from, stage, index: 0, key, reduce, size, groups: BTreeMap::new(), given: None }) as Elements<U>
        };
        self.stage(name, pass).with_cardinality(Cardinality::Unknown).with_any_spec(None)
    }

    /// Groups elements of similar length into padded batches: see [`Buckets`].
    ///
    /// Fails unless there is exactly one batch size more than there are boundaries. An error takes the place of a batch if its elements
    /// differ in a dimension that is not padded.
    pub fn bucket_by_sequence_length(
        &self,
        length: impl Fn(&T) -> Result<u64> + Send + Sync + 'static,
        buckets: Buckets,
    ) -> Dataset<T::Batched>
    where
        T: Pad,
    {
        let Buckets { boundaries, batch_sizes, padding, pad_to_bucket_boundary, no_padding, drop_remainder } = buckets;
        let check = match batch_sizes.len() == boundaries.len() + 1 {
            true if batch_sizes.contains(&0) => Err(Error::message("Batch size must be greater than zero.")),
            true => Ok(()),
            false => Err(Error::message(format!(
                "`len(bucket_batch_sizes)` must equal `len(bucket_boundaries) + 1` but \
                 `len(bucket_batch_sizes)={}` and `len(bucket_boundaries)={}`.",
                batch_sizes.len(),
                boundaries.len()
            ))),
        };
        let (bounds, sizes) = (boundaries.clone(), batch_sizes.clone());
        let key = move |element: &T| {
            let length = length(element)?;
            Ok(bounds.partition_point(|&boundary| boundary <= length) as i64)
        };
        let spec = self.element_spec().map(|spec| spec.each(&mut |dims| vec![None; dims.len()]).batched(None));
        let inner = self.element_spec().cloned();
        let reduce = move |bucket: i64, group: Dataset<T>| {
            let size = batch_sizes[bucket as usize];
            let group = group.with_any_spec(inner.clone());
            if no_padding {
                return Ok(if drop_remainder { group.batch_drop_remainder(size) } else { group.batch(size) });
            }
            let mut padding = padding.clone().batch_size(size).drop_remainder(drop_remainder);
            if pad_to_bucket_boundary {
                let boundary = boundaries.get(bucket as usize).ok_or_else(|| {
                    Error::message(
                        "When pad_to_bucket_boundary=True, elements must have length < max(bucket_boundaries): some are too long",
                    )
                })?;
                padding = padding.open_dims(boundary.saturating_sub(1) as u32);
            }
            Ok(group.padded_batch(padding))
        };
        let size = move |bucket: i64| sizes[bucket as usize];
        let batches = self.group_as("bucket_by_sequence_length", Arc::new(key), Arc::new(reduce), Arc::new(size));
        batches.with_any_spec(spec).checked(check)
    }
}

/// Arguments of [`Dataset::bucket_by_sequence_length`].
///
/// ```
/// use gradlet::data::{Buckets, Dataset};
/// use gradlet::Tensor;
/// let cpu = gradlet::cpu();
/// let rows = Dataset::range(1..6).map(move |x| Tensor::full(&cpu, x, &[x as u32]));
/// // Up to 3 long: 2 at a time. From 4 on: 1 at a time.
/// let batches = rows.bucket_by_sequence_length(|row| Ok(row.dims()[0].into()), Buckets::new(&[4], &[2, 1]));
/// let shapes: Vec<_> = batches.iter().map(|batch| Ok(batch?.dims().to_vec())).collect::<gradlet::Result<_>>()?;
/// assert_eq!(shapes, [[2, 2], [1, 4], [1, 5], [1, 3]]);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Buckets {
    boundaries: Vec<u64>,
    batch_sizes: Vec<usize>,
    padding: PaddedBatch,
    pad_to_bucket_boundary: bool,
    no_padding: bool,
    drop_remainder: bool,
}

impl Buckets {
    /// Creates buckets from their exclusive upper bounds and the batch size of each bucket. `batch_sizes` has one more entry, for elements
    /// that are longer than all boundaries.
    pub fn new(boundaries: &[u64], batch_sizes: &[usize]) -> Buckets {
        Buckets {
            boundaries: boundaries.into(),
            batch_sizes: batch_sizes.into(),
            padding: PaddedBatch::new(1),
            pad_to_bucket_boundary: false,
            no_padding: false,
            drop_remainder: false,
        }
    }

    /// Sets the shapes and values of the padding. The batch size of `padding` is ignored.
    pub fn padding(self, padding: PaddedBatch) -> Buckets {
        Buckets { padding, ..self }
    }

    /// If true, batches are padded to the upper bound of their bucket minus one, instead of to their longest element.
    pub fn pad_to_bucket_boundary(self, pad: bool) -> Buckets {
        Buckets { pad_to_bucket_boundary: pad, ..self }
    }

    /// If true, nothing is padded. All elements of a bucket must then have the same shape.
    pub fn no_padding(self, no_padding: bool) -> Buckets {
        Buckets { no_padding, ..self }
    }

    /// If true, incomplete batches at the end are dropped.
    pub fn drop_remainder(self, drop_remainder: bool) -> Buckets {
        Buckets { drop_remainder, ..self }
    }
}
