//! Damaged artifacts are refused or run to their end. Nothing panics or hangs.

use gradlet_core::Error;
use gradlet_core::runtime::program::Header;
use gradlet_tests::fuzz::artifact::{self, HEADER, Sample, Verdict};
use gradlet_tests::golden;
use gradlet_tests::golden::case::Case;
use gradlet_tests::golden::runtimes::{SIGNATURE, Traced};
use gradlet_tests::random::Random;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Number of damaged artifacts.
const MUTATIONS: u64 = 100_000;
/// Indices of the sections that may be changed. Index 11, which is that of the data section, selects the header instead.
const ALL: [usize; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11];
/// Indices of the sections that control execution: blocks, instructions, attributes, operands.
const CONTROL: [usize; 4] = [1, 4, 7, 8];
/// Time limit of one artifact. An intact one takes microseconds.
const LIMIT: Duration = Duration::from_secs(1);

#[test]
fn samples_are_whole() {
    for sample in artifact::samples().unwrap().into_iter().chain(artifact::deciding().unwrap()) {
        let verdict = artifact::exercise(&sample.bytes, sample.signatures);
        assert!(matches!(verdict, Verdict::Ran(Ok(()))), "{}: {verdict:?}", sample.name);
    }
}

#[test]
fn every_truncation_is_refused() {
    for sample in artifact::samples().unwrap() {
        for length in 0..sample.bytes.len() {
            let mut cut = sample.bytes[..length].to_vec();
            refused(&cut, &sample, length);
            // Truncated, with the correct length in the header. Only a part of a table is missing.
            artifact::fix_length(&mut cut);
            artifact::fix_checksum(&mut cut);
            let verdict = artifact::exercise(&cut, sample.signatures);
            assert!(matches!(verdict, Verdict::Refused(_)), "{} cut to {length} bytes: {verdict:?}", sample.name);
        }
    }
}

/// With a length below 16, the checksum would cover no bytes.
#[test]
fn a_length_below_the_header_is_refused() {
    use gradlet_core::{Program, device::AlignedBytes, ops};
    let header = [&b"GRDL\x01\0\0\0"[..], &[0; 104]].concat();
    for length in 0..112u32 {
        let mut bytes = header.clone();
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        artifact::fix_checksum(&mut bytes);
        let refused = Program::load(&AlignedBytes::from(&bytes[..]), ops::KERNELS, &[]).err();
        assert_eq!(refused, Some(Error::Truncated { needed: 112, got: 112 }), "{length}");
    }
}

fn refused(bytes: &[u8], sample: &Sample, length: usize) {
    match artifact::exercise(bytes, sample.signatures) {
        Verdict::Refused(error) => assert!(!error.to_string().is_empty()),
        other => panic!("{} cut to {length} bytes: {other:?}", sample.name),
    }
}

#[test]
fn mutations_are_refused_or_run() {
    let tally = mutations(&artifact::samples().unwrap(), MUTATIONS, &ALL);
    assert!(tally.contains_key("accepted, and ran") && tally.keys().any(|kind| kind.starts_with("refused")));
}

/// A damaged artifact with branches and loops is refused, or ends within its own iteration limits.
#[test]
fn mutations_of_branches_and_loops_are_refused_or_end() {
    let tally = mutations(&artifact::deciding().unwrap(), MUTATIONS, &CONTROL);
    assert!(tally.contains_key("accepted, and ran") && tally.contains_key("refused: an instruction"));
}

/// The artifacts of the golden cases contain every op, so a damaged one can call any op with any operands.
#[test]
fn mutations_of_every_op_are_refused_or_run() {
    let sample = |case: &Case| {
        let bytes = Traced::new(case, case.body.as_ref()?).and_then(|traced| traced.export(case)).ok()?.to_vec();
        Some(Sample { name: case.id.clone(), bytes, signatures: &[SIGNATURE] })
    };
    let samples: Vec<Sample> = golden::read(&golden::own_folder()).unwrap().iter().filter_map(sample).collect();
    assert!(samples.len() > 100);
    mutations(&samples, MUTATIONS, &ALL);
}

