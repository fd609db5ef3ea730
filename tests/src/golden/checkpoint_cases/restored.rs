//! Transcripts of restores, for values with a matching variable, with no variable yet, or with a variable that does not match.

use super::transcripts::{Tree, elements, holds, last, numbers, says, scope, values};
use anyhow::{Context, Result, bail, ensure};
use gradlet::checkpoint::bundle::BundleReader;
use gradlet::checkpoint::{Checkpoint, Status, latest_checkpoint};
use gradlet::layers::Module;
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{DType, Scope, Shape, Tensor, TensorType, Variable};
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

type Assert = fn(&Status<'_, '_>) -> gradlet::Result<()>;

const CONSUMED: Assert = |status| status.assert_consumed().map(|_| ());
const MATCHED: Assert = |status| status.assert_existing_objects_matched().map(|_| ());
const PARTIAL: Assert = |status| {
    status.expect_partial();
    Ok(())
};

/// Runs a case. `folder` has a checkpoint made by TensorFlow's `Checkpoint.save`, and one made by `Checkpoint.write`, which has no save
/// counter.
pub fn case(folder: &Path, name: &str, case: &Json, transcript: &Json) -> Result<()> {
    let (source, written) = (latest_checkpoint(folder)?.context("there is no checkpoint")?, other(folder)?);
    let (ok, message) = (&case["ok"], case["error"]["message"].as_str().unwrap_or_default());
    match name {
        "exact_assert_consumed" => restored(&Tree::of(&source)?, &source, CONSUMED, ok),
        "exact_assert_existing" => restored(&Tree::of(&source)?, &source, MATCHED, ok),
        "fewer_objects_assert_consumed" => {
            let left = fewer(&source, transcript)?;
            unresolved(left.checkpoint().restore(&source)?.assert_consumed().err(), message)
        }
        "fewer_objects_assert_existing" => restored(&Tree::only(&source, &names(ok)?)?, &source, MATCHED, ok),
        "fewer_objects_expect_partial" => restored(&Tree::only(&source, &names(ok)?)?, &source, PARTIAL, ok),
        "extra_variable_assert_consumed" => extra(&source, CONSUMED, message, transcript),
        "extra_variable_assert_existing" => extra(&source, MATCHED, message, transcript),
        "extra_variable_keeps_its_value" => restored(&with_extra(&source, transcript)?.0, &source, PARTIAL, ok),
        "assert_nontrivial_match_only_save_counter" => {
            Checkpoint::new().restore(&source)?.assert_nontrivial_match()?;
            Ok(())
        }
        "shape_mismatch" | "rank_mismatch_same_size" => shape_mismatch(&source, message),
        "dtype_mismatch" => dtype_mismatch(&source, message),
        "deferred_restore" => deferred(&source, ok),
        "read_of_write" => {
            let tree = Tree::of(&written)?;
            tree.checkpoint().read(&written)?.assert_consumed()?;
            tree.hold(ok)
        }
        "restore_of_write_save_counter" => {
            let tree = Tree::of(&written)?;
            let checkpoint = tree.checkpoint();
            let status = checkpoint.restore(&written)?;
            ensure!(checkpoint.save_counter()? == ok["save_counter"].as_i64().context("no number")?);
            tree.hold(&ok["values"])?;
            unbound(status.assert_consumed().err(), ok["assert_consumed"]["error"]["message"].as_str().unwrap_or_default(), "save_counter")
        }
        "restore_missing_prefix" => {
            let missing = message.split([' ', ':']).find(|word| word.contains('/')).context("no path")?;
            let missing = folder.join(last(missing));
            let error = Checkpoint::new().restore(&missing).err().context("it did not fail")?.to_string();
            says(&error, &[&missing.display().to_string()])
        }
        "renamed_root_attribute" => renamed(&source, ok),
        "list_variables" => {
            let reader = BundleReader::open(&source)?;
            let listed = reader.entries().filter(|(key, _)| !key.is_empty()).map(|(key, entry)| serde_json::json!([key, entry.dims()]));
            ensure!(Json::Array(listed.collect()) == *ok, "{:?}", reader.entries().map(|(key, _)| key).collect::<Vec<_>>());
            Ok(())
        }
        "load_variable" => {
            let (path, value) = values(&source)?.into_iter().next().context("no variable")?;
            ensure!(elements(&value)? == numbers(ok)?, "{path}: {:?}", elements(&value)?);
            Ok(())
        }
        "load_variable_missing" => {
            let key = message.strip_prefix("Key ").and_then(|rest| rest.split_once(' ')).context("no key")?.0;
            let error = BundleReader::open(&source)?.tensor(key, &gradlet::cpu()).err().context("it did not fail")?.to_string();
            says(&error, &[key])
        }
        "save_vs_write" => save_vs_write(ok),
        "optimizer_restored_before_build" => optimizer(ok),
        _ => bail!("unknown case"),
    }
}

