//! The stages of a [`Dataset`].

mod background;
mod batch;
mod cache;
mod combine;
mod count;
mod element;
mod finish;
mod group;
mod interleave;
mod map;
mod pad;
mod position;
mod ragged;
mod shuffle;
mod sources;
mod spec;
mod stored;
mod tune;
mod window;

pub use background::Parallel;
pub use element::{Batch, Element, Slices};
pub use group::Buckets;
pub use interleave::Interleave;
pub use pad::{Components, Pad, PaddedBatch};
pub use position::{Iter, Position, Tracked};
pub use ragged::RaggedBatch;
pub use shuffle::Shuffle;
pub use spec::ElementSpec;
pub use stored::Stored;
pub use tune::{AUTOTUNE, Setting, Tuned};

use gradlet_core::{Error, Result};
use shuffle::Seed;
use std::fmt;
use std::sync::Arc;

/// One pass through a dataset.
pub(crate) type Elements<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// A pipeline of elements: see [the module](self).
pub struct Dataset<T> {
    about: About,
    start: Arc<Start<T>>,
}

type Start<T> = dyn Fn() -> Result<Elements<T>> + Send + Sync;

/// What is known of a dataset before it is gone through.
#[derive(Clone)]
pub(crate) struct About {
    stage: Stage,
    cardinality: Cardinality,
    spec: Option<ElementSpec>,
    /// What is wrong with the arguments of this stage or one before.
    problem: Option<Error>,
    seeds: Vec<Arc<Seed>>,
    tuned: Vec<Arc<Tuned>>,
}

/// A stage of a pipeline, as errors name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    number: usize,
    name: &'static str,
}

impl Stage {
    /// The error with the stage and the number of the element before it.
    fn at(self, element: u64, error: Error) -> Error {
        error.context(format!("{self}, element {element}"))
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {} ({})", self.number, self.name)
    }
}

/// How many elements a dataset has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// So many.
    Finite(u64),
    /// It never ends: TensorFlow's −1.
    Infinite,
    /// Only going through it would tell: TensorFlow's −2.
    Unknown,
}

impl Cardinality {
    /// What a function makes of a finite number.
    fn map(self, f: impl FnOnce(u64) -> u64) -> Cardinality {
        match self {
            Cardinality::Finite(count) => Cardinality::Finite(f(count)),
            other => other,
        }
    }

    /// The number, if there is one.
    fn finite(self) -> Option<u64> {
        match self {
            Cardinality::Finite(count) => Some(count),
            _ => None,
        }
    }
}

impl<T> Clone for Dataset<T> {
    fn clone(&self) -> Dataset<T> {
        Dataset { about: self.about.clone(), start: self.start.clone() }
    }
}

impl<T> fmt::Debug for Dataset<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let About { stage, cardinality, spec, .. } = &self.about;
        write!(f, "Dataset({stage}, {cardinality:?}, ")?;
        match spec {
            Some(spec) => write!(f, "{spec})"),
            None => f.write_str("elements unknown)"),
        }
    }
}

impl<T: Send + 'static> Dataset<T> {
    /// A dataset without a stage before it.
    pub(crate) fn source(
        name: &'static str,
        cardinality: Cardinality,
        spec: Option<ElementSpec>,
        start: impl Fn() -> Result<Elements<T>> + Send + Sync + 'static,
    ) -> Dataset<T> {
        let stage = Stage { number: 0, name };
        let about = About { stage, cardinality, spec, problem: None, seeds: Vec::new(), tuned: Vec::new() };
        Dataset { about, start: Arc::new(start) }
    }

    /// A stage after this one: what `start` makes of a pass. Cardinality and element type remain, unless the caller changes them.
    fn stage<U: Send + 'static>(
        &self,
        name: &'static str,
        start: impl Fn(Elements<T>, Stage) -> Elements<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let from = self.clone();
        self.restarting(name, move |stage| Ok(start(from.start()?, stage)))
    }

    /// A stage after this one that begins passes of this one by itself.
    fn restarting<U: Send + 'static>(
        &self,
        name: &'static str,
        start: impl Fn(Stage) -> Result<Elements<U>> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let stage = Stage { number: self.about.stage.number + 1, name };
        Dataset { about: About { stage, ..self.about.clone() }, start: Arc::new(move || start(stage)) }
    }

    fn with_cardinality(mut self, cardinality: Cardinality) -> Dataset<T> {
        self.about.cardinality = cardinality;
        self
    }

    fn with_any_spec(mut self, spec: Option<ElementSpec>) -> Dataset<T> {
        self.about.spec = spec;
        self
    }

    /// The dataset, or one that fails with this problem.
    fn checked(mut self, check: Result<()>) -> Dataset<T> {
        let problem = check.err().map(|error| error.context(self.about.stage.to_string()));
        self.about.problem = self.about.problem.take().or(problem);
        self
    }

    /// Adds what another input of a stage has: its problem, its seeds, its settings.
    fn and<U>(mut self, other: &Dataset<U>) -> Dataset<T> {
        self.about.problem = self.about.problem.take().or_else(|| other.about.problem.clone());
        self.about.seeds.extend(other.about.seeds.iter().cloned());
        self.about.tuned.extend(other.about.tuned.iter().cloned());
        self
    }

    /// Begins a pass.
    fn start(&self) -> Result<Elements<T>> {
        match &self.about.problem {
            Some(problem) => Err(problem.clone()),
            None => (self.start)(),
        }
    }

    /// Begins a pass; if that fails, the error is its only item.
    fn elements(&self) -> Elements<T> {
        self.start().unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    }

    /// Fails with what is wrong with an argument of a stage, if something is.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let error = Dataset::range(0..3).batch(0).check().unwrap_err();
    /// assert_eq!(error.to_string(), "stage 1 (batch): Batch size must be greater than zero.");
    /// ```
    pub fn check(&self) -> Result<()> {
        self.about.problem.clone().map_or(Ok(()), Err)
    }

    /// How many elements there are, as far as that is known without going through them.
    pub fn cardinality(&self) -> Cardinality {
        self.about.cardinality
    }

    /// The number of elements. Fails where it is infinite or not known.
    pub fn len(&self) -> Result<u64> {
        match self.about.cardinality {
            Cardinality::Finite(count) => Ok(count),
            Cardinality::Infinite => Err(Error::message("The dataset is infinite.")),
            Cardinality::Unknown => Err(Error::message("The dataset length is unknown.")),
        }
    }

    /// Whether there is no element: `false` where that is not known.
    pub fn is_empty(&self) -> bool {
        self.about.cardinality == Cardinality::Finite(0)
    }

    /// The type of the elements, as far as it is known: after a function nobody knows it, unless [`Dataset::with_spec`] says it.
    pub fn element_spec(&self) -> Option<&ElementSpec> {
        self.about.spec.as_ref()
    }

    /// Says what the elements are, after a function.
    pub fn with_spec(&self, spec: ElementSpec) -> Dataset<T> {
        self.clone().with_any_spec(Some(spec))
    }

    /// What the stages with [`AUTOTUNE`] chose so far, from the source on.
    pub fn tuned(&self) -> &[Arc<Tuned>] {
        &self.about.tuned
    }
}
