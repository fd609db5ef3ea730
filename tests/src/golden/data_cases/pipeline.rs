//! Builder of the cases' pipelines, from the stages of `Dataset`.

use super::expression::Function;
use super::functions::{self, Functions};
use super::value::Value;
use anyhow::{Context, Result, bail, ensure};
use gradlet::data::{AUTOTUNE, Buckets, ElementSpec, Interleave, PaddedBatch, Parallel, Setting, Shuffle};
use gradlet::tensor::Values;
use gradlet::{DType, Dataset};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// Error of a pipeline that would not compile as a Rust program: for example, a function of the wrong type, or a negative size.
#[derive(Debug)]
pub struct DoesNotCompile(String);

impl fmt::Display for DoesNotCompile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DoesNotCompile {}

fn refused(error: anyhow::Error) -> anyhow::Error {
    DoesNotCompile(format!("{error:#}")).into()
}

/// Builds the pipeline of a list of steps, which refer to `functions` by name. Fails with [`DoesNotCompile`], or if a step is unknown.
pub fn build(steps: &Json, functions: &Functions) -> Result<Dataset<Value>> {
    let steps = steps.as_array().context("a pipeline must be a list")?;
    let (first, rest) = steps.split_first().context("a pipeline must begin with a source")?;
    let dataset = source(first, functions).with_context(|| format!("{first}"))?;
    rest.iter().try_fold(dataset, |dataset, step| stage(&dataset, step, functions).with_context(|| format!("{step}")))
}

/// Arguments of a step, with the functions of the file.
struct Arguments<'a>(&'a Json, &'a Functions);

impl<'a> Arguments<'a> {
    fn of(step: &'a Json, functions: &'a Functions) -> Result<(&'a str, Arguments<'a>)> {
        Ok((step[0].as_str().context("a step must begin with a name")?, Arguments(&step[1], functions)))
    }

    /// Returns the function that an argument names.
    fn function(&self, name: &str) -> Result<Arc<Function>> {
        self.1.named(self.0[name].as_str().with_context(|| format!("no {name:?}"))?)
    }

    fn flag(&self, name: &str) -> bool {
        self.0[name].as_bool().unwrap_or(false)
    }

    /// Returns the argument with this position or name, which must be a non-negative integer. Returns `None` if the step does not have it,
    /// or if it is null.
    fn number(&self, place: impl serde_json::value::Index + fmt::Debug + Copy) -> Result<Option<u64>> {
        match &self.0[place] {
            Json::Null => Ok(None),
            json => Ok(Some(json.as_u64().ok_or_else(|| DoesNotCompile(format!("{place:?} must be a non-negative integer, not {json}")))?)),
        }
    }

    fn size(&self, name: &str) -> Result<usize> {
        Ok(self.number(name)?.with_context(|| format!("no {name:?}"))? as usize)
    }

    /// Reads a setting: a non-negative integer, or −1 for `AUTOTUNE`.
    fn setting(json: &Json) -> Result<Setting> {
        match json.as_i64() {
            Some(-1) => Ok(AUTOTUNE),
            Some(number @ 0..) => Ok(Setting::Fixed(number as usize)),
            _ => Err(DoesNotCompile(format!("{json} is neither a non-negative integer nor AUTOTUNE")).into()),
        }
    }

    fn parallel(&self) -> Result<Option<Parallel>> {
        if self.0["num_parallel_calls"].is_null() {
            return Ok(None);
        }
        let calls = Arguments::setting(&self.0["num_parallel_calls"])?;
        Ok(Some(Parallel::new(calls).deterministic(self.0["deterministic"].as_bool() != Some(false))))
    }
}

