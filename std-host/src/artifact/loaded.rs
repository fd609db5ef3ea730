//! Execution of artifacts on the host. [`load`] returns their signatures as functions of tensors, without the source of the model.

use crate::artifact::engine::{Engine, Out};
use crate::artifact::{firmware, first_values};
use crate::files::write_whole;
use crate::files::{FileError, FileResult};
use gradlet_core::artifact::describe::{Description, OperandInfo, SignatureInfo};
use gradlet_core::device::AlignedBytes;
use gradlet_core::function::ConcreteFunction;
use gradlet_core::runtime::program::missing_kernel;
use gradlet_core::{Device, Error, Program, Result, Tensor, TensorType, ops};
use std::fmt::Arguments;
use std::path::Path;
use std::sync::Arc;

/// Loads all signatures of the artifact at `path`: TensorFlow's `saved_model.load`.
///
/// Fails if the artifact is damaged or needs kernels that this version of gradlet does not have. The error names the file.
///
/// ```
/// use gradlet::{Artifact, Eager, Function, Scope, Tensor, Variable};
/// let scope = Eager::new(&gradlet::cpu());
/// let total = Variable::new(&scope, "total", &Tensor::scalar(&scope.device(), 0.0f32))?;
/// let add = Function::new(move |scope: &dyn Scope, x: Tensor| {
///     scope.assign_add(&total, &x)?;
///     scope.read(&total)
/// });
/// let two = Tensor::scalar(&scope.device(), 2.0f32);
/// let mut artifact = Artifact::new();
/// artifact.signature("add", &*add.concrete(&scope, &two)?, &["x"], &["total"])?.doc("add", "Adds x to the total.")?;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("total.grdl");
/// gradlet::io::write_whole(&path, &artifact.to_bytes()?)?;
///
/// let loaded = gradlet::load(&path)?;
/// let add = loaded.signature("add")?;
/// assert_eq!(add.doc(), Some("Adds x to the total."));
/// add.call(&[two.clone()])?;
/// assert_eq!(add.call(&[two])?[0].item::<f32>()?, 4.0); // variables keep their values
/// loaded.save(&path)?;
/// assert_eq!(gradlet::load(&path)?.variable("total")?.item::<f32>()?, 4.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load(path: impl AsRef<Path>) -> FileResult<Loaded> {
    read(path.as_ref(), None)
}

/// Loads only these signatures of an artifact. Kernels that only other signatures use need not exist. Variables that only other
/// signatures assign are constants. Otherwise works like [`load`].
pub fn load_signatures(path: impl AsRef<Path>, signatures: &[&str]) -> FileResult<Loaded> {
    read(path.as_ref(), Some(signatures))
}

fn read(path: &Path, signatures: Option<&[&str]>) -> FileResult<Loaded> {
    let bytes = std::fs::read(path).map_err(|error| FileError::io(path, error))?;
    Loaded::new(&bytes, signatures).map_err(|error| FileError::model(path, error))
}

self_cell::self_cell!(
    struct Checked {
        owner: AlignedBytes,
        #[covariant]
        dependent: Program,
    }
);

/// A loaded artifact. Its variables keep their values between calls, and all signatures share them.
pub struct Loaded {
    checked: Arc<Checked>,
    description: Arc<Description>,
    engine: Engine,
    device: Device,
    /// The receiver of printed text, if it is not the standard output.
    out: Option<Arc<Out>>,
}

impl Loaded {
    /// Loads `signatures` of the artifact `bytes`, or all signatures for `None`.
    ///
    /// Fails in the same cases as [`load`].
    pub fn new(bytes: &[u8], signatures: Option<&[&str]>) -> Result<Loaded> {
        let mut description = Description::read(bytes)?;
        if let Some(names) = signatures {
            names.iter().try_for_each(|name| find(&description, name).map(drop))?;
            description.signatures.retain(|signature| names.contains(&signature.name.as_str()));
        }
        let names: Vec<&str> = description.signatures.iter().map(|signature| signature.name.as_str()).collect();
        let checked = Checked::try_new(AlignedBytes::from(bytes), |bytes| Program::load(bytes, ops::KERNELS, &names));
        let checked = checked.map_err(|error| explain(bytes, error))?;
        let engine = Engine::session(checked.borrow_dependent())?;
        let (checked, description) = (Arc::new(checked), Arc::new(description));
        Ok(Loaded { checked, description, engine, device: crate::compute::devices::cpu(), out: None })
    }