/// Returns the path prefix of the checkpoint in a folder that is not the latest. Fails if there is only one.
fn other(folder: &Path) -> Result<PathBuf> {
    let latest = latest_checkpoint(folder)?;
    let indices = folder.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<PathBuf>>>()?;
    let indices = indices.into_iter().filter(|path| path.extension().is_some_and(|ending| ending == "index"));
    let mut prefixes = indices.map(|path| path.with_extension(""));
    prefixes.find(|prefix| Some(prefix) != latest.as_ref()).context("there is no checkpoint without a save counter")
}

/// Returns the names of an object's fields.
fn names(object: &Json) -> Result<Vec<&str>> {
    Ok(object.as_object().context("expected a JSON object")?.keys().map(String::as_str).collect())
}

fn restored(tree: &Tree, prefix: &Path, assert: Assert, wanted: &Json) -> Result<()> {
    assert(&tree.checkpoint().restore(prefix)?)?;
    tree.hold(wanted)
}

/// Creates the variables of the cases that have fewer objects than the checkpoint.
fn fewer(source: &Path, transcript: &Json) -> Result<Tree> {
    Tree::only(source, &names(&transcript["fewer_objects_assert_existing"]["ok"])?)
}

/// Creates all variables of a checkpoint, and an extra variable that the checkpoint does not contain. Returns them, and the path of the
/// extra variable, which keeps its value in a restore.
fn with_extra(source: &Path, transcript: &Json) -> Result<(Tree, String)> {
    let (mut tree, shown) = (Tree::of(source)?, &transcript["extra_variable_keeps_its_value"]["ok"]);
    let saved = values(source)?;
    let known = |name: &str| saved.iter().find(|(path, _)| last(path) == name);
    let names = names(shown)?;
    let extra = names.iter().find(|name| known(name).is_none()).context("there is no other variable")?;
    let (beside, _) = names.iter().find_map(|name| known(name)).context("there is no known variable")?;
    let path = beside.rsplit_once('/').map_or(extra.to_string(), |(folder, _)| format!("{folder}/{extra}"));
    let value: Vec<f32> = numbers(&shown[*extra])?.into_iter().map(|value| value as f32).collect();
    let dims = if shown[*extra].is_array() { vec![value.len() as u32] } else { Vec::new() };
    tree.add(&path, Variable::new(&scope(), extra, &Tensor::new(&gradlet::cpu(), &value, &dims)?)?);
    Ok((tree, path))
}

fn extra(source: &Path, assert: Assert, message: &str, transcript: &Json) -> Result<()> {
    let (tree, path) = with_extra(source, transcript)?;
    let checkpoint = tree.checkpoint();
    unbound(assert(&checkpoint.restore(source)?).err(), message, &path)
}

/// Checks that the error names the same unused value as TensorFlow's message.
fn unresolved(error: Option<gradlet::Error>, message: &str) -> Result<()> {
    let rest = message.strip_prefix("Unresolved object in checkpoint ").context("unexpected form of message")?;
    let object = rest.split_once(": ").context("unexpected form of message")?.0;
    says(&error.context("it did not fail")?.to_string(), &[object])
}

/// Checks that the error reports as many variables without a value as TensorFlow's message, and names the variable `path`.
fn unbound(error: Option<gradlet::Error>, message: &str, path: &str) -> Result<()> {
    let count = message.strip_prefix("Found ").and_then(|rest| rest.split_once(" Python objects")).context("unexpected form of message")?.0;
    says(&error.context("it did not fail")?.to_string(), &[count, path])
}

/// Returns the two shapes in a message: the checkpoint's and the variable's.
fn shapes(message: &str) -> Result<[Vec<u32>; 2]> {
    let dims =
        |text: &str| text.split(',').map(str::trim).filter(|dim| !dim.is_empty()).map(|dim| Ok(dim.parse()?)).collect::<Result<Vec<u32>>>();
    let shapes = message.split("shape (").skip(1).map(|rest| dims(rest.split_once(')').context("no shape")?.0));
    let shapes = shapes.collect::<Result<Vec<_>>>()?;
    shapes.try_into().ok().context("the message does not contain two shapes")
}

