//! Stages that select elements by their position.

use super::{Cardinality, Dataset, Elements};
use gradlet_core::{Error, Result};

impl<T: Send + 'static> Dataset<T> {
    /// Returns at most the first `count` elements.
    pub fn take(&self, count: u64) -> Dataset<T> {
        let cardinality = match self.cardinality() {
            Cardinality::Finite(all) => Cardinality::Finite(all.min(count)),
            Cardinality::Infinite => Cardinality::Finite(count),
            Cardinality::Unknown => Cardinality::Unknown,
        };
        self.stage("take", move |from, _| Box::new(from.take(index(count)))).with_cardinality(cardinality)
    }

    /// Skips the first `count` elements.
    pub fn skip(&self, count: u64) -> Dataset<T> {
        let cardinality = self.cardinality().map(|all| all.saturating_sub(count));
        self.stage("skip", move |from, _| Box::new(from.skip(index(count)))).with_cardinality(cardinality)
    }

    /// Returns every `num_shards`th element, beginning with number `shard`: the elements for worker `shard` of `num_shards` workers. Fails
    /// if `shard` is not less than `num_shards`.
    pub fn shard(&self, num_shards: u64, shard: u64) -> Dataset<T> {
        let check = match num_shards {
            0 => Err(Error::message("Number of shards must be greater than zero (currently num_shards = 0).")),
            _ if shard >= num_shards => {
                Err(Error::message(format!("Index must be between 0 and {} (currently index = {shard}).", num_shards - 1)))
            }
            _ => Ok(()),
        };
        let cardinality = self.cardinality().map(|all| all.saturating_sub(shard).div_ceil(num_shards.max(1)));
        let pass = move |from: Elements<T>, _| Box::new(from.skip(index(shard)).step_by(index(num_shards))) as Elements<T>;
        self.stage("shard", pass).with_cardinality(cardinality).checked(check)
    }

    /// Repeats the elements endlessly.
    pub fn repeat(&self) -> Dataset<T> {
        let cardinality = match self.cardinality() {
            Cardinality::Finite(0) => Cardinality::Finite(0),
            _ => Cardinality::Infinite,
        };
        self.repeated(None).with_cardinality(cardinality)
    }

    /// Repeats the elements `count` times.
    pub fn repeat_times(&self, count: u64) -> Dataset<T> {
        let cardinality = match self.cardinality() {
            _ if count == 0 => Cardinality::Finite(0),
            cardinality => cardinality.map(|all| all.saturating_mul(count)),
        };
        self.repeated(Some(count)).with_cardinality(cardinality)
    }

    fn repeated(&self, times: Option<u64>) -> Dataset<T> {
        let from = self.clone();
        self.restarting("repeat", move |_| Ok(Box::new(Repeat { from: from.clone(), left: times, pass: None, given: 0 })))
    }

    /// Returns the elements unchanged. If there are fewer than `count`, an error follows the last one. If there are more, an error takes
    /// the place of the first one beyond `count`.
    pub fn assert_cardinality(&self, count: u64) -> Dataset<T> {
        let start = move |mut from: Elements<T>, _| {
            let (mut given, mut over) = (0, false);
            Box::new(std::iter::from_fn(move || {
                let element = if over { None } else { from.next() };
                let wrong = |text: String| Some(Err(Error::message(text)));
                match &element {
                    Some(_) if given == count => {
                        over = true;
                        return wrong(format!(
                            "Input dataset was expected to contain {count} elements but contained at least {} elements.",
                            count + 1
                        ));
                    }
                    None if !over && given < count => {
                        over = true;
                        return wrong(format!(
                            "Input dataset was expected to contain {count} elements but contained only {given} elements."
                        ));
                    }
                    None => over = true,
                    Some(_) => given += 1,
                }
                element
            })) as Elements<T>
        };
        self.stage("assert_cardinality", start).with_cardinality(Cardinality::Finite(count))
    }
}

fn index(count: u64) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// Iterator of [`Dataset::repeat`].
struct Repeat<T> {
    from: Dataset<T>,
    /// Number of passes that are still to start. `None` for endless repetition.
    left: Option<u64>,
    pass: Option<Elements<T>>,
    /// Number of elements that the current pass of the input has returned.
    given: u64,
}

impl<T: Send + 'static> Repeat<T> {
    /// Returns the current pass, or starts the next one. Returns `None` if all passes have ended.
    fn pass(&mut self) -> Option<Result<&mut Elements<T>>> {
        if self.pass.is_none() {
            let left = self.left.map(|left| left.checked_sub(1));
            self.left = match left {
                Some(left) => Some(left?),
                None => None,
            };
            self.given = 0;
            match self.from.start() {
                Ok(elements) => self.pass = Some(elements),
                Err(error) => {
                    self.left = Some(0);
                    return Some(Err(error));
                }
            }
        }
        self.pass.as_mut().map(Ok)
    }
}

impl<T: Send + 'static> Iterator for Repeat<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        loop {
            let element = match self.pass()? {
                Ok(pass) => pass.next(),
                Err(error) => return Some(Err(error)),
            };
            if element.is_some() {
                self.given += 1;
                return element;
            }
            self.pass = None;
            if self.given == 0 {
                // Another pass would also be empty.
                self.left = Some(0);
            }
        }
    }

    /// Skips elements. Passes that are skipped as a whole are still started, because each start advances the random numbers of its stages.
    fn nth(&mut self, skip: usize) -> Option<Result<T>> {
        let mut skip = skip as u64;
        if skip == 0 {
            return self.next();
        }
        if let Some(all) = self.from.cardinality().finite().filter(|&all| all > 0) {
            while skip >= all - self.given.min(all) {
                if let Err(error) = self.pass()? {
                    return Some(Err(error));
                }
                skip -= all - self.given.min(all);
                if let Some(mut pass) = self.pass.take().filter(|_| self.given == all) {
                    // Lets the pass observe its end, for instance to complete a cache.
                    pass.next();
                }
                self.given = 0;
            }
            if let Err(error) = self.pass()? {
                return Some(Err(error));
            }
            self.given += skip + 1;
            return self.pass.as_mut()?.nth(index(skip));
        }
        (0..skip).try_for_each(|_| self.next().map(drop))?;
        self.next()
    }
}
