//! Stages with several inputs.

use super::shuffle::Seed;
use super::{Cardinality, Dataset, ElementSpec, Elements, Stage};
use gradlet_core::{Error, Result};

/// Returns the smaller cardinality, or `Unknown` if either is unknown.
fn shorter(one: Cardinality, other: Cardinality) -> Cardinality {
    match (one, other) {
        (Cardinality::Unknown, _) | (_, Cardinality::Unknown) => Cardinality::Unknown,
        (Cardinality::Infinite, other) => other,
        (one, Cardinality::Infinite) => one,
        (Cardinality::Finite(one), Cardinality::Finite(other)) => Cardinality::Finite(one.min(other)),
    }
}

/// Iterator over two inputs in step.
struct Pair<T, U>(Elements<T>, Elements<U>);

impl<T, U> Pair<T, U> {
    /// Combines the next item of each input. The caller advances both inputs before an error of either is returned, so they stay in step.
    fn pair(one: Option<Result<T>>, other: Option<Result<U>>) -> Option<Result<(T, U)>> {
        let (one, other) = (one?, other?);
        Some(one.and_then(|one| Ok((one, other?))))
    }
}

impl<T, U> Iterator for Pair<T, U> {
    type Item = Result<(T, U)>;

    fn next(&mut self) -> Option<Result<(T, U)>> {
        let one = self.0.next();
        one.is_some().then(|| Pair::pair(one, self.1.next())).flatten()
    }

    fn nth(&mut self, skip: usize) -> Option<Result<(T, U)>> {
        Pair::pair(self.0.nth(skip), self.1.nth(skip))
    }
}

/// Iterator over several inputs in step.
struct All<T>(Vec<Elements<T>>);

impl<T> Iterator for All<T> {
    type Item = Result<Vec<T>>;

    fn next(&mut self) -> Option<Result<Vec<T>>> {
        self.nth(0)
    }

    fn nth(&mut self, skip: usize) -> Option<Result<Vec<T>>> {
        let side: Vec<Result<T>> = self.0.iter_mut().map(|input| input.nth(skip)).collect::<Option<_>>()?;
        Some(side.into_iter().collect())
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// Pairs the elements of this dataset with those of another one. The result ends with the shorter dataset.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let pairs = Dataset::range(0..3).zip(&Dataset::range(10..20));
    /// assert_eq!(pairs.iter().collect::<Result<Vec<_>, _>>()?, [(0, 10), (1, 11), (2, 12)]);
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn zip<U: Send + 'static>(&self, other: &Dataset<U>) -> Dataset<(T, U)> {
        let cardinality = shorter(self.cardinality(), other.cardinality());
        let specs = self.element_spec().zip(other.element_spec());
        let spec = specs.map(|(one, other)| ElementSpec::Tuple(vec![one.clone(), other.clone()]));
        let (one, two) = (self.clone(), other.clone());
        let zipped = self.restarting("zip", move |_| Ok(Box::new(Pair(one.start()?, two.start()?)) as Elements<(T, U)>));
        zipped.and(other).with_cardinality(cardinality).with_any_spec(spec)
    }

    /// Combines the elements of several datasets in step into vectors. The result ends with the shortest dataset. Fails if `datasets` is
    /// empty.
    pub fn zip_all(datasets: Vec<Dataset<T>>) -> Dataset<Vec<T>> {
        let cardinality = datasets.iter().map(Dataset::cardinality).reduce(shorter).unwrap_or(Cardinality::Unknown);
        let specs: Option<Vec<ElementSpec>> = datasets.iter().map(|input| input.element_spec().cloned()).collect();
        let check = some(&datasets);
        let inputs = datasets.clone();
        let start = move || Ok(Box::new(All(inputs.iter().map(Dataset::start).collect::<Result<_>>()?)) as Elements<Vec<T>>);
        let zipped = Dataset::source("zip", cardinality, specs.map(ElementSpec::Tuple), start).checked(check);
        datasets.iter().fold(zipped, |zipped, input| zipped.and(input))
    }

    /// Returns the elements of this dataset, followed by those of another one. Fails if their element types are known to differ.
    pub fn concatenate(&self, other: &Dataset<T>) -> Dataset<T> {
        let cardinality = match (self.cardinality(), other.cardinality()) {
            (Cardinality::Infinite, _) | (_, Cardinality::Infinite) => Cardinality::Infinite,
            (Cardinality::Finite(one), Cardinality::Finite(other)) => Cardinality::Finite(one.saturating_add(other)),
            _ => Cardinality::Unknown,
        };
        let (spec, check) = joined([self, other].into_iter());
        let (one, two) = (self.clone(), other.clone());
        let both = self.restarting("concatenate", move |_| {
            let two = two.clone();
            // The second pass starts only after the first one has ended.
            Ok(Box::new(one.start()?.chain(std::iter::once_with(move || two.elements()).flatten())) as Elements<T>)
        });
        both.and(other).with_cardinality(cardinality).with_any_spec(spec).checked(check)
    }