/// Creates the variables of a checkpoint, one of them with another type. `held` selects this variable by its path and its value, and
/// `tensor_type` returns its new type.
fn with_type(source: &Path, held: impl Fn(&str, &Tensor) -> bool, tensor_type: impl Fn(&Tensor) -> TensorType) -> Result<Tree> {
    let (path, value) = values(source)?.into_iter().find(|(path, value)| held(path, value)).context("no variable of this type")?;
    let mut tree = Tree::of(source)?;
    let tensor_type = tensor_type(&value);
    let zeros = Tensor::full(&gradlet::cpu(), 0.0f32, tensor_type.shape.dims())?.cast(tensor_type.dtype)?;
    tree.add(&path, Variable::new(&scope(), last(&path), &zeros)?);
    Ok(tree)
}

fn fails(tree: &Tree, source: &Path, needed: &[&str]) -> Result<()> {
    says(&tree.checkpoint().restore(source).err().context("it did not fail")?.to_string(), needed)?;
    // No variable may have changed.
    let unchanged = tree.variables().iter().map(|variable| elements(&scope().read(variable)?)).collect::<Result<Vec<_>>>()?;
    ensure!(unchanged.concat().iter().all(|element| *element == 0.0), "{unchanged:?}");
    Ok(())
}

fn shape_mismatch(source: &Path, message: &str) -> Result<()> {
    let [saved, own] = shapes(message)?;
    let shape = Shape::new(&own)?;
    let tree = with_type(source, |_, value| value.dims() == saved, |value| TensorType::new(value.dtype(), shape))?;
    fails(&tree, source, &[&format!("{saved:?}"), &format!("{own:?}")])
}

fn dtype_mismatch(source: &Path, message: &str) -> Result<()> {
    let key = message.split_once("tensor_name = ").and_then(|(_, rest)| rest.split_once(';')).context("no key")?.0;
    let word = |before: &str| message.split_once(before).and_then(|(_, rest)| rest.split_whitespace().next()).context("no type");
    let (own, saved) = (dtype(word("expected dtype ")?)?, dtype(word("original dtype ")?)?);
    let path = key.split_once("/.ATTRIBUTES").context("no path")?.0;
    let held = |known: &str, value: &Tensor| known == path && value.dtype() == saved;
    let tree = with_type(source, held, |value| TensorType::new(own, value.tensor_type().shape))?;
    fails(&tree, source, &[path, name(own), name(saved)])
}

/// Element types: the names in TensorFlow's errors, and TensorFlow's usual names.
const DTYPES: [(&str, &str, DType); 9] = [
    ("bfloat16", "bfloat16", DType::Bf16),
    ("bool", "bool", DType::Bool),
    ("double", "float64", DType::F64),
    ("float", "float32", DType::F32),
    ("half", "float16", DType::F16),
    ("int32", "int32", DType::I32),
    ("int64", "int64", DType::I64),
    ("int8", "int8", DType::I8),
    ("uint8", "uint8", DType::U8),
];

fn dtype(word: &str) -> Result<DType> {
    let known = DTYPES.iter().find(|(known, _, _)| *known == word);
    Ok(known.with_context(|| format!("unknown type {word:?}"))?.2)
}

fn name(dtype: DType) -> &'static str {
    DTYPES.iter().find(|(_, _, known)| *known == dtype).map_or("", |(_, name, _)| name)
}

/// Tests variables that are created after the checkpoint was restored.
fn deferred(source: &Path, ok: &Json) -> Result<()> {
    let (mut tree, mut created) = (Tree::default(), Vec::new());
    let wanted = ok.as_object().context("expected a JSON object")?.iter();
    for (name, value) in wanted.filter_map(|(key, value)| Some((key.strip_suffix("_right_after_creation")?, value))) {
        let (path, saved) = values(source)?.into_iter().find(|(path, _)| last(path) == name).context("no such variable")?;
        let variable = Variable::deferred(name);
        tree.add(&path, variable.clone());
        created.push((variable, saved, value));
    }
    let checkpoint = tree.checkpoint();
    let status = checkpoint.restore(source)?;
    for (variable, saved, wanted) in &created {
        let zeros = Tensor::from_bytes(&gradlet::cpu(), saved.tensor_type(), &vec![0; saved.bytes()?.len()])?;
        variable.create(&scope(), &zeros)?;
        holds(variable, wanted)?;
    }
    ensure!(!created.is_empty(), "no variable was created");
    unresolved(status.assert_consumed().err(), ok["assert_consumed_then"]["error"]["message"].as_str().unwrap_or_default())
}

