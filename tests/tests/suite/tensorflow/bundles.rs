//! Tensor bundles with random names, types and shapes. TensorFlow reads gradlet's bundles, even after one replaced another. gradlet reads
//! TensorFlow's.

use super::python;
use bytes::Bytes;
use gradlet::checkpoint::bundle::{BundleReader, BundleWriter, data_path, dtype_name, element_bytes};
use gradlet::io::proto::DataType;
use gradlet::tensor::Strings;
use gradlet_tests::random::Random;
use serde_json::{Value as Json, json};
use std::path::Path;

const TYPES: [DataType; 16] = [
    DataType::DtBfloat16,
    DataType::DtBool,
    DataType::DtComplex128,
    DataType::DtComplex64,
    DataType::DtDouble,
    DataType::DtFloat,
    DataType::DtHalf,
    DataType::DtInt16,
    DataType::DtInt32,
    DataType::DtInt64,
    DataType::DtInt8,
    DataType::DtString,
    DataType::DtUint16,
    DataType::DtUint32,
    DataType::DtUint64,
    DataType::DtUint8,
];

/// Script that lists a checkpoint's tensors: type, shape, and bytes in hexadecimal.
const READ: &str = r#"
import json, sys
import numpy as np, tensorflow as tf
reader = tf.train.load_checkpoint(sys.argv[1])
found = {}
for key, shape in reader.get_variable_to_shape_map().items():
    value = reader.get_tensor(key)
    if isinstance(value, bytes) or getattr(value, "dtype", None) == object:
        data = [item.hex() for item in np.array(value, dtype=object).reshape(-1)]
        found[key] = ["string", shape, data]
    else:
        value = np.asarray(value)
        found[key] = [reader.get_variable_to_dtype_map()[key].name, shape, value.tobytes().hex()]
print(json.dumps(found))
"#;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes random tensors. Returns the list of tensors that [`READ`] must print.
fn write(prefix: &Path, random: &mut Random) -> Json {
    let mut writer = BundleWriter::create(prefix).unwrap();
    let mut wanted = json!({});
    for (index, dtype) in TYPES.into_iter().cycle().take(60).enumerate() {
        let key = format!("{}/{}{index}", ["a", "layer", "ключ", "x.y"][random.below(4)], "deep/".repeat(random.below(3)));
        let dims: Vec<u32> = (0..random.below(4)).map(|_| random.below(5) as u32).collect();
        let count = dims.iter().product::<u32>() as usize;
        wanted[&key] = match element_bytes(dtype) {
            Some(size) => {
                // Booleans are 0 or 1.
                let top = if dtype == DataType::DtBool { 2 } else { 256 };
                let bytes: Vec<u8> = (0..count * size).map(|_| random.below(top) as u8).collect();
                let wide: Vec<u64> = dims.iter().map(|&dim| dim.into()).collect();
                writer.tensor(&key, dtype, &wide, &bytes).unwrap();
                json!([dtype_name(dtype), dims, hex(&bytes)])
            }
            None => {
                let values = (0..count).map(|_| Bytes::from(vec![b'x'; random.below(300)])).collect();
                let strings = Strings::new(values, &dims).unwrap();
                writer.strings(&key, &strings).unwrap();
                json!(["string", dims, strings.values().iter().map(|string| hex(string)).collect::<Vec<_>>()])
            }
        };
    }
    writer.finish().unwrap();
    wanted
}

#[test]
#[ignore = "needs TensorFlow"]
fn tensorflow_reads_what_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ckpt-1");
    let mut random = Random::new(11);
    for shards in [1, 2, 1] {
        let wanted = write(&prefix, &mut random);
        assert!(data_path(&prefix, 0, shards).exists());
        let found: Json = serde_json::from_str(&python(READ, &[prefix.to_str().unwrap()])).unwrap();
        assert_eq!(found, wanted);
    }
}

/// Script that writes objects, including the state of an iterator, and tensors that are split into slices.
const WRITE: &str = r#"
import sys
import tensorflow as tf
prefix = sys.argv[1]
iterator = iter(tf.data.Dataset.range(100).shuffle(10, seed=1).batch(3))
next(iterator)
values = {f"v{size}": tf.Variable(tf.random.uniform([size, 7])) for size in [1, 50, 3000]}
checkpoint = tf.train.Checkpoint(iterator=iterator, **values)
checkpoint.write(prefix + "-whole")
policy = tf.train.experimental.MaxShardSizePolicy(max_shard_size=10000)
options = tf.train.CheckpointOptions(experimental_sharding_callback=policy)
tf.train.Checkpoint(**values).write(prefix + "-cut", options=options)
for key, value in values.items():
    print(key, value.numpy().tobytes().hex())
"#;

#[test]
#[ignore = "needs TensorFlow"]
fn what_tensorflow_writes_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("ckpt");
    let printed = python(WRITE, &[prefix.to_str().unwrap()]);
    for ending in ["whole", "cut"] {
        let reader = BundleReader::open(&folder.path().join(format!("ckpt-{ending}"))).unwrap();
        reader.entries().for_each(|(key, _)| reader.verify(key).unwrap());
        assert_eq!(reader.slices().len() > 0, ending == "cut");
        let variants = reader.entries().filter(|(_, entry)| entry.dtype() == DataType::DtVariant).count();
        assert_eq!(variants > 0, ending == "whole");
        for line in printed.lines() {
            let (key, wanted) = line.split_once(' ').unwrap();
            assert!(hex(&reader.bytes(&format!("{key}/.ATTRIBUTES/VARIABLE_VALUE")).unwrap()) == wanted, "{key}");
        }
    }
}
