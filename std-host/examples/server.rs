//! Serves the TensorFlow handbook's convolutional network to many client threads: with one session, with a session for each client, and
//! with a batcher. Prints the latencies and the throughput.
//!
//! `cargo run --release -p gradlet --example server -- [--device GPU:0] [--clients 1,8,32] [--logdir DIR]`; GPUs need `--features cuda`.

/// The model.
#[allow(dead_code)]
#[path = "cnn.rs"]
mod cnn;

use clap::Parser;
use cnn::Cnn;
use gradlet::artifact::Loaded;
use gradlet::layers::Layer;
use gradlet::serve::{Batcher, BatchingOptions, Latencies};
use gradlet::{Artifact, Device, Eager, Error, Function, Result, Scope, Tensor, config, io, summary};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Serves a network to client threads, and measures the time of their requests.
#[derive(Parser)]
pub struct Arguments {
    /// Artifact to serve. Without it, the example exports an untrained network, and serves that
    #[arg(long)]
    artifact: Option<PathBuf>,
    /// Signatures that differ only in their rows. The first one serves single requests, so it needs one row
    #[arg(long, value_delimiter = ',', default_value = "infer_1,infer_4,infer_8,infer_16,infer_32")]
    signatures: Vec<String>,
    /// Logical device that computes
    #[arg(long, default_value = "CPU:0")]
    device: String,
    /// Numbers of client threads
    #[arg(long, value_delimiter = ',', default_value = "1,8,32")]
    clients: Vec<usize>,
    /// Time of each measurement, in seconds
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Longest time that a batch waits for further requests, in milliseconds
    #[arg(long, default_value_t = 1.0)]
    batch_timeout: f64,
    /// Number of threads that run batches
    #[arg(long, default_value_t = 2)]
    num_batch_threads: usize,
    /// Folder for TensorBoard, which gets the figures by number of clients
    #[arg(long)]
    logdir: Option<PathBuf>,
}

/// Exports an untrained network, with a signature for each number of rows.
fn export(path: &Path) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let (scope, model) = (Eager::with_seed(&gradlet::cpu(), 1), Cnn::default());
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| model.call(scope, &x));
    let mut artifact = Artifact::new();
    for rows in [1, 4, 8, 16, 32] {
        let x = Tensor::full(&scope.device(), 0.0f32, &[rows, 28, 28, 1])?;
        artifact.signature(&format!("infer_{rows}"), &*infer.concrete(&scope, &x)?, &["images"], &["probabilities"])?;
    }
    Ok(io::write_whole(path, &artifact.to_bytes()?)?)
}

/// The figures of one measurement.
struct Measured {
    latencies: Latencies,
    elapsed: Duration,
    /// Mean number of rows in a batch.
    rows: f64,
}

/// Calls `request` again and again in each of `clients` threads, with the number of the thread.
fn measure(clients: usize, time: Duration, request: impl Fn(usize) -> Result<()> + Sync) -> Result<Measured> {
    let begin = Instant::now();
    let client = |index: usize| {
        let mut own = Latencies::default();
        while begin.elapsed() < time {
            let start = Instant::now();
            request(index)?;
            own.record(start.elapsed());
        }
        Ok::<_, Error>(own)
    };
    let mut latencies = Latencies::default();
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..clients).map(|index| threads.spawn(move || client(index))).collect();
        let merged = |client: std::thread::ScopedJoinHandle<'_, Result<Latencies>>| client.join().unwrap_or(Err(Error::Internal));
        clients.into_iter().try_for_each(|client| merged(client).map(|own| latencies.merge(&own)))
    })?;
    Ok(Measured { latencies, elapsed: begin.elapsed(), rows: 1.0 })
}

/// A loaded artifact with its first signature and a request of one row, in memory of the host.
struct Served {
    loaded: Loaded,
    first: String,
    device: Device,
    x: Vec<Tensor>,
}