fn source(step: &Json, functions: &Functions) -> Result<Dataset<Value>> {
    let (name, arguments) = Arguments::of(step, functions)?;
    let build = |steps: &Json| build(steps, functions);
    Ok(match name {
        "range" => {
            let numbers: Vec<i64> = serde_json::from_value(arguments.0.clone())?;
            let range = match numbers[..] {
                [stop] => Dataset::range(0..stop),
                [start, stop] => Dataset::range(start..stop),
                [start, stop, step] => Dataset::range_by(start..stop, step),
                _ => bail!("range takes one to three numbers"),
            };
            functions::numbers(range)
        }
        "from_tensor_slices" => Dataset::from_tensor_slices(Value::from_json(arguments.0)?),
        "from_tensors" => Dataset::from_tensors(Value::from_json(arguments.0)?),
        "zip" => {
            let inputs = arguments.0.as_array().context("expected a JSON list")?.iter().map(build).collect::<Result<Vec<_>>>()?;
            tuples(&Dataset::zip_all(inputs))
        }
        "zip_dict" => {
            let inputs = arguments.0.as_object().context("no map")?;
            let names: Vec<String> = inputs.keys().cloned().collect();
            let zipped = Dataset::zip_all(inputs.values().map(build).collect::<Result<Vec<_>>>()?);
            let spec = match zipped.element_spec() {
                Some(ElementSpec::Tuple(parts)) => names.iter().cloned().zip(parts.iter().cloned()).collect(),
                _ => BTreeMap::new(),
            };
            let named = zipped.map(move |parts| Ok(Value::Dict(names.iter().cloned().zip(parts).collect())));
            named.with_spec(ElementSpec::Dict(spec))
        }
        "choose_from_datasets" => {
            let inputs = arguments.0["datasets"].as_array().context("no datasets")?.iter().map(build).collect::<Result<Vec<_>>>()?;
            let choice = build(&arguments.0["choice"])?;
            let int64 = choice.element_spec().is_some_and(|spec| spec.to_string() == "i64[]");
            ensure!(int64, DoesNotCompile("the choices must be of type i64".into()));
            let stop = arguments.0["stop_on_empty_dataset"].as_bool() != Some(false);
            Dataset::choose_from_datasets(inputs, &choice.map(|choice| choice.integer()), stop)
        }
        other => bail!("unknown source {other:?}"),
    })
}

/// Converts elements that are lists to tuples.
fn tuples(lists: &Dataset<Vec<Value>>) -> Dataset<Value> {
    with_spec(lists.map(|parts| Ok(Value::Tuple(parts))), lists.element_spec().cloned())
}

fn with_spec(dataset: Dataset<Value>, spec: Option<ElementSpec>) -> Dataset<Value> {
    match spec {
        Some(spec) => dataset.with_spec(spec),
        None => dataset,
    }
}

/// Returns the type of the dataset's elements. Fails if it is unknown, which is not the case for any pipeline of the cases.
fn spec_of(dataset: &Dataset<Value>) -> Result<ElementSpec> {
    dataset.check()?;
    dataset.element_spec().cloned().context("the type of the elements is unknown")
}

fn stage(from: &Dataset<Value>, step: &Json, functions: &Functions) -> Result<Dataset<Value>> {
    let (name, arguments) = Arguments::of(step, functions)?;
    Ok(match name {
        "take" | "skip" | "repeat" | "shard" | "prefetch" | "shuffle" => return counted(from, name, &arguments),
        "batch" | "padded_batch" | "ragged_batch" | "rebatch" | "bucket_by_sequence_length" => return batched(from, name, &arguments),
        "flat_map" | "interleave" | "window" | "group_by_window" => return nested(from, name, &arguments),
        "map" => {
            let function = arguments.function("fn")?;
            let spec = function.spec(&spec_of(from)?).map_err(refused)?;
            let f = move |value| function.call(value);
            match arguments.parallel()? {
                Some(parallel) => from.map_parallel(parallel, f),
                None => from.map(f),
            }
            .with_spec(spec)
        }
        "filter" | "take_while" => {
            let predicate = arguments.function("fn")?;
            let says = predicate.spec(&spec_of(from)?).map_err(refused)?;
            let flag = matches!(&says, ElementSpec::Tensor(says) if says.dtype() == DType::Bool);
            ensure!(flag, DoesNotCompile(format!("a predicate must return a bool, not {says}")));
            let holds = move |value: &Value| predicate.holds(value);
            if name == "filter" { from.filter(holds) } else { from.take_while(holds) }
        }
        "scan" => {
            let (function, initial) = (arguments.function("fn")?, Value::from_json(&arguments.0["initial_state"])?);
            let (spec, state) = (spec_of(from)?, gradlet::data::Element::spec(&initial));
            ensure!(
                state.as_ref() == Some(&spec),
                DoesNotCompile(format!("the initial state has the type {state:?}, but the elements have the type {spec}"))
            );
            from.scan(initial, move |state, value| function.call_with(vec![state, value])?.parts().map(|[state, element]| (state, element)))
                .with_spec(spec)
        }
        "unique" => from.unique_by(|value| match value {
            Value::Strings(strings) => Ok(strings.values().concat()),
            value => Ok(value.clone().tensor()?.bytes()?.to_vec()),
        }),
        "enumerate" => {
            let numbered = from.enumerate(arguments.0[0].as_i64().unwrap_or(0));
            let tuple = |(index, value)| Ok(Value::Tuple(vec![Value::Tensor(gradlet::Tensor::scalar(&gradlet::cpu(), index)), value]));
            with_spec(numbered.map(tuple), numbered.element_spec().cloned())
        }
        "ignore_errors" => from.ignore_errors(),
        "cache" => from.cache(),
        "unbatch" => from.unbatch(),
        "concatenate" => from.concatenate(&build(arguments.0, functions)?),
        other => bail!("unknown stage {other:?}"),
    })
}