    /// Returns the artifact with its signatures compiled for `device`, and its variables there, with their present values.
    ///
    /// An artifact that was only loaded runs in the executor of microcontrollers, with portable kernels on one thread: its results have the
    /// device's bits. On [`cpu`](crate::compute::devices::cpu) it runs with vector instructions on all cores, as fast as the
    /// [`Function`](crate::Function) that it was exported from, and results may differ by rounding. Like that function, it does not check
    /// the new values of variables ([`Artifact::finite_steps`](crate::Artifact::finite_steps) checks inputs and results only), it keeps no
    /// second copy, and a step that fails is never unfinished: most errors come before the first assignment.
    ///
    /// Fails with [`Error::OutOfMemory`] if the device has no memory for the variables.
    ///
    /// ```
    /// use gradlet::{Artifact, Eager, Function, Scope, Tensor};
    /// let scope = Eager::new(&gradlet::cpu());
    /// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
    /// let tanh = Function::new(|_: &dyn Scope, x: Tensor| x.tanh());
    /// let mut artifact = Artifact::new();
    /// artifact.signature("tanh", &*tanh.concrete(&scope, &x)?, &["x"], &["y"])?;
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("tanh.grdl");
    /// gradlet::io::write_whole(&path, &artifact.to_bytes()?)?;
    ///
    /// let loaded = gradlet::load(&path)?.on(&scope.device())?;
    /// let y = loaded.signature("tanh")?.call(&[x.clone()])?;
    /// assert_eq!(y[0].to_vec::<f32>()?, tanh.call(&scope, x)?.to_vec::<f32>()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on(self, device: &Device) -> Result<Loaded> {
        let values = self.engine.values(self.program())?;
        let prints = |out: &Arc<Out>| {
            let out = out.clone();
            device.printing(move |text| out(text))
        };
        let device = self.out.as_ref().map_or(device.clone(), prints);
        let engine = Engine::functions(self.program(), &self.description, &values, &device)?;
        Ok(Loaded { engine, device, ..self })
    }

    /// Returns another session: the same signatures over the same variables, for another thread.
    ///
    /// Sessions share the variables and constants. Each has scratch memory and results of its own, which it allocates when a signature
    /// first runs there, so `n` sessions need the memory of one set of weights and of `n` runs. Signatures that assign no variable run at
    /// the same time in different sessions. One that assigns variables, such as a training step, waits until the others end, and they wait
    /// for it: no call sees half of a step.
    ///
    /// Fails if the artifact was only loaded: call [`Loaded::on`] first.
    ///
    /// ```
    /// use gradlet::{Artifact, Eager, Function, Scope, Tensor};
    /// let scope = Eager::new(&gradlet::cpu());
    /// let x = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
    /// let double = Function::new(|_: &dyn Scope, x: Tensor| x.add(&x));
    /// let mut artifact = Artifact::new();
    /// artifact.signature("double", &*double.concrete(&scope, &x)?, &["x"], &["y"])?;
    ///
    /// let first = gradlet::artifact::Loaded::new(&artifact.to_bytes()?, None)?.on(&scope.device())?;
    /// let sessions = [first.session()?, first];
    /// std::thread::scope(|threads| {
    ///     let call = |session: &gradlet::artifact::Loaded| session.signature("double")?.call(&[x.clone()])?[0].to_vec::<f32>();
    ///     let results = sessions.each_ref().map(|session| threads.spawn(move || call(session)));
    ///     assert!(results.into_iter().all(|result| result.join().unwrap() == Ok(vec![2.0, 4.0])));
    /// });
    /// # Ok::<(), gradlet::Error>(())
    /// ```
    pub fn session(&self) -> Result<Loaded> {
        let text = "an artifact that was only loaded has one session: choose a device for it with `on`, then call `session`";
        let engine = self.engine.shared().ok_or_else(|| Error::message(text))?;
        let (checked, description) = (self.checked.clone(), self.description.clone());
        Ok(Loaded { checked, description, engine, device: self.device.clone(), out: self.out.clone() })
    }

    /// Sends the text that signatures print to `out` instead of the standard output. Call it before [`Loaded::on`].
    pub fn printing(self, out: impl Fn(Arguments<'_>) + Send + Sync + 'static) -> Loaded {
        Loaded { out: Some(Arc::new(out)), ..self }
    }

    /// Returns the device of the inputs and outputs.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    fn program(&self) -> &Program<'_> {
        self.checked.borrow_dependent()
    }

    /// Returns the signatures that were loaded.
    pub fn signatures(&self) -> impl Iterator<Item = LoadedSignature<'_>> {
        self.description.signatures.iter().filter_map(|info| {
            self.program().signature(&info.name).ok()?;
            Some(LoadedSignature { loaded: self, info })
        })
    }

    /// Returns the signature `name`. Fails if it was not loaded; the error lists the loaded ones.
    pub fn signature(&self, name: &str) -> Result<LoadedSignature<'_>> {
        let info = find(&self.description, name)?;
        self.program().signature(name)?;
        Ok(LoadedSignature { loaded: self, info })
    }

    /// Returns the description of the artifact.
    pub fn description(&self) -> &Description {
        &self.description
    }

    /// Returns the identity of the artifact. A flat checkpoint stores it to identify the artifact that it belongs to.
    pub fn identity(&self) -> gradlet_core::runtime::checkpoint::Identity {
        self.program().identity()
    }

    /// Returns the value of the variable `name`. Fails if there is no such variable, or if it has no value that a loaded
    /// signature could read.
    pub fn variable(&self, name: &str) -> Result<Tensor> {
        self.engine.variable(self.program(), &self.description, self.index(name)?, &self.device)
    }

    /// Sets the variable `name`. Fails if there is no such variable or it has another type. Also fails if no loaded signature
    /// assigns it, because it is a constant then.
    pub fn assign(&self, name: &str, value: &Tensor) -> Result<()> {
        let index = self.index(name)?;
        let wanted = self.description.variables[index].tensor_type;
        if value.tensor_type() != wanted {
            return Err(Error::message(format!("variable {name:?} is {wanted}, it cannot hold {}", value.tensor_type())));
        }
        let loaded = |by: &String| self.description.signatures.iter().any(|signature| signature.name == *by);
        if !self.description.variables[index].assigned_by.iter().any(loaded) {
            return Err(Error::message(format!("variable {name:?} is a constant: no loaded signature assigns it")));
        }
        self.engine.assign(self.program(), index, value)
    }

    /// Sets all variables to their initial values. If a call failed after it had changed a variable, further calls fail with
    /// [`Error::Unfinished`] until then.
    pub fn reset(&self) -> Result<()> {
        self.engine.reset(self.program())
    }

    /// Returns the artifact with the current values of its variables as their initial values.
    pub fn to_bytes(&self) -> Result<AlignedBytes> {
        first_values::replaced(self.checked.borrow_owner(), &self.engine.values(self.program())?)
    }

    /// Returns the artifact with these initial values of variables. This includes variables that no signature assigns. Other
    /// variables keep their initial values.
    ///
    /// Fails if there is no variable with one of the names, or if a value does not have its variable's type.
    pub fn with_values(&self, values: &[(&str, Tensor)]) -> Result<AlignedBytes> {
        let mut replaced = vec![None; self.description.variables.len()];
        for (name, value) in values {
            let index = self.index(name)?;
            let wanted = self.description.variables[index].tensor_type;
            if value.tensor_type() != wanted {
                return Err(Error::message(format!("variable {name:?} is {wanted}, it cannot hold {}", value.tensor_type())));
            }
            replaced[index] = Some(value.bytes()?.to_vec());
        }
        first_values::replaced(self.checked.borrow_owner(), &replaced)
    }

    /// Writes [`Loaded::to_bytes`] atomically to `path`. Loading the file again restores the trained values.
    pub fn save(&self, path: impl AsRef<Path>) -> FileResult<()> {
        let path = path.as_ref();
        write_whole(path, &self.to_bytes().map_err(|error| FileError::model(path, error))?)
    }

    fn index(&self, name: &str) -> Result<usize> {
        let names: Vec<&str> = self.description.variables.iter().map(|variable| variable.name.as_str()).collect();
        let known = names.iter().position(|known| *known == name);
        known.ok_or_else(|| Error::message(format!("there is no variable {name:?}; the artifact has {}", names.join(", "))))
    }
}

