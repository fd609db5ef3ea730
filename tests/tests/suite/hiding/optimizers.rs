//! Optimizers in eager code: steps in place, and what a step that fails leaves behind.

use super::at_every_place;
use crate::cnn::bytes;
use gradlet_core::device::{Activity, Profiler};
use gradlet_core::layers::Module;
use gradlet_core::optimizers::schedules::Schedule;
use gradlet_core::optimizers::{Adadelta, Adagrad, Adam, AdamW, Adamax, Descent, Gradient, Nadam, Optimizer, RMSprop, Rule, Sgd, Step};
use gradlet_core::{Device, Differentiate, Eager, Error, Result, Scope, Tensor, Variable};
use gradlet_tests::hiding::Hiding;
use gradlet_tests::random::Random;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns two variables, each with a gradient.
fn gradients(scope: &Eager) -> Result<Vec<(Variable, Option<Tensor>)>> {
    let device: Device = scope.device();
    let pair = |name: &str, dims: &[u32]| -> Result<_> {
        let variable = Variable::new(scope, name, &Tensor::full(&device, 1.5f32, dims)?)?;
        Ok((variable, Some(Tensor::full(&device, 0.25f32, dims)?)))
    };
    Ok(vec![pair("kernel", &[30, 40])?, pair("bias", &[40])?])
}

/// Every optimizer, with the options that add state or work.
fn optimizers() -> Vec<Box<dyn Optimizer>> {
    vec![
        Box::new(Sgd::new(0.1).weight_decay(0.01)),
        Box::new(Sgd::new(0.1).momentum(0.9).nesterov(true).global_clipnorm(1.0)),
        Box::new(RMSprop::new(0.1).momentum(0.9).centered(true)),
        Box::new(Adagrad::new(0.1)),
        Box::new(Adadelta::new(0.1).clipnorm(0.1)),
        Box::new(Adam::new(0.1).amsgrad(true).use_ema(true).ema_overwrite_frequency(2)),
        Box::new(AdamW::new(0.1).clipvalue(0.1)),
        Box::new(Adamax::new(0.1)),
        Box::new(Nadam::new(0.1)),
    ]
}

#[test]
fn eager_steps_change_variables_in_place() -> Result<()> {
    for (number, optimizer) in optimizers().into_iter().enumerate() {
        let hiding = Hiding::new();
        let scope = Eager::new(&hiding.device);
        let gradients = gradients(&scope)?;
        optimizer.apply_gradients(&scope, &gradients)?;
        let (stepped, counts) = hiding.during(|| optimizer.apply_gradients(&scope, &gradients));
        stepped?;
        let copied = counts.uploads + counts.downloads + counts.copies;
        assert_eq!((counts.allocations, copied), (0, 0), "optimizer {number}");
        assert_eq!(optimizer.variables()[0].name(), "iteration");
        assert_eq!(scope.read(&optimizer.variables()[0])?.item::<i64>()?, 2);
    }
    Ok(())
}

#[test]
fn a_refused_eager_step_of_every_optimizer_changes_nothing() -> Result<()> {
    at_every_place(|hiding, place| {
        let scope = Eager::new(&hiding.device);
        let mut after = place;
        for optimizer in optimizers() {
            let gradients = gradients(&scope)?;
            optimizer.apply_gradients(&scope, &gradients)?;
            // The values that are held make the step allocate.
            let all: Vec<Variable> = gradients.iter().map(|(variable, _)| variable.clone()).chain(optimizer.variables()).collect();
            let held = all.iter().map(|variable| scope.read(variable)).collect::<Result<Vec<_>>>()?;
            let before: Vec<_> = held.iter().map(bytes).collect();
            hiding.refuse_after(Some(after));
            let (stepped, counts) = hiding.during(|| optimizer.apply_gradients(&scope, &gradients));
            hiding.refuse_after(None);
            if let Err(error) = stepped {
                assert!(matches!(error.root(), Error::OutOfMemory(_)), "{error}");
                for (variable, old) in all.iter().zip(&before) {
                    assert!(bytes(&scope.read(variable)?) == *old, "place {place}: {error}: {:?} changed", variable.name());
                }
                return Ok(true);
            }
            after -= counts.allocations;
        }
        Ok(false)
    })
}

/// Descends with a constant that the host decides, so steps cannot be compiled.
struct Impure;

impl Rule for Impure {
    fn slots(&self) -> &'static [&'static [&'static str]] {
        &[&["speed"]]
    }

    fn update(&self, _: &Step<'_>, variable: &Tensor, gradient: &Gradient, slots: &[Tensor]) -> Result<Vec<Tensor>> {
        let speed = slots[0].mul_scalar(0.5)?.add(&gradient.dense()?)?;
        Ok(vec![variable.sub(&speed)?, speed])
    }
}

