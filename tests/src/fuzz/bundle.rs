//! Properties of any bytes that are read as a checkpoint, for the fuzz target and for the short run in the tests.

use gradlet::checkpoint::bundle::{BundleReader, data_path, element_bytes, index_path, table};
use gradlet::io::FileError;
use gradlet::io::proto::DataType;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Size of the data file that entries may refer to, in bytes.
const DATA: usize = 4096;

/// Writes `data` as a checkpoint to the folder `folder`, and reads it with every function of the reader. Panics if two functions return
/// different results. If the first byte is 0, the other bytes are an index file. Otherwise they hold the keys and values of a table, each
/// after a byte with its length.
///
/// Returns the number of tensors, and the error if there was one.
pub fn exercise(folder: &Path, data: &[u8]) -> (usize, Option<FileError>) {
    let Some((&choice, rest)) = data.split_first() else { return (0, None) };
    let prefix = folder.join("fuzzed");
    let index = if choice == 0 { rest.to_vec() } else { table(records(rest)) };
    fs::write(index_path(&prefix), &index).expect("the folder can be written to");
    let bytes: Vec<u8> = (0..DATA).map(|index| (index * 7 / 3) as u8).collect();
    fs::write(data_path(&prefix, 0, 1), bytes).expect("the folder can be written to");
    let damaged = match BundleReader::open_damaged(&prefix) {
        Ok(damaged) => damaged,
        Err(error) => return (0, Some(error)),
    };
    read(&damaged);
    let count = damaged.entries().len();
    match BundleReader::open(&prefix) {
        Ok(reader) => {
            assert!(damaged.damage().is_empty() && reader.entries().len() == count);
            (count, None)
        }
        Err(error) => {
            assert_eq!(error.to_string(), damaged.damage()[0].to_string());
            (count, Some(error))
        }
    }
}

/// Creates a temporary folder for this process.
pub fn folder() -> PathBuf {
    let folder = std::env::temp_dir().join(format!("gradlet-fuzz-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("there is a folder for temporary files");
    folder
}

fn records(mut bytes: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut records = BTreeMap::new();
    let next = |bytes: &mut &[u8]| {
        let (&length, rest) = bytes.split_first()?;
        let (taken, rest) = rest.split_at_checked(length.into())?;
        *bytes = rest;
        Some(taken.to_vec())
    };
    while let Some((key, value)) = next(&mut bytes).zip(next(&mut bytes)) {
        records.insert(key, value);
    }
    records
}

/// Asserts that the functions that read a tensor agree: either all of them return the same bytes, or all of them return an error.
fn read(reader: &BundleReader) {
    for (key, entry) in reader.entries() {
        let whole = reader.verify(key).is_ok();
        match entry.dtype() {
            DataType::DtString => assert!(whole || reader.strings(key).is_err(), "{key:?}"),
            dtype if element_bytes(dtype).is_some() => {
                let bytes = reader.bytes(key);
                assert_eq!(whole, bytes.is_ok(), "{key:?}");
                if let (Ok(bytes), Ok(tensor)) = (bytes, reader.tensor(key, &gradlet::cpu())) {
                    assert_eq!(tensor.bytes().expect("it is computed"), bytes, "{key:?}");
                }
            }
            _ => assert!(reader.bytes(key).is_err()),
        }
    }
}
