//! Stages with several inputs.

use super::shuffle::Seed;
use super::{Cardinality, Dataset, ElementSpec, Elements, Stage};
use gradlet_core::{Error, Result};

/// The shorter one.
fn shorter(one: Cardinality, other: Cardinality) -> Cardinality {
    match (one, other) {
        (Cardinality::Unknown, _) | (_, Cardinality::Unknown) => Cardinality::Unknown,
        (Cardinality::Infinite, other) => other,
        (one, Cardinality::Infinite) => one,
        (Cardinality::Finite(one), Cardinality::Finite(other)) => Cardinality::Finite(one.min(other)),
    }
}

/// A pass of two inputs side by side.
struct Pair<T, U>(Elements<T>, Elements<U>);

impl<T, U> Pair<T, U> {
    /// Both are asked before an error of one is told, so that they stay side by side.
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

/// A pass of several inputs side by side.
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
    /// The elements of this dataset and of another one, side by side, up to the end of the shorter one.
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

    /// The elements of several datasets, side by side, up to the end of the shortest one. Fails without any.
    pub fn zip_all(datasets: Vec<Dataset<T>>) -> Dataset<Vec<T>> {
        let cardinality = datasets.iter().map(Dataset::cardinality).reduce(shorter).unwrap_or(Cardinality::Unknown);
        let specs: Option<Vec<ElementSpec>> = datasets.iter().map(|input| input.element_spec().cloned()).collect();
        let check = some(&datasets);
        let inputs = datasets.clone();
        let start = move || Ok(Box::new(All(inputs.iter().map(Dataset::start).collect::<Result<_>>()?)) as Elements<Vec<T>>);
        let zipped = Dataset::source("zip", cardinality, specs.map(ElementSpec::Tuple), start).checked(check);
        datasets.iter().fold(zipped, |zipped, input| zipped.and(input))
    }

    /// The elements of this dataset, then those of another one. Fails where they are known to be of different types.
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
            // The second pass begins when the first one is over.
            Ok(Box::new(one.start()?.chain(std::iter::once_with(move || two.elements()).flatten())) as Elements<T>)
        });
        both.and(other).with_cardinality(cardinality).with_any_spec(spec).checked(check)
    }

    /// From each of `datasets` in the order that `choice` says by their numbers. `stop_on_empty`: the first choice of one that is over
    /// ends all; otherwise such choices are passed over.
    ///
    /// Fails, in place of an element, for the number of no dataset.
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

    /// Elements of `datasets` at random, by `weights` (equal ones, if there are none). `stop_on_empty`: the first choice of one that is
    /// over ends all; otherwise the others go on. Without a seed, each program makes other choices.
    ///
    /// Fails where there are not as many weights as datasets, or one is negative or not finite.
    pub fn sample_from_datasets(datasets: Vec<Dataset<T>>, weights: Option<&[f64]>, seed: Option<u64>, stop_on_empty: bool) -> Dataset<T> {
        let (spec, check) = joined(datasets.iter());
        let check = some(&datasets).and(check).and(match weights {
            Some(weights) if weights.len() != datasets.len() => Err(Error::message(format!(
                "Invalid `weights`. `weights` should have the same length as `datasets` but got `len(weights)={}` vs. `len(datasets)={}`.",
                weights.len(),
                datasets.len()
            ))),
            Some(weights) if !weights.iter().all(|weight| weight.is_finite() && *weight >= 0.0) || weights.iter().sum::<f64>() == 0.0 => {
                Err(Error::message(format!("weights must be numbers from 0, not all 0; they are {weights:?}")))
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

/// The type of the elements of all inputs. Fails where they are known to differ.
fn joined<'d, T: Send + 'static>(inputs: impl Iterator<Item = &'d Dataset<T>>) -> (Option<ElementSpec>, Result<()>) {
    let Some(specs) = inputs.map(Dataset::element_spec).collect::<Option<Vec<_>>>() else { return (None, Ok(())) };
    let mut specs = specs.into_iter();
    let Some(first) = specs.next() else { return (None, Ok(())) };
    match specs.try_fold(first.clone(), |joined, spec| joined.join(spec)) {
        Ok(spec) => (Some(spec), Ok(())),
        Err(error) => (None, Err(error)),
    }
}

/// The next of `all[pick]`, for each pick.
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

/// A pass of [`Dataset::sample_from_datasets`]: `pick` is told of the input that is over.
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
