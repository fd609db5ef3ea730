use super::*;
use crate::formats::proto::DataType;
use crate::values::strings::Strings;
use prost::Message;

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/checkpoint")
}

/// Returns the prefixes of the checkpoints that TensorFlow wrote.
fn prefixes() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let inside = |folder: &Path| std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir());
    for folder in inside(&fixtures()).flat_map(|kind| inside(&kind).collect::<Vec<_>>()) {
        let damaged = folder.ends_with("f_corrupt");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let whole = files.filter(|path| path.extension().is_some_and(|ending| ending == "index"));
        found.extend(whole.map(|path| path.with_extension("")).filter(|path| !damaged || path.ends_with("good")));
    }
    assert!(found.len() > 15);
    found
}

#[test]
fn indices_are_written_as_tensorflow_writes_them() {
    for prefix in prefixes() {
        let reader = BundleReader::open(&prefix).unwrap();
        let header = [(Vec::new(), reader.header().encode_to_vec())];
        let slices = reader.slices().map(|(key, entry)| (key.to_vec(), entry.proto().encode_to_vec()));
        let entries = reader.entries().map(|(key, entry)| (key.as_bytes().to_vec(), entry.proto().encode_to_vec()));
        let written = table(header.into_iter().chain(slices).chain(entries));
        assert!(written == std::fs::read(index_path(&prefix)).unwrap(), "{}", prefix.display());
    }
}

/// Writes the contents of another checkpoint, in the order of its data file.
fn copy(reader: &BundleReader, prefix: &Path) {
    let mut entries: Vec<_> = reader.entries().collect();
    entries.sort_by_key(|(_, entry)| (entry.proto().offset, entry.proto().size));
    let mut writer = BundleWriter::create(prefix).unwrap();
    for (key, entry) in entries {
        match entry.dtype() {
            DataType::DtString => writer.strings(key, &reader.strings(key).unwrap()).unwrap(),
            dtype => writer.tensor(key, dtype, entry.dims(), &reader.bytes(key).unwrap()).unwrap(),
        }
    }
    writer.finish().unwrap();
}

#[test]
fn files_are_written_as_tensorflow_writes_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for prefix in prefixes() {
        let reader = BundleReader::open(&prefix).unwrap();
        if reader.header().num_shards > 1 || reader.slices().len() > 0 {
            continue;
        }
        count += 1;
        let own = folder.path().join(count.to_string());
        copy(&reader, &own);
        for path in [index_path, |prefix: &Path| data_path(prefix, 0, 1)] {
            assert!(std::fs::read(path(&own)).unwrap() == std::fs::read(path(&prefix)).unwrap(), "{}", prefix.display());
        }
    }
    assert!(count > 10);
}

#[test]
fn slices_become_whole() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["shards/e_sharded_max_size/ckpt", "saver_v1/g_v1_saver/model-5"] {
        let reader = BundleReader::open(&fixtures().join(name)).unwrap();
        assert!(reader.slices().len() > 0);
        let own = folder.path().join("own");
        copy(&reader, &own);
        let own = BundleReader::open(&own).unwrap();
        for (key, entry) in reader.entries() {
            reader.verify(key).unwrap();
            assert_eq!(own.entry(key).unwrap().dims(), entry.dims());
            if entry.dtype() != DataType::DtString {
                assert_eq!(own.bytes(key).unwrap(), reader.bytes(key).unwrap());
            }
        }
    }
}

/// Returns the names of the files in a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn small(prefix: &Path, value: f32) -> BundleWriter {
    let mut writer = BundleWriter::create(prefix).unwrap();
    writer.tensor("x", DataType::DtFloat, &[2], bytemuck::cast_slice(&[value; 2])).unwrap();
    writer.strings("s", &Strings::scalar(value.to_string())).unwrap();
    writer
}

