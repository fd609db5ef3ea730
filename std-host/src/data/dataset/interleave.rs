//! Stages in which a function converts each element into a dataset, and the elements of these datasets are the result.

use super::background::{Background, Plan};
use super::tune::Setting;
use super::{Cardinality, Dataset, Elements, Parallel, Stage};
use gradlet_core::{Error, Result};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

/// Arguments of [`Dataset::interleave`].
#[derive(Clone, Copy, Debug)]
pub struct Interleave {
    cycle_length: Setting,
    block_length: usize,
    parallel: Option<Parallel>,
}

impl Interleave {
    /// Creates options for reading `cycle_length` datasets in turn, one element of each. With [`AUTOTUNE`](super::AUTOTUNE) the number of
    /// datasets is the number of cores.
    pub fn new(cycle_length: impl Into<Setting>) -> Interleave {
        Interleave { cycle_length: cycle_length.into(), block_length: 1, parallel: None }
    }

    /// Sets the number of consecutive elements that are taken from each dataset in turn. The default is 1.
    pub fn block_length(self, block_length: usize) -> Interleave {
        Interleave { block_length, ..self }
    }

    /// Reads the datasets on background threads. `parallel` is the number of datasets that are read concurrently.
    pub fn num_parallel_calls(self, parallel: impl Into<Parallel>) -> Interleave {
        Interleave { parallel: Some(parallel.into()), ..self }
    }
}

/// Counting semaphore that limits the number of threads at work.
struct Permits {
    left: Mutex<usize>,
    back: Condvar,
}

/// Iterator that holds a permit while it fetches an element.
struct Permitted<T> {
    from: Elements<T>,
    permits: Arc<Permits>,
}

impl<T> Iterator for Permitted<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let mut left = self.permits.left.lock().unwrap_or_else(PoisonError::into_inner);
        while *left == 0 {
            left = self.permits.back.wait(left).unwrap_or_else(PoisonError::into_inner);
        }
        *left -= 1;
        drop(left);
        let permit = Permit(&self.permits);
        let element = self.from.next();
        drop(permit);
        element
    }
}

/// Permit that is given back to the semaphore when it is dropped, also during a panic.
struct Permit<'p>(&'p Permits);

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.back.notify_one();
    }
}

/// One of the datasets that are read in turn.
enum Inner<U> {
    Here(Elements<U>),
    Background(Background<U, U>),
}

impl<U: Send + 'static> Inner<U> {
    fn next(&mut self) -> Option<Result<U>> {
        match self {
            Inner::Here(elements) => elements.next(),
            Inner::Background(elements) => elements.next(),
        }
    }

    fn is_ready(&mut self) -> bool {
        match self {
            Inner::Here(_) => true,
            Inner::Background(elements) => elements.is_ready(),
        }
    }
}

/// Iterator of [`Dataset::interleave`].
struct Turns<T, U, F> {
    from: Option<Elements<T>>,
    f: Arc<F>,
    stage: Stage,
    index: u64,
    /// Datasets that are read in turn. `None` where one has ended and the next has not started.
    cycle: Vec<Option<Inner<U>>>,
    turn: usize,
    given: usize,
    block_length: usize,
    /// Permits of the background threads. `None` if the datasets are read on the consumer's thread.
    permits: Option<Arc<Permits>>,
    in_order: bool,
}

impl<T, U: Send + 'static, F: Fn(T) -> Result<Dataset<U>>> Turns<T, U, F> {
    /// Converts the next input element into a dataset and starts it. Returns `None` at the end of the input.
    fn begin(&mut self) -> Option<Result<Inner<U>>> {
        let Some(element) = self.from.as_mut()?.next() else {
            self.from = None;
            return None;
        };
        let index = self.index;
        self.index += 1;
        let elements = element.and_then(|element| {
            let made = (self.f)(element).and_then(|dataset| dataset.start());
            made.map_err(|error| self.stage.at(index, error))
        });
        Some(elements.map(|elements| match &self.permits {
            Some(permits) => {
                let from = Box::new(Permitted { from: elements, permits: permits.clone() });
                let mut inner = Background::new(from, Arc::new(|_, element| element), Plan::ahead(self.block_length.max(2)));
                inner.is_ready();
                Inner::Background(inner)
            }
            None => Inner::Here(elements),
        }))
    }

    fn advance(&mut self) {
        self.turn = (self.turn + 1) % self.cycle.len();
        self.given = 0;
    }

    /// Starts all datasets of the cycle immediately, if background threads read them.
    fn fill(&mut self) -> Result<()> {
        while self.permits.is_some() && self.from.is_some() {
            let Some(place) = self.cycle.iter().position(Option::is_none) else { return Ok(()) };
            self.cycle[place] = self.begin().transpose()?;
        }
        Ok(())
    }

    /// Moves the turn to the first dataset, from the current one on, that has an element ready. If none has, the turn does not move. Used
    /// if the order of the elements does not matter.
    fn choose(&mut self) {
        let count = self.cycle.len();
        let ready = (0..count).map(|step| (self.turn + step) % count);
        let ready = ready.into_iter().find(|&turn| self.cycle[turn].as_mut().is_some_and(Inner::is_ready));
        if let Some(turn) = ready
            && turn != self.turn
        {
            (self.turn, self.given) = (turn, 0);
        }
    }
}

