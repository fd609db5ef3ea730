//! Benchmark of Examples: each has a 784-byte image and a label. They are shuffled, batched by 128, parsed and decoded on all cores.

use super::{Outcome, noise};
use gradlet::DType;
use gradlet::data::AUTOTUNE;
use gradlet::io::example::{Example, FeatureType, Features, FixedLenFeature, parse_example};
use gradlet::io::tfrecord::{Compression, RecordFiles, RecordWriter};
use gradlet::io::{ByteOrder, decode_raw};
use gradlet::tensor::Strings;
use std::path::Path;
use std::time::Instant;

const IMAGE: usize = 784;
const EXAMPLES: usize = 200_000;
const FILE: &str = "examples-784.tfrecord";

/// Writes the file of Examples, unless it exists.
pub fn make(folder: &Path) -> Outcome<()> {
    let path = folder.join(FILE);
    if path.exists() {
        return Ok(());
    }
    let image = noise(IMAGE);
    let mut writer = RecordWriter::create(&path, Compression::None)?;
    for index in 0..EXAMPLES {
        writer.write(&Example::new().with("image", &image[..]).with("label", index as i64 % 10).to_bytes())?;
    }
    Ok(writer.finish()?)
}

/// Measures the number of Examples per second that become tensors.
pub fn examples_per_s(folder: &Path) -> Outcome<f64> {
    let features = Features::new()
        .with("image", FixedLenFeature::new(FeatureType::Strings, &[]))
        .with("label", FixedLenFeature::new(FeatureType::I64, &[]));
    let parse = move |records: Strings| {
        let parsed = parse_example(records.values(), &features)?;
        Ok((decode_raw(parsed.strings("image")?, DType::U8, ByteOrder::Little)?, parsed.tensor("label")?.clone()))
    };
    let records = RecordFiles::new([folder.join(FILE)]).memory_mapped().dataset();
    let dataset = records.shuffle(10_000).batch(128).map_parallel(AUTOTUNE, parse).prefetch(AUTOTUNE);
    let start = Instant::now();
    let count = dataset.reduce(0, |count, (images, labels)| {
        assert_eq!(images.dims(), [labels.dims()[0], IMAGE as u32]);
        Ok(count + images.dims()[0] as usize)
    })?;
    assert_eq!(count, EXAMPLES);
    Ok(count as f64 / start.elapsed().as_secs_f64())
}
