//! The restoring of values from a checkpoint into variables: immediately, or when a variable is created.

use super::bundle::{BundleReader, Entry, dtype_name};
use super::graph::Graph;
use super::objects::{Objects, Value, Walker};
use crate::files::{FileError, FileResult};
use crate::formats::tensor_proto::data_type;
use gradlet_core::layers::{Later, Module, State, Waiting};
use gradlet_core::tensor::{FirstValue, Writing};
use gradlet_core::{Result, Tensor, TensorType, Variable};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Minimum total size of values, in bytes, that two threads read together.
const LARGE: u64 = 64 << 20;

/// A checkpoint as the source of values, with the keys of the values that were already restored.
#[derive(Clone)]
pub struct SavedValues {
    pub reader: BundleReader,
    pub graph: Arc<Graph>,
    arrived: Arc<Mutex<HashSet<String>>>,
}

impl SavedValues {
    /// True if the value under this key was already restored into a variable or a state.
    pub fn has_arrived(&self, key: &str) -> bool {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).contains(key)
    }

    fn arrived(&self, key: &str) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).insert(key.into());
    }

    /// Checks that the checkpoint has a value under `key`, and that its type is `wanted`. Errors describe the destination as
    /// `place`.
    fn fits(&self, key: &str, place: &str, wanted: TensorType) -> FileResult<()> {
        let Some(entry) = self.reader.entry(key) else {
            return Err(self.error(format!("the object graph refers to {key:?}, but the checkpoint has no such tensor")));
        };
        let same = entry.dtype() == data_type(wanted.dtype)
            && entry.dims().iter().copied().eq(wanted.shape.dims().iter().map(|&dim| u64::from(dim)));
        if !same {
            let held = format!("{} {:?}", dtype_name(entry.dtype()), entry.dims());
            return Err(self.error(format!(
                "{key:?} is {held}, but {place} is {} {:?}",
                dtype_name(data_type(wanted.dtype)),
                wanted.shape.dims()
            )));
        }
        Ok(())
    }

    /// Takes the variables for writing. After that, a restore needs no more memory.
    fn take<'v>(&self, variables: &'v [(Variable, String)]) -> FileResult<Writing<'v>> {
        Writing::new(variables.iter().map(|(variable, _)| variable)).map_err(|error| FileError::model(self.reader.prefix(), error))
    }

    /// Reads into each of the taken variables the value under its key.
    fn fill(&self, mut taken: Writing<'_>, variables: &[(Variable, String)]) -> FileResult<()> {
        let keys = variables.iter().map(|(_, key)| key.as_str());
        self.each(taken.values().zip(keys).collect(), |(mut value, key)| {
            let read = value.write(|bytes| self.reader.read_into(key, bytes));
            read.map_err(|error| FileError::model(self.reader.prefix(), error))??;
            self.arrived(key);
            Ok(())
        })?;
        drop(taken);
        let shared = variables.iter().try_for_each(|(variable, _)| variable.share());
        shared.map_err(|error| FileError::model(self.reader.prefix(), error))
    }

    /// Calls `work` for each value and its key, on two threads if the values are large.
    fn each<'k, T: Send>(&self, values: Vec<(T, &'k str)>, work: impl Fn((T, &'k str)) -> FileResult<()> + Sync) -> FileResult<()> {
        let large = values.iter().map(|(_, key)| self.reader.entry(key).map_or(0, Entry::bytes)).sum::<u64>() >= LARGE;
        let rest = Mutex::new(values.into_iter());
        let next = || rest.lock().unwrap_or_else(PoisonError::into_inner).next();
        let run = || std::iter::from_fn(next).try_for_each(&work);
        if !large {
            return run();
        }
        thread::scope(|threads| {
            let other = threads.spawn(run);
            let own = run();
            own.and(other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    fn error(&self, text: String) -> FileError {
        FileError::new(self.reader.prefix(), text)
    }

    /// Registers saved values as the first values of those variables of `objects` that have no value yet.
    fn promise(&self, objects: &Objects, matching: &[Option<usize>]) {
        for (object, saved) in objects.all.iter().zip(matching) {
            let key = saved.and_then(|saved| self.graph.key(saved));
            if let (Some(Value::Variable(variable)), Some(key)) = (&object.value, key) {
                variable.first_value_from(Arc::new(Promise { source: self.clone(), key: key.into() }));
            }
        }
    }
}

/// The first value of a variable that is not created yet.
struct Promise {
    source: SavedValues,
    key: String,
}

impl FirstValue for Promise {
    fn value(&self, initial: &Tensor) -> Result<Tensor> {
        self.source.fits(&self.key, "the new variable", initial.tensor_type())?;
        let value = self.source.reader.tensor(&self.key, &initial.device()?)?;
        self.source.arrived(&self.key);
        Ok(value)
    }
}

/// An object of the checkpoint whose variables are created later.
struct Expected {
    source: SavedValues,
    object: usize,
}

impl Waiting for Expected {
    fn created(&self, module: &dyn Module) -> Result<()> {
        let objects = Objects::of(module, self.source.graph.own_paths(), &mut ())?;
        let matching = self.source.graph.matching(&objects, self.object);
        self.source.promise(&objects, &matching);
        // A variable may have been created before its promise was registered. It is set here.
        let values = check(&self.source, &objects, &matching)?;
        Ok(self.source.fill(self.source.take(&values.variables)?, &values.variables)?)
    }
}

/// Restores into the objects in `root` the values that `reader` has for them. Variables that do not exist yet get their values
/// from the returned source when they are created.
pub fn restore(root: &dyn Module, reader: &BundleReader, graph: &Arc<Graph>) -> FileResult<SavedValues> {
    let source = SavedValues { reader: reader.clone(), graph: graph.clone(), arrived: Arc::default() };
    let of_model = |error| FileError::model(reader.prefix(), error);
    let objects = Objects::of(root, graph.own_paths(), &mut ()).map_err(of_model)?;
    let matching = graph.matching(&objects, 0);
    let Checked { variables, states } = check(&source, &objects, &matching)?;
    // A device may refuse memory for a variable, and a state its value. An error of either leaves the variables unchanged. The variables
    // are free again while states are set, because a state may use them.
    drop(source.take(&variables)?);
    let mut setting = Setting { source: &source, matching: &matching, states };
    Objects::of(root, graph.own_paths(), &mut setting).map_err(of_model)?;
    source.fill(source.take(&variables)?, &variables)?;
    source.promise(&objects, &matching);
    Ok(source)
}

/// Checked values that can be set immediately.
struct Checked {
    /// The variables, each with the key of its value.
    variables: Vec<(Variable, String)>,
    /// The new values of the states by object number, each with its key.
    states: HashMap<usize, (String, Tensor)>,
}

/// Finds the values, not restored yet, of states and of variables that already exist. Checks that the types match, and that the
/// checksums of the variables' values are correct.
fn check(source: &SavedValues, objects: &Objects, matching: &[Option<usize>]) -> FileResult<Checked> {
    let (mut variables, mut states, mut known) = (Vec::new(), HashMap::new(), HashSet::new());
    for (index, object) in objects.all.iter().enumerate() {
        let key = matching[index].and_then(|saved| source.graph.key(saved));
        let Some(key) = key.filter(|key| !source.has_arrived(key)) else { continue };
        match &object.value {
            Some(Value::Variable(variable)) if variable.is_built() && known.insert(variable.id()) => {
                let wanted = variable.tensor_type().map_err(|error| FileError::model(source.reader.prefix(), error))?;
                source.fits(key, &objects.path(index), wanted)?;
                variables.push((variable.clone(), key.into()));
            }
            Some(Value::State(value)) => {
                source.fits(key, &objects.path(index), value.tensor_type())?;
                states.insert(index, (key.into(), source.reader.tensor(key, &crate::compute::devices::cpu())?));
            }
            _ => {}
        }
    }
    let keys = variables.iter().map(|(_, key): &(Variable, String)| ((), key.as_str()));
    source.each(keys.collect(), |((), key)| source.reader.verify(key))?;
    Ok(Checked { variables, states })
}

/// Walker that restores states, and registers a callback for objects that are created later.
struct Setting<'s> {
    source: &'s SavedValues,
    matching: &'s [Option<usize>],
    states: HashMap<usize, (String, Tensor)>,
}

impl Walker for Setting<'_> {
    fn state(&mut self, object: usize, state: &dyn State) -> Result<()> {
        let Some((key, value)) = self.states.get(&object) else { return Ok(()) };
        state.restore(value)?;
        self.source.arrived(key);
        Ok(())
    }

    fn later(&mut self, object: usize, later: &Later) {
        if let Some(object) = self.matching.get(object).copied().flatten() {
            later.wait(Arc::new(Expected { source: self.source.clone(), object }));
        }
    }
}
