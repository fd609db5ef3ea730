//! Damaged checkpoints. A read returns an error or the intact tensors, in little time and memory.

use gradlet::checkpoint::bundle::{BundleReader, index_path};
use gradlet_tests::fuzz::bundle::exercise;
use gradlet_tests::golden::fixtures;
use gradlet_tests::random::Random;
use prost::Message;
use std::time::{Duration, Instant};

/// Number of damaged files.
const MUTATIONS: u64 = 1500;
/// Time limit of one file. An intact one takes milliseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns TensorFlow's index files, in both forms of the fuzz target: as files, and as the keys and values of a table.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for name in [
        "dtypes_and_names/a_dtypes/ckpt",
        "dtypes_and_names/a_names/ckpt-1",
        "shards/e_sharded_max_size/ckpt",
        "saver_v1/g_v1_saver/model-5",
        "shards/e_two_blocks/ckpt",
    ] {
        let prefix = fixtures("checkpoint").join(name);
        let file = std::fs::read(index_path(&prefix)).unwrap();
        seeds.push([&[0], &file[..]].concat());
        let reader = BundleReader::open(&prefix).unwrap();
        let mut records = vec![1];
        let mut put = |bytes: &[u8]| {
            records.push(bytes.len() as u8);
            records.extend(bytes);
        };
        put(b"");
        put(&reader.header().encode_to_vec());
        let slices = reader.slices().map(|(key, entry)| (key.to_vec(), entry));
        for (key, entry) in slices.chain(reader.entries().map(|(key, entry)| (key.as_bytes().to_vec(), entry))) {
            put(&key);
            put(&entry.proto().encode_to_vec());
        }
        seeds.push(records);
    }
    seeds
}

#[test]
fn damage_is_an_error_in_little_time() {
    let folder = tempfile::tempdir().unwrap();
    let (seeds, mut random) = (seeds(), Random::new(3));
    let (mut refused, mut read) = (0, 0);
    for seed in &seeds {
        exercise(folder.path(), seed);
    }
    for turn in 0..MUTATIONS {
        let mut data = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(3) {
            let at = 1 + random.below(data.len() - 1);
            match random.below(6) {
                0 => data.truncate(at),
                1 => data[at] = random.pick(&[0, 1, 127, 128, 255]),
                2 => drop(data.splice(at..at, (0..random.below(9)).map(|index| index as u8))),
                3 => drop(data.drain(at..(at + 1 + random.below(9)).min(data.len()))),
                4 => data[at] = random.bits() as u8,
                _ => data[at] ^= 1 << random.below(8),
            }
            if data.len() < 2 {
                data.push(0);
            }
        }
        let start = Instant::now();
        let (count, error) = exercise(folder.path(), &data);
        assert!(start.elapsed() < LIMIT, "turn {turn} took {:?}", start.elapsed());
        refused += usize::from(error.is_some());
        read += usize::from(count > 0);
    }
    assert!(refused > MUTATIONS as usize / 4 && read > MUTATIONS as usize / 4, "{refused} refused, {read} read");
}
