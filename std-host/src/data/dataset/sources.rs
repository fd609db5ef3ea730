//! Datasets without an input dataset: ranges, tensors and iterators.

use super::element::{Element, Slices};
use super::{Cardinality, Dataset, Elements};
use gradlet_core::{DType, Error, Result, TensorSpec};
use std::ops::Range;
use std::sync::Arc;

impl Dataset<i64> {
    /// Creates a dataset of the numbers of a range.
    pub fn range(range: Range<i64>) -> Dataset<i64> {
        Dataset::range_by(range, 1)
    }

    /// Creates a dataset of the numbers `range.start`, `range.start + step` and so on, up to but without `range.end`. A negative step
    /// counts down. Fails for a step of 0.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let numbers: Vec<i64> = Dataset::range_by(5..0, -2).iter().collect::<Result<_, _>>()?;
    /// assert_eq!(numbers, [5, 3, 1]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn range_by(range: Range<i64>, step: i64) -> Dataset<i64> {
        let distance = i128::from(range.end) - i128::from(range.start);
        let count = match i128::from(step) {
            0 => 0,
            step => (distance.signum() * step.signum()).max(0) * (distance.abs() + step.abs() - 1) / step.abs(),
        };
        let spec = TensorSpec::new(DType::I64, &[]).into();
        let numbers =
            move || Ok(Box::new((0..count).map(move |index| Ok((i128::from(range.start) + index * i128::from(step)) as i64))) as _);
        let zero = if step == 0 { Err(Error::message("step must be a non-zero integer.")) } else { Ok(()) };
        Dataset::source("range", Cardinality::Finite(count as u64), Some(spec), numbers).checked(zero)
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Creates a dataset of one element.
    pub fn from_tensors(element: T) -> Dataset<T>
    where
        T: Element + Clone + Sync,
    {
        let spec = element.spec();
        Dataset::source("from_tensors", Cardinality::Finite(1), spec, move || Ok(Box::new(std::iter::once(Ok(element.clone())))))
    }

    /// Creates a dataset of the slices of tensors along their first axis. The elements of a tuple or map of tensors are tuples or maps of
    /// slices.
    ///
    /// Fails if the first dimensions differ, and for scalars.
    ///
    /// ```
    /// use gradlet::{Tensor, data::Dataset};
    /// let cpu = gradlet::cpu();
    /// let years = Tensor::constant(&cpu, [2013, 2014, 2015])?;
    /// let prices = Tensor::constant(&cpu, [12000, 14000, 15000])?;
    /// for element in &Dataset::from_tensor_slices((years, prices)) {
    ///     let (year, price) = element?;
    ///     println!("{} {}", year.item::<i32>()?, price.item::<i32>()?);
    /// }
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn from_tensor_slices<S: Slices<Slice = T>>(tensors: S) -> Dataset<T> {
        let length = tensors.length();
        let (count, check) = match length {
            Ok(count) => (count, Ok(())),
            Err(error) => (0, Err(error)),
        };
        let spec = tensors.spec().and_then(|spec| spec.unbatched().ok());
        let tensors = Arc::new(tensors);
        let start = move || {
            let tensors = tensors.clone();
            Ok(Box::new((0..count).map(move |index| tensors.slice(index))) as Elements<T>)
        };
        Dataset::source("from_tensor_slices", Cardinality::Finite(count as u64), spec, start).checked(check)
    }

    /// Creates a dataset from iterators. `generator` creates a new one for each pass.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let words = Dataset::from_generator(|| ["to", "be"].into_iter());
    /// assert_eq!(words.iter().count(), 2);
    /// ```
    pub fn from_generator<I>(generator: impl Fn() -> I + Send + Sync + 'static) -> Dataset<T>
    where
        I: IntoIterator<Item = T>,
        I::IntoIter: Send + 'static,
    {
        Dataset::from_fn("from_generator", move || Ok(generator().into_iter().map(Ok)))
    }

    /// Creates a dataset from iterators whose items are results. `start` creates a new one for each pass, and may fail. `name` is the name
    /// of the stage in error messages.
    pub fn from_fn<I>(name: &'static str, start: impl Fn() -> Result<I> + Send + Sync + 'static) -> Dataset<T>
    where
        I: Iterator<Item = Result<T>> + Send + 'static,
    {
        Dataset::source(name, Cardinality::Unknown, None, move || Ok(Box::new(start()?)))
    }
}

/// Creates a dataset of elements in memory.
impl<T: Clone + Send + Sync + 'static> FromIterator<T> for Dataset<T> {
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Dataset<T> {
        let elements: Arc<[T]> = elements.into_iter().collect();
        let count = elements.len();
        let start = move || {
            let elements = elements.clone();
            Ok(Box::new((0..count).map(move |index| Ok(elements[index].clone()))) as Elements<T>)
        };
        Dataset::source("from_iter", Cardinality::Finite(count as u64), None, start)
    }
}
