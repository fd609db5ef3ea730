//! Steps with a strategy: mirrored variables, functions in replicas, reductions, divided batches, training, checkpoints.

use super::values::{Got, host, on};
use super::{Named, Program, count, new_value};
use crate::golden::fixtures::text;
use crate::golden::parsed_json::{float, list};
use anyhow::{Context, Result, bail, ensure};
use gradlet::checkpoint::Checkpoint;
use gradlet::distribute::{MirroredStrategy, PerReplica, ReduceOp, all_reduce, replica_id};
use gradlet::optimizers::{Optimizer, Sgd};
use gradlet::tensor::{VariableAggregation, VariableSynchronization};
use gradlet::{Dataset, Differentiate, Error, Function, Scope, Tensor, Variable};
use serde_json::Value as Json;

/// Function that runs in every replica.
type Body = Box<dyn Fn(&dyn Scope) -> gradlet::Result<Tensor> + Send + Sync>;

/// Returns the function with this name. `variable` is the variable that the step names, if any.
fn body(name: &str, variable: Option<Variable>, by: f32) -> Result<Body> {
    let body: Body = match (name, variable) {
        ("replica_id", _) => Box::new(|scope| Ok(Tensor::scalar(&scope.device(), id(scope)?))),
        ("read_times", Some(variable)) => Box::new(move |scope| scope.read(&variable)?.mul(&Tensor::scalar(&scope.device(), by))),
        ("assign_add_id", Some(variable)) => Box::new(move |scope| {
            let value = Tensor::full(&scope.device(), id(scope)? + by, variable.tensor_type()?.shape.dims())?;
            scope.assign_add(&variable, &value)?;
            scope.read(&variable)
        }),
        ("all_reduce_sum", _) => Box::new(move |scope| {
            let value = Tensor::scalar(&scope.device(), id(scope)? + by);
            all_reduce(scope, ReduceOp::Sum, &value)
        }),
        ("all_reduce_mean", _) => Box::new(move |scope| {
            let value = Tensor::scalar(&scope.device(), id(scope)? + by);
            all_reduce(scope, ReduceOp::Mean, &value)
        }),
        (name, _) => bail!("unknown function {name:?}, or it has no variable"),
    };
    Ok(body)
}

/// Returns the number of the replica that traces `scope`.
fn id(scope: &dyn Scope) -> gradlet::Result<f32> {
    let id = replica_id(scope).ok_or_else(|| Error::message("the function does not run in a replica"))?;
    Ok(id as f32)
}

fn aggregation(step: &Json) -> Result<VariableAggregation> {
    Ok(match text(step, "aggregation")? {
        "NONE" => VariableAggregation::None,
        "SUM" => VariableAggregation::Sum,
        "MEAN" => VariableAggregation::Mean,
        "ONLY_FIRST_REPLICA" => VariableAggregation::OnlyFirstReplica,
        other => bail!("unknown aggregation {other:?}"),
    })
}

fn synchronization(step: &Json) -> Result<VariableSynchronization> {
    Ok(match text(step, "synchronization")? {
        "AUTO" => VariableSynchronization::Auto,
        "NONE" => VariableSynchronization::None,
        "ON_WRITE" => VariableSynchronization::OnWrite,
        "ON_READ" => VariableSynchronization::OnRead,
        other => bail!("unknown synchronization {other:?}"),
    })
}

impl Program {
    /// Runs a step with a strategy. Fails for an unknown step.
    pub fn replicate(&mut self, step: &Json) -> Result<Got> {
        match text(step, "do")? {
            "strategy" => {
                let devices = list(&step["devices"])?.iter().map(|name| name.as_str().context("a device is not a text"));
                let strategy = MirroredStrategy::new(&self.context, &devices.collect::<Result<Vec<&str>>>()?)?;
                let replicas = strategy.num_replicas_in_sync();
                self.strategy = Some(strategy);
                Ok(serde_json::json!(replicas).into())
            }
            "mirrored" => self.mirrored(step),
            "run" => Ok(self.run(step)?.into()),
            "reduce" => Ok(reduce(self.strategy()?, step)?.into()),
            "distribute" => Ok(serde_json::json!(distribute(self.strategy()?, step)?).into()),
            "read_copies" => Ok(self.copies(self.variable(text(step, "name")?)?)?.into()),
            "train_linear" => Ok(train_linear(self.strategy()?, step)?.into()),
            "checkpoint_round" => self.checkpoint_round(step),
            other => bail!("unknown step {other:?}"),
        }
    }

    fn strategy(&self) -> gradlet::Result<&MirroredStrategy> {
        self.strategy.as_ref().ok_or_else(|| Error::message("there is no strategy, because the step that creates it failed"))
    }

    /// Creates a mirrored variable. Returns the names of the devices of its copies.
    fn mirrored(&mut self, step: &Json) -> Result<Got> {
        let (name, scope) = (text(step, "name")?, self.strategy()?.scope());
        let value = host(step["dtype"].as_str().unwrap_or("float32"), &step["value"])?;
        let variable = Variable::deferred(name).aggregated(aggregation(step)?).synchronized(synchronization(step)?);
        variable.create(&scope, &on(&scope.device(), &value)?)?;
        self.values.insert(name.into(), Named::Variable(variable.clone()));
        let names = variable.copies().iter().map(|copy| Ok(copy.device()?.name().to_string())).collect::<gradlet::Result<Vec<_>>>()?;
        Ok(serde_json::json!(names).into())
    }