fn counted(from: &Dataset<Value>, name: &str, arguments: &Arguments<'_>) -> Result<Dataset<Value>> {
    let first = arguments.0[0].as_i64();
    Ok(match (name, first) {
        // In TensorFlow, −1 means all elements. Any other negative number means the same, but with an unknown cardinality.
        ("take", Some(-1)) => from.clone(),
        ("take", Some(..-1)) => from.filter(|_| Ok(true)),
        ("skip", Some(..0)) => from.take(0),
        ("repeat", None | Some(..0)) => from.repeat(),
        ("take", Some(count)) => from.take(count as u64),
        ("skip", Some(count)) => from.skip(count as u64),
        ("repeat", Some(count)) => from.repeat_times(count as u64),
        ("shard", _) => from.shard(arguments.number(0)?.unwrap_or(0), arguments.number(1)?.unwrap_or(0)),
        ("prefetch", Some(_)) => from.prefetch(Arguments::setting(&arguments.0[0])?),
        ("shuffle", _) => {
            let mut options = Shuffle::new(arguments.size("buffer_size")?);
            if let Some(seed) = arguments.number("seed")? {
                options = options.seed(seed);
            }
            from.shuffle(options.reshuffle_each_iteration(arguments.0["reshuffle_each_iteration"].as_bool() != Some(false)))
        }
        _ => bail!("wrong arguments of {name}: {:?}", arguments.0),
    })
}

fn batched(from: &Dataset<Value>, name: &str, arguments: &Arguments<'_>) -> Result<Dataset<Value>> {
    let drop_remainder = arguments.flag("drop_remainder");
    Ok(match name {
        "batch" => {
            let size = arguments.size("batch_size")?;
            match (arguments.parallel()?, drop_remainder) {
                (Some(parallel), false) => from.batch_parallel(size, parallel),
                (_, true) => from.batch_drop_remainder(size),
                (None, false) => from.batch(size),
            }
        }
        "padded_batch" => {
            from.padded_batch(padding(arguments, arguments.size("batch_size")?, &spec_of(from)?)?.drop_remainder(drop_remainder))
        }
        "ragged_batch" => from.ragged_batch(arguments.size("batch_size")?, drop_remainder),
        "rebatch" => {
            let sizes = match &arguments.0["batch_size"] {
                Json::Array(sizes) => sizes.iter().map(|size| size.as_u64().unwrap_or(0) as usize).collect(),
                size => vec![size.as_u64().ok_or_else(|| DoesNotCompile(format!("a batch size must not be {size}")))? as usize],
            };
            from.rebatch(&sizes, drop_remainder)
        }
        _ => {
            let numbers = |name: &str| -> Result<Vec<u64>> { Ok(serde_json::from_value(arguments.0[name].clone())?) };
            let sizes: Vec<usize> = numbers("bucket_batch_sizes")?.into_iter().map(|size| size as usize).collect();
            let buckets = Buckets::new(&numbers("bucket_boundaries")?, &sizes)
                .padding(padding(arguments, 1, &spec_of(from)?)?)
                .pad_to_bucket_boundary(arguments.flag("pad_to_bucket_boundary"))
                .no_padding(arguments.flag("no_padding"))
                .drop_remainder(drop_remainder);
            let length = arguments.function("element_length_func")?;
            from.bucket_by_sequence_length(move |value| Ok(length.call(value.clone())?.integer()? as u64), buckets)
        }
    })
}

/// Reads the padded shapes and padding values of a step. They have the structure of the dataset's elements.
fn padding(arguments: &Arguments<'_>, batch_size: usize, spec: &ElementSpec) -> Result<PaddedBatch> {
    let mut shapes = Vec::new();
    padded_shapes(&arguments.0["padded_shapes"], spec, &mut shapes)?;
    let mut values = Vec::new();
    padding_values(&arguments.0["padding_values"], &mut values)?;
    Ok(PaddedBatch::new(batch_size).padded_shapes(shapes).padding_values(values))
}

type OpenDims = Vec<Option<u32>>;

fn padded_shapes(json: &Json, spec: &ElementSpec, shapes: &mut Vec<Option<OpenDims>>) -> Result<()> {
    match (json, spec) {
        (Json::Null, _) => Ok(()),
        (json, ElementSpec::Tuple(parts)) => {
            let list = json["tuple"].as_array().or(json.as_array()).context("padded_shapes is not a tuple")?;
            list.iter().zip(parts).try_for_each(|(json, spec)| padded_shapes(json, spec, shapes))
        }
        (json, ElementSpec::Dict(parts)) => {
            let named = json["dict"].as_object().or(json.as_object()).context("padded_shapes is not a map")?;
            parts.iter().try_for_each(|(name, spec)| padded_shapes(&named[name], spec, shapes))
        }
        (json, _) => {
            let dims = json.as_array().with_context(|| format!("padded_shapes is not a list of dimensions: {json}"))?;
            shapes.push(Some(dims.iter().map(|dim| dim.as_u64().map(|dim| dim as u32)).collect()));
            Ok(())
        }
    }
}

