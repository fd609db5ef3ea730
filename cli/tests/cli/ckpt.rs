//! Tests of `gradlet ckpt`: descriptions of checkpoints, reports of damage, and conversions between kinds.

use assert_cmd::Command;
use gradlet::applications::ModelSpec;
use gradlet::checkpoint::bundle::{BundleReader, data_path, index_path};
use gradlet::io::weights;
use gradlet::{Eager, Tensor, TensorType};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Checkpoints that TensorFlow wrote.
const FIXTURES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/checkpoint");

#[track_caller]
fn succeeds(folder: &TempDir, arguments: &[&str]) -> String {
    crate::succeeds("ckpt", folder, arguments)
}

#[track_caller]
fn fails(folder: &TempDir, arguments: &[&str]) -> (String, String) {
    crate::fails("ckpt", folder, arguments)
}

fn fixture(name: &str) -> String {
    format!("{FIXTURES}/{name}")
}

/// Copies the checkpoint of the fixture `name` to the prefix `ckpt` in `folder`. Returns this prefix.
fn copied(folder: &TempDir, name: &str) -> PathBuf {
    let (from, to) = (PathBuf::from(fixture(name)), folder.path().join("ckpt"));
    for path in [index_path, |prefix: &Path| data_path(prefix, 0, 1)] {
        fs::copy(path(&from), path(&to)).unwrap();
    }
    to
}

#[test]
fn inspect_shows_tensors_and_objects() {
    let folder = TempDir::new().unwrap();
    let text = succeeds(&folder, &["inspect", &fixture("restore/h_restore/src-1")]);
    assert!(text.starts_with(&format!("{}: TensorFlow checkpoint, 5 tensors, ", fixture("restore/h_restore/src-1"))), "{text}");
    assert!(text.lines().any(|line| line.split_whitespace().take(4).eq(["m/a", "float32", "[2]", "8"])), "{text}");
    // A folder means its latest checkpoint, and a file of a checkpoint means that checkpoint.
    assert_eq!(succeeds(&folder, &["inspect", &fixture("restore/h_restore")]), text);
    assert_eq!(succeeds(&folder, &["inspect", &fixture("restore/h_restore/src-1.index")]), text);
    let json: serde_json::Value =
        serde_json::from_str(&succeeds(&folder, &["inspect", "--json", &fixture("dtypes_and_names/a_dtypes/ckpt")])).unwrap();
    let tensors = json["tensors"].as_array().unwrap();
    assert_eq!(tensors.len(), 20);
    let special = tensors.iter().find(|tensor| tensor["name"] == "model/f32_special").unwrap();
    assert_eq!(special["key"], "model/f32_special/.ATTRIBUTES/VARIABLE_VALUE");
    assert_eq!(special["statistics"]["nan"], 1);
    assert!(tensors.iter().any(|tensor| tensor["dtype"] == "string" && tensor["first"][0] == "a"));
    let tree = succeeds(&folder, &["inspect", "--tree", &fixture("dtypes_and_names/a_names/ckpt-1")]);
    assert!(tree.starts_with("(root)\n") && tree.contains("  dot.ted") && tree.contains("(as above)"), "{tree}");
    let (_, error) = fails(&folder, &["inspect", "none"]);
    assert!(error.contains("none.index: there is no such file"), "{error}");
    let (_, error) = fails(&folder, &["inspect", "--tree", &fixture("saver_v1/g_v1_saver/model-5")]);
    assert!(error.contains("has no objects"), "{error}");
}