/// A signature of a [`Loaded`] artifact that can be called.
#[derive(Clone, Copy)]
pub struct LoadedSignature<'l> {
    loaded: &'l Loaded,
    info: &'l SignatureInfo,
}

impl<'l> LoadedSignature<'l> {
    /// Returns the name.
    pub fn name(&self) -> &'l str {
        &self.info.name
    }

    /// Returns the documentation of the signature, if the artifact has it.
    pub fn doc(&self) -> Option<&'l str> {
        self.info.doc.as_deref()
    }

    /// Returns the names and types of the inputs.
    pub fn inputs(&self) -> impl Iterator<Item = (&'l str, TensorType)> + use<'l> {
        typed(&self.info.inputs)
    }

    /// Returns the names and types of the outputs.
    pub fn outputs(&self) -> impl Iterator<Item = (&'l str, TensorType)> + use<'l> {
        typed(&self.info.outputs)
    }

    /// Returns the signature as a function, for example to [quantize](crate::quantize) it or to convert it to
    /// [TensorFlow Lite's format](crate::tflite::Converter).
    ///
    /// An int8 signature can be run, but not converted: an artifact has the scales of inputs and outputs only.
    ///
    /// Fails if the artifact was only loaded: call [`Loaded::on`] first.
    pub fn concrete(&self) -> Result<&'l ConcreteFunction> {
        let text = "an artifact that was only loaded has no functions: choose a device for it with `on`";
        self.loaded.engine.function(self.name()).ok_or_else(|| Error::message(text))
    }

    /// Runs the signature on tensors of [`cpu`](crate::compute::devices::cpu), or of the device that [`Loaded::on`] set, in the order of
    /// its inputs. Returns the outputs in their order. Calls from several threads run one after another; those of different sessions
    /// ([`Loaded::session`]) can run at the same time.
    ///
    /// Fails if an input has another type or is on another device, or if an op rejects the data. If the call had changed a variable of an
    /// artifact that was only loaded, [`Loaded::reset`] must follow.
    pub fn call(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let name = self.name();
        if inputs.len() != self.info.inputs.len() {
            let (wanted, got) = (list(&self.info.inputs), inputs.len());
            return Err(Error::message(format!("{name:?} takes {} inputs ({wanted}), got {got}", self.info.inputs.len())));
        }
        for (index, (input, (input_name, wanted))) in inputs.iter().zip(self.inputs()).enumerate() {
            if input.tensor_type() != wanted {
                return Err(Error::message(format!("input {index} of {name:?} is {wanted}, got {}", input.tensor_type())));
            }
            let (device, own) = (input.device()?, &self.loaded.device);
            if device != *own {
                let (other, own) = (device.name(), own.name());
                return Err(Error::message(format!(
                    "input {index} ({input_name}) of {name:?} is on {other}, but the signature runs on {own}: copy it with `to`"
                )));
            }
        }
        let (Loaded { engine, device, out, .. }, program) = (self.loaded, self.loaded.program());
        match out {
            Some(out) => engine.call(program, self.info, inputs, (device, &**out)),
            None => engine.call(program, self.info, inputs, (device, &|text| print!("{text}"))),
        }
    }

    /// Runs the signature with inputs by name, in any order. Returns the outputs with their names.
    ///
    /// Fails in the same cases as [`LoadedSignature::call`], and if an input is missing, unknown or given twice.
    pub fn call_named(&self, inputs: &[(&str, Tensor)]) -> Result<Vec<(&'l str, Tensor)>> {
        let has = list(&self.info.inputs);
        for (index, (name, _)) in inputs.iter().enumerate() {
            if self.inputs().all(|(known, _)| known != *name) {
                return Err(Error::message(format!("{:?} has no input {name:?}; it has {has}", self.name())));
            }
            if inputs.iter().take(index).any(|(other, _)| other == name) {
                return Err(Error::message(format!("input {name:?} of {:?} is given twice", self.name())));
            }
        }
        let given = |wanted: &str| inputs.iter().find(|(name, _)| *name == wanted).map(|(_, tensor)| tensor.clone());
        let missing = |name| Error::message(format!("input {name:?} of {:?} is not given; it has {has}", self.name()));
        let ordered = self.inputs().map(|(name, _)| given(name).ok_or_else(|| missing(name))).collect::<Result<Vec<_>>>()?;
        Ok(self.outputs().map(|(name, _)| name).zip(self.call(&ordered)?).collect())
    }
}

