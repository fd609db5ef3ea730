//! Exchange of TFRecord files with TensorFlow.

use super::python;
use gradlet::io::tfrecord::{Compression, RecordFiles, RecordReader, RecordWriter};
use gradlet_tests::random::Random;
use std::path::Path;

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zlib];

/// Returns records of many sizes: zero bytes, one byte, odd sizes, and more than a block.
fn records(seed: u64) -> Vec<Vec<u8>> {
    let mut random = Random::new(seed);
    let sizes = [0, 1, 3, 255, 8_191, 262_143, 262_144, 1_048_577, 3_000_001];
    let mut small = || {
        let limit = 1 << random.below(12);
        random.below(limit)
    };
    let small: Vec<usize> = (0..2000).map(|_| small()).collect();
    let sizes: Vec<usize> = sizes.into_iter().chain(small).collect();
    let mut order = random.permutation(sizes.len());
    order.insert(0, 0);
    let data = |size: usize| {
        // Only some of the records can be compressed.
        let noise = random.coin();
        (0..size).map(|at| if noise { random.bits() as u8 } else { (at / 7) as u8 }).collect()
    };
    order.into_iter().map(|index| sizes[index]).map(data).collect()
}

/// Encodes records as a plain list, which both sides can read without the tested code. It has the number of records, then each record after
/// its length. Number and lengths have 8 bytes.
fn list(records: &[Vec<u8>]) -> Vec<u8> {
    let number = |number: usize| (number as u64).to_le_bytes();
    let mut bytes = number(records.len()).to_vec();
    for record in records {
        bytes.extend(number(record.len()));
        bytes.extend(record);
    }
    bytes
}

const READ_LIST: &str = r#"
import struct, sys
import tensorflow as tf
def read_list(path):
    data = open(path, "rb").read()
    count, at, records = struct.unpack("<Q", data[:8])[0], 8, []
    for _ in range(count):
        length = struct.unpack("<Q", data[at:at + 8])[0]
        records.append(data[at + 8:at + 8 + length])
        at += 8 + length
    return records
"#;

fn path_of(folder: &Path, name: &str) -> String {
    folder.join(name).to_str().unwrap().to_string()
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn tensorflow_reads_what_gradlet_writes() {
    let folder = tempfile::tempdir().unwrap();
    let records = records(1);
    std::fs::write(folder.path().join("list"), list(&records)).unwrap();
    for compression in COMPRESSIONS {
        let mut writer = RecordWriter::create(&folder.path().join(compression.to_string()), compression).unwrap();
        for (index, record) in records.iter().enumerate() {
            writer.write(record).unwrap();
            if index == 1000 {
                writer.flush().unwrap();
            }
        }
        writer.finish().unwrap();
    }
    let script = READ_LIST.to_string()
        + r#"
wanted = read_list(sys.argv[1] + "/list")
for name in ["none", "GZIP", "ZLIB"]:
    dataset = tf.data.TFRecordDataset(sys.argv[1] + "/" + name, compression_type="" if name == "none" else name)
    got = list(dataset.as_numpy_iterator())
    assert got == wanted, name
    print(name, len(got))
"#;
    let printed = python(&script, &[folder.path().to_str().unwrap()]);
    let count = records.len();
    assert_eq!(printed, format!("none {count}\nGZIP {count}\nZLIB {count}\n"));
}

#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn gradlet_reads_what_tensorflow_writes() {
    let folder = tempfile::tempdir().unwrap();
    let records = records(2);
    std::fs::write(folder.path().join("list"), list(&records)).unwrap();
    let script = READ_LIST.to_string()
        + r#"
records = read_list(sys.argv[1] + "/list")
for name in ["none", "GZIP", "ZLIB"]:
    options = tf.io.TFRecordOptions(compression_type="" if name == "none" else name)
    with tf.io.TFRecordWriter(sys.argv[1] + "/" + name, options) as writer:
        for index, record in enumerate(records):
            writer.write(record)
            if index == 500:
                writer.flush()
"#;
    python(&script, &[folder.path().to_str().unwrap()]);
    for compression in COMPRESSIONS {
        let path = folder.path().join(compression.to_string());
        assert_eq!(Compression::detect(&path).unwrap(), compression);
        for buffer_size in [1000, 256 << 10, 4 << 20] {
            let reader = RecordReader::open_with(&path, compression, buffer_size).unwrap();
            let got = reader.collect::<Result<Vec<_>, _>>().unwrap();
            assert!(got == records, "{compression}, {buffer_size} bytes at a time");
        }
    }
}

/// Interleaves files of different lengths, some of them empty. The order must be TensorFlow's for many numbers of parallel reads.
#[test]
#[ignore = "needs TensorFlow: `cargo xtask test TensorFlow` installs and runs it"]
fn files_take_turns_as_in_tensorflow() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = Random::new(3);
    let paths: Vec<String> = (0..9).map(|file| path_of(folder.path(), &file.to_string())).collect();
    for (file, path) in paths.iter().enumerate() {
        let mut writer = RecordWriter::create(Path::new(path), Compression::None).unwrap();
        for record in 0..random.below(2) * random.below(8) {
            writer.write(format!("{file}:{record}").as_bytes()).unwrap();
        }
        writer.finish().unwrap();
    }
    let script = r#"
import sys
import tensorflow as tf
for parallel in range(12):
    dataset = tf.data.TFRecordDataset(sys.argv[1:], num_parallel_reads=parallel or None)
    print(" ".join(record.decode() for record in dataset.as_numpy_iterator()))
"#;
    let arguments: Vec<&str> = paths.iter().map(String::as_str).collect();
    for (parallel, wanted) in python(script, &arguments).lines().enumerate() {
        let records = RecordFiles::new(&paths).num_parallel_reads(parallel).into_iter();
        let got: Vec<String> = records.map(|record| String::from_utf8(record.unwrap().to_vec()).unwrap()).collect();
        assert_eq!(got.join(" "), wanted, "{parallel} files at a time");
    }
}