fn padding_values(json: &Json, values: &mut Vec<Option<Values>>) -> Result<()> {
    if json.is_null() {
        return Ok(());
    }
    if let Some(parts) = json["tuple"].as_array() {
        return parts.iter().try_for_each(|part| match part {
            Json::Null => {
                values.push(None);
                Ok(())
            }
            part => padding_values(part, values),
        });
    }
    values.push(Some(match Value::from_json(json)? {
        Value::Tensor(tensor) => tensor.into(),
        Value::Strings(strings) => strings.into(),
        other => bail!("{other:?} is not valid padding"),
    }));
    Ok(())
}

fn nested(from: &Dataset<Value>, name: &str, arguments: &Arguments<'_>) -> Result<Dataset<Value>> {
    match name {
        "window" => {
            let shift = arguments.number("shift")?.map(|shift| shift as usize);
            let stride = arguments.number("stride")?.unwrap_or(1) as usize;
            let windows = from.window(arguments.size("size")?, shift, stride, arguments.flag("drop_remainder"));
            let spec = spec_of(from)?;
            let outer = window_spec(&spec);
            Ok(windows.map(move |window| Ok(split(&window, &spec))).with_spec(outer))
        }
        "group_by_window" => {
            let (key, reduce) = (arguments.function("key_func")?, arguments.function("reduce_func")?);
            let (own, size) = (spec_of(from)?, arguments.size("window_size")?);
            let group = ElementSpec::Dataset(own.clone().into());
            let spec = reduce.inner_spec(&[key.spec(&own).map_err(refused)?, group]).map_err(refused)?;
            let grouped = from.group_by_window(
                move |value| key.call(value.clone())?.integer(),
                move |key, group| {
                    let key = Value::Tensor(gradlet::Tensor::scalar(&gradlet::cpu(), key));
                    let group = reduce.call_with(vec![key, Value::Dataset(group)])?;
                    if let Value::Dataset(group) = group { Ok(group) } else { Err(gradlet::Error::message("a group becomes a dataset")) }
                },
                move |_| size,
            );
            Ok(grouped.with_spec(spec))
        }
        _ => {
            let function = arguments.function("fn")?;
            let spec = function.inner_spec(&[spec_of(from)?]).map_err(refused)?;
            let f = move |value| function.dataset(value);
            if name == "flat_map" {
                return Ok(from.flat_map(f).with_spec(spec));
            }
            let cycle = if arguments.0["cycle_length"].is_null() { AUTOTUNE } else { Arguments::setting(&arguments.0["cycle_length"])? };
            let mut options = Interleave::new(cycle).block_length(arguments.number("block_length")?.unwrap_or(1) as usize);
            if let Some(parallel) = arguments.parallel()? {
                options = options.num_parallel_calls(parallel);
            }
            Ok(from.interleave(options, f).with_spec(spec))
        }
    }
}

/// Converts a window of tuples to a tuple of windows, as TensorFlow does.
fn split(window: &Dataset<Value>, spec: &ElementSpec) -> Value {
    let part = |window: Dataset<Value>, spec: &ElementSpec| split(&window.with_spec(spec.clone()), spec);
    match spec {
        ElementSpec::Tuple(parts) => {
            let column = |index: usize| {
                window.map(move |value| match value {
                    Value::Tuple(parts) => Ok(parts[index].clone()),
                    other => Err(gradlet::Error::message(format!("expected a tuple, but got {other:?}"))),
                })
            };
            Value::Tuple(parts.iter().enumerate().map(|(index, spec)| part(column(index), spec)).collect())
        }
        ElementSpec::Dict(parts) => {
            let column = |name: String| {
                window.map(move |value| match value {
                    Value::Dict(parts) => Ok(parts[&name].clone()),
                    other => Err(gradlet::Error::message(format!("expected a map, but got {other:?}"))),
                })
            };
            Value::Dict(parts.iter().map(|(name, spec)| (name.clone(), part(column(name.clone()), spec))).collect())
        }
        _ => Value::Dataset(window.clone()),
    }
}

fn window_spec(spec: &ElementSpec) -> ElementSpec {
    match spec {
        ElementSpec::Tuple(parts) => ElementSpec::Tuple(parts.iter().map(window_spec).collect()),
        ElementSpec::Dict(parts) => ElementSpec::Dict(parts.iter().map(|(name, part)| (name.clone(), window_spec(part))).collect()),
        leaf => ElementSpec::Dataset(leaf.clone().into()),
    }
}
