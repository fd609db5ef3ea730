//! The state file `checkpoint`, and folders of checkpoints in which gradlet and TensorFlow take turns.

use super::python;
use gradlet::checkpoint::{Checkpoint, CheckpointManager, State};
use gradlet::{Eager, Scope, Tensor, Variable};
use gradlet_tests::random::Random;
use serde_json::{Value as Json, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Fragments of random texts: fields, numbers, strings with escapes, comments, and invalid text.
const PIECES: [&str; 60] = [
    "model_checkpoint_path",
    "all_model_checkpoint_paths",
    "all_model_checkpoint_timestamps",
    "last_preserved_timestamp",
    "model_checkpoint_path:",
    "all_model_checkpoint_paths:",
    "all_model_checkpoint_timestamps:",
    "last_preserved_timestamp:",
    ":",
    " ",
    "\n",
    "\t",
    "# a comment\n",
    "#",
    ",",
    ";",
    "[",
    "]",
    "{",
    "}",
    "\"a\"",
    "'b'",
    "\"é ü\"",
    "'\"'",
    "\"'\"",
    "\"\\n\\t\\\"\"",
    "'\\303\\251'",
    "'\\x4'",
    "'\\x41'",
    "'\\q\\?'",
    "'\\u00e9'",
    "'\\U0001f600'",
    "'\\u12'",
    "'\\ud800'",
    "'\\777'",
    "'\\xff'",
    "'\\",
    "\"open",
    "'a\nb'",
    "\\",
    "1",
    "1.5",
    "-0.25e3",
    ".5",
    "1.",
    "007",
    "0.1f",
    "inf",
    "-inf",
    "nan",
    "infinityf",
    "1_000",
    "1__0",
    "0x10",
    "1795264602.55347",
    "+3",
    "-",
    "\r\n",
    "\u{a0}",
    "unknown: 3",
];

/// Returns a random text of a state file, in which usually all fields are complete.
fn text(random: &mut Random) -> String {
    let mut text = if random.coin() { "model_checkpoint_path: 'x' " } else { "" }.to_string();
    let piece = |random: &mut Random| PIECES[random.below(PIECES.len())].to_string();
    for _ in 0..random.below(5) {
        let value = match random.below(40) {
            0 => piece(random),
            _ => {
                let number = random.coin();
                let (name, from, to) = match number {
                    true => (["all_model_checkpoint_timestamps", "last_preserved_timestamp"], 40, 56),
                    false => (["model_checkpoint_path", "all_model_checkpoint_paths"], 20, 36),
                };
                let mut value = || PIECES[from + random.below(to - from)];
                let (one, two) = (value(), value());
                let name = name[random.below(2)];
                match random.below(4) {
                    0 => format!("{name}: [{one}, {two}]"),
                    1 => format!("{name}:{one} {two}"),
                    _ => format!("{name}: {one}"),
                }
            }
        };
        text += &value;
        text += [" ", "\n", ", ", ";", "# x\n", ""][random.below(6)];
    }
    text
}

const READ: &str = r#"
import json, logging, math, struct, sys
import tensorflow as tf
tf.get_logger().setLevel(logging.CRITICAL)
number = lambda value: "nan" if math.isnan(value) else struct.pack(">d", value).hex()
for folder in json.load(open(sys.argv[1])):
    try:
        state = tf.train.get_checkpoint_state(folder)
    except (ValueError, UnicodeError):
        state = None
    print(json.dumps(state and [state.model_checkpoint_path, list(state.all_model_checkpoint_paths),
        [number(time) for time in state.all_model_checkpoint_timestamps], number(state.last_preserved_timestamp)]))
"#;

fn number(value: f64) -> String {
    if value.is_nan() { "nan".into() } else { format!("{:016x}", value.to_bits()) }
}

fn listed(state: &State) -> Json {
    let path = |path: &Path| path.to_str().unwrap().to_string();
    json!([
        path(&state.model_checkpoint_path),
        state.all_model_checkpoint_paths.iter().map(|one| path(one)).collect::<Vec<_>>(),
        state.all_model_checkpoint_timestamps.iter().map(|&time| number(time)).collect::<Vec<_>>(),
        number(state.last_preserved_timestamp),
    ])
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn states_are_read_as_tensorflow_reads_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(7);
    let mut texts: Vec<String> = (0..3000).map(|_| text(&mut random)).collect();
    texts.extend(PIECES[20..].iter().flat_map(|piece| {
        [format!("model_checkpoint_path: {piece}"), format!("model_checkpoint_path: 'a' last_preserved_timestamp: {piece}")]
    }));
    let folders: Vec<_> = (0..texts.len()).map(|index| folder.path().join(index.to_string())).collect();
    for (folder, text) in folders.iter().zip(&texts) {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("checkpoint"), text).unwrap();
    }
    let list = folder.path().join("list.json");
    std::fs::write(&list, json!(folders).to_string()).unwrap();
    let theirs = python(READ, &[list.to_str().unwrap()]);
    let theirs: Vec<Json> = theirs.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(theirs.len(), texts.len());
    for ((folder, text), theirs) in folders.iter().zip(&texts).zip(&theirs) {
        let ours = State::read(folder);
        assert_eq!(&ours.as_ref().map_or(Json::Null, |state| listed(state.as_ref().unwrap())), theirs, "{text:?}: {ours:?}");
    }
    let valid = theirs.iter().filter(|state| !state.is_null()).count();
    assert!(valid > 300 && valid < texts.len() - 300, "{valid} of {}", texts.len());
}

const WRITE: &str = r#"
import sys
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.python.training.checkpoint_state_pb2 import CheckpointState
for folder in sys.argv[1:]:
    text = open(folder + "/checkpoint", newline="").read()
    state = text_format.Parse(text, CheckpointState())
    print(text_format.MessageToString(state) == text, text)