#[test]
fn verify_names_what_is_damaged() {
    let folder = TempDir::new().unwrap();
    let prefix = copied(&folder, "modules/b_mlp/model-1");
    let count = BundleReader::open(&prefix).unwrap().entries().len();
    assert_eq!(succeeds(&folder, &["verify", "ckpt"]), format!("ckpt: whole, {count} tensors\n"));
    let data = data_path(&prefix, 0, 1);
    let mut bytes = fs::read(&data).unwrap();
    bytes[0] ^= 1;
    fs::write(&data, bytes).unwrap();
    let (text, error) = fails(&folder, &["verify", "ckpt", &fixture("modules/b_cnn")]);
    let first = format!("ckpt: damaged, {} of {count} tensors whole\n", count - 1);
    assert!(text.starts_with(&first) && text.contains("tensor \"step/") && text.contains("checksum does not match"), "{text}");
    assert!(text.contains("b_cnn: whole"), "{text}");
    assert_eq!(error, "error: 1 of 2 checkpoints are damaged\n");
    let text = succeeds(&folder, &["convert", "--skip-damaged", "ckpt", "rest"]);
    assert!(text.contains("step is left out: ckpt.data-00000-of-00001: at byte 0"), "{text}");
    succeeds(&folder, &["verify", "rest"]);
    assert_eq!(BundleReader::open(&folder.path().join("rest")).unwrap().entries().len(), count - 1);
    let mut bytes = fs::read(index_path(&prefix)).unwrap();
    bytes[20] ^= 8;
    fs::write(index_path(&prefix), bytes).unwrap();
    let (text, _) = fails(&folder, &["verify", "ckpt"]);
    assert!(text.contains("at byte 20: block checksum mismatch: a bit is flipped in the entry of"), "{text}");
    let (text, _) = fails(&folder, &["verify", "none"]);
    assert!(text.contains("none: damaged"), "{text}");
}

#[test]
fn diff_tells_what_differs() {
    let folder = TempDir::new().unwrap();
    let (five, six) = (fixture("managers/d_manager/ckpt-5"), fixture("managers/d_manager/ckpt-6"));
    let same = succeeds(&folder, &["diff", &six, &fixture("managers/d_manager")]);
    assert!(same.ends_with("tensors are the same, 0 differ, 0 are only in one\n"), "{same}");
    let (text, error) = fails(&folder, &["diff", &five, &six]);
    assert!(text.contains("save_counter: 1 of 1 elements differ, by 1 at most: 5 and 6 at []\n"), "{text}");
    assert!(error.contains("differ"), "{error}");
    assert!(succeeds(&folder, &["diff", &five, &six, "--tolerance", "1000"]).contains(" 0 differ"));
    let (text, _) = fails(&folder, &["diff", &six, &fixture("modules/b_mlp")]);
    assert!(text.contains(", only in "), "{text}");
    succeeds(&folder, &["convert", &six, "six.safetensors"]);
    succeeds(&folder, &["diff", &six, "six.safetensors"]);
}

#[test]
fn tensors_go_from_kind_to_kind_and_back() {
    let folder = TempDir::new().unwrap();
    let from = fixture("dtypes_and_names/a_dtypes/ckpt");
    let text = succeeds(&folder, &["convert", &from, "all.safetensors"]);
    assert!(text.contains("model/s is left out: the output cannot hold string[4]\n"), "{text}");
    assert!(text.ends_with("all.safetensors has 17 tensors\n"), "{text}");
    succeeds(&folder, &["convert", "all.safetensors", "back"]);
    let (text, _) = fails(&folder, &["diff", &from, "back"]);
    assert!(text.contains("17 tensors are the same, 0 differ, 3 are only in one"), "{text}");
    let (original, back) = (BundleReader::open(Path::new(&from)).unwrap(), BundleReader::open(&folder.path().join("back")).unwrap());
    for (key, _) in back.entries().filter(|(key, _)| *key != "_CHECKPOINTABLE_OBJECT_GRAPH") {
        assert_eq!(original.bytes(key).unwrap(), back.bytes(key).unwrap());
    }
    succeeds(&folder, &["convert", &fixture("shards/e_sharded_max_size/ckpt"), "whole"]);
    succeeds(&folder, &["verify", "whole"]);
    let text = succeeds(&folder, &["convert", "--dry-run", "whole", "none.safetensors", "--map", "a=renamed"]);
    assert!(text.contains("renamed: float32") && text.contains("none.safetensors would get"), "{text}");
    assert!(!folder.path().join("none.safetensors").exists());
}

