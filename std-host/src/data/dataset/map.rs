//! Stages that call a function for each element.

use super::{Cardinality, Dataset, ElementSpec, Elements, Stage};
use gradlet_core::{DType, Result, TensorSpec};
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Iterator of [`Dataset::map`]. It does not compute skipped elements.
pub(super) struct Map<T, F> {
    pub(super) from: Elements<T>,
    pub(super) f: Arc<F>,
    pub(super) stage: Stage,
    pub(super) index: u64,
}

impl<T, U, F: Fn(T) -> Result<U>> Map<T, F> {
    fn call(&mut self, element: Result<T>) -> Result<U> {
        let index = self.index;
        self.index += 1;
        element.and_then(|element| (self.f)(element).map_err(|error| self.stage.at(index, error)))
    }
}

impl<T, U, F: Fn(T) -> Result<U>> Iterator for Map<T, F> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        let element = self.from.next()?;
        Some(self.call(element))
    }

    fn nth(&mut self, skip: usize) -> Option<Result<U>> {
        let element = self.from.nth(skip)?;
        self.index += skip as u64;
        Some(self.call(element))
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Applies a function to each element.
    pub fn map<U: Send + 'static>(&self, f: impl Fn(T) -> Result<U> + Send + Sync + 'static) -> Dataset<U> {
        self.map_as("map", f)
    }

    /// Applies a function to each element, like [`Dataset::map`], in a stage with another name.
    pub(super) fn map_as<U: Send + 'static>(&self, name: &'static str, f: impl Fn(T) -> Result<U> + Send + Sync + 'static) -> Dataset<U> {
        let f = Arc::new(f);
        self.stage(name, move |from, stage| Box::new(Map { from, f: f.clone(), stage, index: 0 })).with_any_spec(None)
    }

    /// Keeps the elements for which `predicate` returns true.
    pub fn filter(&self, predicate: impl Fn(&T) -> Result<bool> + Send + Sync + 'static) -> Dataset<T> {
        self.select("filter", predicate, |_| true)
    }

    /// Returns the elements before the first one for which `predicate` returns false.
    pub fn take_while(&self, predicate: impl Fn(&T) -> Result<bool> + Send + Sync + 'static) -> Dataset<T> {
        self.select("take_while", predicate, |wanted| wanted)
    }

    /// Keeps the elements for which `predicate` returns true. `goes_on` receives the result of `predicate`. The stage ends at the first
    /// element for which `goes_on` returns false.
    fn select(
        &self,
        name: &'static str,
        predicate: impl Fn(&T) -> Result<bool> + Send + Sync + 'static,
        goes_on: fn(bool) -> bool,
    ) -> Dataset<T> {
        let predicate = Arc::new(predicate);
        let start = move |from: Elements<T>, stage: Stage| {
            let predicate = predicate.clone();
            let judged = from.enumerate().map(move |(index, element)| {
                let element = element?;
                match predicate(&element) {
                    Ok(wanted) => Ok((wanted, element)),
                    Err(error) => Err(stage.at(index as u64, error)),
                }
            });
            let judged = judged.take_while(move |judged| judged.as_ref().map_or(true, |(wanted, _)| goes_on(*wanted)));
            Box::new(judged.filter_map(|judged| match judged {
                Ok((wanted, element)) => wanted.then_some(Ok(element)),
                Err(error) => Some(Err(error)),
            })) as Elements<T>
        };
        self.stage(name, start).with_cardinality(Cardinality::Unknown)
    }

    /// Applies a function to a state and each element. The function returns the next state and an element of the result.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let sums = Dataset::range(1..5).scan(0, |sum, x| Ok((sum + x, sum + x)));
    /// assert_eq!(sums.iter().collect::<Result<Vec<i64>, _>>()?, [1, 3, 6, 10]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn scan<S, U>(&self, initial_state: S, f: impl Fn(S, T) -> Result<(S, U)> + Send + Sync + 'static) -> Dataset<U>
    where
        S: Clone + Send + Sync + 'static,
        U: Send + 'static,
    {
        let f = Arc::new(f);
        let start = move |from: Elements<T>, stage: Stage| {
            let (f, mut state) = (f.clone(), initial_state.clone());
            Box::new(from.enumerate().map(move |(index, element)| {
                let (next, made) = f(state.clone(), element?).map_err(|error| stage.at(index as u64, error))?;
                state = next;
                Ok(made)
            })) as Elements<U>
        };
        self.stage("scan", start).with_any_spec(None)
    }

    /// Removes duplicates: keeps only the first of several equal elements.
    pub fn unique(&self) -> Dataset<T>
    where
        T: Clone + Eq + Hash,
    {
        self.unique_by(|element| Ok(element.clone()))
    }

    /// Removes elements with a key that an earlier element had. The key of a tensor can be its bytes, for example.
    pub fn unique_by<K: Eq + Hash + Send + 'static>(&self, key: impl Fn(&T) -> Result<K> + Send + Sync + 'static) -> Dataset<T> {
        let key = Arc::new(key);
        let start = move |from: Elements<T>, stage: Stage| {
            let (key, mut seen) = (key.clone(), HashSet::new());
            Box::new(from.enumerate().filter_map(move |(index, element)| match element {
                Ok(element) => match key(&element) {
                    Ok(key) => seen.insert(key).then_some(Ok(element)),
                    Err(error) => Some(Err(stage.at(index as u64, error))),
                },
                Err(error) => Some(Err(error)),
            })) as Elements<T>
        };
        self.stage("unique", start).with_cardinality(Cardinality::Unknown)
    }

    /// Pairs each element with its number, counted from `start`.
    pub fn enumerate(&self, start: i64) -> Dataset<(i64, T)> {
        let spec = self.element_spec().map(|spec| ElementSpec::Tuple(vec![TensorSpec::new(DType::I64, &[]).into(), spec.clone()]));
        let pass = move |from: Elements<T>, _: Stage| {
            Box::new(from.enumerate().map(move |(index, element)| Ok((start + index as i64, element?)))) as Elements<_>
        };
        self.stage("enumerate", pass).with_any_spec(spec)
    }

    /// Drops the errors and keeps the elements.
    pub fn ignore_errors(&self) -> Dataset<T> {
        self.stage("ignore_errors", |from, _| Box::new(from.filter(Result::is_ok))).with_cardinality(Cardinality::Unknown)
    }
}