    /// Takes each element from the dataset whose index in `datasets` is the next element of `choice`. If `stop_on_empty` is true, the
    /// result ends at the first choice of an exhausted dataset. Otherwise such choices are skipped.
    ///
    /// An error takes the place of an element if the index is out of range.
    pub fn choose_from_datasets(datasets: Vec<Dataset<T>>, choice: &Dataset<i64>, stop_on_empty: bool) -> Dataset<T> {
        let (spec, check) = joined(datasets.iter());
        let check = some(&datasets).and(check);
        let (inputs, choices) = (datasets.clone(), choice.clone());
        let start = move |stage: Stage| {
            let all: Vec<Elements<T>> = inputs.iter().map(Dataset::start).collect::<Result<_>>()?;
            let count = all.len();
            let pick = choices.start()?.enumerate().map(move |(index, choice)| match choice {
                Ok(choice) => usize::try_from(choice)
                    .ok()
                    .filter(|&choice| choice < count)
                    .ok_or_else(|| stage.at(index as u64, Error::message(format!("Selector index out of range: {choice} >= {count}")))),
                Err(error) => Err(error),
            });
            Ok(chosen(all, pick, stop_on_empty))
        };
        let chosen = choice.restarting("choose_from_datasets", start);
        let chosen = datasets.iter().fold(chosen, |chosen, input| chosen.and(input));
        chosen.with_cardinality(Cardinality::Unknown).with_any_spec(spec).checked(check)
    }

    /// Takes each element from a dataset chosen at random. `weights` are the relative probabilities; without them all datasets are equally
    /// probable. If `stop_on_empty` is true, the result ends at the first choice of an exhausted dataset. Otherwise it continues with the
    /// datasets that have not ended. Without a seed, each run of the program makes different choices.
    ///
    /// Fails if the number of weights differs from the number of datasets, or if a weight is negative or not finite.
    pub fn sample_from_datasets(datasets: Vec<Dataset<T>>, weights: Option<&[f64]>, seed: Option<u64>, stop_on_empty: bool) -> Dataset<T> {
        let (spec, check) = joined(datasets.iter());
        let check = some(&datasets).and(check).and(match weights {
            Some(weights) if weights.len() != datasets.len() => Err(Error::message(format!(
                "Invalid `weights`. `weights` should have the same length as `datasets` but got `len(weights)={}` vs. `len(datasets)={}`.",
                weights.len(),
                datasets.len()
            ))),
            Some(weights) if !weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0) || weights.iter().sum::<f64>() == 0.0 => {
                Err(Error::message(format!("the weights must be finite, not negative and not all 0, but got {weights:?}")))
            }
            _ => Ok(()),
        });
        let weights: Vec<f64> = weights.map_or_else(|| vec![1.0; datasets.len()], <[f64]>::to_vec);
        let seed = Seed::new(seed, true);
        let (inputs, own) = (datasets.clone(), seed.clone());
        let start = move || {
            let all: Vec<Elements<T>> = inputs.iter().map(Dataset::start).collect::<Result<_>>()?;
            let (mut dice, mut weights) = (own.dice(), weights.clone());
            let pick = move |over: Option<usize>| {
                if let Some(weight) = over.and_then(|over| weights.get_mut(over)) {
                    *weight = 0.0;
                }
                let mut place = dice.unit() * weights.iter().sum::<f64>();
                let last = weights.iter().rposition(|&weight| weight > 0.0)?;
                let hit = weights.iter().position(|&weight| {
                    place -= weight;
                    place < 0.0
                });
                Some(hit.unwrap_or(last))
            };
            Ok(Box::new(Sample { all, pick, stop_on_empty, over: false }) as Elements<T>)
        };
        let mut sampled = Dataset::source("sample_from_datasets", Cardinality::Unknown, spec, start);
        sampled.about.seeds.push(seed);
        datasets.iter().fold(sampled, |sampled, input| sampled.and(input)).checked(check)
    }
}

fn some<T>(datasets: &[Dataset<T>]) -> Result<()> {
    if datasets.is_empty() { Err(Error::message("Invalid `datasets`. `datasets` should not be empty.")) } else { Ok(()) }
}

/// Returns the common element type of all inputs, or `None` if it is unknown. The second value is an error if the types are known to
/// differ.
fn joined<'d, T: Send + 'static>(inputs: impl Iterator<Item = &'d Dataset<T>>) -> (Option<ElementSpec>, Result<()>) {
    let Some(specs) = inputs.map(Dataset::element_spec).collect::<Option<Vec<_>>>() else { return (None, Ok(())) };
    let mut specs = specs.into_iter();
    let Some(first) = specs.next() else { return (None, Ok(())) };
    match specs.try_fold(first.clone(), |joined, spec| joined.join(spec)) {
        Ok(spec) => (Some(spec), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

/// Returns an iterator that takes, for each of `picks`, the next element of the input with that index. A pick of an exhausted input ends
/// the iterator if `stop_on_empty` is true. Otherwise, the pick is skipped.
fn chosen<T: Send + 'static>(
    mut all: Vec<Elements<T>>,
    mut picks: impl Iterator<Item = Result<usize>> + Send + 'static,
    stop_on_empty: bool,
) -> Elements<T> {
    let mut over = vec![false; all.len()];
    let mut ended = false;
    Box::new(std::iter::from_fn(move || {
        while !ended {
            let pick = match picks.next()? {
                Ok(pick) => pick,
                Err(error) => return Some(Err(error)),
            };
            let element = if over[pick] { None } else { all[pick].next() };
            if element.is_some() {
                return element;
            }
            over[pick] = true;
            ended = stop_on_empty || over.iter().all(|&over| over);
        }
        None
    }))
}

/// Iterator of [`Dataset::sample_from_datasets`]. `pick` returns the index of the next input, or `None` if all inputs have ended. Its
/// argument is the index of an input that has just ended, if any.
struct Sample<T, P> {
    all: Vec<Elements<T>>,
    pick: P,
    stop_on_empty: bool,
    over: bool,
}

impl<T, P: FnMut(Option<usize>) -> Option<usize>> Iterator for Sample<T, P> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let mut pick = if self.over { None } else { (self.pick)(None) };
        while let Some(input) = pick {
            let element = self.all[input].next();
            if element.is_some() {
                return element;
            }
            pick = if self.stop_on_empty { None } else { (self.pick)(Some(input)) };
        }
        self.over = true;
        None
    }
}
