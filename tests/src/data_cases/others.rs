//! What else `tf.data` does: iterators, reductions, calls of functions, files.

use crate::checks::{Checks, json};
use anyhow::{Context, Result, bail, ensure};
use gradlet::data::{Cardinality, Interleave, Position};
use gradlet::{Dataset, Tensor};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// What is about Python only: types that are checked while a program runs, `Optional`, truth of objects, tracing.
const PYTHON: [&str; 6] =
    ["reduce_dtype_mismatch", "optional_get_value_empty", "bool_of_dataset", "from_generator_bad_type", "map_sees_graph_once", "options"];

/// `other.json`: a result for each of TensorFlow's programs of these names.
pub fn others(folder: &Path, checks: &mut Checks) -> Result<()> {
    for (name, wanted) in json(folder, "other.json")?.as_object().context("no object")? {
        if !PYTHON.contains(&name.as_str()) {
            checks.check(name, || one(folder, name, wanted));
        }
    }
    Ok(())
}

fn one(folder: &Path, name: &str, wanted: &Json) -> Result<()> {
    match name {
        "reduce_sum" => is(Dataset::range(0..5).reduce(0, |sum, x| Ok(sum + x))?, &wanted["ok"]),
        "reduce_count" => is(Dataset::range(0..5).reduce(0, |count, _| Ok(count + 1))?, &wanted["ok"]),
        "reduce_empty" => is(Dataset::range(0..0).reduce(7, |sum, x| Ok(sum + x))?, &wanted["ok"]),
        "reduce_tuple_state" => {
            let (sum, product) = Dataset::range(1..5).reduce((0.0, 1.0), |(sum, product), x| Ok((sum + x as f64, product * x as f64)))?;
            is(vec![sum, product], &wanted["ok"])
        }
        "reduce_shape_change" => {
            let all = Dataset::range(0..3).reduce(Vec::new(), |mut all, x| {
                all.push(x);
                Ok(all)
            })?;
            is(all, &wanted["ok"])
        }
        "len_infinite" => fails(Dataset::range(0..3).repeat().len(), wanted),
        "len_unknown" => fails(Dataset::range(0..3).filter(|_| Ok(true)).len(), wanted),
        "get_single_element_ok" => is(Dataset::range(5..6).get_single_element()?, &wanted["ok"]),
        "get_single_element_empty" => fails(Dataset::range(0..0).get_single_element(), wanted),
        "get_single_element_two" => fails(Dataset::range(0..2).get_single_element(), wanted),
        "as_numpy_iterator" => is(all(&Dataset::range(0..3))?, wanted),
        "assert_cardinality_wrong" => fails(all(&Dataset::range(0..3).assert_cardinality(4)), wanted),
        "cardinality_after" => cardinalities(wanted),
        _ if name.starts_with("map_calls") => is(calls(name)?, wanted),
        _ => stateful(folder, name, wanted),
    }
}

fn stateful(folder: &Path, name: &str, wanted: &Json) -> Result<()> {
    match name {
        "iterator_exhausted" => {
            let mut iterator = Dataset::range(0..2).iter();
            let items: Vec<_> = (0..5).map(|_| iterator.next().transpose()).collect::<gradlet::Result<_>>()?;
            // Where TensorFlow raises or has an empty `Optional`, an iterator of Rust gives `None`.
            let wanted: Vec<Option<i64>> = wanted.as_array().context("no list")?.iter().map(Json::as_i64).collect();
            ensure!(items == wanted, "{items:?}, wanted {wanted:?}");
            Ok(())
        }
        "two_iterators_independent" => {
            let dataset = Dataset::range(0..3);
            let (mut one, mut other) = (dataset.iter(), dataset.iter());
            let items: Option<Vec<_>> = [one.next(), one.next(), other.next()].into_iter().collect();
            is(items.context("too few")?.into_iter().collect::<gradlet::Result<Vec<i64>>>()?, wanted)
        }
        "iterator_checkpoint" => {
            let dataset = Dataset::range(0..10);
            let take =
                |iterator: &mut gradlet::data::Iter<i64>, count| iterator.by_ref().take(count).collect::<gradlet::Result<Vec<i64>>>();
            let mut iterator = dataset.iter();
            let before = take(&mut iterator, 3)?;
            let saved = iterator.position().to_tensor(&gradlet::cpu())?;
            let after_save = take(&mut iterator, 2)?;
            let after_restore = take(&mut dataset.iter_from(&Position::from_tensor(&saved)?)?, 3)?;
            is(json!({ "before": before, "after_save": after_save, "after_restore": after_restore }), &wanted["ok"])
        }
        "from_generator_ok" => {
            let generator = || [(1i32, vec![1.0f32, 2.0]), (2, vec![3.0])].into_iter();
            let wanted = wanted.as_array().context("no list")?;
            let elements = Dataset::from_generator(generator).map(|(index, row)| {
                let cpu = gradlet::cpu();
                let row = Tensor::new(&cpu, &row, &[row.len() as u32])?;
                Ok(super::Value::Tuple(vec![super::Value::Tensor(Tensor::scalar(&cpu, index)), super::Value::Tensor(row)]))
            });
            ensure!(elements.iter().count() == wanted.len(), "another number of elements than {}", wanted.len());
            elements.iter().zip(wanted).try_for_each(|(element, wanted)| element?.compare(wanted))
        }
        "map_error_full" => {
            let failing = Dataset::range(0..6).map(|x| match x {
                3 => Err(gradlet::Error::message("bad value : Tensor had Inf values")),
                x => Ok(x),
            });
            let error = all(&failing).err().context("no error")?.to_string();
            super::same_words(&error, &wanted["error"])?;
            ensure!(error.contains("stage 1 (map), element 3"), "{error:?} does not name stage and element");
            Ok(())
        }
        "from_generator_bad_shape" => {
            let row = || std::iter::once(Tensor::full(&gradlet::cpu(), 0.0f32, &[3]));
            let rows = Dataset::from_generator(row).map(|row| row);
            fails(all(&rows.ensure_spec(gradlet::TensorSpec::new(gradlet::DType::F32, &[Some(2)]))), wanted)
        }
        "text_line" | "fixed_length" | "list_files_no_match" => super::files::one(folder, name, wanted),
        _ => bail!("the program {name:?} is not known"),
    }
}