    /// Returns the result of a traced function in each replica.
    fn run(&self, step: &Json) -> Result<Vec<Tensor>> {
        let variable = step["var"].as_str().map(|name| self.variable(name).cloned()).transpose()?;
        let by = if step["by"].is_null() { 0.0 } else { float(&step["by"])? };
        let body = body(text(step, "fn")?, variable, by as f32)?;
        let function = Function::new(move |scope: &dyn Scope, (): ()| body(scope));
        Ok(self.strategy()?.run(|replica| function.call(replica, ()))?.into_values())
    }

    /// Returns the value of each copy of a mirrored variable.
    fn copies(&self, variable: &Variable) -> Result<Vec<Tensor>> {
        let scope = self.context.scope()?;
        Ok(variable.copies().iter().map(|copy| scope.read(copy)).collect::<gradlet::Result<_>>()?)
    }

    /// Saves a mirrored variable, changes it, and restores it. Returns its copies, and a plain variable that is restored from the same
    /// checkpoint.
    fn checkpoint_round(&self, step: &Json) -> Result<Got> {
        let (variable, folder) = (self.variable(text(step, "name")?)?, tempfile::tempdir()?);
        let checkpoint = Checkpoint::new().with("v", variable.clone());
        let prefix = checkpoint.save(folder.path().join("model.ckpt"))?;
        let scope = self.strategy()?.scope();
        scope.assign(variable, &new_value(&scope, variable, step)?)?;
        checkpoint.restore(&prefix)?.assert_consumed()?;
        let scope = self.context.scope()?;
        let plain = Variable::new(&scope, "plain", &Tensor::zeros(&scope.device(), variable.tensor_type()?)?)?;
        Checkpoint::new().with("v", plain.clone()).restore(&prefix)?.assert_consumed()?;
        Ok(Got::List(vec![self.copies(variable)?.into(), scope.read(&plain)?.into()]))
    }
}

/// Reduces values, one of each replica.
fn reduce(strategy: &MirroredStrategy, step: &Json) -> Result<Tensor> {
    let op = text(step, "op")?.parse::<ReduceOp>()?;
    let values = list(&step["values"])?.iter().map(|value| host("float32", value)).collect::<Result<Vec<_>>>()?;
    ensure!(values.len() == strategy.num_replicas_in_sync(), "there are {} values", values.len());
    let parts = strategy.run(|replica| on(&replica.device(), &values[replica.replica_id()]))?;
    let axis = step["axis"].as_i64().map(i32::try_from).transpose()?;
    Ok(strategy.reduce(op, &parts, axis)?)
}

/// Returns the numbers that each replica gets from a dataset, step by step.
fn distribute(strategy: &MirroredStrategy, step: &Json) -> Result<Vec<Vec<Vec<i64>>>> {
    let (numbers, batch) = (Dataset::range(0..count(step, "count")? as i64), count(step, "batch")?);
    let drops = step["drop_remainder"].as_bool().context("no \"drop_remainder\"")?;
    let batches = if drops { numbers.batch_drop_remainder(batch) } else { numbers.batch(batch) };
    let mut steps = Vec::new();
    for parts in strategy.distribute(&batches) {
        steps.push(parts?.values().iter().map(Tensor::to_vec::<i64>).collect::<gradlet::Result<Vec<_>>>()?);
    }
    Ok(steps)
}

/// Trains `y ≈ x·w + b` with a traced step in each replica. Returns the losses and the variables after each step.
fn train_linear(strategy: &MirroredStrategy, step: &Json) -> Result<Vec<Got>> {
    let (scope, rows) = (strategy.scope(), count(step, "global_batch")?);
    let floats = |value: &Json| -> Result<Tensor> { Ok(on(&scope.device(), &host("float32", value)?)?) };
    let [w, b] = ["w", "b"].map(|name| -> Result<Variable> { Ok(Variable::new(&scope, name, &floats(&step[name])?)?) });
    let (w, b) = (w?, b?);
    let optimizer = Sgd::new(float(&step["lr"])?).momentum(float(&step["momentum"])?);
    // Only the first trace of a function may create the state of an optimizer, and any replica may come first.
    optimizer.build(&scope, &[w.clone(), b.clone()])?;
    let trained = vec![w.clone(), b.clone()];
    let function = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let error = x.matmul(&tape.read(&trained[0])?)?.add(&tape.read(&trained[1])?)?.sub(&y)?;
        let loss = error.mul(&error)?.sum(&[], false)?.div(&Tensor::scalar(&scope.device(), rows as f32))?;
        optimizer.apply_gradients(scope, &tape.gradient(&loss, &trained)?)?;
        Ok(loss)
    });
    let divided = |rows: &[Json]| -> Result<PerReplica<Tensor>> { Ok(strategy.split(&floats(&Json::Array(rows.to_vec()))?)?) };
    let mut steps = Vec::new();
    for (x, y) in list(&step["x"])?.chunks(rows).zip(list(&step["y"])?.chunks(rows)) {
        let (x, y) = (divided(x)?, divided(y)?);
        let losses = strategy.run(|replica| {
            let own = |parts: &PerReplica<Tensor>| parts.values()[replica.replica_id()].clone();
            function.call(replica, (own(&x), own(&y)))
        })?;
        let loss = strategy.reduce(ReduceOp::Sum, &losses, None)?;
        steps.push(Got::Fields(vec![("loss", loss.into()), ("w", scope.read(&w)?.into()), ("b", scope.read(&b)?.into())]));
    }
    Ok(steps)
}
