//! Cases of dropout. Random results cannot be compared with a reference. The cases therefore state rules, and count the elements that break
//! them.

use crate::golden::case::{Body, Case, Tolerance, Value};
use crate::golden::fixtures::{Folder, members, number, text};
use anyhow::{Context, Result};
use gradlet_core::layers::{Dropout, Layer};
use gradlet_core::{DType, Differentiate, Scope, Tensor};
use serde_json::Value as Json;
use std::sync::Arc;

/// Reads a case of `op: dropout` into `case`. Its inputs are x and the cotangent of y. Its outputs are the fraction of kept elements, then
/// for each rule the number of elements that break it.
pub fn read(folder: &mut Folder, json: &Json, case: &mut Case) -> Result<()> {
    let file = text(json, "file")?;
    for list in ["inputs", "cotangents"] {
        for (name, entry) in members(json, list) {
            case.inputs.extend(folder.value(file, text(entry, "key")?, &format!("{list} {name}"))?);
        }
    }
    let rate = number(&json["attrs"]["rate"]).context("a case of dropout has no rate")?;
    let count = case.inputs.first().and_then(|x| x.tensor_type.shape.elements()).unwrap_or(0);
    let wanted = [("kept part", 1.0 - rate), ("wrong outputs", 0.0), ("wrong gradients", 0.0), ("changed without training", 0.0)];
    case.wanted = wanted.into_iter().map(|(name, value)| Value::scalar(name.into(), value as f32)).collect();
    // The tolerance is for the kept fraction. It is below 1, so a single wrong element still fails the case.
    case.tolerance = Tolerance { atol: 5.0 * (rate * (1.0 - rate) / count.max(1) as f64).sqrt() + 1e-6, ..Tolerance::default() };
    case.body = Some(body(rate));
    Ok(())
}

fn body(rate: f64) -> Body {
    Arc::new(move |scope: &dyn Scope, given: &[Tensor]| {
        let [x, dy] = given else { return Err(gradlet_core::Error::message("dropout has x and a cotangent")) };
        let layer = Dropout::new(rate);
        let tape = scope.with_training(true).tape();
        let x = tape.watch(x)?;
        let y = layer.call(&tape, &x)?;
        let dx = tape.gradient_of(&[(&y, Some(dy))], &x)?.map_or_else(|| x.like(0.0), Ok)?;
        let zero = x.like(0.0)?;
        let kept = y.not_equal(&zero)?;
        // A kept element of `scaled` must be the element of `plain` divided by (1 - rate). A dropped one must be 0.
        let wrong = |scaled: &Tensor, plain: &Tensor| {
            let off = scaled.mul_scalar(1.0 - rate)?.sub(plain)?.abs()?.greater(&plain.abs()?.mul_scalar(precision(x.dtype()))?)?;
            let dropped = kept.logical_not()?.logical_and(&scaled.not_equal(&zero)?)?;
            count(&kept.logical_and(&off)?.logical_or(&dropped)?, x.dtype())
        };
        let changed = layer.call(&scope.with_training(false), &x)?.not_equal(&x)?;
        Ok(vec![kept.cast(x.dtype())?.mean(&[], false)?, wrong(&y, &x)?, wrong(&dx, dy)?, count(&changed, x.dtype())?])
    })
}

fn count(flags: &Tensor, dtype: DType) -> gradlet_core::Result<Tensor> {
    flags.cast(dtype)?.sum(&[], false)
}

/// Returns an upper limit of the relative difference between two roundings of the same number.
fn precision(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::Bf16 => 3e-2,
        _ => 1e-6,
    }
}
