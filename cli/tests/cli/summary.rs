//! Tests of `gradlet summary`: descriptions of runs, and exports.

use gradlet::Tensor;
use gradlet::summary::create_file_writer;
use gradlet::tensor::Strings;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::Output;
use tempfile::TempDir;

fn summary(folder: &TempDir, arguments: &[&str]) -> Output {
    crate::run("summary", folder, arguments)
}

#[track_caller]
fn succeeds(folder: &TempDir, arguments: &[&str]) -> String {
    crate::succeeds("summary", folder, arguments)
}

#[track_caller]
fn fails(folder: &TempDir, arguments: &[&str]) -> (String, String) {
    crate::fails("summary", folder, arguments)
}

/// Writes the runs `train`, with all kinds of summaries, and `validation`. Returns the paths of their event files.
fn logs(folder: &TempDir) -> [PathBuf; 2] {
    let device = gradlet::cpu();
    let train = create_file_writer(folder.path().join("logs/train")).unwrap();
    for step in 0..20 {
        train.scalar("loss", 1.0 / (1.0 + f64::from(step)), i64::from(step)).unwrap();
    }
    train.scalar("rate", f32::NAN, 7).unwrap();
    train.histogram("dense/kernel", &Tensor::new(&device, &[-1.0f32, 0.0, 3.0], &[3]).unwrap(), 4).unwrap();
    let images: Vec<u8> = (0..2 * 4 * 5).collect();
    train.image("a digit", &Tensor::new(&device, &images, &[2, 4, 5, 1]).unwrap(), 3).unwrap();
    train.audio("tone", &Tensor::full(&device, 0.5f32, &[1, 100, 1]).unwrap(), 8000, 3).unwrap();
    train.text("note", Strings::vector(["one, \"two\"", "three"]), 2).unwrap();
    train.close().unwrap();
    let validation = create_file_writer(folder.path().join("logs/validation")).unwrap();
    validation.described("*of the test set*").scalar("loss", 0.125f32, 19).unwrap();
    validation.close().unwrap();
    [train.path().into(), validation.path().into()]
}

#[test]
fn inspect_shows_tags_by_run() {
    let folder = TempDir::new().unwrap();
    let [train, _] = logs(&folder);
    let printed = succeeds(&folder, &["inspect", "logs"]);
    let lines: Vec<Vec<&str>> =
        printed.lines().map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()).collect();
    assert_eq!(lines[0], ["train: 6 tags, 25 points"]);
    assert_eq!(lines[1], ["tag", "plugin", "type", "points", "steps", "last value"]);
    assert_eq!(lines[2], ["a digit", "images", "string[4]", "1", "3", lines[2][5]]);
    assert!(lines[2][5].starts_with("2 images, "), "{printed}");
    assert_eq!(lines[3], ["dense/kernel", "histograms", "f64[30,3]", "1", "4", "3 values, -1 to 3"]);
    assert_eq!(lines[4], ["loss", "scalars", "f32[]", "20", "0 to 19", "0.05"]);
    assert_eq!(lines[5], ["note", "text", "string[2]", "1", "2", "\"one, \\\"two\\\"\""]);
    assert_eq!(lines[6], ["rate", "scalars", "f32[]", "1", "7", "NaN"]);
    assert_eq!(lines[7], ["tone", "audio", "string[1,2]", "1", "3", "1 audio clip, 244 B"]);
    assert_eq!(lines[8], ["validation: 1 tag, 1 point"]);

    let json = |arguments: &[&str]| serde_json::from_str::<Value>(&succeeds(&folder, arguments)).unwrap();
    let one = json(&["inspect", "logs", "--json", "--run", "val*", "--tag", "l?ss"]);
    let [run] = one["runs"].as_array().unwrap().as_slice() else { panic!("{one}") };
    assert_eq!((&run["run"], &run["skipped"]["places"]), (&"validation".into(), &0.into()));
    let tag = serde_json::json!({ "tag": "loss", "plugin": "scalars", "description": "*of the test set*", "type": "f32[]",
        "points": 1, "first_step": 19, "last_step": 19, "last": 0.125 });
    assert_eq!(run["tags"], serde_json::json!([tag]));
    let file = json(&["inspect", train.to_str().unwrap(), "--json", "--tag", "rate"]);
    assert_eq!(file["runs"][0]["tags"][0]["last"], "NaN");
}

