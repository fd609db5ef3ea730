//! Cases of learning-rate schedules: `schedules.json`.

use super::{Given, floats, read_file};
use crate::golden::case::{Case, Value};
use crate::golden::fixtures::{Folder, text};
use anyhow::{Context, Result};
use gradlet_core::optimizers::schedules::{
    CosineDecay, CosineDecayRestarts, ExponentialDecay, InverseTimeDecay, PiecewiseConstantDecay, PolynomialDecay, Schedule,
};
use gradlet_core::{DType, Scope, Shape, Tensor, TensorType};
use serde_json::Value as Json;
use std::sync::Arc;

/// Reads the cases of `schedules.json`. Their inputs are step numbers, and their outputs the learning rates.
pub fn read(folder: &mut Folder) -> Result<Vec<Case>> {
    read_file(folder, "schedules.json", |_, json, case| {
        let name = text(json, "schedule")?;
        case.group = format!("schedule:{name}");
        let schedule = match schedule(name, &json["attrs"]) {
            Ok(schedule) => schedule,
            Err(unknown) => {
                case.group = format!("schedule:{unknown}");
                return Ok(());
            }
        };
        let list = |field: &str| json[field].as_array().with_context(|| format!("no list {field}"));
        for (step, rate) in list("steps")?.iter().zip(list("values")?) {
            let step = step.as_i64().context("a step is not an integer")?;
            let tensor_type = TensorType::new(DType::I64, Shape::SCALAR);
            case.inputs.push(Value { name: format!("step {step}"), tensor_type, bytes: step.to_le_bytes().into() });
            case.wanted.push(floats(format!("rate at step {step}"), rate)?);
        }
        case.body = Some(Arc::new(move |_: &dyn Scope, steps: &[Tensor]| steps.iter().map(|step| schedule.rate(step)).collect()));
        Ok(())
    })
}

/// Creates a schedule with its arguments. The error is the name of an unknown schedule or option.
pub fn schedule(name: &str, attributes: &Json) -> Result<Box<dyn Schedule>, String> {
    let given = Given(attributes);
    let known = |options: &[&str]| given.check(options).map_err(|option| format!("{name}.{option}"));
    let option = |option: &str, default: f64| given.number(option).unwrap_or(default);
    let initial = option("initial_learning_rate", 0.0);
    let steps = given.number("decay_steps").or(given.number("first_decay_steps")).unwrap_or(0.0) as u32;
    let (rate, staircase) = (option("decay_rate", 0.0), given.flag("staircase"));
    Ok(match name {
        "ExponentialDecay" => {
            known(&["initial_learning_rate", "decay_steps", "decay_rate", "staircase"])?;
            Box::new(ExponentialDecay::new(initial, steps, rate).staircase(staircase))
        }
        "InverseTimeDecay" => {
            known(&["initial_learning_rate", "decay_steps", "decay_rate", "staircase"])?;
            Box::new(InverseTimeDecay::new(initial, steps, rate).staircase(staircase))
        }
        "PolynomialDecay" => {
            known(&["initial_learning_rate", "decay_steps", "end_learning_rate", "power", "cycle"])?;
            let (end, power) = (option("end_learning_rate", 0.0001), option("power", 1.0));
            Box::new(PolynomialDecay::new(initial, steps).end_learning_rate(end).power(power).cycle(given.flag("cycle")))
        }
        "PiecewiseConstantDecay" => {
            known(&["boundaries", "values"])?;
            let boundaries = given.numbers("boundaries").unwrap_or_default().into_iter().map(|boundary| boundary as i64);
            Box::new(PiecewiseConstantDecay::new(&boundaries.collect::<Vec<_>>(), &given.numbers("values").unwrap_or_default()))
        }
        "CosineDecay" => {
            known(&["initial_learning_rate", "decay_steps", "alpha", "warmup_target", "warmup_steps"])?;
            let decay = CosineDecay::new(initial, steps).alpha(option("alpha", 0.0));
            Box::new(match given.number("warmup_target") {
                Some(target) => decay.warmup(target, option("warmup_steps", 0.0) as u32),
                None => decay,
            })
        }
        "CosineDecayRestarts" => {
            known(&["initial_learning_rate", "first_decay_steps", "t_mul", "m_mul", "alpha"])?;
            let (longer, higher, alpha) = (option("t_mul", 2.0), option("m_mul", 1.0), option("alpha", 0.0));
            Box::new(CosineDecayRestarts::new(initial, steps).t_mul(longer).m_mul(higher).alpha(alpha))
        }
        _ => return Err(name.into()),
    })
}