"#;

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn states_are_written_as_tensorflow_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["ckpt-1", "é\u{1f600}\u{80}", "a\"b'c\\d\te\nf\rg\x01\x7f", "x y/../z-3"];
    let times = [0.0, -0.0, 1e-5, 1e-4, 1795264602.55347, 1e16, 1e15, 123456789012345680.0, 5e-324, f64::MAX, 1.0 / 3.0];
    let mut folders = Vec::new();
    for (index, name) in names.iter().enumerate() {
        for (at, &time) in times.iter().enumerate() {
            let folder = folder.path().join(format!("{index}-{at}"));
            std::fs::create_dir(&folder).unwrap();
            let path = folder.join(name);
            State {
                model_checkpoint_path: path.clone(),
                all_model_checkpoint_paths: vec![folder.join("ckpt"), path],
                all_model_checkpoint_timestamps: vec![time, times[at / 2]],
                last_preserved_timestamp: time,
            }
            .write(&folder)
            .unwrap();
            folders.push(folder.to_str().unwrap().to_string());
        }
    }
    let arguments: Vec<&str> = folders.iter().map(String::as_str).collect();
    let theirs = python(WRITE, &arguments);
    assert!(!theirs.contains("False") && theirs.matches("True ").count() == folders.len(), "{theirs}");
}

const MANAGE: &str = r#"
import json, sys
import tensorflow as tf
folder, numbers = sys.argv[1], json.loads(sys.argv[2])
v, step = tf.Variable([0.0, 0.0]), tf.Variable(0, dtype=tf.int64)
checkpoint = tf.train.Checkpoint(v=v, step=step)
manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=3)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint).assert_consumed()
found = [v.numpy().tolist(), int(step.numpy()), int(checkpoint.save_counter.numpy())]
for number in numbers:
    step.assign_add(1)
    v.assign([float(step.numpy()), -1.0])
    manager.save(checkpoint_number=number)
name = lambda path: path[len(folder) + 1:]
print(json.dumps([found, [name(path) for path in manager.checkpoints], name(manager.latest_checkpoint)]))
"#;

/// Makes the same saves as the Python script.
fn manage(folder: &Path, numbers: &[Option<u64>]) -> Json {
    let scope = Eager::new(&gradlet::cpu());
    let v = Variable::new(&scope, "v", &Tensor::new(&scope.device(), &[0.0f32, 0.0], &[2]).unwrap()).unwrap();
    let step = Variable::new(&scope, "step", &Tensor::scalar(&scope.device(), 0i64)).unwrap();
    let checkpoint = Checkpoint::new().with("v", &v).with("step", &step);
    let mut manager = CheckpointManager::new(checkpoint, folder, 3).unwrap();
    if let Some(latest) = manager.latest_checkpoint() {
        manager.checkpoint().restore(latest).unwrap().assert_consumed().unwrap();
    }
    let mut at: i64 = scope.read(&step).unwrap().item().unwrap();
    let found = json!([scope.read(&v).unwrap().to_vec::<f32>().unwrap(), at, manager.checkpoint().save_counter().unwrap()]);
    for number in numbers {
        at += 1;
        scope.assign(&step, &Tensor::scalar(&scope.device(), at)).unwrap();
        scope.assign(&v, &Tensor::new(&scope.device(), &[at as f32, -1.0], &[2]).unwrap()).unwrap();
        match number {
            Some(number) => manager.save_with_checkpoint_number(*number).unwrap(),
            None => manager.save().unwrap(),
        };
    }
    let name = |path: &Path| path.strip_prefix(folder).unwrap().to_str().unwrap().to_string();
    let kept: Vec<String> = manager.checkpoints().into_iter().map(name).collect();
    json!([found, kept, name(manager.latest_checkpoint().unwrap())])
}

/// Returns the names in a folder, and the text of its state file without times.
fn left(folder: &Path) -> (Vec<String>, String) {
    let mut names: Vec<String> = folder.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    let state = std::fs::read_to_string(folder.join("checkpoint")).unwrap();
    let line = |line: &str| line.split_once("timestamp").map_or(line, |(name, _)| name).to_string();
    (names, state.lines().map(|one| line(one) + "\n").collect())
}

/// gradlet and TensorFlow take turns in two folders. gradlet starts in one, TensorFlow in the other. The folders must become equal.
#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn either_goes_on_with_the_other_s_folder() {
    let root = tempfile::tempdir().unwrap();
    let turns: [&[Option<u64>]; 5] = [&[None, None], &[None, None, Some(100)], &[None, Some(100)], &[Some(100), None, Some(6)], &[]];
    let theirs = |folder: &Path, numbers: &[Option<u64>]| -> Json {
        let printed = python(MANAGE, &[folder.to_str().unwrap(), &json!(numbers).to_string()]);
        serde_json::from_str(&printed).unwrap()
    };
    let folders = ["one", "other"].map(|name| root.path().join(name));
    for (index, numbers) in turns.into_iter().enumerate() {
        let (ours, other) = (&folders[index % 2], &folders[1 - index % 2]);
        let (did, wanted) = (manage(ours, numbers), theirs(other, numbers));
        assert_eq!(did, wanted, "turn {index}");
        // A checkpoint that is written again may have another number of data files. TensorFlow then keeps the old data files.
        let plain = |(names, state): (Vec<String>, String)| {
            let names: BTreeSet<String> = names.into_iter().map(|name| name.replace("-of-00002", "-of-00001")).collect();
            (names, state)
        };
        assert_eq!(plain(left(ours)), plain(left(other)), "turn {index}");
    }
}
