//! Checkpoints: the values of variables during training, in TensorFlow's file format.
//!
//! A [`Checkpoint`] saves and restores named objects: models, optimizers, numbers, positions in datasets. The files are compatible
//! with TensorFlow: `tf.train.Checkpoint` restores the files that gradlet saved, and gradlet restores TensorFlow's. Objects have
//! the same names as in TensorFlow. A [`Sequential`](crate::layers::Sequential) has the names that Keras uses.

pub mod bundle;
#[cfg(test)]
mod crashes;
mod graph;
mod manager;
mod objects;
mod restore;
mod state;
mod status;
mod text;

pub use graph::{OBJECT_GRAPH, variable_key, variable_path};
pub use manager::CheckpointManager;
pub use state::{State, latest_checkpoint};
pub use status::Status;

use crate::files::create_folder;
use crate::files::{FileError, FileResult};
use crate::formats::tensor_proto::data_type;
use bundle::{BundleReader, BundleWriter, NewTensor};
use gradlet_core::layers::{Module, Visitor};
use gradlet_core::{Eager, Result, Scope, Tensor, Variable};
use graph::Graph;
use objects::{Objects, Value};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A set of named objects that are saved and restored together: TensorFlow's `tf.train.Checkpoint`.
///
/// ```
/// use gradlet::checkpoint::Checkpoint;
/// use gradlet::layers::{Dense, Layer, Sequential};
/// use gradlet::optimizers::Adam;
/// use gradlet::{Eager, Scope, Tensor};
///
/// let scope = Eager::new(&gradlet::cpu());
/// let new_model = || Sequential::new().with(Dense::new(3)).with(Dense::new(1));
/// let x = Tensor::full(&scope.device(), 1.0f32, &[1, 2])?;
/// let folder = tempfile::tempdir()?;
///
/// let (model, optimizer) = (new_model(), Adam::new(0.001));
/// let y = model.apply(&scope, &x)?;
/// let checkpoint = Checkpoint::new().with("myAwesomeModel", &model).with("myAwesomeOptimizer", &optimizer);
/// let prefix = checkpoint.save(folder.path().join("model.ckpt"))?;
/// assert!(prefix.ends_with("model.ckpt-1"));
///
/// // A model that has no variables yet gets them when it is built: its initializers do not matter.
/// let restored = new_model();
/// let checkpoint = Checkpoint::new().with("myAwesomeModel", &restored);
/// let status = checkpoint.restore(&prefix)?;
/// assert_eq!(restored.apply(&scope, &x)?.to_vec::<f32>()?, y.to_vec::<f32>()?);
/// status.assert_existing_objects_matched()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An object is any [`Module`]: a reference to one, or a cheap handle by value. An object with the name "" is not a node of its own; its
/// children are added directly, as with `tf.train.Checkpoint(root)`. A number that is not a variable is stored in a
/// [`Cell`](std::cell::Cell) or an atomic.
#[doc(alias = "tf.train.Checkpoint")]
pub struct Checkpoint<'a> {
    objects: Vec<(String, Box<dyn Module + 'a>)>,
    save_counter: Variable,
}

impl Default for Checkpoint<'_> {
    fn default() -> Self {
        Checkpoint::new()
    }
}

