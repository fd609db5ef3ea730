//! Transcripts of checkpoint managers: numbers, kept checkpoints, and the folder's contents after each save.

use super::transcripts::{Tree, holds, says, scope, without_meaning};
use anyhow::{Context, Result, bail, ensure};
use gradlet::checkpoint::{Checkpoint, CheckpointManager, State, latest_checkpoint};
use gradlet::{Scope, Tensor, Variable};
use serde_json::{Map, Value as Json};
use std::fs;
use std::path::{Path, PathBuf};

/// Runs a case of `folder`.
pub fn case(folder: &Path, name: &str, case: &Json) -> Result<()> {
    let root = tempfile::tempdir()?;
    match (name, case) {
        (_, Json::Object(fields)) if fields.contains_key("after_each_save") => saves(folder, root.path(), fields),
        ("reopened", Json::Object(fields)) => reopened(folder, root.path(), fields),
        ("errors", Json::Object(cases)) => {
            let cases = cases.iter().filter(|(name, _)| !without_meaning(name));
            cases.into_iter().try_for_each(|(name, case)| error(root.path(), name, case).with_context(|| name.clone()))
        }
        ("latest_deleted", Json::String(none)) if none == "None" => latest_deleted(root.path()),
        _ => bail!("unknown case"),
    }
}

/// Converts a path of the transcript. `<DIR><PATH>/NAME` becomes a path below `directory`, and any other path becomes one below `root`.
fn place(root: &Path, directory: &Path, text: &Json) -> Result<PathBuf> {
    let text = text.as_str().with_context(|| format!("{text} is not a path"))?;
    Ok(match (text.strip_prefix("<DIR><PATH>/"), text.strip_prefix("<DIR>/")) {
        (Some(name), _) => directory.join(name),
        (None, Some(inside)) => root.join(inside),
        (None, None) => root.join(text),
    })
}

fn number(json: &Json) -> Result<u64> {
    json.as_u64().with_context(|| format!("{json} is not a number"))
}

fn keep(json: &Json) -> Result<Option<usize>> {
    if json.is_null() { Ok(None) } else { Ok(Some(number(json)? as usize)) }
}

fn items(json: &Json) -> Result<&Vec<Json>> {
    json.as_array().with_context(|| format!("{json} is not a list"))
}

fn variable() -> Result<Variable> {
    Ok(Variable::new(&scope(), "v", &Tensor::scalar(&gradlet::cpu(), 0.0f32))?)
}

/// Returns the sorted names of the files in a folder.
fn listed(folder: &Path) -> Result<Vec<String>> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry?.file_name().into_string().ok().context("a file name is not valid UTF-8");
    let mut names = folder.read_dir()?.map(name).collect::<Result<Vec<String>>>()?;
    names.sort();
    Ok(names)
}

/// Returns the text of a state file without its times.
fn timeless(text: &str) -> Result<String> {
    let line = |line: &str| match line.split_once("_timestamp") {
        None => Ok(format!("{line}\n")),
        Some((name, time)) => {
            let time = time.trim_start_matches(['s', ':', ' ']);
            ensure!(time.parse::<f64>().is_ok_and(|time| time > 1.7e9), "{line} is not a time");
            Ok(format!("{name}_timestamp\n"))
        }
    };
    text.lines().map(line).collect()
}

const FIELDS: [&str; 9] = [
    "after_each_save",
    "checkpoint_name",
    "checkpoint_numbers",
    "directory",
    "get_checkpoint_state",
    "latest_checkpoint",
    "max_to_keep",
    "save_counter",
    "state_text",
];

/// Repeats the saves of the transcript.
fn saves(folder: &Path, root: &Path, fields: &Map<String, Json>) -> Result<()> {
    let unknown: Vec<&String> = fields.keys().filter(|name| !FIELDS.contains(&name.as_str())).collect();
    ensure!(unknown.is_empty(), "unknown fields {unknown:?}");
    let case = Json::Object(fields.clone());
    let directory = place(root, root, &case["directory"])?;
    let placed = |text: &Json| place(root, &directory, text);
    let variable = variable()?;
    let checkpoint = Checkpoint::new().with("v", &variable);
    let mut manager = CheckpointManager::new(checkpoint, &directory, keep(&case["max_to_keep"])?)?;
    if let Some(name) = case["checkpoint_name"].as_str() {
        manager = manager.checkpoint_name(name);
    }
    for (index, wanted) in items(&case["after_each_save"])?.iter().enumerate() {
        scope().assign(&variable, &Tensor::scalar(&gradlet::cpu(), index as f32 + 1.0))?;
        let saved = match &case["checkpoint_numbers"] {
            Json::Null => manager.save()?,
            numbers => manager.save_with_checkpoint_number(number(&numbers[index])?)?,
        };
        let save = format!("save {}", index + 1);
        ensure!(saved == placed(&wanted["save_returned"])?, "{save} returned {}", saved.display());
        let kept = items(&wanted["checkpoints"])?.iter().map(placed).collect::<Result<Vec<_>>>()?;
        ensure!(manager.checkpoints() == kept, "{save} kept {:?}", manager.checkpoints());
        let latest = placed(&wanted["latest_checkpoint"])?;
        ensure!(manager.latest_checkpoint() == Some(latest.as_path()), "{save}: the latest is {:?}", manager.latest_checkpoint());
        ensure!(latest_checkpoint(&directory)? == Some(latest), "{save}: the folder's latest is {:?}", latest_checkpoint(&directory)?);
        let files = listed(&directory)?;
        ensure!(wanted["files"] == serde_json::json!(files), "{save} left {files:?}");
    }
    let text = fs::read_to_string(directory.join("checkpoint"))?;
    let wanted = case["state_text"].as_str().context("no text")?;
    ensure!(timeless(&text)? == timeless(wanted)?, "{text}");
    ensure!(latest_checkpoint(&directory)? == Some(placed(&case["latest_checkpoint"])?));
    ensure!(manager.checkpoint().save_counter()? == number(&case["save_counter"])? as i64);
    state(root, &directory, &directory, &case["get_checkpoint_state"])?;
    // The state in the folder that TensorFlow wrote must be the same.
    match case["directory"].as_str().map(|name| folder.join(name)).filter(|theirs| theirs.is_dir()) {
        Some(theirs) => state(folder, &theirs, &theirs, &case["get_checkpoint_state"]),
        None => Ok(()),
    }
}