impl<T, U: Send + 'static, F: Fn(T) -> Result<Dataset<U>>> Iterator for Turns<T, U, F> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        if self.index == 0
            && let Err(error) = self.fill()
        {
            return Some(Err(error));
        }
        let mut empty = 0;
        while empty < self.cycle.len() {
            if !self.in_order {
                self.choose();
            }
            if let Some(inner) = &mut self.cycle[self.turn] {
                if let Some(element) = inner.next() {
                    self.given += 1;
                    if self.given == self.block_length {
                        self.advance();
                    }
                    return Some(element);
                }
                self.cycle[self.turn] = None;
                self.advance();
                empty = 0;
            } else {
                match self.begin() {
                    Some(Ok(inner)) => {
                        self.cycle[self.turn] = Some(inner);
                        empty = 0;
                    }
                    Some(Err(error)) => return Some(Err(error)),
                    None => {
                        self.advance();
                        empty += 1;
                    }
                }
            }
        }
        None
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Converts each element into a dataset and returns the elements of these datasets, one dataset after the other.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let numbers = Dataset::range(1..4).flat_map(|x| Ok(Dataset::range(0..x)));
    /// assert_eq!(numbers.iter().collect::<Result<Vec<i64>, _>>()?, [0, 0, 1, 0, 1, 2]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn flat_map<U: Send + 'static>(&self, f: impl Fn(T) -> Result<Dataset<U>> + Send + Sync + 'static) -> Dataset<U> {
        self.turns("flat_map", Interleave::new(1), f)
    }

    /// Converts each element into a dataset and returns the elements of several of these datasets in turn, for instance the lines of many
    /// files. The next dataset takes the place of one that has ended.
    ///
    /// ```
    /// use gradlet::data::{AUTOTUNE, Dataset, Interleave};
    /// let turns = Dataset::range(1..4).interleave(Interleave::new(2), |x| Ok(Dataset::range(10 * x..10 * x + 2)));
    /// assert_eq!(turns.iter().collect::<Result<Vec<i64>, _>>()?, [10, 20, 11, 21, 30, 31]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn interleave<U: Send + 'static>(
        &self,
        options: Interleave,
        f: impl Fn(T) -> Result<Dataset<U>> + Send + Sync + 'static,
    ) -> Dataset<U> {
        self.turns("interleave", options, f)
    }

    fn turns<U: Send + 'static>(
        &self,
        name: &'static str,
        options: Interleave,
        f: impl Fn(T) -> Result<Dataset<U>> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let Interleave { cycle_length, block_length, parallel } = options;
        let check = match (cycle_length, block_length) {
            (Setting::Fixed(0), _) => Err(Error::message("cycle_length must be greater than zero.")),
            (_, 0) => Err(Error::message("block_length must be greater than zero.")),
            _ => Ok(()),
        };
        let f = Arc::new(f);
        let pass = move |from: Elements<T>, stage: Stage| {
            let length = Parallel::new(cycle_length).first();
            let permits = parallel.map(|parallel| Arc::new(Permits { left: Mutex::new(parallel.first()), back: Condvar::new() }));
            Box::new(Turns {
                from: Some(from),
                f: f.clone(),
                stage,
                index: 0,
                cycle: (0..length).map(|_| None).collect(),
                turn: 0,
                given: 0,
                block_length,
                permits,
                in_order: parallel.is_none_or(|parallel| parallel.deterministic),
            }) as Elements<U>
        };
        self.stage(name, pass).with_cardinality(Cardinality::Unknown).with_any_spec(None).checked(check)
    }
}