fn all<T: Send + 'static>(dataset: &Dataset<T>) -> gradlet::Result<Vec<T>> {
    dataset.iter().collect()
}

fn is(got: impl Into<Json>, wanted: &Json) -> Result<()> {
    let got = got.into();
    ensure!(got == *wanted, "{got}, wanted {wanted}");
    Ok(())
}

fn fails<T>(result: gradlet::Result<T>, wanted: &Json) -> Result<()> {
    match result {
        Ok(_) => bail!("it succeeds, wanted {wanted}"),
        Err(error) => super::same_words(&error.to_string(), &wanted["error"]),
    }
}

fn cardinalities(wanted: &Json) -> Result<()> {
    let seven = Dataset::range(0..7);
    for (name, wanted) in wanted.as_object().context("no object")? {
        let cardinality = match name.as_str() {
            "batch" => seven.batch(3).cardinality(),
            "batch_drop" => seven.batch_drop_remainder(3).cardinality(),
            "filter" => seven.filter(|_| Ok(true)).cardinality(),
            "repeat" => seven.repeat().cardinality(),
            "repeat2" => seven.repeat_times(2).cardinality(),
            "take" => seven.take(3).cardinality(),
            "take_of_infinite" => seven.repeat().take(4).cardinality(),
            "skip" => seven.skip(10).cardinality(),
            "flat_map" => seven.flat_map(|x| Ok(Dataset::range(0..x))).cardinality(),
            "zip" => seven.zip(&Dataset::range(0..3)).cardinality(),
            "concat" => seven.concatenate(&Dataset::range(0..2)).cardinality(),
            "shard" => seven.shard(3, 1).cardinality(),
            "window" => seven.window(3, None, 1, false).cardinality(),
            "window_drop" => seven.window(3, None, 1, true).cardinality(),
            "unbatch" => seven.batch(2).unbatch().cardinality(),
            "shuffle" => seven.shuffle(3).cardinality(),
            "cache" => seven.cache().cardinality(),
            "interleave" => seven.interleave(Interleave::new(2), |x| Ok(Dataset::range(0..x))).cardinality(),
            "take_while" => seven.take_while(|_| Ok(true)).cardinality(),
            "enumerate" => seven.enumerate(0).cardinality(),
            other => bail!("the stage {other:?} is not known"),
        };
        let number = match cardinality {
            Cardinality::Finite(count) => count as i64,
            Cardinality::Infinite => -1,
            Cardinality::Unknown => -2,
        };
        ensure!(*wanted == number, "{name}: {number}, wanted {wanted}");
    }
    Ok(())
}

/// How often a function was called after each of several passes.
fn calls(name: &str) -> Result<Json> {
    let count = Arc::new(AtomicU32::new(0));
    let counted = count.clone();
    let mapped = Dataset::range(0..4).map(move |x| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(x)
    });
    let pass = |dataset: &Dataset<i64>, limit: u64| -> Result<Json> {
        let took: Vec<i64> = all(&dataset.take(limit))?;
        Ok(json!({ "took": took, "map_calls_so_far": count.load(Ordering::Relaxed) }))
    };
    let passes = |dataset: Dataset<i64>, limits: &[u64]| limits.iter().map(|&limit| pass(&dataset, limit)).collect::<Result<Json>>();
    match name {
        "map_calls_without_cache" => passes(mapped, &[4, 4, 2]),
        // The end of the data is seen only by who asks for one more.
        "map_calls_with_cache" => passes(mapped.cache(), &[100, 100, 2]),
        "map_calls_cache_partial_first" => passes(mapped.cache(), &[2, 100, 100]),
        "map_calls_cache_then_repeat" => passes(mapped.cache().repeat_times(3), &[100]),
        other => bail!("the program {other:?} is not known"),
    }
}