/// Checks that the state file in `directory` equals the state in the transcript. `theirs` replaces `<DIR><PATH>` in the transcript's paths.
fn state(root: &Path, directory: &Path, theirs: &Path, wanted: &Json) -> Result<()> {
    let state = State::read(directory)?.context("there is no state")?;
    let paths = items(&wanted["all_model_checkpoint_paths"])?.iter().map(|path| place(root, theirs, path));
    ensure!(state.model_checkpoint_path == place(root, theirs, &wanted["model_checkpoint_path"])?, "{state:?}");
    ensure!(state.all_model_checkpoint_paths == paths.collect::<Result<Vec<_>>>()?, "{state:?}");
    Ok(())
}

/// Opens a manager on a folder that TensorFlow wrote, and continues to save.
fn reopened(folder: &Path, root: &Path, fields: &Map<String, Json>) -> Result<()> {
    let case = Json::Object(fields.clone());
    let kept = items(&case["checkpoints_on_open"])?;
    let kept = kept.iter().map(|path| place(root, root, path)).collect::<Result<Vec<_>>>()?;
    let directory = kept.first().and_then(|path| path.parent()).context("no checkpoint was kept")?.to_path_buf();
    fs::create_dir_all(&directory)?;
    let theirs = folder.join(directory.strip_prefix(root)?);
    for name in listed(&theirs)? {
        fs::write(directory.join(&name), fs::read(theirs.join(&name))?)?;
    }
    let tree = Tree::of(kept.last().context("no checkpoint was kept")?)?;
    let open = || CheckpointManager::new(tree.checkpoint(), &directory, keep(&case["max_to_keep"])?).map_err(anyhow::Error::from);
    let mut manager = open()?;
    ensure!(manager.checkpoints() == kept, "it has {:?}", manager.checkpoints());
    ensure!(manager.restore_or_initialize()?.as_ref() == kept.last());
    for (name, value) in fields.iter().filter_map(|(name, value)| Some((name.strip_prefix("restored_")?, value))) {
        holds(&tree.variable(name)?, value)?;
    }
    let count = number(&case["save_counter"])?;
    ensure!(manager.checkpoint().save_counter()? == count as i64);
    // The next save continues the numbers, and deletes the oldest checkpoint.
    let next = manager.save()?;
    ensure!(next.to_str().is_some_and(|next| next.ends_with(&format!("-{}", count + 1))), "{}", next.display());
    ensure!(open()?.checkpoints() == manager.checkpoints() && manager.checkpoints().last() == Some(&next.as_path()));
    Ok(())
}

fn error(root: &Path, name: &str, case: &Json) -> Result<()> {
    if name == "latest_of_missing_dir" {
        ensure!(case["ok"].is_null() && case.get("ok").is_some());
        ensure!(latest_checkpoint(root.join("missing"))?.is_none());
        return Ok(());
    }
    ensure!(name.starts_with("max_to_keep"), "unknown case");
    let message = case["error"]["message"].as_str().context("no message")?;
    let got: usize = message.trim_end_matches('.').rsplit(' ').next().context("no number")?.parse()?;
    let error = CheckpointManager::new(Checkpoint::new(), root, got).err().context("it did not fail")?.to_string();
    says(&error, &["positive", "None", "`max_to_keep`", &format!("got {got}")])
}

/// Checks that there is no latest checkpoint if the file `checkpoint` names a deleted one.
fn latest_deleted(root: &Path) -> Result<()> {
    let variable = variable()?;
    let mut manager = CheckpointManager::new(Checkpoint::new().with("v", &variable), root, None)?;
    manager.save()?;
    for name in listed(root)?.iter().filter(|name| *name != "checkpoint") {
        fs::remove_file(root.join(name))?;
    }
    ensure!(latest_checkpoint(root)?.is_none());
    Ok(())
}
