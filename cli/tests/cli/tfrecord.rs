//! Tests of `gradlet tfrecord`: conversions to records and back, and reports of damage.

use gradlet::io::example::Example;
use gradlet::io::tfrecord::{Compression, RecordFiles, RecordReader, RecordWriter};
use std::fs;
use tempfile::TempDir;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");

#[track_caller]
fn succeeds(folder: &TempDir, arguments: &[&str]) -> String {
    crate::succeeds("tfrecord", folder, arguments)
}

#[track_caller]
fn fails(folder: &TempDir, arguments: &[&str]) -> (String, String) {
    crate::fails("tfrecord", folder, arguments)
}

/// Writes four uncompressed records to the file `name`, at bytes 0, 19, 35 and 151. Returns the bytes of the file.
fn four(folder: &TempDir, name: &str) -> Vec<u8> {
    let path = folder.path().join(name);
    let mut writer = RecordWriter::create(&path, Compression::None).unwrap();
    [&b"one"[..], b"", &[7; 100], b"four"].iter().for_each(|record| writer.write(record).unwrap());
    writer.finish().unwrap();
    fs::read(path).unwrap()
}

fn records(folder: &TempDir, name: &str) -> Vec<Vec<u8>> {
    let path = folder.path().join(name);
    let reader = RecordReader::open(&path, Compression::detect(&path).unwrap()).unwrap();
    reader.map(|record| record.unwrap().to_vec()).collect()
}

#[test]
fn damage_is_found_and_what_is_whole_is_saved() {
    let folder = TempDir::new().unwrap();
    let good = four(&folder, "good");
    assert_eq!(succeeds(&folder, &["verify", "good"]), "good: whole, 4 records\n");

    let damaged = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        fs::write(folder.path().join(name), bytes).unwrap();
        fails(&folder, &["verify", name, "--save", "saved"])
    };
    let (printed, stderr) = damaged("data", &|bytes| bytes[50] ^= 1);
    assert!(printed.starts_with("data: damaged, 3 records whole\n  corrupted record at 47: its 100 bytes make"), "{printed}");
    assert_eq!(stderr, "error: 1 of 1 files are damaged\n");
    assert_eq!(records(&folder, "saved"), [&b"one"[..], b"", b"four"]);
    let (printed, _) = damaged("length", &|bytes| bytes[35] ^= 1);
    assert!(printed.contains("2 records whole\n  corrupted record at 35: the 8 bytes of its length make"), "{printed}");
    assert_eq!(records(&folder, "saved"), [&b"one"[..], b""]);
    let (printed, _) = damaged("cut", &|bytes| bytes.truncate(166));
    assert!(printed.contains("3 records whole\n  truncated record at 151: 4 bytes of data and 4 of checksum"), "{printed}");
    let (printed, _) = damaged("short", &|bytes| bytes.truncate(160));
    assert!(printed.contains("3 records whole\n  cut short after byte 151"), "{printed}");

    let (printed, _) = fails(&folder, &["verify", "--json", "good", "data", "length"]);
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    let of = |name: &str| json["files"].as_array().unwrap().iter().map(|file| file[name].clone()).collect::<Vec<_>>();
    assert_eq!((of("whole"), of("records")), (vec![true.into(), false.into(), false.into()], vec![4.into(), 3.into(), 2.into()]));
    assert_eq!(json["files"][1]["damage"][0]["offset"], 47);
    let (printed, _) = fails(&folder, &["inspect", "length"]);
    assert!(printed.contains("then damage: ") && printed.contains("corrupted record at 35"), "{printed}");
}