#[test]
fn replacing_takes_turns_with_the_data_file() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("c");
    let x = || BundleReader::open(&prefix).unwrap().tensor("x", &crate::compute::devices::cpu()).unwrap().to_vec::<f32>().unwrap()[0];
    drop(small(&prefix, 0.0));
    assert_eq!(files(folder.path()), [""; 0]);
    for (value, shards) in [(1.0, 1), (2.0, 2), (3.0, 1)] {
        small(&prefix, value).finish().unwrap();
        assert_eq!(x(), value);
        assert_eq!(files(folder.path()), [format!("c.data-00000-of-{shards:05}"), "c.index".into()]);
        drop(small(&prefix, 9.0));
        assert_eq!(x(), value);
    }
    // Files of other prefixes or formats stay.
    std::fs::write(folder.path().join("c.data-00000-of-2"), "").unwrap();
    std::fs::write(folder.path().join("cc.data-00000-of-00002"), "").unwrap();
    small(&prefix, 4.0).finish().unwrap();
    assert_eq!(files(folder.path()), ["c.data-00000-of-00002", "c.data-00000-of-2", "c.index", "cc.data-00000-of-00002"]);
}

#[test]
fn refuses_what_is_no_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = small(&folder.path().join("c"), 1.0);
    let mut add = |key: &str, dims: &[u64]| writer.tensor(key, DataType::DtFloat, dims, &[0; 8]).unwrap_err().to_string();
    assert!(add("x", &[2]).contains("two tensors \"x\""));
    assert!(add("y", &[3]).contains("8 bytes are not the size of float32[3]"));
    assert!(add("", &[2]).contains("cannot be the name"));
    assert!(add("z", &[u64::MAX, 3]).contains("are not the size of"));
    writer.finish().unwrap();
    let reader = BundleReader::open(&folder.path().join("c")).unwrap();
    assert!(reader.tensor("y", &crate::compute::devices::cpu()).unwrap_err().to_string().contains("no tensor \"y\""));
    assert!(reader.bytes("s").unwrap_err().to_string().contains("no fixed size"));
    assert!(reader.strings("x").unwrap_err().to_string().contains("float32, not strings"));
    assert!(BundleReader::open(&folder.path().join("d")).err().unwrap().to_string().contains("d.index"));
}

/// Two threads read large tensors, and their checksums are combined.
#[test]
fn large_tensors_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("c");
    let values: Vec<u8> = (0..(9u32 << 20) + 3).map(|index| (index ^ (index >> 9)) as u8).collect();
    let mut writer = BundleWriter::create(&prefix).unwrap();
    writer.tensor("x", DataType::DtUint8, &[values.len() as u64], &values).unwrap();
    writer.finish().unwrap();
    let reader = BundleReader::open(&prefix).unwrap();
    reader.verify("x").unwrap();
    assert!(reader.bytes("x").unwrap() == values);
    let path = data_path(&prefix, 0, 1);
    let mut damaged = std::fs::read(&path).unwrap();
    damaged[8 << 20] ^= 1;
    std::fs::write(&path, damaged).unwrap();
    assert!(reader.verify("x").is_err() && reader.bytes("x").is_err());
}

/// Two threads write two data files. Both are replaced together.
#[test]
fn many_bytes_go_to_two_files() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("c");
    let values: Vec<Vec<u8>> = (0..7u8).map(|index| vec![index; 10 << 20]).collect();
    let keys: Vec<String> = (0..7).map(|index| format!("v{index}")).collect();
    let write = || {
        let mut writer = small(&prefix, 1.0);
        let tensors = keys.iter().zip(&values).map(|(key, bytes)| NewTensor { key, dtype: DataType::DtUint8, dims: &[10 << 20], bytes });
        writer.tensors(&tensors.collect::<Vec<_>>()).unwrap();
        writer.finish().unwrap();
        let reader = BundleReader::open(&prefix).unwrap();
        reader.entries().for_each(|(key, _)| reader.verify(key).unwrap());
        keys.iter().zip(&values).for_each(|(key, value)| assert!(reader.bytes(key).unwrap() == *value));
        files(folder.path())
    };
    let names = |count: u32| [format!("c.data-00000-of-{count:05}"), format!("c.data-00001-of-{count:05}"), "c.index".into()];
    assert_eq!(write(), names(2));
    assert_eq!(write(), names(3));
    assert_eq!(write(), names(2));
}

