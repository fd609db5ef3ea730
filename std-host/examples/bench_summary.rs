//! Measures the time that the event writer's `scalar` takes on the caller's thread.
//!
//! `cargo run --release -p gradlet --example bench_summary -- DIR` answers requests from its standard input, one per line. `scalar_ms
//! COUNT` writes COUNT scalars, and answers with the time of the calls in milliseconds. `arrived COUNT` (COUNT is ignored) then answers
//! with the number of scalars in the file. Because it works on request, its measurements can be interleaved with those of another program.

use gradlet::summary::{self, EventReader};
use std::error::Error;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else { return Err("usage: bench_summary DIR".into()) };
    let folder = Path::new(folder).join("gradlet");
    let mut file = PathBuf::new();
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, count) = line.split_once(' ').ok_or("a request must be a name and a number")?;
        match name {
            "scalar_ms" => {
                let (time, path) = scalars(&folder, count.trim().parse()?)?;
                println!("{time:.3}");
                file = path;
            }
            "arrived" => println!("{}", arrived(&file)?),
            other => return Err(format!("unknown request {other}").into()),
        }
    }
    Ok(())
}

/// Writes `count` scalars. Returns the total time of the calls in milliseconds, and the path of the event file.
fn scalars(folder: &Path, count: i64) -> Outcome<(f64, PathBuf)> {
    if folder.exists() {
        std::fs::remove_dir_all(folder)?;
    }
    let writer = summary::create_file_writer(folder)?;
    let start = Instant::now();
    for step in 0..count {
        writer.scalar("loss", 0.5f32, step)?;
    }
    let time = start.elapsed().as_secs_f64() * 1e3;
    let path = writer.path().to_path_buf();
    writer.close()?;
    Ok((time, path))
}

/// Returns the number of scalars in an event file. Fails if their steps are not 0, 1, 2 …
fn arrived(path: &Path) -> Outcome<i64> {
    let mut next = 0;
    // The first event holds the file version.
    for event in EventReader::open(path)?.skip(1) {
        let event = event?;
        if event.step != next || event.what.is_none() {
            return Err(format!("after step {}, there is {event:?}", next - 1).into());
        }
        next += 1;
    }
    Ok(next)
}
