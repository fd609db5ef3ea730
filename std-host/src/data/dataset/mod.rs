//! Stages of a [`Dataset`].

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

/// Iterator over one pass through a dataset.
pub(crate) type Elements<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// Pipeline of elements: see [the module](crate::data).
#[doc(alias = "tf.data", alias = "tf.data.Dataset")]
pub struct Dataset<T> {
    about: About,
    start: Arc<Start<T>>,
}

type Start<T> = dyn Fn() -> Result<Elements<T>> + Send + Sync;

/// Properties of a dataset that are known without iterating it.
#[derive(Clone)]
pub(crate) struct About {
    stage: Stage,
    cardinality: Cardinality,
    spec: Option<ElementSpec>,
    /// Error about an invalid argument of this stage or an earlier one.
    problem: Option<Error>,
    seeds: Vec<Arc<Seed>>,
    tuned: Vec<Arc<Tuned>>,
}

/// Number and name of a stage of a pipeline, for error messages.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    number: usize,
    name: &'static str,
}

impl Stage {
    /// Adds the stage and the number of the element to the error.
    fn at(self, element: u64, error: Error) -> Error {
        error.context(format!("{self}, element {element}"))
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stage {} ({})", self.number, self.name)
    }
}

/// Number of elements of a dataset, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cardinality {
    /// The exact number of elements.
    Finite(u64),
    /// The dataset never ends. TensorFlow's value is −1.
    Infinite,
    /// The number is unknown without iterating the dataset. TensorFlow's value is −2.
    Unknown,
}

impl Cardinality {
    /// Applies a function to a finite number and keeps the other variants.
    fn map(self, f: impl FnOnce(u64) -> u64) -> Cardinality {
        match self {
            Cardinality::Finite(count) => Cardinality::Finite(f(count)),
            other => other,
        }
    }

    /// Returns the number, or `None` if it is infinite or unknown.
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
    /// Creates a dataset that has no stage before it.
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

    /// Appends a stage. `start` converts an iterator of this dataset into an iterator of the new stage. Cardinality and element type are
    /// inherited, unless the caller changes them.
    fn stage<U: Send + 'static>(
        &self,
        name: &'static str,
        start: impl Fn(Elements<T>, Stage) -> Elements<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let from = self.clone();
        self.restarting(name, move |stage| Ok(start(from.start()?, stage)))
    }

    /// Appends a stage that starts the passes of its input itself. `start` starts a pass of the new stage.
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

    /// Records an invalid argument: an error in `check` becomes the first item of every pass. An earlier error takes precedence.
    fn checked(mut self, check: Result<()>) -> Dataset<T> {
        let problem = check.err().map(|error| error.context(self.about.stage.to_string()));
        self.about.problem = self.about.problem.take().or(problem);
        self
    }

    /// Adds the error, the seeds and the tuned settings of `other`, a further input of this stage. If both have an error, that of `self`
    /// stays.
    fn and<U>(mut self, other: &Dataset<U>) -> Dataset<T> {
        self.about.problem = self.about.problem.take().or_else(|| other.about.problem.clone());
        self.about.seeds.extend(other.about.seeds.iter().cloned());
        self.about.tuned.extend(other.about.tuned.iter().cloned());
        self
    }

    /// Starts a pass.
    fn start(&self) -> Result<Elements<T>> {
        match &self.about.problem {
            Some(problem) => Err(problem.clone()),
            None => (self.start)(),
        }
    }

    /// Starts a pass. If that fails, the error is the only item of the iterator.
    fn elements(&self) -> Elements<T> {
        self.start().unwrap_or_else(|error| Box::new(std::iter::once(Err(error))))
    }

    /// Checks the arguments of all stages. Returns the error of the first stage that has an invalid argument.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// let error = Dataset::range(0..3).batch(0).check().unwrap_err();
    /// assert_eq!(error.to_string(), "stage 1 (batch): Batch size must be greater than zero.");
    /// ```
    pub fn check(&self) -> Result<()> {
        self.about.problem.clone().map_or(Ok(()), Err)
    }

    /// Returns the number of elements, as far as it is known without iterating the dataset.
    pub fn cardinality(&self) -> Cardinality {
        self.about.cardinality
    }

    /// Returns the number of elements. Fails if it is infinite or unknown.
    pub fn len(&self) -> Result<u64> {
        match self.about.cardinality {
            Cardinality::Finite(count) => Ok(count),
            Cardinality::Infinite => Err(Error::message("The dataset is infinite.")),
            Cardinality::Unknown => Err(Error::message("The dataset length is unknown.")),
        }
    }

    /// True if the dataset is known to have no elements. False if the number is unknown.
    pub fn is_empty(&self) -> bool {
        self.about.cardinality == Cardinality::Finite(0)
    }

    /// Returns the type of the elements, as far as it is known. It is unknown after a stage that calls a function, unless
    /// [`Dataset::with_spec`] sets it.
    pub fn element_spec(&self) -> Option<&ElementSpec> {
        self.about.spec.as_ref()
    }

    /// Sets the type of the elements. Needed after a stage that calls a function.
    pub fn with_spec(&self, spec: ElementSpec) -> Dataset<T> {
        self.clone().with_any_spec(Some(spec))
    }

    /// Returns the settings of the stages with [`AUTOTUNE`], in order from the source. They hold the values chosen so far.
    pub fn tuned(&self) -> &[Arc<Tuned>] {
        &self.about.tuned
    }
}