#[test]
fn damage_is_told_and_the_rest_is_there() {
    let folder = TempDir::new().unwrap();
    let [train, _] = logs(&folder);
    let mut bytes = fs::read(&train).unwrap();
    bytes[300] ^= 1;
    bytes.truncate(bytes.len() - 5);
    fs::write(&train, bytes).unwrap();
    let (printed, stderr) = fails(&folder, &["inspect", "logs"]);
    assert_eq!(stderr, "error: 1 of 2 runs are damaged\n");
    assert!(printed.contains("train: 5 tags, 23 points"), "{printed}");
    assert!(printed.matches("  damage: ").count() == 2 && printed.contains(" in 2 places\n"), "{printed}");
    let (printed, stderr) = fails(&folder, &["export", "logs", "--csv", "all.csv"]);
    assert_eq!(printed, "21 numbers in all.csv\n");
    assert!(stderr.contains("1 of 2 runs are damaged: run `gradlet summary inspect` for details"), "{stderr}");
}

#[test]
fn export_writes_tables_documents_and_files() {
    let folder = TempDir::new().unwrap();
    logs(&folder);
    let printed = succeeds(&folder, &["export", "logs", "--csv", "all.csv", "--json", "all.json", "--media", "media"]);
    assert_eq!(printed, "22 numbers in all.csv\n26 points in all.json\n3 files in media\n");

    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
    let table = read("all.csv");
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0], ["run", "tag", "step", "wall_time", "value"]);
    assert_eq!((&rows[10][..3], rows[10][4]), (&["train", "loss", "9"][..], "0.1"));
    assert_eq!((&rows[21][..3], rows[21][4]), (&["train", "rate", "7"][..], "NaN"));
    assert!(rows[22][3].parse::<f64>().unwrap() > 1.7e9);

    let all: Value = serde_json::from_str(&read("all.json")).unwrap();
    let of = |tag: &str| all.as_array().unwrap().iter().find(|series| series["tag"] == tag).unwrap();
    assert_eq!(of("loss")["points"][1]["value"], 0.5);
    assert_eq!(of("rate")["points"][0]["value"], "NaN");
    assert_eq!(of("note")["points"][0]["value"]["data"], serde_json::json!(["one, \"two\"", "three"]));
    let rows = &of("dense/kernel")["points"][0]["value"];
    assert_eq!((&rows["dtype"], &rows["shape"], &rows["data"][0]), (&"f64".into(), &serde_json::json!([30, 3]), &(-1).into()));

    let picture = fs::read(folder.path().join("media/train/a%20digit/3-1.png")).unwrap();
    let pixels = gradlet::image::decode_image(&picture, 1).unwrap();
    assert_eq!(pixels.to_vec::<u8>().unwrap(), (20..40).collect::<Vec<u8>>());
    assert!(fs::read(folder.path().join("media/train/tone/3.wav")).unwrap().starts_with(b"RIFF"));

    let printed = succeeds(&folder, &["export", "logs", "--csv", "some.csv", "--run", "validation"]);
    assert_eq!(printed, "1 numbers in some.csv\n");
}

#[test]
fn what_is_not_there_is_told() {
    let folder = TempDir::new().unwrap();
    logs(&folder);
    assert!(fails(&folder, &["inspect", "elsewhere"]).1.contains("elsewhere"));
    assert!(fails(&folder, &["inspect", "logs", "--run", "x"]).1.contains("no run matches; there are [\"train\", \"validation\"]"));
    fs::create_dir(folder.path().join("empty")).unwrap();
    assert!(fails(&folder, &["inspect", "empty"]).1.contains("no file name contains \"tfevents\""));
    let output = summary(&folder, &["export", "logs"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
