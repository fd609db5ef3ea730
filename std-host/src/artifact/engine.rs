//! The engines of loaded artifacts: the executor of microcontrollers, and functions that a device has compiled.

use gradlet_core::artifact::describe::{Description, OperandInfo, SignatureInfo};
use gradlet_core::device::AlignedBytes;
use gradlet_core::function::ConcreteFunction;
use gradlet_core::runtime::format::Said;
use gradlet_core::{Device, Eager, Error, Program, Result, Scope, Session, Tensor, Variable};
use std::fmt::Arguments;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    variables: Vec<Variable>,
    /// The functions, one for each signature, with its name.
    functions: Vec<(String, ConcreteFunction)>,
    /// Lock that a call holds, so that no other call sees half of its assignments.
    turn: Mutex<()>,
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
        let function = |name: &String| Ok((name.clone(), gradlet_core::artifact::function(program, name, &variables, device)?));
        let functions = description.signatures.iter().map(|signature| function(&signature.name)).collect::<Result<_>>()?;
        Ok(Engine::Functions(Functions { variables, functions, turn: Mutex::default() }))
    }

    /// Returns the value of each variable, or `None` for one without a value.
    pub(crate) fn values(&self, program: &Program<'_>) -> Result<Vec<Option<Vec<u8>>>> {
        match self {
            Engine::Session(arena) => with_session(program, arena, |session| {
                Ok((0..session.variable_count()).map(|index| session.variable(index).ok().map(<[u8]>::to_vec)).collect())
            }),
            Engine::Functions(Functions { variables, turn, .. }) => {
                let _turn = lock(turn);
                let value = |variable: &Variable| variable.is_built().then(|| Ok(read(variable)?.bytes()?.to_vec())).transpose();
                variables.iter().map(value).collect()
            }
        }
    }

    /// Returns the value of variable `index` on `device`.
    pub(crate) fn variable(&self, program: &Program<'_>, description: &Description, index: usize, device: &Device) -> Result<Tensor> {
        match self {
            Engine::Session(arena) => with_session(program, arena, |session| {
                Tensor::from_bytes(device, description.variables[index].tensor_type, session.variable(index)?)
            }),
            Engine::Functions(Functions { variables, .. }) => read(&variables[index]),
        }
    }

    /// Sets variable `index` to `value`, which has its type. A loaded signature assigns it.
    pub(crate) fn assign(&self, program: &Program<'_>, index: usize, value: &Tensor) -> Result<()> {
        match self {
            Engine::Session(arena) => with_session(program, arena, |session| {
                session.variable_mut(index)?.copy_from_slice(&value.bytes()?);
                Ok(())
            }),
            Engine::Functions(Functions { variables, turn, .. }) => {
                let _turn = lock(turn);
                let device = variables[index].device()?;
                Eager::new(&device).assign(&variables[index], &value.to(&device)?)
            }
        }
    }

    /// Sets all variables to their initial values.
    pub(crate) fn reset(&self, program: &Program<'_>) -> Result<()> {
        match self {
            Engine::Session(arena) => Session::new(program, &mut lock(arena)).map(drop),
            Engine::Functions(Functions { variables, turn, .. }) => {
                let _turn = lock(turn);
                let mut arena = AlignedBytes::zeroed(program.arena_bytes());
                let session = Session::new(program, &mut arena)?;
                let built = variables.iter().enumerate().filter(|(_, variable)| variable.is_built());
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
            Engine::Functions(Functions { functions, turn, .. }) => {
                let _turn = lock(turn);
                let (_, function) = functions.iter().find(|(own, _)| *own == info.name).ok_or(Error::UnknownSignature)?;
                function.run(inputs)
            }
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
