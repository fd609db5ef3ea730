//! Runs damaged artifacts: each must be refused or run to its end. The first byte of the input selects one of two forms. Either the
//! rest is an artifact, or it is a list of changes to a sample of the damage tests. A change has four bytes: the offset (two bytes),
//! the kind of change, and a value.

#![no_main]

use gradlet_tests::fuzz::artifact::{self, Sample};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SAMPLES: LazyLock<Vec<Sample>> = LazyLock::new(|| artifact::samples().unwrap_or_default());

fuzz_target!(|data: &[u8]| {
    let Some((&choice, rest)) = data.split_first() else { return };
    let (mut bytes, signatures) = match SAMPLES.get(usize::from(choice) % (SAMPLES.len() + 1)) {
        Some(sample) => (change(&sample.bytes, rest), sample.signatures),
        None => (rest.to_vec(), &["infer"][..]),
    };
    if choice & 0x80 != 0 {
        artifact::fix_tensors(&mut bytes);
    }
    artifact::fix_checksum(&mut bytes);
    if let artifact::Verdict::Refused(error) | artifact::Verdict::Ran(Err(error)) = artifact::exercise(&bytes, signatures) {
        assert!(!error.to_string().is_empty());
    }
});

fn change(sample: &[u8], changes: &[u8]) -> Vec<u8> {
    let mut bytes = sample.to_vec();
    for change in changes.chunks_exact(4) {
        let at = usize::from(u16::from_le_bytes([change[0], change[1]])) % bytes.len();
        let value = change[3];
        match change[2] % 4 {
            0 => bytes[at] = value,
            1 => bytes[at] = bytes[at].wrapping_add(value),
            2 => bytes[at] ^= value,
            _ => bytes.iter_mut().skip(at & !3).take(4).for_each(|byte| *byte = if value & 1 == 0 { 0 } else { 0xff }),
        }
    }
    bytes
}
