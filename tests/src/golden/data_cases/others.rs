//! Other cases of `tf.data`: iterators, reductions, calls of functions, and files.

use crate::golden::checks::{Checks, json};
use crate::golden::parsed_json::list;
use anyhow::{Context, Result, bail, ensure};
use gradlet::data::{Cardinality, Interleave, Position};
use gradlet::{Dataset, Tensor};
use serde_json::{Value as Json, json};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Cases with a meaning only in Python: types that are checked at run time, `Optional`, truth values of objects, and tracing.
const PYTHON: [&str; 6] =
    ["reduce_dtype_mismatch", "optional_get_value_empty", "bool_of_dataset", "from_generator_bad_type", "map_sees_graph_once", "options"];

/// Runs `other.json`: a result for each of TensorFlow's named programs.
pub fn others(folder: &Path, checks: &mut Checks) -> Result<()> {
    for (name, wanted) in json(folder, "other.json")?.as_object().context("expected a JSON object")? {
        if !PYTHON.contains(&name.as_str()) {
            checks.check(name, || one(folder, name, wanted));
        }
    }
    Ok(())
}

/// Returns a dataset for programs whose results do not depend on the elements' values.
fn some() -> Dataset<i64> {
    Dataset::range(0..3)
}

fn one(folder: &Path, name: &str, wanted: &Json) -> Result<()> {
    let ok = &wanted["ok"];
    match name {
        "reduce_sum" => is(up_to_sum(integer(ok)?)?.reduce(0, |sum, x| Ok(sum + x))?, ok),
        "reduce_count" => is(Dataset::range(0..integer(ok)?).reduce(0, |count, _| Ok(count + 1))?, ok),
        "reduce_empty" => is(Dataset::range(0..0).reduce(integer(ok)?, |sum, x| Ok(sum + x))?, ok),
        "reduce_tuple_state" => {
            let numbers = up_to_sum(ok[0].as_f64().context("no sum")? as i64)?.skip(1);
            let (sum, product) = numbers.reduce((0.0, 1.0), |(sum, product), x| Ok((sum + x as f64, product * x as f64)))?;
            is(vec![sum, product], ok)
        }
        "reduce_shape_change" => {
            let all = Dataset::range(0..list(ok)?.len() as i64).reduce(Vec::new(), |mut all, x| {
                all.push(x);
                Ok(all)
            })?;
            is(all, ok)
        }
        "len_infinite" => fails(some().repeat().len(), wanted),
        "len_unknown" => fails(some().filter(|_| Ok(true)).len(), wanted),
        "get_single_element_ok" => is(Dataset::range(integer(ok)?..integer(ok)? + 1).get_single_element()?, ok),
        "get_single_element_empty" => fails(some().take(0).get_single_element(), wanted),
        "get_single_element_two" => fails(some().take(2).get_single_element(), wanted),
        "as_numpy_iterator" => is(all(&Dataset::range(0..list(wanted)?.len() as i64))?, wanted),
        "assert_cardinality_wrong" => {
            let text = wanted["error"]["core"].as_str().context("no error")?;
            let numbers: Vec<i64> = text.split(' ').filter_map(|word| word.parse().ok()).collect();
            let [count, there] = numbers[..] else { bail!("{text:?} does not contain two numbers") };
            fails(all(&Dataset::range(0..there).assert_cardinality(count as u64)), wanted)
        }
        "cardinality_after" => cardinalities(wanted),
        _ if name.starts_with("map_calls") => is(calls(name, list(wanted)?)?, wanted),
        _ => stateful(folder, name, wanted),
    }
}

/// Returns the range that begins at 0 and has the sum `sum`.
fn up_to_sum(sum: i64) -> Result<Dataset<i64>> {
    let stop = (0..=sum).find(|stop| (0..*stop).sum::<i64>() == sum);
    Ok(Dataset::range(0..stop.with_context(|| format!("no range from 0 has the sum {sum}"))?))
}