/// Runs `count` damaged samples. Returns the number of samples per outcome.
fn mutations(samples: &[Sample], count: u64, sections: &[usize]) -> BTreeMap<&'static str, u32> {
    let mut tally = BTreeMap::new();
    let mut slowest = Duration::ZERO;
    for seed in 0..count {
        let sample = &samples[(seed % samples.len() as u64) as usize];
        let bytes = mutate(sample, seed, sections);
        let start = Instant::now();
        let verdict = catch_unwind(AssertUnwindSafe(|| artifact::exercise(&bytes, sample.signatures)));
        let verdict = verdict.unwrap_or_else(|_| panic!("mutation {seed} of {} panicked", sample.name));
        slowest = slowest.max(start.elapsed());
        assert!(start.elapsed() < LIMIT, "mutation {seed} of {} took {:?}", sample.name, start.elapsed());
        *tally.entry(kind(&verdict)).or_default() += 1;
    }
    println!("{count} mutations of {} artifacts, the slowest {slowest:?}:", samples.len());
    tally.iter().for_each(|(kind, count)| println!("{count:8} {kind}"));
    tally
}

/// Returns the class of a verdict. Panics if the verdict's error has no text.
fn kind(verdict: &Verdict) -> &'static str {
    let error = match verdict {
        Verdict::TooLarge => return "refused: a large arena",
        Verdict::Endless => return "accepted, and would end late",
        Verdict::Ran(Ok(())) => return "accepted, and ran",
        Verdict::Refused(error) | Verdict::Ran(Err(error)) => error,
    };
    assert!(!error.to_string().is_empty());
    match (verdict, error) {
        (Verdict::Ran(_), _) => "accepted, and ended with a status",
        (_, Error::Record { .. }) => "refused: a record",
        (_, Error::Instruction { .. }) => "refused: an instruction",
        (_, Error::MissingKernel { .. }) => "refused: a kernel",
        (_, Error::UnknownSignature) => "refused: a signature",
        (_, Error::Truncated { .. } | Error::Version { .. } | Error::NotAnArtifact) => "refused: the header",
        _ => "refused: otherwise",
    }
}

/// Makes one to four changes to the structure of a sample, not to its data. Then corrects the checksum.
fn mutate(sample: &Sample, seed: u64, sections: &[usize]) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = sample.bytes.clone();
    let header = artifact::header(&bytes).unwrap();
    let data = header.sections[11].offset as usize;
    for _ in 0..random.range(1, 4) {
        change(&mut bytes[..data], &mut random, &header, sections);
    }
    if random.coin() {
        artifact::fix_tensors(&mut bytes);
    }
    if random.below(20) == 0 {
        let length = random.below(bytes.len() + 64);
        bytes.resize(length, 0);
        artifact::fix_length(&mut bytes);
    }
    artifact::fix_checksum(&mut bytes);
    bytes
}

/// Changes one byte, half-word or word in a random section, which may be the header. All sections are equally likely.
fn change(bytes: &mut [u8], random: &mut Random, header: &Header, sections: &[usize]) {
    let section = random.pick(sections);
    let next = header.sections.get(section + 1).map_or(bytes.len(), |next| next.offset as usize);
    let (from, to) = match section {
        11 => (0, HEADER),
        _ => (header.sections[section].offset as usize, next.min(bytes.len())),
    };
    let width = random.pick(&[1, 2, 4, 4]);
    if to < from + width {
        return;
    }
    let at = from + random.below((to - from) / width) * width;
    let other = from + random.below((to - from) / width) * width;
    let old = read(&bytes[at..at + width]);
    let new = match random.below(9) {
        0 => 0,
        7 => 1 << random.below(8 * width),
        1 => 1,
        2 => u32::MAX,
        3 => old.wrapping_add(1),
        4 => old.wrapping_sub(1),
        5 => old ^ 1 << random.below(8 * width),
        6 => read(&bytes[other..other + width]),
        _ => random.bits() as u32 >> random.below(32),
    };
    if random.below(8) == 0 {
        bytes.copy_within(at..at + width, other);
    }
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
}

fn read(bytes: &[u8]) -> u32 {
    let mut word = [0; 4];
    word[..bytes.len()].copy_from_slice(bytes);
    u32::from_le_bytes(word)
}
