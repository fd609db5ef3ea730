//! Tests of event files: the reader skips damage, and flushed events remain if the process is killed.

use gradlet::io::tfrecord::{Compression, RecordReader};
use gradlet::summary::{EventReader, Options, Run, SummaryWriter};
use gradlet_tests::fuzz::events::exercise;
use gradlet_tests::golden::fixtures;
use gradlet_tests::random::Random;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Number of damaged files.
const MUTATIONS: u64 = 3000;
/// Time limit of one file. An intact one takes milliseconds.
const LIMIT: Duration = Duration::from_secs(2);

/// Returns TensorFlow's event files, in both forms of the fuzz target: as files, and as records without checksums.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for name in ["scalars", "images", "histograms", "text", "audio", "generic", "graph_def", "v1_writer", "restart"] {
        let path = Run::files(&fixtures("events").join(name)).unwrap().remove(0);
        seeds.push([&[0], &std::fs::read(&path).unwrap()[..]].concat());
        let mut records = vec![1];
        for record in RecordReader::open(&path, Compression::None).unwrap() {
            let record = record.unwrap();
            records.extend((record.len() as u16).to_le_bytes());
            records.extend(&record[..]);
        }
        seeds.push(records);
    }
    seeds
}

#[test]
fn any_bytes_end_in_events_or_errors() {
    let folder = tempfile::tempdir().unwrap();
    let (seeds, mut random) = (seeds(), Random::new(7));
    let (mut damaged, mut points) = (0, 0);
    for seed in &seeds {
        let found = exercise(folder.path(), seed);
        assert_eq!(found.damaged, 0);
    }
    for turn in 0..MUTATIONS {
        let mut data = seeds[random.below(seeds.len())].clone();
        for _ in 0..=random.below(3) {
            let at = 1 + random.below(data.len() - 1);
            match random.below(5) {
                0 => data.truncate(at),
                1 => data[at] = random.pick(&[0, 1, 127, 128, 255]),
                2 => drop(data.splice(at..at, (0..random.below(9)).map(|index| index as u8))),
                3 => drop(data.drain(at..(at + 1 + random.below(9)).min(data.len()))),
                _ => data[at] ^= 1 << random.below(8),
            }
            if data.len() < 2 {
                data.push(0);
            }
        }
        let start = Instant::now();
        let found = exercise(folder.path(), &data);
        assert!(start.elapsed() < LIMIT, "turn {turn} took {:?}", start.elapsed());
        damaged += usize::from(found.damaged > 0);
        points += usize::from(found.points > 0);
    }
    assert!(damaged > MUTATIONS as usize / 4 && points > MUTATIONS as usize / 4, "{damaged} damaged, {points} with points");
}

const FOLDER: &str = "GRADLET_TEST_WRITES_EVENTS_TO";

/// The program of the next test. It writes and flushes events, prints the last flushed step, and continues until it is killed.
#[test]
#[ignore = "it is started by another test, and never ends"]
fn writes_until_it_is_killed() {
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("another test sets this variable"));
    let options = Options { flush_interval: Duration::from_millis(1), ..Options::default() };
    let writer = SummaryWriter::with_options(&folder, options).unwrap();
    for step in 0.. {
        writer.scalar("x", step, step).unwrap();
        if step % 100 == 99 {
            writer.flush().unwrap();
            println!("flushed {step}");
        }
    }
}

#[test]
fn what_was_flushed_outlives_a_kill() {
    for turn in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let flushed = killed_after(folder.path(), 1 + turn * 7);
        let path = Run::files(folder.path()).unwrap().remove(0);
        let mut reader = EventReader::open(&path).unwrap();
        let steps: Vec<i64> = reader.by_ref().flatten().skip(1).map(|event| event.step).collect();
        assert!(steps.len() as i64 > flushed, "{} steps are there, {flushed} was flushed", steps.len());
        assert!(steps.iter().copied().eq(0..steps.len() as i64), "a step is missing");
        // Only the last record may be incomplete.
        assert!(reader.skipped().places <= 1 && reader.skipped().bytes < 100, "{:?}", reader.skipped());
    }
}

/// Starts the writer in a process of its own, and kills it after it has printed `lines` flushed steps. Returns the last printed step.
fn killed_after(folder: &Path, lines: usize) -> i64 {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "events::writes_until_it_is_killed", "--ignored", "--nocapture"]).env(FOLDER, folder);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut steps = said.filter_map(|line| line.rsplit_once("flushed ")?.1.parse().ok());
    let seen = steps.by_ref().take(lines).last();
    child.kill().unwrap();
    let last = steps.last().or(seen);
    child.wait().unwrap();
    last.expect("the writer flushed a step")
}