impl<'a> Checkpoint<'a> {
    /// Creates a checkpoint without objects.
    pub fn new() -> Checkpoint<'a> {
        Checkpoint { objects: Vec::new(), save_counter: Variable::untrained("save_counter") }
    }

    /// Adds `object` under a name. The same name is needed to restore it.
    pub fn with(mut self, name: &str, object: impl Module + 'a) -> Checkpoint<'a> {
        self.objects.push((name.into(), Box::new(object)));
        // TensorFlow sorts the objects by name.
        self.objects.sort_by(|(one, _), (other, _)| one.cmp(other));
        self
    }

    /// Returns the number of times that [`Checkpoint::save`] saved these objects. After a restore, the saves that the restored checkpoint
    /// counted are included.
    pub fn save_counter(&self) -> Result<i64> {
        if self.save_counter.is_built() { scope().read(&self.save_counter)?.item() } else { Ok(0) }
    }

    fn set_save_counter(&self, count: i64) -> Result<()> {
        let count = Tensor::scalar(&crate::compute::devices::cpu(), count);
        self.save_counter.create(&scope(), &count)?;
        scope().assign(&self.save_counter, &count)
    }

    /// Writes the values of the objects to `prefix.index` and `prefix.data-00000-of-00001`. From 64 MiB on, there are two data
    /// files. The write is atomic: existing files with this prefix stay as they are until the new files replace them in a single
    /// step. A missing folder is created. Returns the prefix.
    ///
    /// Variables without a value are left out. Fails if two values have the same name or the files cannot be written.
    pub fn write(&self, prefix: impl AsRef<Path>) -> FileResult<PathBuf> {
        let prefix = prefix.as_ref();
        let of_model = |error| FileError::model(prefix, error);
        let objects = Objects::of(self, false, &mut ()).map_err(of_model)?;
        let (graph, values) = Graph::of(&objects);
        create_folder(prefix.parent().unwrap_or(Path::new("")))?;
        let mut writer = BundleWriter::create(prefix)?;
        let values = values.into_iter().map(|(key, value)| {
            let value = match value {
                Value::Variable(variable) => scope().read(variable).map_err(of_model)?,
                Value::State(value) => value.clone(),
            };
            let dims: Vec<u64> = value.dims().iter().map(|&dim| dim.into()).collect();
            Ok((key, dims, value))
        });
        let values = values.collect::<FileResult<Vec<_>>>()?;
        let bytes = values.iter().map(|(_, _, value)| value.bytes().map_err(of_model)).collect::<FileResult<Vec<_>>>()?;
        let tensors = values.iter().zip(&bytes);
        let tensors = tensors.map(|((key, dims, value), bytes)| NewTensor { key, dtype: data_type(value.dtype()), dims, bytes });
        writer.tensors(&tensors.collect::<Vec<_>>())?;
        writer.strings(OBJECT_GRAPH, &crate::values::strings::Strings::scalar(graph))?;
        writer.finish()?;
        Ok(prefix.into())
    }

    /// Calls [`Checkpoint::write`] with `prefix-N`, where N is the number of saves of these objects, this one included. Then the
    /// folder's file `checkpoint` names it as the latest checkpoint. Returns `prefix-N`.
    pub fn save(&self, prefix: impl AsRef<Path>) -> FileResult<PathBuf> {
        let prefix = prefix.as_ref();
        self.counted(prefix, |count| {
            let mut numbered = prefix.as_os_str().to_os_string();
            numbered.push(format!("-{count}"));
            let prefix = self.write(PathBuf::from(numbered))?;
            let directory = prefix.parent().unwrap_or(Path::new(""));
            State::update(directory, &prefix, std::slice::from_ref(&prefix))?;
            Ok(prefix)
        })
    }

    /// Increments the save counter and calls `save` with the new count. If `save` fails, the counter gets its old value back.
    fn counted<R>(&self, prefix: &Path, save: impl FnOnce(i64) -> FileResult<R>) -> FileResult<R> {
        let of_model = |error| FileError::model(prefix, error);
        let before = self.save_counter().map_err(of_model)?;
        let count = before
            .checked_add(1)
            .ok_or_else(|| FileError::new(prefix, "the save counter cannot be incremented: it has its maximum value"))?;
        self.set_save_counter(count).map_err(of_model)?;
        let saved = save(count);
        if saved.is_err() {
            self.set_save_counter(before).map_err(of_model)?;
        }
        saved
    }

    /// Restores the values of the objects from files that [`Checkpoint::write`] wrote. Variables that exist are set immediately,
    /// all or none of them. Other variables get their values when they are created. An object without a value in the files stays as
    /// it is; the [`Status`] reports it.
    ///
    /// Fails if the files are missing or damaged, or if a value differs from its variable in element type or shape. Nothing is
    /// changed then.
    pub fn read(&self, prefix: impl AsRef<Path>) -> FileResult<Status<'_, 'a>> {
        let prefix = prefix.as_ref();
        let reader = BundleReader::open(prefix)?;
        let graph = Arc::new(Graph::read(&reader, prefix)?);
        self.take(&reader, &graph)
    }

    fn take(&self, reader: &BundleReader, graph: &Arc<Graph>) -> FileResult<Status<'_, 'a>> {
        let source = restore::restore(self, reader, graph)?;
        Ok(Status::new(self, source))
    }

    /// Calls [`Checkpoint::read`] for files that [`Checkpoint::save`] wrote. The next `save` continues to count from the restored number.
    pub fn restore(&self, prefix: impl AsRef<Path>) -> FileResult<Status<'_, 'a>> {
        let prefix = prefix.as_ref();
        let reader = BundleReader::open(prefix)?;
        let graph = Arc::new(Graph::read(&reader, prefix)?);
        if !self.save_counter.is_built() {
            self.set_save_counter(0).map_err(|error| FileError::model(prefix, error))?;
        }
        self.take(&reader, &graph)
    }
}

impl Module for Checkpoint<'_> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.objects.iter().for_each(|(name, object)| visitor.module(name, object));
        visitor.module("save_counter", &self.save_counter);
    }
}

impl fmt::Debug for Checkpoint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.objects.iter().map(|(name, _)| name)).finish()
    }
}

/// Returns a scope outside of every tape and trace. Checkpoints read and set variables in it.
fn scope() -> Eager {
    Eager::new(&crate::compute::devices::cpu())
}
