//! Tests that the examples print the same output as the TensorFlow handbook's programs.

#![allow(dead_code)]

#[path = "../../examples/autograph.rs"]
mod autograph;
#[path = "../../examples/bench_data.rs"]
mod bench_data;
#[path = "../../examples/checkpoint_manager.rs"]
mod checkpoint_manager;
#[path = "../../examples/cnn.rs"]
mod cnn;
#[path = "../../examples/custom.rs"]
mod custom;
#[path = "../../examples/tensor_array.rs"]
mod tensor_array;

use checkpoint_manager::mnist;
use clap::Parser;
use gradlet::datasets::{Digits, digits};
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");

/// Returns the lines that a program prints.
fn printed(run: impl FnOnce(&mut dyn std::io::Write) -> Result<(), Box<dyn std::error::Error>>) -> Vec<String> {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(String::from).collect()
}

/// Returns the number after `name` in a line. Panics if the line does not begin with `name`, or if the number does not have six decimals.
#[track_caller]
fn number(line: &str, name: &str) -> f64 {
    let number = line.strip_prefix(name).unwrap_or_else(|| panic!("{line:?} does not begin with {name:?}"));
    assert_eq!(number.split_once('.').map(|(_, digits)| digits.len()), Some(6), "{line}");
    number.parse().unwrap()
}

/// A folder without `--scratch` is refused, because it might be a folder of existing data.
#[test]
fn bench_data_writes_to_its_scratch_folder_only() {
    let scratch = |arguments: &[&str]| bench_data::scratch(&arguments.iter().map(|argument| argument.to_string()).collect::<Vec<_>>());
    let input = tempfile::tempdir().unwrap();
    let name = input.path().to_str().unwrap();
    assert!(scratch(&[name]).unwrap_err().to_string().starts_with("usage: bench_data [--scratch DIR]"));
    let (folder, temporary) = scratch(&[]).unwrap();
    assert!(folder.is_dir() && !folder.starts_with(input.path()));
    drop(temporary);
    assert!(!folder.exists());
    let told = input.path().join("scratch");
    assert_eq!(scratch(&["--scratch", told.to_str().unwrap()]).unwrap().0, told);
}

#[test]
fn mlp() {
    let lines = printed(|out| mnist::mlp::run(Path::new(DATA), 1, out));
    assert_eq!(lines.len(), 161);
    assert!(number(&lines[0], "batch 0: loss ") > 2.0 && number(&lines[159], "batch 159: loss ") < 1.0);
    assert!(number(&lines[160], "test accuracy: ") > 0.86, "{}", lines[160]);
}

#[test]
fn cnn() {
    let (train, test) = digits::load(Path::new(DATA)).unwrap();
    let lines = printed(|out| cnn::run((&train.first(500), &test.first(100)), 1, 1, out));
    assert!(lines[0] == "Model: \"cnn\"" && lines.iter().any(|line| line == " Total params: 3,274,634 (12.49 MB)"), "{lines:?}");
    let [loss, accuracy] = &lines[lines.len() - 2..] else { panic!("{lines:?}") };
    assert!(number(loss, "test loss: ") < 1.5 && number(accuracy, "test sparse_categorical_accuracy: ") > 0.5, "{lines:?}");
}

#[test]
fn custom() {
    assert_eq!(printed(|out| custom::run(out)), ["w: 2.000", "b: 1.000", "accuracy: 0.750"]);
}

#[test]
fn tensor_array() {
    let line = "tf.Tensor(0.0, shape=(), dtype=float32) tf.Tensor(1.0, shape=(), dtype=float32) tf.Tensor(2.0, shape=(), dtype=float32)";
    assert_eq!(printed(|out| tensor_array::run(out)), [line]);
}

/// Trains with a program of the handbook, and tests the model that it saved last. The accuracy must equal the accuracy at the time of the
/// save. Returns the lines that the training prints, and the names of the files in the folder of saved models.
#[track_caller]
fn saved(arguments: &[&str], train: Train, test: Test) -> (Vec<String>, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let save = folder.path().join("save");
    let parsed = |arguments: &[&str]| {
        let common = ["mnist", "--data", DATA, "--save", save.to_str().unwrap()];
        mnist::Arguments::try_parse_from([&common, arguments].concat()).unwrap()
    };
    let (digits, mut accuracy) = (Digits::load(Path::new(DATA), "t10k").unwrap(), 0.0);
    let trained = printed(|out| {
        train(&parsed(arguments), out, &mut |model| {
            accuracy = mnist::accuracy(model, &digits)?;
            Ok(())
        })
    });
    let tested = printed(|out| test(&parsed(&["--mode", "test"]), out));
    assert_eq!(tested, [format!("test accuracy: {accuracy:.6}")]);
    assert!(accuracy >= 0.93, "{accuracy}");
    let mut files: Vec<String> = save.read_dir().unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    files.sort();
    let folder = save.to_str().unwrap();
    (trained.into_iter().map(|line| line.replace(folder, "./save")).collect(), files)
}

type Train = fn(&mnist::Arguments, &mut dyn std::io::Write, &mut mnist::Saved<'_>) -> Result<(), Box<dyn std::error::Error>>;
type Test = fn(&mnist::Arguments, &mut dyn std::io::Write) -> Result<(), Box<dyn std::error::Error>>;

/// Returns the sorted names of the files of the checkpoints `NAME-NUMBER`, and of the state file `checkpoint`.
fn files(name: &str, numbers: &[usize]) -> Vec<String> {
    let mut files: Vec<String> =
        numbers.iter().flat_map(|number| [".data-00000-of-00001", ".index"].map(|ending| format!("{name}-{number}{ending}"))).collect();
    files.push("checkpoint".into());
    files.sort();
    files
}

#[test]
fn mnist() {
    let (lines, there) = saved(&["--mode=train", "--num_epochs=8", "--batch_size=50"], mnist::train, mnist::run);
    assert_eq!(lines.len(), 1292);
    assert!(number(&lines[0], "batch 1: loss ") > 2.0);
    assert_eq!(lines[100], "model saved to ./save/model.ckpt-1");
    assert_eq!(lines[1211], "model saved to ./save/model.ckpt-12");
    assert_eq!(there, files("model.ckpt", &Vec::from_iter(1..=12)));
}

#[test]
fn checkpoint_manager() {
    let (lines, there) = saved(&["--mode=train", "--num_epochs=8"], checkpoint_manager::train, checkpoint_manager::run);
    assert_eq!(lines.len(), 1291);
    assert_eq!(lines[100], "model saved to ./save/ckpt-100");
    assert_eq!(lines[1211], "model saved to ./save/ckpt-1200");
    assert_eq!(there, files("ckpt", &[1000, 1100, 1200]));
}

#[test]
fn square_if_positive() {
    let code = r#"fn square_if_positive(mut x: Tensor) -> Result<Tensor> {
    {
        let mut branch = ag::branch(ag::Pair(&x, &0).greater()?)?;
        branch.begin((branch.slot("x", &mut x),))?;
        loop {
            let value = if branch.chosen() {
                x = ag::Pair(&x, &x).mul()?;
            } else {
                ag::Set(&mut x).literal(0)?;
            };
            match branch.end(value, (branch.slot("x", &mut x),))? {
                ag::Ran::Done(value) => break value,
                ag::Ran::Again(again) => {
                    again.go();
                }
            }
        }
    }
    Ok(x)
}"#;
    let first = "tf.Tensor(1, shape=(), dtype=int32) tf.Tensor(0, shape=(), dtype=int32)";
    assert_eq!(printed(autograph::run).join("\n"), format!("{first}\n{code}"));
}
