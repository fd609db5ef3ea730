//! Checkpoints and weights of mirrored models: each variable is saved once, and restored into every replica.

use super::{SEED, agreed, all_near, bits, elements, machine, strategy, two};
use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::BundleReader;
use gradlet::distribute::MirroredStrategy;
use gradlet::layers::{Activation, BatchNormalization, Dense, Module, Sequential};
use gradlet::losses::MeanSquaredError;
use gradlet::optimizers::Sgd;
use gradlet::tensor::{VariableAggregation, VariableSynchronization};
use gradlet::train::{Compile, Fit, Model, Verbose};
use gradlet::{Eager, Result, Scope, Tensor, Variable};
use gradlet_tests::random::Random;

/// Returns a scope without replicas.
fn alone(seed: u64) -> Eager {
    Eager::with_seed(&gradlet::portable_cpu(), seed)
}

/// Declares a variable that is the sum of its copies.
fn summed(name: &str) -> Variable {
    Variable::untrained(name).aggregated(VariableAggregation::Sum).synchronized(VariableSynchronization::OnRead)
}

/// Creates a compiled model without variables. Batch normalisation makes each replica's results depend on its own part.
fn model(scope: &Eager, normalized: bool) -> Result<Model> {
    let first = Sequential::new().with(Dense::new(4).activation(Activation::Tanh));
    let layers = if normalized { first.with(BatchNormalization::default()) } else { first };
    let mut model = Model::new(scope, layers.with(Dense::new(1)));
    model.compile(Compile::new(Sgd::new(0.1).momentum(0.9), MeanSquaredError))?;
    Ok(model)
}

/// Trains a model for an epoch.
fn train(model: &Model) -> Result<()> {
    let (device, mut random) = (gradlet::portable_cpu(), Random::new(5));
    let x: Vec<f32> = (0..30).map(|_| random.unit() as f32).collect();
    let y: Vec<f32> = x.chunks(3).map(|x| x[0] + x[1] * x[2]).collect();
    let (x, y) = (Tensor::new(&device, &x, &[10, 3])?, Tensor::new(&device, &y, &[10, 1])?);
    model.fit((&x, &y), Fit::new().batch_size(4).shuffle(false).verbose(Verbose::Silent)).map(drop)
}

/// Returns the variables of a model and of its optimizer.
fn variables(model: &Model) -> Result<Vec<Variable>> {
    Ok([model.layer().variables(), model.optimizer()?.variables()].concat())
}

/// Returns the values of all variables.
fn values(model: &Model) -> Result<Vec<Tensor>> {
    variables(model)?.iter().map(|variable| model.scope().read(variable)).collect()
}

/// Checks that two models have the same bits in all variables, those of the optimizers included.
fn same(got: &Model, wanted: &Model) -> Result<()> {
    let (got, wanted) = (values(got)?, values(wanted)?);
    assert_eq!(got.iter().map(bits).collect::<Result<Vec<_>>>()?, wanted.iter().map(bits).collect::<Result<Vec<_>>>()?);
    Ok(())
}

/// Returns a strategy of CPUs and one of hidden GPUs.
fn strategies() -> Result<[MirroredStrategy; 2]> {
    Ok([two()?, strategy(&machine(2).0)?])
}

/// TensorFlow's scenario `mirrored_checkpoint`.
#[test]
fn a_variable_is_saved_once_and_restored_into_each_copy() -> Result<()> {
    for strategy in strategies()? {
        let (scope, folder) = (strategy.scope(), tempfile::tempdir().unwrap());
        let v = Variable::new(&scope, "v", &Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?)?;
        let m = summed("m");
        m.create(&scope, &Tensor::scalar(&scope.device(), 0.0f32))?;
        strategy.run(|replica| replica.assign_add(&m, &Tensor::scalar(&replica.device(), 3.0f32)))?;
        let checkpoint = Checkpoint::new().with("v", v.clone()).with("m", m.clone());
        let prefix = checkpoint.write(folder.path().join("c"))?;

        let reader = BundleReader::open(&prefix)?;
        let keys: Vec<&str> = reader.entries().map(|(key, _)| key).collect();
        assert_eq!(keys, ["_CHECKPOINTABLE_OBJECT_GRAPH", "m/.ATTRIBUTES/VARIABLE_VALUE", "v/.ATTRIBUTES/VARIABLE_VALUE"]);
        assert_eq!(reader.tensor(keys[1], &gradlet::cpu())?.item::<f32>()?, 6.0);

        scope.assign(&v, &Tensor::full(&scope.device(), 0.0f32, &[2])?)?;
        scope.assign(&m, &Tensor::scalar(&scope.device(), 0.0f32))?;
        checkpoint.read(&prefix)?.assert_consumed()?;
        assert_eq!((elements(&strategy, &v)?, elements(&strategy, &m)?), (vec![1.0, 2.0, 1.0, 2.0], vec![3.0, 3.0]));
        assert_eq!(scope.read(&m)?.item::<f32>()?, 6.0);

        let (plain, sum) = (Variable::deferred("v"), Variable::deferred("m"));
        let own = alone(0);
        plain.create(&own, &Tensor::full(&own.device(), 9.0f32, &[2])?)?;
        sum.create(&own, &Tensor::scalar(&own.device(), 9.0f32))?;
        Checkpoint::new().with("v", plain.clone()).with("m", sum.clone()).read(&prefix)?.assert_consumed()?;
        assert_eq!((own.read(&plain)?.to_vec::<f32>()?, own.read(&sum)?.item::<f32>()?), (vec![1.0, 2.0], 6.0));
    }
    Ok(())
}

