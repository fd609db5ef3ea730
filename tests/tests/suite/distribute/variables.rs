//! Variables of a strategy: how their copies are read, assigned and combined, inside and outside of replicas.

use super::{agreed, cpus, elements, machine, strategy, two};
use gradlet::config::Context;
use gradlet::distribute::{MirroredStrategy, replica_id};
use gradlet::tensor::{VariableAggregation, VariableSynchronization};
use gradlet::{Eager, Error, Function, Result, Scope, Tensor, Variable};

/// Creates a mirrored scalar.
fn scalar(strategy: &MirroredStrategy, aggregation: VariableAggregation, synchronization: VariableSynchronization) -> Result<Variable> {
    let scope = strategy.scope();
    let variable = Variable::deferred("v").aggregated(aggregation).synchronized(synchronization);
    variable.create(&scope, &Tensor::scalar(&scope.device(), 1.0f32))?;
    Ok(variable)
}

/// Returns the number of the replica plus 1, on its device.
fn number(scope: &dyn Scope) -> Result<Tensor> {
    let id = replica_id(scope).ok_or_else(|| Error::message("this is no replica"))?;
    Ok(Tensor::scalar(&scope.device(), id as f32 + 1.0))
}

/// Returns the value of a scalar outside of the replicas.
fn outside(strategy: &MirroredStrategy, variable: &Variable) -> Result<f32> {
    strategy.scope().read(variable)?.item()
}

/// Change of a variable in each replica.
type Change = fn(&dyn Scope, &Variable) -> Result<()>;

/// Changes a variable in all replicas, eagerly or traced.
fn change(strategy: &MirroredStrategy, variable: &Variable, change: Change, traced: bool) -> Result<()> {
    let own = variable.clone();
    let function = Function::new(move |scope: &dyn Scope, (): ()| change(scope, &own));
    let changed = strategy.run(|replica| if traced { function.call(replica, ()) } else { change(replica, variable) });
    changed.map(drop)
}

#[test]
fn a_copy_is_on_each_device() -> Result<()> {
    for strategy in [two()?, strategy(&machine(2).0)?] {
        let v = scalar(&strategy, VariableAggregation::None, VariableSynchronization::Auto)?;
        let copies = v.copies();
        let devices: Vec<_> = copies.iter().map(Variable::device).collect::<Result<_>>()?;
        assert_eq!(devices, strategy.devices());
        assert_eq!(copies.iter().map(Variable::name).collect::<Vec<_>>(), ["v", "v/replica_1"]);
        assert_eq!((copies[0].copies().len(), copies[1].copies().len()), (0, 0));
        assert_eq!((v.device()?, outside(&strategy, &v)?), (strategy.devices()[0].clone(), 1.0));
        strategy.scope().assign(&v, &Tensor::scalar(&strategy.scope().device(), 7.0f32))?;
        assert_eq!(elements(&strategy, &v)?, [7.0, 7.0]);
        strategy.scope().assign_add(&v, &Tensor::scalar(&strategy.scope().device(), 1.0f32))?;
        assert_eq!(elements(&strategy, &v)?, [8.0, 8.0]);
        let wide = Tensor::full(&strategy.scope().device(), 1.0f32, &[2])?;
        assert!(strategy.scope().assign(&v, &wide).is_err());
        assert_eq!(elements(&strategy, &v)?, [8.0, 8.0]);
    }
    Ok(())
}

