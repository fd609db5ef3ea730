//! Tests of the `gradlet` command: from digits to an artifact, and errors for invalid input.

use assert_cmd::Command;
use gradlet::io::npy::{self, Npy};
use gradlet::runtime::program::{self, Header};
use gradlet::{DType, Shape, TensorType};
use std::fs;
use std::path::Path;
use std::process::Output;
use tempfile::TempDir;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");
const SMALL: &[&str] = &["--limit", "200", "--epochs", "1"];

/// Runs `gradlet` with these arguments in `folder`.
fn gradlet(folder: &TempDir, arguments: &[&str]) -> Output {
    Command::cargo_bin("gradlet").unwrap().args(arguments).current_dir(folder).output().unwrap()
}

#[track_caller]
fn succeeds(folder: &TempDir, arguments: &[&str]) -> String {
    let output = gradlet(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Checks that `gradlet` ends with exit code 1 and one line on stderr, which contains `text`.
#[track_caller]
fn fails(folder: &TempDir, arguments: &[&str], text: &str) {
    let output = gradlet(folder, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {stderr}");
    assert!(stderr.starts_with("error: ") && stderr.lines().count() == 1, "{arguments:?}: {stderr}");
    assert!(stderr.contains(text), "{arguments:?}: {stderr}");
}

fn names(folder: &TempDir) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn exported(folder: &TempDir) {
    succeeds(folder, &["export", "cnn", "--output", "cnn.grdl"]);
}

/// Exports the artifact `cnn.grdl`, changes its bytes with `change`, and corrects its checksum.
fn changed(folder: &TempDir, change: impl FnOnce(&mut [u8], Header)) {
    exported(folder);
    let path = folder.path().join("cnn.grdl");
    let mut bytes = fs::read(&path).unwrap();
    let header = bytemuck::pod_read_unaligned(&bytes[..size_of::<Header>()]);
    change(&mut bytes, header);
    let checksum = program::checksum(&bytes[16..]);
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

fn array(folder: &TempDir, name: &str, dtype: DType, dims: &[u32], bytes: &[u8]) {
    let tensor_type = TensorType::new(dtype, Shape::new(dims).unwrap());
    npy::write(&folder.path().join(name), &Npy { tensor_type, bytes: bytes.to_vec() }).unwrap();
}

#[test]
fn from_digits_to_an_artifact() {
    let folder = TempDir::new().unwrap();
    let train = |weights| [&["train", "cnn", "--data", DATA, "--seed", "7", "--weights", weights], SMALL].concat();
    let printed = succeeds(&folder, &train("w.safetensors"));
    assert!(printed.starts_with("cnn: accuracy ") && printed.lines().count() == 1, "{printed}");
    succeeds(&folder, &train("again.safetensors"));
    let read = |name: &str| fs::read(folder.path().join(name)).unwrap();
    assert!(read("w.safetensors") == read("again.safetensors"), "the same seed gave other weights");

    let export = |artifact, rust| ["export", "cnn", "--weights", "w.safetensors", "--output", artifact, "--rust", rust];
    let printed = succeeds(&folder, &export("a.grdl", "a.rs"));
    assert!(printed.contains("together"), "{printed}");
    succeeds(&folder, &export("b.grdl", "b.rs"));
    assert!(read("a.grdl") == read("b.grdl") && read("a.rs") == read("b.rs"), "the same weights gave another artifact");

    let printed = succeeds(&folder, &["inspect", "a.grdl", "--svg", "a.svg"]);
    let signature = "signature train(x: f32[1,28,28,1], y: i32[1]) -> (loss: f32[])";
    for part in ["model: cnn", signature, "longest slice, at instruction", "peak at instruction", "dense_1/kernel"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
    assert!(String::from_utf8(read("a.svg")).unwrap().contains("peak at"));

    let x = format!("x=digits:{DATA}:0");
    let printed = succeeds(&folder, &["run", "a.grdl", "infer", "--input", &x, "--output", "logits=logits.npy"]);
    assert!(printed.starts_with("logits f32[1,10] = ["), "{printed}");
    assert_eq!(npy::read(&folder.path().join("logits.npy")).unwrap().tensor_type.to_string(), "f32[1,10]");
    let y = format!("y=digits:{DATA}:0");
    let loss = |steps| -> f32 {
        let printed = succeeds(&folder, &["run", "a.grdl", "train", "--input", &x, "--input", &y, "--steps", steps]);
        printed.trim().strip_prefix("loss f32[] = ").unwrap().parse().unwrap()
    };
    assert!(loss("20") < loss("1"));
}

#[test]
fn progress_is_plain_and_can_be_left_out() {
    let folder = TempDir::new().unwrap();
    let train = [&["train", "mlp:784-8-10", "--data", DATA], SMALL].concat();
    let stderr = String::from_utf8(gradlet(&folder, &train).stderr).unwrap();
    assert!(
        stderr.contains("s/step - accuracy: ")
            && stderr.contains(" - val_loss: ")
            && stderr.lines().count() == 1
            && !stderr.contains('\x1b'),
        "{stderr}"
    );
    let quiet = gradlet(&folder, &[&train[..], &["--quiet"]].concat());
    assert!(quiet.stderr.is_empty() && !quiet.stdout.is_empty());
}

#[test]
fn the_generated_source_is_formatted() {
    let folder = TempDir::new().unwrap();
    succeeds(&folder, &["export", "mlp:64-32-10", "--signatures", "infer,train", "--output", "m.grdl", "--rust", "m.rs"]);
    Command::new("rustfmt").args(["--edition", "2024", "--check", "m.rs"]).current_dir(&folder).assert().success();
    let source = fs::read_to_string(folder.path().join("m.rs")).unwrap();
    assert!(source.contains("pub static KERNELS: &[&gradlet_core::Kernel] = &[\n    &gradlet_core::ops::dense::F32,\n"), "{source}");
    assert!(source.contains("pub const ARENA_BYTES: usize = ") && source.contains("pub const TRAIN_ARENA_BYTES: usize = "), "{source}");
    let constants = [
        "pub const TRAIN: &str = \"train\";",
        "pub const TRAIN_INPUT_X: usize = 0;",
        "pub const TRAIN_INPUT_X_SHAPE: [usize; 2] = [1, 64];",
        "pub const TRAIN_OUTPUT_LOSS_SHAPE: [usize; 0] = [];",
        "pub const VARIABLE_DENSE_KERNEL_SHAPE: [usize; 2] = [64, 32];",
    ];
    constants.iter().for_each(|constant| assert!(source.contains(constant), "{constant}: {source}"));
    succeeds(&folder, &["inspect", "m.grdl", "--rust", "again.rs"]);
    let again = fs::read_to_string(folder.path().join("again.rs")).unwrap();
    assert_eq!(again.lines().skip(1).collect::<Vec<_>>(), source.lines().skip(1).collect::<Vec<_>>());
}

#[test]
fn the_generated_c_names_what_the_rust_names() {
    let folder = TempDir::new().unwrap();
    succeeds(&folder, &["export", "mlp:64-32-10", "--signatures", "infer,train", "--output", "m.grdl", "--rust", "m.rs", "--c", "model.c"]);
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let (rust, source, header) = (read("m.rs"), read("model.c"), read("model.h"));
    let artifact = fs::read(folder.path().join("m.grdl")).unwrap();
    let bytes: Vec<u8> =
        source.split([' ', '\n']).filter_map(|word| u8::from_str_radix(word.strip_prefix("0x")?.strip_suffix(',')?, 16).ok()).collect();
    assert!(bytes == artifact, "the source has {} bytes", bytes.len());
    assert!(
        source.contains("const gradlet_kernel *const model_kernels[MODEL_KERNEL_COUNT] = {\n    &gradlet_kernel_dense_F32,\n"),
        "{source}"
    );
    let macros = [
        "#define MODEL_SIGNATURES 0x3u\n",
        "#define MODEL_TRAIN 1\n",
        "#define MODEL_TRAIN_INPUT_X_SHAPE { 1, 64 }\n",
        "#define MODEL_TRAIN_INPUT_X_ELEMENTS 64\n",
        "#define MODEL_TRAIN_INPUT_X_DTYPE GRADLET_DTYPE_F32\n",
        "#define MODEL_TRAIN_OUTPUT_LOSS_ELEMENTS 1\n",
    ];
    macros.iter().for_each(|line| assert!(header.contains(line), "{line}: {header}"));
    // Each number of the Rust source is in the header, with the same name.
    for line in rust.lines().filter_map(|line| line.strip_prefix("pub const ")) {
        if let Some((name, value)) = line.strip_suffix(';').and_then(|line| line.split_once(": usize = ")) {
            assert!(header.contains(&format!("#define MODEL_{name} {value}\n")), "{name}: {header}");
        }
    }
    succeeds(&folder, &["inspect", "m.grdl", "--c", "again.c"]);
    let defined =
        |text: &str| text.lines().filter(|line| line.starts_with("#define ")).map(|line| line.replace("AGAIN_", "MODEL_")).collect();
    let [first, again]: [Vec<String>; 2] = [defined(&header), defined(&read("again.h"))];
    assert_eq!(first, again);
    assert_eq!(gradlet(&folder, &["inspect", "m.grdl", "--c", "model.h"]).status.code(), Some(2));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    let folder = TempDir::new().unwrap();
    for arguments in [&["train"][..], &["train", "lenet"], &["export", "cnn"], &["run", "a.grdl", "infer", "--input", "x"], &["inspect"]] {
        assert_eq!(gradlet(&folder, arguments).status.code(), Some(2), "{arguments:?}");
    }
    let stderr = String::from_utf8(gradlet(&folder, &["train", "lenet"]).stderr).unwrap();
    assert!(stderr.contains("it must be cnn, mlp, or units as in mlp:784-100-10"), "{stderr}");
}

/// Copies the MNIST files to the folder `data` in `folder`, and replaces the contents of the file `name` by the result of `change`.
fn damaged_digits(folder: &TempDir, name: &str, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let data = folder.path().join("data");
    fs::create_dir(&data).unwrap();
    for entry in fs::read_dir(DATA).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), data.join(entry.file_name())).unwrap();
    }
    let path = data.join(name);
    fs::write(&path, change(fs::read(&path).unwrap())).unwrap();
}

const TRAIN: [&str; 6] = ["train", "mlp", "--data", "data", "--weights", "w.safetensors"];

#[test]
fn a_truncated_idx_file() {
    let folder = TempDir::new().unwrap();
    damaged_digits(&folder, "train-images-idx3-ubyte.gz", |bytes| bytes[..bytes.len() / 2].to_vec());
    fails(&folder, &TRAIN, "train-images-idx3-ubyte.gz: at byte ");
    fails(&folder, &TRAIN, "the compressed file is cut short");
    assert_eq!(names(&folder), ["data"]);
}

#[test]
fn a_damaged_idx_file() {
    let folder = TempDir::new().unwrap();
    damaged_digits(&folder, "t10k-images-idx3-ubyte.gz", |mut bytes| {
        let middle = bytes.len() / 2;
        bytes[middle..middle + 64].fill(0xff);
        bytes
    });
    fails(&folder, &TRAIN, "t10k-images-idx3-ubyte.gz: at byte ");
    assert_eq!(names(&folder), ["data"]);
}

#[test]
fn a_label_that_is_no_digit() {
    let folder = TempDir::new().unwrap();
    damaged_digits(&folder, "train-labels-idx1-ubyte.gz", |_| {
        let mut bytes = [&[0, 0, 8, 1][..], &8000u32.to_be_bytes(), &[3; 8000]].concat();
        bytes[8 + 5] = 200;
        bytes
    });
    fails(&folder, &TRAIN, "train-labels-idx1-ubyte.gz: at byte 13: label 200 of record 5 is not a digit: it must be 0 to 9");
    damaged_digits_again(&folder, &[0, 0, 8, 1, 0, 0, 0, 1, 3]);
    fails(&folder, &TRAIN, "there are 1 labels for 8000 images");
    fs::remove_file(folder.path().join("data/train-labels-idx1-ubyte.gz")).unwrap();
    fails(&folder, &TRAIN, "data: the folder has no file train-labels-idx1-ubyte, nor train-labels-idx1-ubyte.gz");
}

fn damaged_digits_again(folder: &TempDir, bytes: &[u8]) {
    fs::write(folder.path().join("data/train-labels-idx1-ubyte.gz"), bytes).unwrap();
}

#[test]
fn inputs_that_do_not_fit() {
    let folder = TempDir::new().unwrap();
    exported(&folder);
    array(&folder, "flat.npy", DType::F32, &[28, 28], &[0; 4 * 784]);
    array(&folder, "x.npy", DType::F32, &[1, 28, 28, 1], &[0; 4 * 784]);
    array(&folder, "y.npy", DType::I32, &[1], &10i32.to_le_bytes());
    let run = |signature, inputs: &[&'static str]| [&["run", "cnn.grdl", signature][..], inputs].concat();
    fails(&folder, &run("infer", &["--input", "x=flat.npy"]), r#"input 0 of "infer" is f32[1,28,28,1], got f32[28,28]"#);
    fails(&folder, &run("infer", &["--input", "x=y.npy"]), r#"input 0 of "infer" is f32[1,28,28,1], got i32[1]"#);
    fails(&folder, &run("infer", &[]), r#"input "x" of "infer" is not given"#);
    fails(&folder, &run("infer", &["--input", "z=x.npy"]), r#""infer" has no input "z"; it has x: f32[1,28,28,1]"#);
    fails(&folder, &run("train", &["--input", "x=x.npy", "--input", "y=y.npy"]), "is 10, but must be at least 0 and less than 10");
    fails(&folder, &run("learn", &[]), r#"there is no signature "learn"; the artifact has infer, train, train_head, set_learning_rate"#);
    fails(&folder, &run("infer", &["--input", "x=none.npy"]), "none.npy: No such file");
}

#[test]
fn artifacts_that_cannot_be_used() {
    let folder = TempDir::new().unwrap();
    let both = |text: &str| {
        fails(&folder, &["inspect", "cnn.grdl"], text);
        fails(&folder, &["run", "cnn.grdl", "infer"], text);
    };
    changed(&folder, |bytes, _| bytes[4] = 9);
    both("cnn.grdl: the artifact has format version 9.0, which this gradlet does not read: export it with this version");
    exported(&folder);
    let path = folder.path().join("cnn.grdl");
    let good = fs::read(&path).unwrap();
    fs::write(&path, &good[..good.len() - 1]).unwrap();
    both("the artifact is cut short");
    fs::write(&path, [&good[..5000], &[1, 2, 3], &good[5003..]].concat()).unwrap();
    both("the artifact is damaged: its checksum is");
    fs::write(&path, b"PK\x03\x04 something else").unwrap();
    both("not a gradlet artifact");
}

#[test]
fn inputs_by_place_by_folder_and_what_was_learnt() {
    let folder = TempDir::new().unwrap();
    succeeds(&folder, &["export", "mlp:4-3", "--signatures", "infer,train,save,restore", "--output", "m.grdl"]);
    array(&folder, "x.npy", DType::F32, &[1, 4], &[1f32; 4].map(f32::to_le_bytes).concat());
    array(&folder, "y.npy", DType::I32, &[1], &2i32.to_le_bytes());
    let infer = |file| succeeds(&folder, &["run", file, "--signature", "infer", "x.npy"]);
    let before = infer("m.grdl");
    assert_eq!(before, succeeds(&folder, &["run", "m.grdl", "infer", "x=x.npy"]));
    succeeds(&folder, &["run", "m.grdl", "train", "x.npy", "y=y.npy", "--steps", "9", "--save", "learnt.grdl"]);
    let learnt = infer("learnt.grdl");
    assert_ne!(before, learnt);
    // Values that one run saves can be restored by another.
    let saved = succeeds(&folder, &["run", "learnt.grdl", "save", "--output", "checkpoint"]);
    assert!(saved.starts_with("dense/kernel f32[4,3] = [[") && saved.contains("\ndense/bias f32[3] = ["), "{saved}");
    succeeds(&folder, &["run", "m.grdl", "restore", "checkpoint", "--save", "restored.grdl"]);
    assert_eq!(infer("restored.grdl"), learnt);

    let run = |arguments: &[&'static str]| [&["run", "m.grdl"], arguments].concat();
    fails(&folder, &run(&["infer", "x.npy", "y.npy"]), r#""infer" has no further input for y.npy; its inputs are x: f32[1,4]"#);
    fails(&folder, &run(&["x.npy"]), "choose the signature to run: the artifact has infer, train, save, restore");
    fails(&folder, &run(&["infer", "x.npy", "--output", "z=z.npy"]), r#""infer" has no output "z"; it has logits: f32[1,3]"#);
}

#[test]
fn layers_that_are_not_trained_stay_in_flash() {
    let folder = TempDir::new().unwrap();
    let export = |train: &'static str| ["export", "cnn", "--output", "cnn.grdl", "--rust", "model.rs", "--train", train];
    succeeds(&folder, &export("conv2d,last:1"));
    let text = succeeds(&folder, &["inspect", "cnn.grdl", "--signature", "train"]);
    assert!(text.contains("A step that changes the weights of conv2d, last:1."), "{text}");
    let line = |name: &str| text.lines().find(|line| line.trim_start().starts_with(name)).unwrap();
    assert!(line("conv2d/kernel").ends_with("in RAM for train"), "{text}");
    assert!(line("conv2d_1/kernel").ends_with("in flash, not trained"), "{text}");
    assert!(fs::read_to_string(folder.path().join("model.rs")).unwrap().contains(" --train conv2d,last:1`"));
    fails(&folder, &export("conv3*"), r#"no layer with variables has the name "conv3*"; the model has conv2d, conv2d_1, dense, dense_1"#);
    fails(&folder, &export("last:0"), r#""last:0" selects no layers: the number must be from 1 to 4"#);
}

#[test]
fn inspect_as_json() {
    let folder = TempDir::new().unwrap();
    exported(&folder);
    let printed = succeeds(&folder, &["inspect", "cnn.grdl", "--json", "--signature", "infer"]);
    let value: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let infer = &value["signatures"][0];
    assert_eq!((&infer["name"], &infer["inputs"][0]["type"]), (&"infer".into(), &"f32[1,28,28,1]".into()));
    assert_eq!(infer["doc"], "The logits of a batch.");
    assert_eq!(infer["instructions"][0]["op"], "conv2d_max_pool2d");
}

#[test]
fn an_op_that_is_not_linked_is_named() {
    let folder = TempDir::new().unwrap();
    // The first kernel, conv2d_max_pool2d, gets an op number that no version of gradlet has.
    changed(&folder, |bytes, header| {
        let kernels = header.sections[5].offset as usize;
        bytes[kernels..kernels + 2].copy_from_slice(&60_000u16.to_le_bytes());
    });
    let x = format!("x=digits:{DATA}:0");
    fails(&folder, &["run", "cnn.grdl", "infer", "--input", &x], "add &gradlet_core::ops::conv2d_max_pool2d::F32 to the kernels");
}

#[test]
fn weights_that_do_not_fit() {
    let folder = TempDir::new().unwrap();
    succeeds(&folder, &[&["train", "mlp:784-8-10", "--data", DATA, "--weights", "w.safetensors"], SMALL].concat());
    let export = |model| ["export", model, "--weights", "w.safetensors", "--output", "m.grdl"];
    let text = r#"w.safetensors: tensor "dense/kernel" is f32[784,8], but the model's is f32[784,9]"#;
    fails(&folder, &export("mlp:784-9-10"), text);
    fails(
        &folder,
        &export("mlp:784-8-8-10"),
        r#"it holds no tensor "dense_2/kernel", which the model has; it was saved from mlp:784-8-10"#,
    );
    fails(&folder, &export("mlp:784-10"), r#"it holds a tensor "dense_1/"#);
    fs::write(folder.path().join("w.safetensors"), b"no").unwrap();
    fails(&folder, &export("mlp:784-8-10"), "w.safetensors: not a safetensors file");
    assert_eq!(names(&folder), ["w.safetensors"]);
}

#[test]
fn outputs_that_cannot_be_written() {
    let folder = TempDir::new().unwrap();
    fails(&folder, &["export", "cnn", "--output", "none/cnn.grdl"], "none/cnn.grdl: cannot be written: there is no folder none");
    fs::create_dir(folder.path().join("taken")).unwrap();
    fails(&folder, &["export", "cnn", "--output", "taken"], "taken: is not a regular file");
    // The error comes before the training, not after it.
    fails(&folder, &["train", "cnn", "--data", DATA, "--weights", "none/w"], "none/w: cannot be written");
    fails(&folder, &["train", "cnn", "--data", DATA, "--weights", "w.h5"], "w.h5: weights are saved as safetensors");
    assert_eq!(names(&folder), ["taken"]);
}

/// The system refuses to write more than 8 blocks. As with a full disk, the error occurs in the middle of the file.
#[test]
#[cfg(unix)]
fn a_full_disk_leaves_the_old_file() {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("cnn.grdl"), b"old").unwrap();
    let limited = "trap '' XFSZ; ulimit -f 8; exec \"$0\" export cnn --output cnn.grdl";
    let gradlet = assert_cmd::cargo::cargo_bin("gradlet");
    let output = Command::new("sh").arg("-c").arg(limited).arg(gradlet).current_dir(&folder).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("error: cnn.grdl: cannot be written: File too large"), "{stderr}");
    assert_eq!(names(&folder), ["cnn.grdl"]);
    assert_eq!(fs::read(Path::join(folder.path(), "cnn.grdl")).unwrap(), b"old");
}

/// The table in boards/README.md of options that change the RAM of a training step shows what `gradlet export` prints.
#[test]
fn the_page_about_memory_shows_what_export_prints() {
    let folder = TempDir::new().unwrap();
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../boards/README.md")).unwrap();
    let rows: Vec<(&str, &str)> = page.lines().filter_map(|line| line.strip_prefix("| `cnn --")?.split_once("` | ")).collect();
    for (options, bytes) in &rows {
        let options = format!("export cnn --{options} --output cnn.grdl");
        let printed = succeeds(&folder, &options.split(' ').collect::<Vec<_>>());
        let bytes = bytes.trim_end_matches(" |").replace(',', "");
        let together = printed.lines().find_map(|line| line.trim().strip_prefix("together")).unwrap_or_default();
        assert_eq!(together.trim(), format!("{bytes} B of arena"), "{options}: {printed}");
    }
    assert_eq!(rows.len(), 5);
}