#[test]
fn the_error_of_an_eager_step_names_the_variables_that_it_changed() -> Result<()> {
    let named = std::cell::Cell::new(0);
    at_every_place(|hiding, place| {
        let (scope, optimizer) = (Eager::new(&hiding.device), Descent::by(Impure, 0.1).weight_decay(0.5));
        let gradients = gradients(&scope)?;
        optimizer.apply_gradients(&scope, &gradients)?;
        let all: Vec<Variable> = gradients.iter().map(|(variable, _)| variable.clone()).chain(optimizer.variables()).collect();
        let values = || all.iter().map(|variable| Ok(bytes(&scope.read(variable)?))).collect::<Result<Vec<_>>>();
        let before = values()?;
        hiding.refuse_after(Some(place));
        let (stepped, counts) = hiding.during(|| optimizer.apply_gradients(&scope, &gradients));
        hiding.refuse_after(None);
        if let Err(error) = stepped {
            let text = error.to_string();
            let said = text.split_once("the step had already changed ").map_or("", |(_, said)| said.split(": ").next().unwrap());
            for ((variable, old), new) in all.iter().zip(&before).zip(&values()?) {
                let name = format!("{:?}", variable.name());
                assert_eq!(said.split(", ").any(|one| one == name), old != new, "place {place}: {name} in {text}");
                named.set(named.get() + usize::from(old != new));
            }
        }
        Ok(counts.allocations > place)
    })?;
    assert!(named.get() > 10, "{} names", named.get());
    Ok(())
}

/// A learning rate that the host changes.
struct Changing(Arc<AtomicU32>);

impl Schedule for Changing {
    fn rate(&self, step: &Tensor) -> Result<Tensor> {
        Ok(Tensor::scalar(&step.device()?, self.0.load(Ordering::Relaxed) as f32))
    }
}

/// A compiled step has the bits of the same ops one by one, for more sets of variables than an optimizer keeps steps for, for a learning
/// rate that changes, and for a gradient that is the variable's own value.
#[test]
fn eager_steps_have_the_bits_of_their_ops() -> Result<()> {
    let run = |compiled: bool| -> Result<Vec<Vec<u8>>> {
        let device = gradlet::cpu();
        let scope = Eager::new(&device);
        let rate = Arc::new(AtomicU32::new(1));
        let optimizer = Adam::new(Changing(rate.clone())).amsgrad(true).global_clipnorm(2.0);
        let variables: Vec<Variable> = (0..6u32)
            .map(|size| Variable::new(&scope, &format!("w{size}"), &Tensor::full(&device, 0.5f32, &[3 + size])?))
            .collect::<Result<_>>()?;
        let mut random = Random::new(7);
        for step in 0..60 {
            rate.store(1 + step % 3, Ordering::Relaxed);
            let mut gradient = |variable: &Variable, value: f32| -> Result<Option<Tensor>> {
                let own = scope.read(variable)?;
                Ok(match (step % 5, random.below(3)) {
                    (0, _) => Some(own),
                    (_, 0) => None,
                    _ => Some(own.like(f64::from(value))?.broadcast_to(own.dims())?),
                })
            };
            let mut gradients: Vec<_> =
                variables.iter().map(|variable| Ok((variable.clone(), gradient(variable, 0.1)?))).collect::<Result<_>>()?;
            gradients[0].1 = Some(scope.read(&variables[0])?);
            if compiled {
                optimizer.apply_gradients(&scope, &gradients)?;
            } else {
                optimizer.apply_gradients(&scope.tape(), &gradients)?;
            }
        }
        variables.iter().chain(&optimizer.variables()).map(|variable| Ok(bytes(&scope.read(variable)?))).collect()
    };
    assert!(run(true)? == run(false)?);
    Ok(())
}

/// Counts the ops that it hears of.
#[derive(Default)]
struct Counting(AtomicU32);

impl Profiler for Counting {
    fn begin(&self, activity: &Activity<'_>) {
        if let Activity::Ops(_) = activity {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn end(&self) {}
}

#[test]
fn a_profiler_hears_the_ops_of_its_own_steps() -> Result<()> {
    let device = gradlet::cpu();
    let (first, second) = (Arc::new(Counting::default()), Arc::new(Counting::default()));
    let heard = || [&first, &second].map(|counting| counting.0.load(Ordering::Relaxed));
    let optimizer = RMSprop::new(0.1);
    let scope = Eager::new(&device.profiling(first.clone()));
    let gradients = gradients(&scope)?;
    optimizer.apply_gradients(&scope, &gradients)?;
    let [before, none] = heard();
    assert!(before > 0 && none == 0);
    optimizer.apply_gradients(&Eager::new(&device.profiling(second.clone())), &gradients)?;
    let [after, others] = heard();
    assert!(others > 0 && after == before, "{before}, {after}, {others}");
    Ok(())
}