#[test]
fn a_variable_that_is_created_after_the_restore_has_the_saved_value_in_each_copy() -> Result<()> {
    let (own, folder) = (alone(0), tempfile::tempdir().unwrap());
    let saved = Variable::new(&own, "v", &Tensor::scalar(&own.device(), 6.0f32))?;
    let prefix = Checkpoint::new().with("v", saved).write(folder.path().join("c"))?;
    for strategy in strategies()? {
        for inside in [false, true] {
            let v = Variable::deferred("v");
            let checkpoint = Checkpoint::new().with("v", v.clone());
            let status = checkpoint.read(&prefix)?;
            let create = |scope: &dyn Scope| v.create(scope, &Tensor::scalar(&scope.device(), 0.0f32));
            match inside {
                true => strategy.run(|replica| create(replica)).map(drop)?,
                false => create(&strategy.scope())?,
            }
            status.assert_consumed()?;
            assert_eq!(elements(&strategy, &v)?, [6.0, 6.0], "inside of replicas: {inside}");
        }
    }
    Ok(())
}

#[test]
fn a_sum_that_is_created_after_the_restore_has_the_saved_value() -> Result<()> {
    let (own, folder) = (alone(0), tempfile::tempdir().unwrap());
    let saved = Variable::new(&own, "m", &Tensor::scalar(&own.device(), 6.0f32))?;
    let prefix = Checkpoint::new().with("m", saved).write(folder.path().join("c"))?;
    let (strategy, m) = (two()?, summed("m"));
    let scope = strategy.scope();
    let checkpoint = Checkpoint::new().with("m", m.clone());
    let status = checkpoint.read(&prefix)?;
    m.create(&scope, &Tensor::scalar(&scope.device(), 0.0f32))?;
    status.assert_consumed()?;
    // TensorFlow divides the sum among the copies. Here the first one has all of it.
    assert_eq!((scope.read(&m)?.item::<f32>()?, elements(&strategy, &m)?), (6.0, vec![6.0, 0.0]));
    Ok(())
}

#[test]
fn a_mirrored_model_is_restored_without_replicas_and_the_reverse() -> Result<()> {
    for strategy in strategies()? {
        for normalized in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let (mirrored, single) = (model(&strategy.scope(), normalized)?, model(&alone(SEED), normalized)?);
            train(&mirrored)?;
            train(&single)?;
            let from_replicas = Checkpoint::new().with("model", &mirrored).save(folder.path().join("mirrored"))?;
            let from_one = Checkpoint::new().with("model", &single).save(folder.path().join("single"))?;
            for built in [false, true] {
                let hidden = MirroredStrategy::with_seed(&machine(2).0, &[], 1)?;
                let (other, copied) = (model(&alone(1), normalized)?, model(&hidden.scope(), normalized)?);
                if built {
                    train(&other)?;
                    train(&copied)?;
                }
                for (model, prefix) in [(&other, &from_replicas), (&copied, &from_one), (&copied, &from_replicas)] {
                    let checkpoint = Checkpoint::new().with("model", model);
                    let status = checkpoint.restore(prefix)?;
                    model.build(&[3])?;
                    model.optimizer()?.build(model.scope(), &**model.layer())?;
                    status.assert_existing_objects_matched()?;
                    same(model, if *prefix == from_one { &single } else { &mirrored })?;
                }
                agreed(&hidden, &variables(&copied)?)?;
            }
        }
    }
    Ok(())
}

#[test]
fn training_continues_with_another_number_of_replicas() -> Result<()> {
    let (strategy, folder) = (two()?, tempfile::tempdir().unwrap());
    let single = model(&alone(SEED), false)?;
    train(&single)?;
    let prefix = Checkpoint::new().with("model", &single).save(folder.path().join("single"))?;
    let mirrored = model(&strategy.scope(), false)?;
    let checkpoint = Checkpoint::new().with("model", &mirrored);
    checkpoint.restore(&prefix)?;
    for _ in 0..3 {
        train(&mirrored)?;
        train(&single)?;
        agreed(&strategy, &variables(&mirrored)?)?;
        all_near(&values(&mirrored)?, &values(&single)?, 1e-5)?;
    }
    Ok(())
}

#[test]
fn weights_are_those_of_all_replicas() -> Result<()> {
    for strategy in strategies()? {
        let folder = tempfile::tempdir().unwrap();
        let (mirrored, single) = (model(&strategy.scope(), true)?, model(&alone(3), true)?);
        train(&mirrored)?;
        train(&single)?;
        let wanted = mirrored.get_weights()?;
        mirrored.save_weights(folder.path().join("mirrored.safetensors"))?;
        single.save_weights(folder.path().join("single.safetensors"))?;
        let weights = |model: &Model| model.get_weights()?.iter().map(bits).collect::<Result<Vec<_>>>();
        let [before, other] = [weights(&mirrored)?, weights(&single)?];
        assert_ne!(before, other);

        mirrored.set_weights(&single.get_weights()?)?;
        assert_eq!(weights(&mirrored)?, other);
        assert_eq!(agreed(&strategy, &mirrored.layer().variables())?, other);
        mirrored.load_weights(folder.path().join("mirrored.safetensors"))?;
        assert_eq!(weights(&mirrored)?, before);
        mirrored.load_weights(folder.path().join("single.safetensors"))?;
        assert_eq!(agreed(&strategy, &mirrored.layer().variables())?, other);
        single.load_weights(folder.path().join("mirrored.safetensors"))?;
        assert_eq!(weights(&single)?, before);
        single.set_weights(&wanted)?;
        assert_eq!(weights(&single)?, before);

        let mut wrong = wanted;
        wrong.swap(0, 1);
        assert!(mirrored.set_weights(&wrong).is_err());
        assert_eq!(agreed(&strategy, &mirrored.layer().variables())?, other, "after a refusal");
    }
    Ok(())
}