#[test]
fn digits_become_examples() {
    let folder = TempDir::new().unwrap();
    let [images, labels] = ["images-idx3", "labels-idx1"].map(|kind| format!("{DATA}/t10k-{kind}-ubyte.gz"));
    let printed = succeeds(&folder, &["write", "digits.tfrecord", "--idx", &images, &labels, "--compression", "gzip"]);
    assert_eq!(printed, "2,000 records in digits.tfrecord\n");
    let printed = succeeds(&folder, &["inspect", "digits.tfrecord", "--first", "1"]);
    assert!(
        printed.contains("GZIP\n  855 to 855 bytes each") && printed.contains("record 0 at byte 0, 855 bytes: height: 28,"),
        "{printed}"
    );
    let table: Vec<Vec<&str>> = printed.lines().skip(4).map(|line| line.split_whitespace().take(4).collect()).collect();
    assert_eq!(table[1..3], [["height", "int64", "2,000", "1"], ["image", "bytes", "2,000", "1"]]);

    let printed = succeeds(&folder, &["split", "digits.tfrecord", "--shards", "3", "--output", "part"]);
    assert_eq!(printed, "2,000 records in 3 files, part-00000-of-00003.tfrecord to part-00002-of-00003.tfrecord\n");
    let parts = (0..3).map(|part| folder.path().join(format!("part-0000{part}-of-00003.tfrecord")));
    let again: Vec<_> = RecordFiles::new(parts).num_parallel_reads(3).into_iter().map(|record| record.unwrap().to_vec()).collect();
    assert!(again == records(&folder, "digits.tfrecord"));

    let (_, stderr) = fails(&folder, &["write", "x", "--idx", &labels, &images]);
    assert!(stderr.contains("images must have 3 dimensions [number, height, width], not [2000]"), "{stderr}");
    assert!(!folder.path().join("x").exists());
}

#[test]
fn tables_lines_and_files_become_records() {
    let folder = TempDir::new().unwrap();
    let put = |name: &str, text: &[u8]| fs::write(folder.path().join(name), text).unwrap();
    put("t.csv", b"id,weight,name\n1,2.5,x\n-2,,y\n");
    succeeds(&folder, &["write", "t", "--csv", "t.csv"]);
    let wanted =
        [Example::new().with("id", 1i64).with("weight", 2.5f32).with("name", "x"), Example::new().with("id", -2i64).with("name", "y")];
    assert_eq!(records(&folder, "t"), wanted.map(|example| example.to_bytes().to_vec()));
    put("ragged.csv", b"a,b\n1\n");
    assert!(fails(&folder, &["write", "x", "--csv", "ragged.csv"]).1.contains("ragged.csv: "));

    put("lines.txt", b"to be\r\n\nor not\nto be");
    succeeds(&folder, &["write", "lines", "--lines", "lines.txt", "--compression", "zlib"]);
    assert_eq!(records(&folder, "lines"), [&b"to be"[..], b"", b"or not", b"to be"]);
    let printed = succeeds(&folder, &["inspect", "lines", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&printed).unwrap();
    assert_eq!((&json["files"][0]["compression"], &json["files"][0]["records"]), (&"ZLIB".into(), &4.into()));

    succeeds(&folder, &["write", "files", "--files", "t.csv", "lines.txt"]);
    assert_eq!(records(&folder, "files")[1], fs::read(folder.path().join("lines.txt")).unwrap());
}

#[test]
fn folders_of_images_become_examples() {
    let folder = TempDir::new().unwrap();
    for (class, name) in [("dog", "1.png"), ("cat", "2.JPG"), ("cat", "1.jpeg"), ("cat", "notes.txt")] {
        fs::create_dir_all(folder.path().join("pets").join(class)).unwrap();
        fs::write(folder.path().join("pets").join(class).join(name), name).unwrap();
    }
    let printed = succeeds(&folder, &["write", "pets.tfrecord", "--images", "pets", "--shards", "1"]);
    assert_eq!(printed, "3 records in pets-00000-of-00001.tfrecord\n");
    let example = |class: &str, label: i64, name: &str| {
        Example::new().with("image", name).with("label", label).with("class", class).with("filename", name).to_bytes().to_vec()
    };
    let wanted = [example("cat", 0, "1.jpeg"), example("cat", 0, "2.JPG"), example("dog", 1, "1.png")];
    assert_eq!(records(&folder, "pets-00000-of-00001.tfrecord"), wanted);
    assert!(fails(&folder, &["write", "x", "--images", "pets/cat"]).1.contains("pets/cat: has no folders of images"));
}