/// Tests the same variables under another name in the root object.
fn renamed(source: &Path, ok: &Json) -> Result<()> {
    let shown: Vec<&str> = names(ok)?.into_iter().filter(|name| *name != "consumed").collect();
    let tree = Tree::only(source, &shown)?;
    let checkpoint = Checkpoint::new().with("another_name", &tree);
    let status = checkpoint.restore(source)?;
    ensure!(status.assert_consumed().is_err());
    for name in &shown {
        let message = ok["consumed"]["error"]["message"].as_str().unwrap_or_default();
        unbound(status.assert_existing_objects_matched().err(), message, name)?;
        holds(&tree.variable(name)?, &ok[*name])?;
    }
    Ok(())
}

fn save_vs_write(ok: &Json) -> Result<()> {
    let root = tempfile::tempdir()?;
    let returns = ok["save_returns"].as_array().context("expected a JSON list")?;
    let keys: Vec<&str> = ok["keys"].as_array().context("expected a JSON list")?.iter().filter_map(Json::as_str).collect();
    let mut tree = Tree::default();
    for path in keys.iter().filter_map(|key| key.split_once("/.ATTRIBUTES")).map(|(path, _)| path).filter(|path| *path != "save_counter") {
        tree.add(path, Variable::new(&scope(), path, &Tensor::scalar(&gradlet::cpu(), 1.0f32))?);
    }
    let name = |json: &Json| json.as_str().map(|name| root.path().join(name)).context("no name");
    let stem = |path: PathBuf| {
        Ok::<_, anyhow::Error>(root.path().join(path.to_str().and_then(|path| path.rsplit_once('-')).context("no number")?.0))
    };
    let checkpoint = tree.checkpoint();
    let prefix = stem(name(&returns[0])?)?;
    for wanted in returns {
        ensure!(checkpoint.save(&prefix)? == name(wanted)?);
    }
    let plain = name(&ok["write_returns"])?;
    ensure!(checkpoint.write(&plain)? == plain);
    let another = tree.checkpoint();
    another.restore(latest_checkpoint(root.path())?.context("there is no checkpoint")?)?.assert_consumed()?;
    let next = another.save(&prefix)?;
    ensure!(next == name(&ok["next_after_restore"])?, "{}", next.display());
    ensure!(latest_checkpoint(root.path())? == Some(name(&ok["latest"])?));
    let reader = BundleReader::open(&next)?;
    let saved: Vec<&str> = reader.entries().map(|(key, _)| key).filter(|key| !key.is_empty()).collect();
    ensure!(saved == keys, "{saved:?}");
    Ok(())
}

/// Tests an optimizer whose state is restored before it is built for its variables.
fn optimizer(ok: &Json) -> Result<()> {
    let root = tempfile::tempdir()?;
    let after = ok["after_build"].as_object().context("expected a JSON object")?;
    let ending = |ending: &str| after.iter().find(|(name, _)| name.ends_with(ending)).map(|(_, value)| value).context("no such variable");
    let (momentum, rate) = (numbers(ending("_momentum")?)?, numbers(ending("learning_rate")?)?[0] as f32);
    let steps = ending("iteration")?;
    ensure!(steps.as_i64() == Some(1), "the case must have exactly one step");
    // After one step of Adam, the momentum is a tenth of the gradient.
    let gradient: Vec<f32> = momentum.iter().map(|momentum| (momentum * 10.0) as f32).collect();
    let gradient = Tensor::new(&gradlet::cpu(), &gradient, &[gradient.len() as u32])?;
    let variable = Variable::new(&scope(), "Variable", &gradient)?;
    let optimizer = Adam::new(rate);
    optimizer.apply_gradients(&scope(), &[(variable.clone(), Some(gradient))])?;
    let prefix = Checkpoint::new().with("optimizer", &optimizer).save(root.path().join("ckpt"))?;

    let fresh = Adam::new(rate / 2.0);
    let checkpoint = Checkpoint::new().with("optimizer", &fresh);
    let status = checkpoint.restore(&prefix)?;
    fresh.build(&scope(), &variable)?;
    status.assert_consumed()?;
    for (name, wanted) in after {
        let ending = last(name).rsplit('_').next().unwrap_or_default();
        let of = |optimizer: &Adam| {
            let found = optimizer.named_variables().into_iter().find(|(path, _)| path.contains(ending));
            let (_, variable) = found.with_context(|| format!("the optimizer has no {ending:?}"))?;
            elements(&scope().read(&variable)?)
        };
        let (got, wanted) = (of(&fresh)?, numbers(wanted)?);
        ensure!(got == of(&optimizer)?, "{name} is {got:?}");
        let close = got.len() == wanted.len() && got.iter().zip(&wanted).all(|(got, wanted)| (got - wanted).abs() <= 1e-6 * wanted.abs());
        ensure!(close, "{name} is {got:?}, wanted {wanted:?}");
    }
    Ok(())
}
