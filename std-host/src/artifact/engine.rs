//! The engines of loaded artifacts: the executor of microcontrollers, and functions that a device has compiled.

use gradlet_core::artifact::describe::{Description, OperandInfo, SignatureInfo};
use gradlet_core::device::AlignedBytes;
use gradlet_core::function::ConcreteFunction;
use gradlet_core::runtime::format::Said;
use gradlet_core::{Device, Eager, Error, Program, Result, Scope, Session, Tensor, Variable};
use std::fmt::Arguments;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Function that receives printed text.
pub(crate) type Out = dyn Fn(Arguments<'_>) + Send + Sync;

/// The state of a loaded artifact, with the means to run its signatures.
pub(crate) enum Engine {
    /// The executor of microcontrollers, with portable kernels, in an arena.
    Session(Mutex<AlignedBytes>),
    /// Functions over variables on a device.
    Functions(Functions),
}

/// Functions over variables on a device.
pub(crate) struct Functions {
    /// One for each signature.
    functions: Vec<Compiled>,
    state: Arc<State>,
}

/// A signature that a device has compiled.
#[derive(Clone)]
struct Compiled {
    name: String,
    function: ConcreteFunction,
    /// True if it assigns a variable.
    assigns: bool,
}

/// The variables, which all sessions share.
struct State {
    variables: Vec<Variable>,
    /// Lock that a call holds, so that no other call sees half of its assignments. Calls that assign nothing hold it together.
    turn: RwLock<()>,
}

impl State {
    fn reads(&self) -> RwLockReadGuard<'_, ()> {
        self.turn.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn assigns(&self) -> RwLockWriteGuard<'_, ()> {
        self.turn.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Functions {
    fn run(&self, name: &str, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let compiled = self.functions.iter().find(|compiled| compiled.name == name).ok_or(Error::UnknownSignature)?;
        if compiled.assigns {
            let _turn = self.state.assigns();
            return compiled.function.run(inputs);
        }
        let _turn = self.state.reads();
        compiled.function.run(inputs)
    }
}

impl Engine {
    /// Creates an executor for `program`.
    pub(crate) fn session(program: &Program<'_>) -> Result<Engine> {
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        Session::new(program, &mut arena)?;
        Ok(Engine::Session(Mutex::new(arena)))
    }

    /// Creates functions on `device` whose variables have these values. A variable without one can only be used after an assignment.
    pub(crate) fn functions(
        program: &Program<'_>,
        description: &Description,
        values: &[Option<Vec<u8>>],
        device: &Device,
    ) -> Result<Engine> {
        let scope = Eager::new(device);
        let variables = description.variables.iter().zip(values).map(|(info, value)| {
            let variable = if info.trainable { Variable::deferred(&info.name) } else { Variable::untrained(&info.name) };
            if let Some(value) = value {
                variable.create(&scope, &Tensor::from_bytes(device, info.tensor_type, value)?)?;
            }
            Ok(variable)
        });
        let variables = variables.collect::<Result<Vec<_>>>()?;
        let compiled = |name: &String| {
            let function = gradlet_core::artifact::function(program, name, &variables, device)?;
            let assigns = function.graph().captures.iter().any(|capture| capture.assigned.is_some());
            Ok(Compiled { name: name.clone(), function, assigns })
        };
        let functions = description.signatures.iter().map(|signature| compiled(&signature.name)).collect::<Result<_>>()?;
        Ok(Engine::Functions(Functions { functions, state: Arc::new(State { variables, turn: RwLock::default() }) }))
    }

    /// Returns an engine over the same variables, or `None` if this is an executor, whose variables are in its arena.
    pub(crate) fn shared(&self) -> Option<Engine> {
        let Engine::Functions(Functions { functions, state }) = self else { return None };
        Some(Engine::Functions(Functions { functions: functions.clone(), state: state.clone() }))
    }

    /// Returns the value of each variable, or `None` for one without a value.
    pub(crate) fn values(&self, program: &Program<'_>) -> Result<Vec<Option<Vec<u8>>>> {
        match self {
            Engine::Session(arena) => with_session(program, arena, |session| {
                Ok((0..session.variable_count()).map(|index| session.variable(index).ok().map(<[u8]>::to_vec)).collect())
            }),
            Engine::Functions(Functions { state, .. }) => {
                let _turn = state.reads();
                let value = |variable: &Variable| variable.is_built().then(|| Ok(read(variable)?.bytes()?.to_vec())).transpose();
                state.variables.iter().map(value).collect()
            }
        }
    }

    /// Returns the value of variable `index` on `device`.
    pub(crate) fn variable(&self, program: &Program<'_>, description: &Description, index: usize, device: &Device) -> Result<Tensor> {
        match self {
            Engine::Session(arena) => with_session(program, arena, |session| {
                Tensor::from_bytes(device, description.variables[index].tensor_type, session.variable(index)?)
            }),
            Engine::Functions(Functions { state, .. }) => read(&state.variables[index]),
        }
    }

    /// Sets variable `index` to `value`, which has its type. A loaded signature assigns it.
    pub(crate) fn assign(&self, program: &Program<'_>, index: usize, value: &Tensor) -> Result<()> {
        match self {
            Engine::Session(arena) => with_session(program, arena, |session| {
                session.variable_mut(index)?.copy_from_slice(&value.bytes()?);
                Ok(())
            }),
            Engine::Functions(Functions { state, .. }) => {
                let _turn = state.assigns();
                let variable = &state.variables[index];
                let device = variable.device()?;
                Eager::new(&device).assign(variable, &value.to(&device)?)
            }
        }
    }

    /// Returns the function of a signature, or `None` if this is an executor.
    pub(crate) fn function(&self, name: &str) -> Option<&ConcreteFunction> {
        let Engine::Functions(Functions { functions, .. }) = self else { return None };
        functions.iter().find(|compiled| compiled.name == name).map(|compiled| &compiled.function)
    }

    /// Sets all variables to their initial values.
    pub(crate) fn reset(&self, program: &Program<'_>) -> Result<()> {
        match self {
            Engine::Session(arena) => Session::new(program, &mut lock(arena)).map(drop),
            Engine::Functions(Functions { state, .. }) => {
                let _turn = state.assigns();
                let mut arena = AlignedBytes::zeroed(program.arena_bytes());
                let session = Session::new(program, &mut arena)?;
                let built = state.variables.iter().enumerate().filter(|(_, variable)| variable.is_built());
                let initial = built.map(|(index, variable)| {
                    Ok((variable, Tensor::from_bytes(&variable.device()?, variable.tensor_type()?, session.variable(index)?)?))
                });
                let initial = initial.collect::<Result<Vec<_>>>()?;
                initial.iter().try_for_each(|(variable, value)| Eager::new(&value.device()?).assign(variable, value))
            }
        }
    }

    /// Runs a signature on tensors of `device`. `out` receives the text that the executor prints.
    pub(crate) fn call(
        &self,
        program: &Program<'_>,
        info: &SignatureInfo,
        inputs: &[Tensor],
        (device, out): (&Device, &Out),
    ) -> Result<Vec<Tensor>> {
        let ran = match self {
            Engine::Session(arena) => with_session(program, arena, |session| run(session, info, inputs, (device, out))),
            Engine::Functions(functions) => functions.run(&info.name, inputs),
        };
        ran.map_err(|error| error.context(format!("signature {:?}", info.name)))
    }
}

fn run(session: &mut Session<'_, '_>, info: &SignatureInfo, inputs: &[Tensor], (device, out): (&Device, &Out)) -> Result<Vec<Tensor>> {
    let id = session.program().signature(&info.name)?;
    for (index, input) in inputs.iter().enumerate() {
        session.input_bytes_mut(id, index)?.copy_from_slice(&input.bytes()?);
    }
    let mut told = Ok(());
    let say = &mut |said: Said<'_>| match said {
        Said::Print(text) => out(format_args!("{text}")),
        Said::Summary(_) => told = told.clone().and(device.say(&said)),
    };
    session.run_printing(id, say)?;
    told?;
    let output =
        |(index, (_, of)): (usize, &(String, OperandInfo))| Tensor::from_bytes(device, of.tensor_type, session.output_bytes(id, index)?);
    info.outputs.iter().enumerate().map(output).collect()
}

fn read(variable: &Variable) -> Result<Tensor> {
    Eager::new(&variable.device()?).read(variable)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn with_session<R>(program: &Program<'_>, arena: &Mutex<AlignedBytes>, work: impl FnOnce(&mut Session<'_, '_>) -> Result<R>) -> Result<R> {
    work(&mut Session::resume(program, &mut lock(arena))?)
}