/// Names in a safetensors file that already are TensorFlow keys are used as keys without a change.
#[test]
fn keys_are_not_made_keys_again() {
    let folder = TempDir::new().unwrap();
    let value = 1.5f32.to_le_bytes();
    let keys = ["m/a..b/c.Sd/.ATTRIBUTES/VARIABLE_VALUE", "m/w/.ATTRIBUTES/VARIABLE_VALUE", "plain/w"];
    let view = || safetensors::tensor::TensorView::new(safetensors::tensor::Dtype::F32, vec![], &value).unwrap();
    let file = safetensors::tensor::serialize(keys.map(|key| (key, view())), None).unwrap();
    fs::write(folder.path().join("keys.safetensors"), file).unwrap();
    let text = succeeds(&folder, &["convert", "keys.safetensors", "ckpt"]);
    assert!(text.contains("m/w: float32[]\n") && text.contains("m/a.b/c/d: float32[]\n"), "{text}");
    let found = |prefix: &str| {
        let reader = BundleReader::open(&folder.path().join(prefix)).unwrap();
        let keys = reader.entries().map(|(key, _)| key.to_string()).filter(|key| !key.starts_with('_'));
        keys.collect::<Vec<_>>()
    };
    assert_eq!(found("ckpt"), [keys[0], keys[1], "plain/w/.ATTRIBUTES/VARIABLE_VALUE"]);
    succeeds(&folder, &["convert", "keys.safetensors", "renamed", "--map", "m/w=n/.ATTRIBUTES/VARIABLE_VALUE"]);
    assert_eq!(found("renamed")[1], "n/.ATTRIBUTES/VARIABLE_VALUE");
    succeeds(&folder, &["diff", "keys.safetensors", "ckpt"]);
    let (_, error) = fails(&folder, &["convert", "keys.safetensors", "x.h5"]);
    assert!(error.contains("models cannot be saved as .h5"), "{error}");
}

/// The weights of a safetensors file become the initial values of an artifact, and can be converted back.
#[test]
fn weights_get_into_an_artifact_and_out_of_it() {
    let folder = TempDir::new().unwrap();
    let scope = Eager::new(&gradlet::cpu());
    let spec: ModelSpec = "mlp:3-2".parse().unwrap();
    weights::save(&scope, &spec.build(&scope).unwrap(), "mlp:3-2", &folder.path().join("w.safetensors")).unwrap();
    let export = ["export", "mlp:3-2", "--output", "mlp.grdl", "--quiet"];
    Command::cargo_bin("gradlet").unwrap().args(export).current_dir(&folder).assert().success();
    let (_, error) = fails(&folder, &["convert", "w.safetensors", "new.grdl"]);
    assert!(error.contains("--like"), "{error}");
    let (text, _) = fails(&folder, &["diff", "w.safetensors", "mlp.grdl"]);
    assert!(!text.is_empty());
    let text = succeeds(&folder, &["convert", "w.safetensors", "new.grdl", "--like", "mlp.grdl", "--partial"]);
    assert!(text.contains("dense/kernel: float32[3, 2]"), "{text}");
    let loaded = gradlet::load(folder.path().join("new.grdl")).unwrap();
    let file = fs::read(folder.path().join("w.safetensors")).unwrap();
    let wanted = safetensors::SafeTensors::deserialize(&file).unwrap();
    for name in wanted.names() {
        assert_eq!(loaded.variable(name).unwrap().bytes().unwrap(), wanted.tensor(name).unwrap().data(), "{name}");
    }
    succeeds(&folder, &["convert", "new.grdl", "from_artifact"]);
    let reader = BundleReader::open(&folder.path().join("from_artifact")).unwrap();
    let kernel = reader.tensor("dense/kernel/.ATTRIBUTES/VARIABLE_VALUE", &gradlet::cpu()).unwrap();
    assert_eq!(kernel.bytes().unwrap(), wanted.tensor("dense/kernel").unwrap().data());
}

