//! Damaged Examples are read or refused.

use gradlet::io::example::{Example, FeatureType, Features, VarLenFeature, parse_single_example};
use gradlet_tests::fuzz::examples::{exercise, samples};
use gradlet_tests::random::Random;

#[test]
fn samples_are_whole() {
    let samples = samples();
    samples.iter().for_each(|sample| exercise(sample));
    let floats = Features::new().with("a", VarLenFeature::new(FeatureType::F32));
    for sample in [&samples[0], &samples[3]] {
        let parsed = parse_single_example(sample, &floats).unwrap();
        assert_eq!(parsed.sparse("a").unwrap().values().dims(), [2]);
    }
    assert_eq!(samples.iter().filter(|sample| Example::from_bytes((*sample).clone()).is_ok()).count(), 5);
}

#[test]
fn every_cut_and_every_byte() {
    for sample in samples() {
        (0..sample.len()).for_each(|length| exercise(&sample[..length]));
        for at in 0..sample.len() {
            for value in [0, 1, 8, 0x0a, 0x12, 0x1a, 0x7f, 0x80, 0xff] {
                let mut bytes = sample.to_vec();
                bytes[at] = value;
                exercise(&bytes);
            }
        }
    }
}

#[test]
fn many_changes() {
    let (mut random, samples) = (Random::new(1), samples());
    for _ in 0..5000 {
        let mut bytes = samples[random.below(samples.len())].to_vec();
        for _ in 0..1 + random.below(4) {
            let at = random.below(bytes.len() + 1);
            match random.below(4) {
                0 => bytes.insert(at, random.bits() as u8),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 => bytes.extend_from_slice(&samples[random.below(samples.len())]),
                _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte = random.bits() as u8),
            }
        }
        exercise(&bytes);
    }
}
