//! `gradlet new`: the files of a project, and errors that name what would be right. The suite builds the projects.

use crate::{fails, run, succeeds};
use std::fs;
use std::path::Path;
use tempfile::{TempDir, tempdir};

const CORE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core");

/// Exports the model `spec` as `model.grdl` in a new folder.
fn with_model(spec: &str, signatures: &str) -> TempDir {
    let folder = tempdir().unwrap();
    succeeds("export", &folder, &[spec, "--signatures", signatures, "--output", "model.grdl"]);
    folder
}

fn project<'a>(board: &'a str, folder: &'a str) -> [&'a str; 7] {
    ["--board", board, "--model", "model.grdl", "--core", CORE, folder]
}

/// Returns the paths of all files in `folder`, relative to it.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        match entry.path().is_dir() {
            true => found.extend(files(&entry.path()).iter().map(|file| format!("{name}/{file}"))),
            false => found.push(name),
        }
    }
    found.sort();
    found
}

#[test]
fn a_project_has_all_its_files() {
    let folder = with_model("mlp:8-4", "infer,train");
    let printed = succeeds("new", &folder, &project("mps2-an386", "My Firmware"));
    assert!(printed.contains("of 4194304 B of RAM\n") && printed.contains("Next: follow README.md"), "{printed}");
    let path = folder.path().join("My Firmware");
    let names = [".cargo/config.toml", ".gitignore", "Cargo.lock", "Cargo.toml", "README.md", "build.rs", "memory.x", "model.grdl"];
    let sources = ["src/board.rs", "src/learn.rs", "src/main.rs", "src/model.rs", "src/sample.rs"];
    assert_eq!(files(&path), [&names[..], &sources].concat());
    for name in files(&path).iter().filter(|name| !name.ends_with(".grdl")) {
        let text = fs::read_to_string(path.join(name)).unwrap();
        assert!(!text.contains("{{"), "{name} has a mark that nothing replaced:\n{text}");
    }
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert!(read("Cargo.toml").contains("name = \"my-firmware\"") && read("Cargo.toml").contains("gradlet-core = { path = "));
    assert!(read("src/sample.rs").contains("session.input_mut::<i32>(train, model::TRAIN_INPUT_Y)?"), "{}", read("src/sample.rs"));
}

/// Every board's project is written, by the list of boards in the help.
#[test]
fn every_board_has_a_project() {
    let folder = with_model("mlp:8-4", "infer,train");
    let help = succeeds("new", &folder, &["--help"]);
    let boards: Vec<&str> = help.lines().filter_map(|line| line.trim().strip_prefix("- ")?.split(':').next()).collect();
    assert!(boards.len() > 5 && boards.contains(&"pico2"), "{help}");
    for board in boards {
        succeeds("new", &folder, &project(board, board));
        let readme = fs::read_to_string(folder.path().join(board).join("README.md")).unwrap();
        assert!(readme.contains("tensorboard --logdir logs") && readme.contains("## The files"), "{board}: {readme}");
    }
}

#[test]
fn an_unknown_board_is_told_with_the_known_ones() {
    let folder = with_model("mlp:8-4", "infer,train");
    let output = run("new", &folder, &project("mps3", "firmware"));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("mps3") && stderr.contains("mps2-an386") && stderr.contains("pico2"), "{stderr}");
}

#[test]
fn files_are_not_overwritten() {
    let folder = with_model("mlp:8-4", "infer,train");
    fs::create_dir(folder.path().join("taken")).unwrap();
    fs::write(folder.path().join("taken/notes.txt"), "mine").unwrap();
    let (_, stderr) = fails("new", &folder, &project("mps2-an386", "taken"));
    assert!(stderr.contains("taken is not empty"), "{stderr}");
    assert_eq!(files(&folder.path().join("taken")), ["notes.txt"]);
}

/// A refused model leaves no folder behind.
#[test]
fn unusable_models_are_refused() {
    let folder = with_model("mlp:64-32-10", "infer");
    let refused = |board: &str, text: &str| {
        let (_, stderr) = fails("new", &folder, &project(board, "firmware"));
        assert!(stderr.contains("model.grdl") && stderr.contains(text), "{stderr}");
        assert!(!folder.path().join("firmware").exists());
    };
    refused("mps2-an386", "no signature trains a variable: export the training step");
    let export = |spec: &str| succeeds("export", &folder, &[spec, "--signatures", "train_head", "--output", "model.grdl"]);
    export("cnn");
    refused("mps2-an386", "there is no signature \"train\": choose one with --signature: train_head");
    succeeds("export", &folder, &["cnn", "--batch", "8", "--signatures", "train", "--output", "model.grdl"]);
    refused("nucleo-f446re", "bytes of RAM, and the board has 131072. It fits on: esp32c3, mps2-an386, pico2, pico2-riscv. ");
    fs::write(folder.path().join("model.grdl"), "a text that is longer than the header of an artifact, but has another magic number")
        .unwrap();
    refused("mps2-an386", "not a gradlet artifact");
    fs::remove_file(folder.path().join("model.grdl")).unwrap();
    refused("mps2-an386", "No such file");
}

#[test]
fn another_folder_is_no_core() {
    let folder = with_model("mlp:8-4", "infer,train");
    let arguments = ["--board", "mps2-an386", "--model", "model.grdl", "--core", env!("CARGO_MANIFEST_DIR"), "firmware"];
    let (_, stderr) = fails("new", &folder, &arguments);
    assert!(stderr.contains("is not the manifest of gradlet-core"), "{stderr}");
}

#[test]
fn a_signature_that_does_not_train_is_refused() {
    let folder = with_model("mlp:8-4", "infer,train");
    let (_, stderr) = fails("new", &folder, &[&["--signature", "infer"], &project("mps2-an386", "firmware")[..]].concat());
    assert!(stderr.contains("the signature \"infer\" trains no variable: choose one with --signature: train"), "{stderr}");
}
