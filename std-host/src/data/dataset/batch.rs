//! Stages that combine elements into batches, and stages that split elements.

use super::element::{Batch, Slices};
use super::map::Map;
use super::{Cardinality, Dataset, ElementSpec, Elements, Parallel, Stage};
use gradlet_core::{Error, Result};
use std::sync::Arc;

/// Iterator over groups of consecutive elements. `sizes` returns the size of each group.
struct Groups<T> {
    from: Elements<T>,
    sizes: Box<dyn Iterator<Item = usize> + Send>,
    drop_remainder: bool,
    /// Number of elements to skip before the next one.
    skip: usize,
}

impl<T> Groups<T> {
    fn group(&mut self, size: usize) -> Option<Result<Vec<T>>> {
        // The capacity is limited, so a size larger than the data costs no memory.
        let mut group = Vec::with_capacity(size.min(1 << 12));
        while group.len() < size {
            match self.from.nth(std::mem::take(&mut self.skip)) {
                Some(Ok(element)) => group.push(element),
                Some(Err(error)) => return Some(Err(error)),
                None if self.drop_remainder => return None,
                None => break,
            }
        }
        (!group.is_empty()).then_some(Ok(group))
    }
}

impl<T> Iterator for Groups<T> {
    type Item = Result<Vec<T>>;

    fn next(&mut self) -> Option<Result<Vec<T>>> {
        let size = self.sizes.next()?;
        self.group(size)
    }

    fn nth(&mut self, skip: usize) -> Option<Result<Vec<T>>> {
        let skipped: usize = self.sizes.by_ref().take(skip).sum();
        self.skip = self.skip.saturating_add(skipped);
        self.next()
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Groups consecutive elements. The sizes of the groups cycle through `sizes`, from its beginning in each pass.
    fn groups(&self, name: &'static str, sizes: Vec<usize>, drop_remainder: bool) -> Dataset<Vec<T>> {
        let check = match sizes.iter().all(|&size| size > 0) && !sizes.is_empty() {
            true => Ok(()),
            false => Err(Error::message("Batch size must be greater than zero.")),
        };
        let start = move |from: Elements<T>, _: Stage| {
            let sizes = Box::new(sizes.clone().into_iter().cycle());
            Box::new(Groups { from, sizes, drop_remainder, skip: 0 }) as Elements<Vec<T>>
        };
        self.stage(name, start).checked(check)
    }

    /// Groups `size` elements at a time, in a stage called `name`. The caller converts each group into one element of that stage.
    pub(super) fn grouped(&self, name: &'static str, size: usize, drop_remainder: bool) -> Dataset<Vec<T>> {
        let count = |all: u64| if drop_remainder { all / size.max(1) as u64 } else { all.div_ceil(size.max(1) as u64) };
        let cardinality = self.cardinality().map(count);
        let spec = self.element_spec().map(|spec| spec.batched(drop_remainder.then_some(size as u32)));
        let groups = self.groups(name, vec![size], drop_remainder);
        groups.with_cardinality(cardinality).with_any_spec(spec)
    }

    /// Combines `batch_size` consecutive elements at a time along a new first axis. The last batch may have fewer elements.
    ///
    /// An error takes the place of a batch if the shapes of its elements differ. A size of 0 is an invalid argument.
    pub fn batch(&self, batch_size: usize) -> Dataset<T::Batched>
    where
        T: Batch,
    {
        let groups = self.grouped("batch", batch_size, false);
        groups.in_place(T::batch)
    }

    /// Combines elements like [`Dataset::batch`], but drops a last batch that has fewer elements. All batches then have the same shape.
    pub fn batch_drop_remainder(&self, batch_size: usize) -> Dataset<T::Batched>
    where
        T: Batch,
    {
        let groups = self.grouped("batch", batch_size, true);
        groups.in_place(T::batch)
    }

    /// Combines elements like [`Dataset::batch`], but computes several batches concurrently.
    pub fn batch_parallel(&self, batch_size: usize, parallel: impl Into<Parallel>) -> Dataset<T::Batched>
    where
        T: Batch,
    {
        let groups = self.grouped("batch", batch_size, false);
        let spec = groups.element_spec().cloned();
        groups.map_parallel(parallel, T::batch).with_any_spec(spec)
    }

    /// Splits each element along its first axis. The slices become the elements.
    pub fn unbatch(&self) -> Dataset<T::Slice>
    where
        T: Slices,
    {
        let (spec, check) = match self.element_spec().map(ElementSpec::unbatched) {
            Some(Ok(spec)) => (Some(spec), Ok(())),
            Some(Err(error)) => (None, Err(error)),
            None => (None, Ok(())),
        };
        let rows = self.element_spec().and_then(ElementSpec::rows);
        let cardinality = match (self.cardinality(), rows) {
            (Cardinality::Finite(count), Some(rows)) => Cardinality::Finite(count * u64::from(rows)),
            (Cardinality::Infinite, Some(1..)) => Cardinality::Infinite,
            _ => Cardinality::Unknown,
        };
        let start = |from: Elements<T>, stage: Stage| {
            let parts = from.enumerate().flat_map(move |(index, element)| {
                let whole = element.and_then(|element| {
                    let length = element.length().map_err(|error| stage.at(index as u64, error))?;
                    Ok((element, length))
                });
                let (parts, error) = match whole {
                    Ok((element, length)) => (Some((0..length).map(move |part| element.slice(part))), None),
                    Err(error) => (None, Some(Err(error))),
                };
                parts.into_iter().flatten().chain(error)
            });
            Box::new(parts) as Elements<T::Slice>
        };
        self.stage("unbatch", start).with_cardinality(cardinality).with_any_spec(spec).checked(check)
    }

    /// Splits the elements along their first axis and combines the slices into batches of other sizes. The sizes cycle through
    /// `batch_sizes`.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let sizes = Dataset::range(0..10).batch(4).rebatch(&[1, 3], false).map(|batch| Ok(batch.dims()[0]));
    /// assert_eq!(sizes.iter().collect::<Result<Vec<u32>, _>>()?, [1, 3, 1, 3, 1, 1]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn rebatch(&self, batch_sizes: &[usize], drop_remainder: bool) -> Dataset<<T::Slice as Batch>::Batched>
    where
        T: Slices,
        T::Slice: Batch,
    {
        let parts = self.unbatch();
        let same = batch_sizes.first().filter(|first| batch_sizes.iter().all(|size| size == *first));
        let size = same.filter(|_| drop_remainder).map(|&size| size as u32);
        let spec = parts.element_spec().map(|spec| spec.batched(size));
        let groups = parts.groups("rebatch", batch_sizes.to_vec(), drop_remainder);
        groups.in_place(T::Slice::batch).with_cardinality(Cardinality::Unknown).with_any_spec(spec)
    }
}

impl<T: Send + 'static> Dataset<Vec<T>> {
    /// Applies `make` to each group within the stage that formed the groups. The stage keeps its name, number and element type.
    pub(super) fn in_place<U: Send + 'static>(self, make: impl Fn(Vec<T>) -> Result<U> + Send + Sync + 'static) -> Dataset<U> {
        let (start, stage, f) = (self.start, self.about.stage, Arc::new(make));
        let start = move || Ok(Box::new(Map { from: start()?, f: f.clone(), stage, index: 0 }) as Elements<U>);
        Dataset { about: self.about, start: Arc::new(start) }
    }
}