fn typed(named: &[(String, OperandInfo)]) -> impl Iterator<Item = (&str, TensorType)> {
    named.iter().map(|(name, operand)| (name.as_str(), operand.tensor_type))
}

fn list(named: &[(String, OperandInfo)]) -> String {
    typed(named).map(|(name, tensor_type)| format!("{name}: {tensor_type}")).collect::<Vec<_>>().join(", ")
}

/// Finds the signature `name`. The error lists the signatures of the artifact.
fn find<'d>(description: &'d Description, name: &str) -> Result<&'d SignatureInfo> {
    let names = || description.signatures.iter().map(|signature| signature.name.as_str()).collect::<Vec<_>>().join(", ");
    let found = description.signatures.iter().find(|signature| signature.name == name);
    found.ok_or_else(|| Error::message(format!("there is no signature {name:?}; the artifact has {}", names())))
}

/// Converts an error about a missing kernel to one that names the op and the line to add to the kernels. Returns any other error
/// unchanged.
fn explain(bytes: &[u8], error: Error) -> Error {
    let bytes = AlignedBytes::from(bytes);
    match error.root() {
        Error::MissingKernel { kernel } => match missing_kernel(&bytes, *kernel) {
            Some((op, dtype)) => {
                let line = firmware::kernel(op, dtype);
                Error::message(format!("the artifact needs the op {op} for {dtype}, which is not linked: add {line} to the kernels"))
            }
            None => error,
        },
        _ => error,
    }
}