/// Writes a checkpoint with tensors of several types. It is small, so that a test can damage every bit. Returns its prefix and keys.
fn damageable(folder: &Path) -> (PathBuf, Vec<String>) {
    let prefix = folder.join("c");
    let mut writer = BundleWriter::create(&prefix).unwrap();
    writer.tensor("dense/bias", DataType::DtFloat, &[3], bytemuck::cast_slice(&[1.0f32, -2.0, 0.5])).unwrap();
    writer.tensor("dense/kernel", DataType::DtInt16, &[2, 2], &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
    writer.strings("names", &Strings::vector(["a", "", "long"])).unwrap();
    writer.tensor("step", DataType::DtInt64, &[], &9i64.to_le_bytes()).unwrap();
    writer.finish().unwrap();
    let keys = BundleReader::open(&prefix).unwrap().entries().map(|(key, _)| key.to_string()).collect();
    (prefix, keys)
}

/// Returns the bytes of a tensor, or `None` if it is damaged.
fn read(reader: &BundleReader, key: &str) -> Option<Vec<u8>> {
    match reader.entry(key)?.dtype() {
        DataType::DtString => reader.strings(key).ok().map(|strings| strings.values().concat()),
        _ => reader.bytes(key).ok(),
    }
}

#[test]
fn every_flipped_bit_of_the_data_is_found_and_costs_one_tensor() {
    let folder = tempfile::tempdir().unwrap();
    let (prefix, keys) = damageable(folder.path());
    let path = data_path(&prefix, 0, 1);
    let whole = std::fs::read(&path).unwrap();
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, damaged).unwrap();
        let reader = BundleReader::open(&prefix).unwrap();
        let errors: Vec<String> = keys.iter().filter_map(|key| reader.verify(key).err()).map(|error| error.to_string()).collect();
        let inside = |entry: &Entry| (entry.proto().offset..entry.proto().offset + entry.proto().size).contains(&(bit as i64 / 8));
        let hit = keys.iter().find(|key| inside(reader.entry(key).unwrap())).unwrap();
        assert!(matches!(&errors[..], [error] if error.contains(&format!("tensor {hit:?}"))), "bit {bit}: {errors:?}");
        assert!(keys.iter().all(|key| read(&reader, key).is_some() == (key != hit)), "bit {bit}");
    }
}

#[test]
fn every_flipped_bit_of_the_index_is_found_and_costs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (prefix, keys) = damageable(folder.path());
    let good = BundleReader::open(&prefix).unwrap();
    let path = index_path(&prefix);
    let whole = std::fs::read(&path).unwrap();
    let mut named = 0;
    for bit in 0..whole.len() * 8 {
        let mut damaged = whole.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, damaged).unwrap();
        let error = BundleReader::open(&prefix).err().unwrap_or_else(|| panic!("bit {bit} is not missed"));
        named += usize::from(keys.iter().any(|key| error.to_string().contains(&format!("entry of {key:?}"))));
        let reader = BundleReader::open_damaged(&prefix).unwrap();
        assert!(!reader.damage().is_empty());
        for key in &keys {
            assert_eq!(read(&reader, key), read(&good, key), "bit {bit}, {error}");
        }
    }
    assert!(named > whole.len() * 3, "{named} of {} bits", whole.len() * 8);
}

#[test]
fn a_lost_block_says_what_it_held() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ckpt");
    std::fs::copy(data_path(&fixtures().join("shards/e_two_blocks/ckpt"), 0, 1), data_path(&prefix, 0, 1)).unwrap();
    let mut index = std::fs::read(index_path(&fixtures().join("shards/e_two_blocks/ckpt"))).unwrap();
    index[100..140].fill(0x33);
    std::fs::write(index_path(&prefix), index).unwrap();
    let error = BundleReader::open(&prefix).err().unwrap().to_string();
    assert!(error.contains("at byte 0: block checksum mismatch") && error.contains("it holds the keys after \"\" up to"), "{error}");
    let reader = BundleReader::open_damaged(&prefix).unwrap();
    let rest: Vec<&str> = reader.entries().map(|(key, _)| key).collect();
    assert!(rest.len() > 100);
    rest.iter().for_each(|key| reader.verify(key).unwrap());
}
