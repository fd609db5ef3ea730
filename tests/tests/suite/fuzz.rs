//! Builds and runs every target in `fuzz/` without a fuzzer. The macro [`fuzz_target`](crate::fuzz_target) turns each target into a
//! function. The inputs are mutations of valid ones.

use crate::{checkpoints, tfrecord};
use gradlet_tests::fuzz;
use gradlet_tests::fuzz::readers::{mutate, reader};
use gradlet_tests::random::Random;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

/// Seconds for each target: in a normal run, and in `cargo xtask test all`.
const SECONDS: [u64; 2] = [2, 60];

/// Runs a target on mutations of `seeds`, which are the same in every run.
fn drive(seeds: Vec<Vec<u8>>, target: fn(&[u8])) {
    let give = |data: &[u8]| {
        assert!(catch_unwind(AssertUnwindSafe(|| target(data))).is_ok(), "the input is {data:?}");
    };
    seeds.iter().for_each(|seed| give(seed));
    let is_full = std::env::var_os("GRADLET_CAMPAIGN").is_some_and(|value| value == "all");
    let limit = Duration::from_secs(SECONDS[usize::from(is_full)]);
    let (start, mut random, mut inputs) = (Instant::now(), Random::new(1), 0);
    while start.elapsed() < limit {
        let mut data = seeds[random.below(seeds.len())].clone();
        mutate(&mut data, &mut random);
        give(&data);
        inputs += 1;
    }
    println!("{inputs} inputs");
}

/// Returns inputs for the target `artifact`. Each input selects a sample and the changes that the target makes to it.
fn changes() -> Vec<Vec<u8>> {
    let mut random = Random::new(2);
    (0..=u8::MAX).map(|choice| [choice].into_iter().chain((0..24).map(|_| random.bits() as u8)).collect()).collect()
}

macro_rules! targets {
    ($($name:ident: $file:literal, $seeds:expr;)*) => {
        $(
            #[allow(unused_attributes)]
            #[path = $file]
            mod $name;
        )*

        mod runs {
            use super::*;

            $(
                #[test]
                fn $name() {
                    drive($seeds, super::$name::target);
                }
            )*
        }

        const NAMES: &[&str] = &[$(stringify!($name)),*];
    };
}

targets! {
    artifact: "../../../fuzz/fuzz_targets/artifact.rs", changes();
    bundle: "../../../fuzz/fuzz_targets/bundle.rs", checkpoints::seeds();
    csv: "../../../fuzz/fuzz_targets/csv.rs", (reader("csv").samples)();
    events: "../../../fuzz/fuzz_targets/events.rs", crate::events::seeds();
    example: "../../../fuzz/fuzz_targets/example.rs", fuzz::examples::samples().iter().map(|sample| sample.to_vec()).collect();
    flat: "../../../fuzz/fuzz_targets/flat.rs", fuzz::flat::samples().unwrap();
    idx: "../../../fuzz/fuzz_targets/idx.rs", (reader("idx").samples)();
    image: "../../../fuzz/fuzz_targets/image.rs", (reader("image").samples)();
    npy: "../../../fuzz/fuzz_targets/npy.rs", (reader("npy").samples)();
    npz: "../../../fuzz/fuzz_targets/npz.rs", (reader("npz").samples)();
    records: "../../../fuzz/fuzz_targets/records.rs", tfrecord::seeds();
    telemetry: "../../../fuzz/fuzz_targets/telemetry.rs", vec![crate::telemetry::sent(20)];
    tflite: "../../../fuzz/fuzz_targets/tflite.rs", (reader("tflite").samples)();
}

#[test]
fn every_target_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let files: BTreeSet<String> = files.map(|name| name.trim_end_matches(".rs").to_string()).collect();
    assert_eq!(files, NAMES.iter().map(|name| name.to_string()).collect());
}
