//! Measures the throughput of input data: records, parsed Examples, and decoded JPEG images.
//!
//! `cargo run --release -p gradlet --features image --example bench_data` prints one JSON object. It writes 700 MB of data to a temporary
//! folder, and removes the folder at the end. With `--scratch DIR`, it writes the data to DIR, and keeps it for the next run. With
//! `--serve`, it answers requests from its standard input instead, one per line: `NAME ROUNDS`, where NAME is a figure. The answer is the
//! median of ROUNDS measurements. Because it then works on request, its measurements can be interleaved with those of another program.

#[path = "bench_data/examples.rs"]
mod examples;
#[path = "bench_data/jpeg.rs"]
mod jpeg;

use gradlet::io::tfrecord::{Compression, RecordFiles, RecordWriter};
use std::error::Error;
use std::fs::File;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tempfile::TempDir;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Function that measures a figure with the data in a folder.
type Measure = fn(&Path) -> Outcome<f64>;

/// Names of the figures, with the functions that measure them.
const FIGURES: [(&str, Measure); 6] = [
    ("tfrecord_read_MBps", read_records),
    ("tfrecord_write_MBps", write_records),
    ("examples_per_s", examples::examples_per_s),
    ("jpeg_images_per_s", jpeg::images_per_s),
    ("jpeg_epoch_images_per_s", jpeg::epoch_images_per_s),
    ("jpeg_serial_epoch_images_per_s", jpeg::serial_epoch_images_per_s),
];
/// Number of measurements of each figure.
const ROUNDS: usize = 5;

/// Length of a record, in bytes.
const RECORD: usize = 8 << 10;
/// Number of records: 512 MiB in total.
const RECORDS: usize = 65_536;
/// Name of the file with the records of the benchmark.
const RECORD_FILE: &str = "records-8k.tfrecord";

fn main() -> Outcome<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let serve = arguments.iter().position(|argument| argument == "--serve").map(|at| arguments.remove(at)).is_some();
    let (folder, _removed_at_the_end) = scratch(&arguments)?;
    let folder = folder.as_path();
    make_records(folder)?;
    examples::make(folder)?;
    jpeg::make(folder)?;
    if serve {
        return answer(folder);
    }
    let figures = FIGURES.iter().map(|(name, measure)| Ok(format!("  \"{name}\": {:.1}", median(ROUNDS, || measure(folder))?)));
    println!("{{\n{}\n}}", figures.collect::<Outcome<Vec<_>>>()?.join(",\n"));
    Ok(())
}

/// Returns the folder for the data, and creates it if it does not exist. It is the folder after `--scratch`, or a temporary folder if there
/// are no arguments. The second value removes a temporary folder when dropped, and is `None` for any other.
pub fn scratch(arguments: &[String]) -> Outcome<(PathBuf, Option<TempDir>)> {
    match arguments {
        [] => {
            let folder = tempfile::tempdir()?;
            Ok((folder.path().into(), Some(folder)))
        }
        [option, folder] if option == "--scratch" => {
            std::fs::create_dir_all(folder)?;
            Ok((folder.into(), None))
        }
        _ => Err("usage: bench_data [--scratch DIR] [--serve]".into()),
    }
}

/// Prints `ready`, then answers requests from standard input until the input ends.
fn answer(folder: &Path) -> Outcome<()> {
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, rounds) = line.split_once(' ').ok_or("a request must be a name and a number of rounds")?;
        let (_, measure) = FIGURES.iter().find(|(known, _)| *known == name).ok_or("the request names an unknown figure")?;
        println!("{}", median(rounds.parse()?, || measure(folder))?);
    }
    Ok(())
}

fn median(rounds: usize, mut measure: impl FnMut() -> Outcome<f64>) -> Outcome<f64> {
    let mut figures = (0..rounds.max(1)).map(|_| measure()).collect::<Outcome<Vec<f64>>>()?;
    figures.sort_by(f64::total_cmp);
    Ok(figures[figures.len() / 2])
}

/// Returns pseudorandom bytes, which cannot be compressed.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Writes the file [`RECORD_FILE`], unless it exists.
fn make_records(folder: &Path) -> Outcome<()> {
    let path = folder.join(RECORD_FILE);
    if path.exists() {
        return Ok(());
    }
    let data = noise(RECORD);
    let mut writer = RecordWriter::create(&path, Compression::None)?;
    (0..RECORDS).try_for_each(|_| writer.write(&data))?;
    Ok(writer.finish()?)
}

fn megabytes_a_second(bytes: usize, since: Instant) -> f64 {
    bytes as f64 / since.elapsed().as_secs_f64() / 1e6
}

/// Reads the file [`RECORD_FILE`] as a dataset, on one thread. Returns the rate in MB per second.
fn read_records(folder: &Path) -> Outcome<f64> {
    let dataset = RecordFiles::new([folder.join(RECORD_FILE)]).dataset();
    let start = Instant::now();
    let bytes = dataset.reduce(0, |bytes, record| Ok(bytes + record.len()))?;
    assert_eq!(bytes, RECORD * RECORDS);
    Ok(megabytes_a_second(bytes, start))
}

/// Writes half as many records to another file, as a stream. Returns the rate in MB per second. Like TensorFlow's writer, it does not wait
/// for the disk.
fn write_records(folder: &Path) -> Outcome<f64> {
    let path = folder.join("written.tfrecord");
    let data = noise(RECORD);
    let start = Instant::now();
    let mut writer = RecordWriter::new(File::create(&path)?, Compression::None);
    (0..RECORDS / 2).try_for_each(|_| writer.write(&data))?;
    writer.into_inner()?;
    let rate = megabytes_a_second(RECORD * RECORDS / 2, start);
    std::fs::remove_file(&path)?;
    Ok(rate)
}