fn stateful(folder: &Path, name: &str, wanted: &Json) -> Result<()> {
    match name {
        "iterator_exhausted" => {
            // At the end, TensorFlow raises an error or returns an empty `Optional`. A Rust iterator returns `None`.
            let wanted: Vec<Option<i64>> = list(wanted)?.iter().map(Json::as_i64).collect();
            let mut iterator = Dataset::range(0..wanted.iter().flatten().count() as i64).iter();
            let items: Vec<_> = wanted.iter().map(|_| iterator.next().transpose()).collect::<gradlet::Result<_>>()?;
            ensure!(items == wanted, "{items:?}, wanted {wanted:?}");
            Ok(())
        }
        "two_iterators_independent" => {
            // The second iterator starts where the numbers start again from 0.
            let wanted = list(wanted)?.iter().map(integer).collect::<Result<Vec<_>>>()?;
            let first = wanted.iter().rposition(|number| *number == 0).context("no element is 0")?;
            let dataset = Dataset::range(0..wanted.len() as i64);
            let (mut one, mut other) = (dataset.iter(), dataset.iter());
            let items = (0..wanted.len()).map(|at| if at < first { one.next() } else { other.next() });
            let items = items.map(|item| Ok(item.context("too few elements")??)).collect::<Result<Vec<_>>>()?;
            ensure!(items == wanted, "{items:?}, wanted {wanted:?}");
            Ok(())
        }
        "iterator_checkpoint" => {
            let ok = &wanted["ok"];
            let count = |name: &str| list(&ok[name]).map(Vec::len);
            let dataset = Dataset::range(0..(count("before")? + count("after_save")? + count("after_restore")?) as i64);
            let take =
                |iterator: &mut gradlet::data::Iter<i64>, count| iterator.by_ref().take(count).collect::<gradlet::Result<Vec<i64>>>();
            let mut iterator = dataset.iter();
            let before = take(&mut iterator, count("before")?)?;
            let saved = iterator.position().to_tensor(&gradlet::cpu())?;
            let after_save = take(&mut iterator, count("after_save")?)?;
            let after_restore = take(&mut dataset.iter_from(&Position::from_tensor(&saved)?)?, count("after_restore")?)?;
            is(json!({ "before": before, "after_save": after_save, "after_restore": after_restore }), ok)
        }
        "from_generator_ok" => {
            let wanted = list(wanted)?;
            let elements = wanted.iter().map(super::Value::from_json).collect::<Result<Vec<_>>>()?;
            let generated = Dataset::from_generator(move || elements.clone().into_iter());
            ensure!(generated.iter().count() == wanted.len(), "the number of elements is not {}", wanted.len());
            generated.iter().zip(wanted).try_for_each(|(element, wanted)| element?.compare(wanted))
        }
        "map_error_full" => {
            // The error contains the function's message after the name of the last stage. It may fail for any element.
            let words = super::translated(wanted["error"]["core"].as_str().context("no error")?);
            let said = words.clone();
            let failing = some().map(move |x| if x == 1 { Err(gradlet::Error::message(said.clone())) } else { Ok(x) });
            let error = all(&failing).err().context("no error")?.to_string();
            super::same_words(&error, &wanted["error"])?;
            ensure!(error.contains("stage 1 (map), element 1") && error.contains(&words), "{error:?} does not name stage and element");
            Ok(())
        }
        "from_generator_bad_shape" => {
            let text = wanted["error"]["message_first_line"].as_str().context("no error")?;
            let [got, expected] = &super::shapes(text)[..] else { bail!("{text:?} does not contain two shapes") };
            let open: Vec<_> = expected.iter().copied().map(Some).collect();
            let got = got.clone();
            let rows = Dataset::from_generator(move || std::iter::once(Tensor::full(&gradlet::cpu(), 0.0f32, &got)));
            fails(all(&rows.map(|row| row).ensure_spec(gradlet::TensorSpec::new(gradlet::DType::F32, &open))), wanted)
        }
        "text_line" | "fixed_length" | "list_files_no_match" => super::files::one(folder, name, wanted),
        _ => bail!("unknown program {name:?}"),
    }
}

fn integer(json: &Json) -> Result<i64> {
    json.as_i64().with_context(|| format!("{json} is not an integer"))
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
    // The cases do not contain the programs' numbers. These are the numbers of the original programs.
    let seven = Dataset::range(0..integer(&wanted["cache"])?);
    for (name, wanted) in wanted.as_object().context("expected a JSON object")? {
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
            other => bail!("unknown stage {other:?}"),
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

/// Counts the calls of a dataset's mapped function. Returns the elements and the total number of calls after each of several passes over
/// the dataset. A pass that takes all elements also asks for one more, because only then does it see the end of the data.
fn calls(name: &str, passes: &[Json]) -> Result<Json> {
    let took = passes.iter().map(|pass| list(&pass["took"])).collect::<Result<Vec<_>>>()?;
    let count = took.iter().flat_map(|took| took.iter()).filter_map(Json::as_i64).max().context("no pass takes elements")? + 1;
    let called = Arc::new(AtomicU32::new(0));
    let counted = called.clone();
    let mapped = Dataset::range(0..count).map(move |x| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(x)
    });
    let dataset = match name {
        "map_calls_without_cache" => mapped,
        "map_calls_with_cache" | "map_calls_cache_partial_first" => mapped.cache(),
        "map_calls_cache_then_repeat" => mapped.cache().repeat_times((took[0].len() as i64 / count) as u64),
        other => bail!("unknown program {other:?}"),
    };
    let pass = |took: &Vec<Json>| -> Result<Json> {
        let whole = dataset.len()? == took.len() as u64;
        let took: Vec<i64> = all(&if whole { dataset.clone() } else { dataset.take(took.len() as u64) })?;
        Ok(json!({ "took": took, "map_calls_so_far": called.load(Ordering::Relaxed) }))
    };
    took.into_iter().map(pass).collect()
}