#[test]
fn assignments_of_replicas_are_combined() -> Result<()> {
    use VariableAggregation::{Mean, None, OnlyFirstReplica, Sum};
    let add: Change = |scope, v| scope.assign_add(v, &number(scope)?);
    let subtract: Change = |scope, v| scope.assign_sub(v, &number(scope)?);
    let set: Change = |scope, v| scope.assign(v, &number(scope)?);
    // TensorFlow's results after an initial value of 1.
    let cases = [
        (None, [[2.0, 3.0], [0.0, -1.0], [1.0, 2.0]]),
        (Sum, [[4.0, 4.0], [-2.0, -2.0], [3.0, 3.0]]),
        (Mean, [[2.5, 2.5], [-0.5, -0.5], [1.5, 1.5]]),
        (OnlyFirstReplica, [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0]]),
    ];
    for strategy in [two()?, strategy(&machine(2).0)?] {
        for (aggregation, wanted) in cases {
            for synchronization in [VariableSynchronization::Auto, VariableSynchronization::OnWrite] {
                for (one, wanted) in [add, subtract, set].into_iter().zip(wanted) {
                    for traced in [false, true] {
                        let v = scalar(&strategy, aggregation, synchronization)?;
                        change(&strategy, &v, one, traced)?;
                        assert_eq!(elements(&strategy, &v)?, wanted, "{aggregation:?}, traced: {traced}");
                        assert_eq!(outside(&strategy, &v)?, wanted[0], "{aggregation:?}, traced: {traced}");
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_variable_that_is_combined_on_read_has_a_value_in_each_replica() -> Result<()> {
    use VariableAggregation::{Mean, OnlyFirstReplica, Sum};
    let add: Change = |scope, v| scope.assign_add(v, &number(scope)?);
    for strategy in [two()?, strategy(&machine(2).0)?] {
        for (aggregation, value, assigned) in [(Sum, 5.0, [5.0, 5.0]), (Mean, 2.5, [10.0, 10.0]), (OnlyFirstReplica, 2.0, [10.0, 10.0])] {
            for traced in [false, true] {
                let v = scalar(&strategy, aggregation, VariableSynchronization::OnRead)?;
                change(&strategy, &v, add, traced)?;
                assert_eq!(elements(&strategy, &v)?, [2.0, 3.0]);
                assert_eq!(outside(&strategy, &v)?, value, "{aggregation:?}");
                let inside = strategy.run(|replica| replica.read(&v)?.item::<f32>())?;
                assert_eq!(inside.values(), [2.0, 3.0]);
                let own = v.clone();
                let read = Function::new(move |scope: &dyn Scope, (): ()| scope.read(&own));
                assert_eq!(read.call(&strategy.scope(), ())?.item::<f32>()?, value, "{aggregation:?}, in a function");
                // An assignment outside of the replicas is divided among them if their values are added.
                strategy.scope().assign(&v, &Tensor::scalar(&strategy.scope().device(), 10.0f32))?;
                assert_eq!((elements(&strategy, &v)?, outside(&strategy, &v)?), (assigned.to_vec(), 10.0), "{aggregation:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_value_that_nothing_combines_cannot_be_read_outside() -> Result<()> {
    let strategy = two()?;
    let v = scalar(&strategy, VariableAggregation::None, VariableSynchronization::OnRead)?;
    change(&strategy, &v, |scope, v| scope.assign_add(v, &number(scope)?), true)?;
    let error = strategy.scope().read(&v).unwrap_err().to_string();
    assert!(error.contains("\"v\" has another value in each replica"), "{error}");
    assert_eq!(strategy.run(|replica| replica.read(&v)?.item::<f32>())?.values(), [2.0, 3.0]);
    assert_eq!(elements(&strategy, &v)?, [2.0, 3.0]);
    Ok(())
}

#[test]
fn integers_are_summed_and_divided() -> Result<()> {
    let strategy = two()?;
    let scope = strategy.scope();
    let summed = Variable::deferred("n").aggregated(VariableAggregation::Sum).synchronized(VariableSynchronization::OnRead);
    summed.create(&scope, &Tensor::scalar(&scope.device(), 0i64))?;
    strategy.run(|replica| replica.assign_add(&summed, &Tensor::scalar(&replica.device(), replica.replica_id() as i64 + 3)))?;
    assert_eq!(scope.read(&summed)?.item::<i64>()?, 7);
    scope.assign(&summed, &Tensor::scalar(&scope.device(), 6i64))?;
    let copies = summed.copies().iter().map(|copy| scope.read(copy)?.item::<i64>()).collect::<Result<Vec<_>>>()?;
    assert_eq!((copies, scope.read(&summed)?.item::<i64>()?), (vec![3, 3], 6));
    Ok(())
}

/// Creates a scalar without copies.
fn plain(context: &Context) -> Result<(Eager, Variable)> {
    let scope = context.scope()?;
    let variable = Variable::new(&scope, "plain", &Tensor::scalar(&scope.device(), 1.0f32))?;
    Ok((scope, variable))
}

/// The replicas change the variable in turns, because they all have the same one.
#[test]
fn replicas_share_a_variable_that_was_created_outside() -> Result<()> {
    for (context, _) in [(cpus(true, 2)?, Vec::new()), machine(2)] {
        let strategy = strategy(&context)?;
        let (scope, plain) = plain(&context)?;
        assert!(plain.copies().is_empty());
        let seen = strategy.run(|replica| {
            for turn in 0..replica.num_replicas_in_sync() {
                if turn == replica.replica_id() {
                    replica.assign_add(&plain, &number(replica)?)?;
                }
                replica.all_gather(&Tensor::full(&replica.device(), 0u8, &[1])?, 0)?;
            }
            let value = replica.read(&plain)?;
            assert_eq!(value.device()?, replica.device());
            value.item::<f32>()
        })?;
        assert_eq!(seen.values(), [4.0, 4.0]);
        assert_eq!(scope.read(&plain)?.item::<f32>()?, 4.0);
    }
    Ok(())
}

/// A function is planned for a replica or for a scope outside of all of them, also on the same device.
#[test]
fn a_function_knows_in_which_replica_it_runs() -> Result<()> {
    let context = cpus(true, 2)?;
    let (strategy, alone) = (strategy(&context)?, Eager::new(&context.device("CPU:0")?));
    let function = Function::new(|scope: &dyn Scope, (): ()| {
        let id = replica_id(scope).map_or(-1.0, |id| id as f32);
        Ok(Tensor::scalar(&scope.device(), id))
    });
    let told = |scope: &dyn Scope| -> Result<f32> { function.call(scope, ())?.item() };
    for _ in 0..2 {
        assert_eq!(strategy.run(|replica| told(replica))?.values(), [0.0, 1.0]);
        assert_eq!(told(&strategy.scope())?, -1.0, "around the replicas");
        assert_eq!(told(&alone)?, -1.0, "on the device of the first replica");
    }
    let other = MirroredStrategy::new(&context, &["CPU:1", "CPU:0"])?;
    assert_eq!(other.run(|replica| told(replica))?.values(), [0.0, 1.0], "in the replicas of another strategy");
    Ok(())
}

#[test]
fn a_function_around_the_replicas_sets_all_copies() -> Result<()> {
    for strategy in [two()?, strategy(&machine(2).0)?] {
        let v = scalar(&strategy, VariableAggregation::None, VariableSynchronization::Auto)?;
        let own = v.clone();
        let double = Function::new(move |scope: &dyn Scope, x: Tensor| {
            scope.assign(&own, &scope.read(&own)?.mul(&x)?)?;
            scope.read(&own)
        });
        for wanted in [2.0, 4.0, 8.0] {
            let two = Tensor::scalar(&strategy.scope().device(), 2.0f32);
            assert_eq!(double.call(&strategy.scope(), two)?.item::<f32>()?, wanted);
            assert_eq!(elements(&strategy, &v)?, [wanted, wanted]);
        }
    }
    Ok(())
}

#[test]
fn a_variable_may_be_an_argument_of_a_function() -> Result<()> {
    let strategy = two()?;
    let one = scalar(&strategy, VariableAggregation::Sum, VariableSynchronization::Auto)?;
    let other = scalar(&strategy, VariableAggregation::Sum, VariableSynchronization::Auto)?;
    let add = Function::new(|scope: &dyn Scope, v: Variable| scope.assign_add(&v, &number(scope)?));
    strategy.run(|replica| add.call(replica, one.clone()))?;
    strategy.run(|replica| add.call(replica, other.clone()))?;
    strategy.run(|replica| add.call(replica, one.clone()))?;
    assert_eq!((elements(&strategy, &one)?, elements(&strategy, &other)?), (vec![7.0; 2], vec![4.0; 2]));
    agreed(&strategy, &[one, other]).map(drop)
}