/// A device's checkpoint has only numbers of variables. The names come from the artifact that it belongs to.
#[test]
fn flat_checkpoints_belong_to_an_artifact() {
    let folder = TempDir::new().unwrap();
    let export = ["export", "mlp:3-2", "--output", "mlp.grdl", "--quiet"];
    Command::cargo_bin("gradlet").unwrap().args(export).current_dir(&folder).assert().success();
    succeeds(&folder, &["convert", "mlp.grdl", "values"]);
    let text = succeeds(&folder, &["convert", "values", "flat.grdc", "--like", "mlp.grdl"]);
    assert!(text.contains("dense/kernel: float32[3, 2]"), "{text}");
    assert!(succeeds(&folder, &["verify", "flat.grdc"]).starts_with("flat.grdc: whole"));
    assert!(succeeds(&folder, &["inspect", "flat.grdc"]).contains("variable 0"));
    let named = succeeds(&folder, &["inspect", "flat.grdc", "--artifact", "mlp.grdl"]);
    assert!(named.contains("dense/kernel") && !named.contains("variable 0"), "{named}");
    succeeds(&folder, &["convert", "flat.grdc", "again.grdl", "--like", "mlp.grdl", "--partial"]);
    succeeds(&folder, &["diff", "mlp.grdl", "again.grdl"]);
    let mut bytes = fs::read(folder.path().join("flat.grdc")).unwrap();
    // The second copy of the header is intact.
    let damaged = [&[!bytes[0]], &bytes[1..]].concat();
    fs::write(folder.path().join("magic.grdc"), damaged).unwrap();
    let (text, _) = fails(&folder, &["verify", "magic.grdc"]);
    assert!(text.contains("damaged, 4 of 4"), "{text}");
    succeeds(&folder, &["convert", "--skip-damaged", "magic.grdc", "magic.grdl", "--like", "mlp.grdl", "--partial"]);
    succeeds(&folder, &["diff", "mlp.grdl", "magic.grdl"]);
    let last = bytes.len() - 6;
    bytes[last] ^= 1;
    fs::write(folder.path().join("flat.grdc"), bytes).unwrap();
    let (text, _) = fails(&folder, &["verify", "flat.grdc"]);
    assert!(text.contains("flat.grdc: damaged") && text.contains("variable"), "{text}");
    let other = ["export", "mlp:4-2", "--output", "other.grdl", "--quiet"];
    Command::cargo_bin("gradlet").unwrap().args(other).current_dir(&folder).assert().success();
    let (_, error) = fails(&folder, &["inspect", "flat.grdc", "--artifact", "other.grdl"]);
    assert!(error.contains("belongs to an artifact"), "{error}");
}

/// Names that are not keys of a Keras checkpoint are found through the paths of its object graph.
#[test]
fn keras_names_are_matched() {
    let folder = TempDir::new().unwrap();
    let keras = fixture("keras/c_keras_mlp_adam");
    let json: serde_json::Value = serde_json::from_str(&succeeds(&folder, &["inspect", "--json", &keras])).unwrap();
    let tensors = json["tensors"].as_array().unwrap();
    let bias =
        |tensor: &&serde_json::Value| tensor["names"].as_array().is_some_and(|names| names.iter().any(|name| name == "sequential/bn/beta"));
    let bias = tensors.iter().find(bias).expect("Keras names its variables");
    let dims: Vec<u32> = bias["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as u32).collect();
    let size = bias["bytes"].as_u64().unwrap() as usize;
    let tensor_type = TensorType::new(gradlet::DType::F32, gradlet::Shape::new(&dims).unwrap());
    let zeros = Tensor::zeros(&gradlet::cpu(), tensor_type).unwrap();
    let dims: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
    let zeros = zeros.bytes().unwrap();
    let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, dims, &zeros).unwrap();
    assert_eq!(zeros.len(), size);
    let template = safetensors::serialize([("bn/beta", view)], None).unwrap();
    fs::write(folder.path().join("template.safetensors"), template).unwrap();
    let text = succeeds(&folder, &["convert", &keras, "out.safetensors", "--like", "template.safetensors"]);
    assert!(text.contains("bn/beta: float32") && text.contains("(by its path)"), "{text}");
    let file = fs::read(folder.path().join("out.safetensors")).unwrap();
    let found = safetensors::SafeTensors::deserialize(&file).unwrap();
    let reader = BundleReader::open(Path::new(&fixture("keras/c_keras_mlp_adam/ckpt-1"))).unwrap();
    assert_eq!(found.tensor("bn/beta").unwrap().data(), reader.bytes(bias["key"].as_str().unwrap()).unwrap());
}
