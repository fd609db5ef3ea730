//! Programs on several devices, with TensorFlow's results: configuration, placement, copies, and replicas of a strategy.

mod replicas;
mod values;

use crate::golden::checks::{Checks, json};
use crate::golden::fixtures::text;
use crate::golden::parsed_json::list;
use anyhow::{Context as _, Result, bail};
use gradlet::config::{Context, Environment, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::MirroredStrategy;
use gradlet::io::FileError;
use gradlet::scope::DeviceScope;
use gradlet::{Error, Function, Scope, Tensor, Variable};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::Path;
use values::{Got, host, name_of, on};

/// Runs `scenarios.json` on CPUs with fast kernels.
pub fn scenarios(folder: &Path, checks: &mut Checks) -> Result<()> {
    scenarios_in(folder, || Context::with_devices([], &Environment::default()), checks)
}

/// Runs `scenarios.json`. Each scenario has a context of its own, which `context` creates.
pub fn scenarios_in(folder: &Path, context: impl Fn() -> Context, checks: &mut Checks) -> Result<()> {
    for one in list(&json(folder, "scenarios.json")?["scenarios"])? {
        scenario(text(one, "id")?, list(&one["steps"])?, context(), checks);
    }
    Ok(())
}

/// Runs the steps of a scenario in `context`. Each step is a case. A step that fails does not end the scenario.
pub fn scenario(name: &str, steps: &[Json], context: Context, checks: &mut Checks) {
    let mut program = Program { context, values: HashMap::new(), strategy: None };
    for (index, step) in steps.iter().enumerate() {
        let what = step["do"].as_str().unwrap_or("?");
        checks.check(&format!("{name}: step {index} {what}"), || judge(program.step(step), step));
    }
}

/// Compares the result of a step with TensorFlow's: it is the same, or both fail.
fn judge(got: Result<Got>, step: &Json) -> Result<()> {
    let tolerance = if step["do"] == "train_linear" { 1e-5 } else { 1e-6 };
    match (got, step.get("result"), step.get("error")) {
        (Ok(got), Some(wanted), None) => got.compare(wanted, tolerance),
        (Err(error), None, Some(_)) if is_refusal(&error) => Ok(()),
        (Err(error), ..) => Err(error),
        (Ok(_), None, Some(wanted)) => bail!("it did not fail, but should have: {wanted}"),
        _ => bail!("the step needs either \"result\" or \"error\""),
    }
}

/// True if gradlet refused the step. Any other error is that of this runner, which does not know the step.
fn is_refusal(error: &anyhow::Error) -> bool {
    error.is::<Error>() || error.is::<FileError>()
}

/// State of a scenario between its steps.
struct Program {
    context: Context,
    values: HashMap<String, Named>,
    strategy: Option<MirroredStrategy>,
}

/// Value with a name.
enum Named {
    Tensor(Tensor),
    Variable(Variable),
}

/// Function of a step's inputs.
type Apply = fn(&[Tensor]) -> gradlet::Result<Tensor>;

/// Returns the op with this name and number of inputs.
fn op(name: &str, inputs: usize) -> Result<Apply> {
    let apply: Apply = match (name, inputs) {
        ("add", 2) => |x| x[0].add(&x[1]),
        ("mul", 2) => |x| x[0].mul(&x[1]),
        ("matmul", 2) => |x| x[0].matmul(&x[1]),
        ("sum", 1) => |x| x[0].sum(&[], false),
        ("neg", 1) => |x| x[0].neg(),
        ("identity", 1) => |x| x[0].identity(),
        _ => bail!("unknown op {name:?} with {inputs} inputs"),
    };
    Ok(apply)
}

/// Makes ops run on a device, if one is given, until the guard is dropped.
fn entered(scope: &dyn Scope, device: Option<&str>) -> gradlet::Result<Option<DeviceScope>> {
    device.map(|device| scope.with_device(device)).transpose()
}

/// Makes ops run on a device until the guard is dropped. None ends the effect of enclosing guards.
fn entered_or_left(scope: &dyn Scope, device: Option<&str>) -> gradlet::Result<DeviceScope> {
    device.map_or_else(|| Ok(scope.without_device()), |device| scope.with_device(device))
}

fn physical(name: &str) -> Result<PhysicalDevice> {
    let (device_type, index) = name.split_once(':').with_context(|| format!("{name:?} is not a physical device"))?;
    Ok(PhysicalDevice::new(device_type, index.parse()?))
}

/// Returns the short names of physical devices, such as `CPU:0`.
fn names(devices: &[PhysicalDevice]) -> Got {
    let name = |device: &PhysicalDevice| format!("{}:{}", device.device_type(), device.index());
    serde_json::json!(devices.iter().map(name).collect::<Vec<_>>()).into()
}

/// Returns field `name` of a step, a number of things.
fn count(step: &Json, name: &str) -> Result<usize> {
    let count = step[name].as_u64().with_context(|| format!("no count {name:?}"))?;
    Ok(count.try_into()?)
}

impl Program {
    /// Runs a step.
    fn step(&mut self, step: &Json) -> Result<Got> {
        let (context, kind) = (&self.context, step["kind"].as_str());
        match text(step, "do")? {
            "list_physical" => return Ok(names(&context.list_physical_devices(kind))),
            "get_visible" => return Ok(names(&context.get_visible_devices(kind))),
            "list_logical" => {
                let devices = context.list_logical_devices(kind)?;
                let names: Vec<&str> = devices.iter().map(|logical| logical.device().name()).collect();
                return Ok(serde_json::json!(names).into());
            }
            "get_logical_count" => {
                let logical = context.get_logical_device_configuration(&physical(text(step, "physical")?)?)?;
                return Ok(serde_json::json!(logical.map(|logical| logical.len())).into());
            }
            "get_soft_placement" => return Ok(Json::Bool(context.get_soft_device_placement()).into()),
            "get_threads" => {
                let (intra, inter) = (context.get_intra_op_parallelism_threads(), context.get_inter_op_parallelism_threads());
                return Ok(serde_json::json!([intra, inter]).into());
            }
            "set_logical" => {
                let logical = vec![LogicalDeviceConfiguration::new(); count(step, "count")?];
                context.set_logical_device_configuration(&physical(text(step, "physical")?)?, &logical)?;
            }
            "set_visible" => {
                let devices = list(&step["devices"])?.iter().map(|name| physical(name.as_str().unwrap_or_default()));
                context.set_visible_devices(&devices.collect::<Result<Vec<_>>>()?, kind)?;
            }
            "set_soft_placement" => context.set_soft_device_placement(step["value"].as_bool().context("no value")?),
            "set_threads" => {
                context.set_intra_op_parallelism_threads(count(step, "intra")?)?;
                context.set_inter_op_parallelism_threads(count(step, "inter")?)?;
            }
            _ => return self.place(step),
        }
        Ok(Json::Null.into())
    }

    /// Runs a step with tensors, variables and ops, outside of replicas.
    fn place(&mut self, step: &Json) -> Result<Got> {
        let device = step["device"].as_str();
        match text(step, "do")? {
            "constant" => {
                let scope = self.context.scope()?;
                let _there = entered(&scope, device)?;
                let tensor = on(&scope.device(), &host(text(step, "dtype")?, &step["value"])?)?;
                self.keep(step, Named::Tensor(tensor))
            }
            "variable" => {
                let scope = self.context.scope()?;
                let _there = entered(&scope, device)?;
                let value = on(&scope.device(), &host(text(step, "dtype")?, &step["value"])?)?;
                self.keep(step, Named::Variable(Variable::new(&scope, text(step, "name")?, &value)?))
            }
            "op" => {
                let output = self.output(step, device)?;
                let place = self.keep(step, Named::Tensor(output.clone()))?;
                Ok(Got::Fields(vec![("device", place), ("value", output.into())]))
            }
            "assign" => {
                let (scope, variable) = (self.context.scope()?, self.variable(text(step, "name")?)?);
                let _there = entered(&scope, device)?;
                scope.assign(variable, &new_value(&scope, variable, step)?)?;
                Ok(Json::Null.into())
            }
            "value" => Ok(self.read(text(step, "name")?)?.into()),
            "device" => self.device(text(step, "name")?),
            "nested_devices" => {
                let scope = self.context.scope()?;
                let _outer = entered_or_left(&scope, step["outer"].as_str())?;
                let _inner = entered_or_left(&scope, step["inner"].as_str())?;
                let device = Tensor::scalar(&scope.device(), 0.0f32).device()?;
                Ok(serde_json::json!(device.name()).into())
            }
            _ => self.replicate(step),
        }
    }

    /// Returns the output of an op, eager or traced.
    fn output(&self, step: &Json, device: Option<&str>) -> Result<Tensor> {
        let names = list(&step["inputs"])?.iter().map(|name| name.as_str().unwrap_or_default());
        let inputs = names.map(|name| self.read(name)).collect::<Result<Vec<Tensor>>>()?;
        let (scope, apply) = (self.context.scope()?, op(text(step, "op")?, inputs.len())?);
        if step["traced"] == true {
            let device = device.map(String::from);
            let function = Function::new(move |scope: &dyn Scope, inputs: Vec<Tensor>| {
                let _there = entered(scope, device.as_deref())?;
                apply(&inputs)
            });
            return Ok(function.call(&scope, inputs)?);
        }
        let _there = entered(&scope, device)?;
        Ok(apply(&inputs)?)
    }

    /// Gives a value the name in a step. Returns the name of its device.
    fn keep(&mut self, step: &Json, value: Named) -> Result<Got> {
        let name = text(step, "name")?;
        self.values.insert(name.into(), value);
        self.device(name)
    }

    /// Returns the short name of a value's device.
    fn device(&self, name: &str) -> Result<Got> {
        let device = match self.named(name)? {
            Named::Tensor(tensor) => tensor.device()?,
            Named::Variable(variable) => variable.device()?,
        };
        Ok(serde_json::json!(device.name()).into())
    }

    /// Returns the value with a name, or the current value of a variable.
    fn read(&self, name: &str) -> Result<Tensor> {
        match self.named(name)? {
            Named::Tensor(tensor) => Ok(tensor.clone()),
            Named::Variable(variable) => Ok(self.context.scope()?.read(variable)?),
        }
    }

    fn variable(&self, name: &str) -> gradlet::Result<&Variable> {
        match self.named(name)? {
            Named::Variable(variable) => Ok(variable),
            Named::Tensor(_) => Err(Error::message(format!("{name:?} is not a variable"))),
        }
    }

    fn named(&self, name: &str) -> gradlet::Result<&Named> {
        let missing = || Error::message(format!("there is no value {name:?}, because the step that creates it failed"));
        self.values.get(name).ok_or_else(missing)
    }
}

/// Creates the value of a step, of the type of `variable`, on the device of `scope`.
fn new_value(scope: &dyn Scope, variable: &Variable, step: &Json) -> Result<Tensor> {
    let value = host(name_of(variable.tensor_type()?.dtype)?, &step["value"])?;
    Ok(on(&scope.device(), &value)?)
}
