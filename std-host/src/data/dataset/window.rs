//! Windows of elements, each of them a dataset.

use super::{Dataset, ElementSpec, Elements, Stage};
use gradlet_core::{Error, Result};
use std::collections::VecDeque;

/// Iterator of [`Dataset::window`].
struct Windows<T> {
    from: Elements<T>,
    size: usize,
    shift: usize,
    stride: usize,
    drop_remainder: bool,
    /// Elements that were read and are still needed.
    ahead: VecDeque<T>,
    /// Number of elements to skip before the next window.
    gap: usize,
}

impl<T: Clone + Send + Sync + 'static> Iterator for Windows<T> {
    type Item = Result<Dataset<T>>;

    fn next(&mut self) -> Option<Result<Dataset<T>>> {
        let span = (self.size - 1).saturating_mul(self.stride).saturating_add(1);
        while self.ahead.len() < span {
            match self.from.nth(std::mem::take(&mut self.gap)) {
                Some(Ok(element)) => self.ahead.push_back(element),
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        if self.ahead.is_empty() || self.drop_remainder && self.ahead.len() < span {
            return None;
        }
        let window: Dataset<T> = self.ahead.iter().step_by(self.stride).take(self.size).cloned().collect();
        let passed = self.shift.min(self.ahead.len());
        self.ahead.drain(..passed);
        self.gap = self.shift - passed;
        Some(Ok(window))
    }
}

impl<T: Clone + Send + Sync + 'static> Dataset<T> {
    /// Groups elements into windows of `size` elements. Each window is a dataset. `shift` is the distance between the starts of consecutive
    /// windows, and `size` by default. `stride` is the distance between consecutive elements of a window. If `drop_remainder` is true,
    /// incomplete windows at the end are dropped.
    ///
    /// If the elements are tuples, the elements of a window are tuples too. TensorFlow returns a tuple of windows instead.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let sums = Dataset::range(0..5).window(3, Some(1), 1, true).map(|window| window.reduce(0, |sum, x| Ok(sum + x)));
    /// assert_eq!(sums.iter().collect::<Result<Vec<i64>, _>>()?, [3, 6, 9]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn window(&self, size: usize, shift: Option<usize>, stride: usize, drop_remainder: bool) -> Dataset<Dataset<T>> {
        let shift = shift.unwrap_or(size);
        let named = [("size", size), ("shift", shift), ("stride", stride)];
        let check = match named.iter().find(|(_, value)| *value == 0) {
            Some((name, _)) => Err(Error::message(format!("Window {name} must be greater than zero."))),
            None => Ok(()),
        };
        let span = (size.max(1) as u64 - 1).saturating_mul(stride as u64).saturating_add(1);
        let cardinality = self.cardinality().map(|all| match drop_remainder {
            true => all.checked_sub(span).map_or(0, |rest| rest / shift.max(1) as u64 + 1),
            false => all.div_ceil(shift.max(1) as u64),
        });
        let spec = self.element_spec().map(|spec| ElementSpec::Dataset(spec.clone().into()));
        let inner = self.element_spec().cloned();
        let pass = move |from: Elements<T>, _: Stage| {
            let inner = inner.clone();
            let windows = Windows { from, size, shift, stride, drop_remainder, ahead: VecDeque::new(), gap: 0 };
            Box::new(windows.map(move |window| Ok(window?.with_any_spec(inner.clone())))) as Elements<Dataset<T>>
        };
        self.stage("window", pass).with_cardinality(cardinality).with_any_spec(spec).checked(check)
    }
}