impl Served {
    fn new(path: &Path, arguments: &Arguments) -> std::result::Result<Served, Box<dyn std::error::Error>> {
        let device = config::context().device(&arguments.device)?;
        let loaded = gradlet::load(path)?.on(&device)?;
        let first = arguments.signatures.first().ok_or("name at least one signature")?.clone();
        let zeros = loaded.signature(&first)?.inputs().map(|(_, tensor_type)| Tensor::zeros(&gradlet::cpu(), tensor_type));
        let x = zeros.collect::<Result<_>>()?;
        Ok(Served { loaded, first, device, x })
    }

    /// Runs one request in a session, from tensors of the host to bytes of the host.
    fn alone(&self, session: &Loaded) -> Result<()> {
        let x = self.x.iter().map(|x| x.to(&self.device)).collect::<Result<Vec<_>>>()?;
        session.signature(&self.first)?.call(&x)?.iter().try_for_each(|y| y.bytes().map(drop))
    }

    /// Measures one way to serve: `one session`, `a session each`, or `batched`.
    fn measure(&self, way: &str, clients: usize, arguments: &Arguments) -> Result<Measured> {
        let (time, warm) = (Duration::from_secs_f64(arguments.seconds), Duration::from_secs_f64(arguments.seconds / 5.0));
        let run = |request: &(dyn Fn(usize) -> Result<()> + Sync)| {
            measure(clients, warm, request)?;
            measure(clients, time, request)
        };
        match way {
            "one session" => run(&|_| self.alone(&self.loaded)),
            "a session each" => {
                let sessions = (0..clients).map(|_| self.loaded.session()).collect::<Result<Vec<_>>>()?;
                run(&|index| self.alone(&sessions[index]))
            }
            _ => {
                let batch_timeout = Duration::from_secs_f64(arguments.batch_timeout / 1000.0);
                let num_batch_threads = arguments.num_batch_threads;
                let options = BatchingOptions { batch_timeout, num_batch_threads, ..BatchingOptions::default() };
                let names: Vec<&str> = arguments.signatures.iter().map(String::as_str).collect();
                let batcher = Batcher::of(&self.loaded, &names, options)?;
                measure(clients, warm, |_| Ok(batcher.call(&self.x).map(drop)?))?;
                batcher.reset_statistics();
                let measured = measure(clients, time, |_| Ok(batcher.call(&self.x).map(drop)?))?;
                Ok(Measured { rows: batcher.statistics().mean_rows(), ..measured })
            }
        }
    }
}

/// Measures each way with each number of clients, and prints a table.
pub fn run(arguments: &Arguments, out: &mut dyn Write) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("gradlet-server-{}", std::process::id()));
    let exported = folder.join("cnn.grdl");
    let path = arguments.artifact.as_deref().unwrap_or(&exported);
    if arguments.artifact.is_none() {
        std::fs::create_dir_all(&folder)?;
        export(path)?;
    }
    let served = Served::new(path, arguments);
    let _ = std::fs::remove_dir_all(&folder);
    let served = served?;
    let writer = arguments.logdir.as_ref().map(summary::create_file_writer).transpose()?;
    let Arguments { device, batch_timeout, num_batch_threads, .. } = arguments;
    writeln!(out, "{device}; a batch waits at most {batch_timeout} ms, {num_batch_threads} threads run batches")?;
    writeln!(out, "clients  way             p50 ms   p95 ms   p99 ms  requests/s  rows/batch")?;
    for &clients in &arguments.clients {
        for way in ["one session", "a session each", "batched"] {
            let Measured { latencies, elapsed, rows } = served.measure(way, clients, arguments)?;
            let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|percent| latencies.percentile(percent).as_secs_f64() * 1000.0);
            let rate = latencies.count() as f64 / elapsed.as_secs_f64();
            writeln!(out, "{clients:7}  {way:14} {p50:7.2}  {p95:7.2}  {p99:7.2}  {rate:10.0}  {rows:10.1}")?;
            for (name, value) in [("p50_ms", p50), ("p95_ms", p95), ("p99_ms", p99), ("requests_per_second", rate), ("rows", rows)] {
                writer.iter().try_for_each(|writer| writer.scalar(&format!("{way}/{name}"), value, clients as i64))?;
            }
        }
    }
    Ok(writer.iter().try_for_each(|writer| writer.close())?)
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    run(&Arguments::parse(), &mut std::io::stdout())
}
