//! Benchmark on an NVIDIA GPU. gradlet, PyTorch and JAX take turns on one machine.

mod machine;
mod plot;
mod report;
mod rows;

use super::{Runner, build, write_json, write_script};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use machine::Machine;
use report::{Line, Program, Table};
use rows::{Kind, Row, rows};
use std::fs;
use std::process::Command;
use xtask::cli::CudaOptions;
use xtask::shell;

/// The scripts of the peers. Each imports the first one.
const SCRIPTS: [(&str, &str); 3] = [
    ("measure.py", include_str!("measure.py")),
    ("with_pytorch.py", include_str!("with_pytorch.py")),
    ("with_jax.py", include_str!("with_jax.py")),
];

/// A program beside gradlet.
struct Peer {
    name: &'static str,
    script: &'static str,
    arguments: &'static [&'static str],
    /// Command that installs the library.
    install: &'static str,
}

const PYTORCH: Peer = Peer { name: "PyTorch", script: "with_pytorch.py", arguments: &["--mode", "eager"], install: "pip install torch" };

/// The peers in the order of the table's columns.
const PEERS: [Peer; 3] = [
    PYTORCH,
    Peer { name: "compiled", arguments: &["--mode", "compiled"], ..PYTORCH },
    Peer { name: "JAX", script: "with_jax.py", arguments: &[], install: "pip install \"jax[cuda12]\"" },
];

/// Runs `cargo xtask bench cuda`.
pub fn run(options: &CudaOptions) -> Result<()> {
    let machine = Machine::find()?;
    if options.write {
        machine.ensure_real()?;
    }
    let is_wanted = |row: &Row| options.rows.is_empty() || options.rows.iter().any(|word| row.request.contains(word));
    let rows: Vec<Row> = rows(options.quick).into_iter().filter(is_wanted).collect();
    ensure!(!rows.is_empty(), "no row has one of the words {:?} in its name; a row is like gemm/tf32/1024", options.rows);
    let mut turns = start(options)?;
    let programs = turns.iter().map(|turn| turn.program.clone()).collect();
    let table =
        Table { machine, programs, lines: measure(rows, &mut turns, options)?, rounds: options.rounds.max(1), quick: options.quick };
    print!("{}", table.markdown());
    write_json(options.json.as_deref(), &table.figures())?;
    if options.write { write(&table) } else { Ok(()) }
}

/// A program that takes turns. An absent one has no runner.
struct Turn {
    program: Program,
    runner: Option<Runner>,
}

/// Builds and starts gradlet's program, and starts the peers.
fn start(options: &CudaOptions) -> Result<Vec<Turn>> {
    let own = Runner::start(&mut Command::new(build("bench_cuda")?))?;
    let mut turns = vec![Turn::new("gradlet", "", Some(own))];
    let folder = shell::root().join("target/bench-cuda");
    for (name, text) in SCRIPTS {
        write_script(&folder, name, text)?;
    }
    for Peer { name, script, arguments, install } in PEERS {
        let mut command = Command::new(&options.python);
        turns.push(Turn::new(name, install, Runner::start(command.arg(folder.join(script)).args(arguments)).ok()));
    }
    Ok(turns)
}

impl Turn {
    /// Takes a program whose first line is `ready` with its version, or the reason why it is not.
    fn new(name: &str, install: &str, runner: Option<Runner>) -> Turn {
        let said = runner.as_ref().map_or("not installed", |runner| runner.ready.trim());
        let state = said.strip_prefix("ready ").map(String::from).ok_or_else(|| said.to_string());
        let runner = runner.filter(|_| state.is_ok());
        Turn { program: Program { name: name.into(), install: install.into(), state }, runner }
    }

    /// Adds the times of one turn to `times`, until the program fails.
    fn take(&mut self, row: &Row, steps: usize, times: &mut std::result::Result<Vec<f64>, String>) {
        let (Some(runner), Ok(known)) = (&mut self.runner, times.as_mut()) else { return };
        match runner.ask_all(&row.request, steps) {
            Ok(new) => known.extend(new),
            Err(error) => *times = Err(format!("{error:#}")),
        }
    }
}

/// Measures the rows one after another. The programs take turns at each; every other round, they do so in the opposite order.
fn measure(rows: Vec<Row>, turns: &mut [Turn], options: &CudaOptions) -> Result<Vec<Line>> {
    let rounds = options.rounds.max(1);
    let progress = ProgressBar::new((rows.len() * rounds) as u64);
    progress.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left")?);
    let mut lines = Vec::new();
    for row in rows {
        progress.set_message(row.request.clone());
        let mut times = vec![Ok(Vec::new()); turns.len()];
        for round in 0..rounds {
            let mut order: Vec<usize> = (0..turns.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            order.into_iter().for_each(|index| turns[index].take(&row, steps(row.kind, options.quick), &mut times[index]));
            progress.inc(1);
        }
        lines.push(Line { row, times });
    }
    progress.finish_and_clear();
    Ok(lines)
}

/// Returns the number of measurements in a turn.
fn steps(kind: Kind, quick: bool) -> usize {
    match kind {
        _ if quick => 1,
        Kind::Products | Kind::Memory => 5,
        Kind::Training => 20,
        Kind::Latency => 50,
    }
}

/// Writes the table, the figures and the plot.
fn write(table: &Table) -> Result<()> {
    let folder = shell::root().join("docs/gpu");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let name = table.machine.file_name();
    let page = format!("{}\n![The figures as bars]({name}.svg)\n", table.markdown());
    let figures = serde_json::to_string_pretty(&table.figures())? + "\n";
    for (ending, text) in [("md", page), ("json", figures), ("svg", plot::svg(table))] {
        let path = folder.join(format!("{name}.{ending}"));
        fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        println!("wrote {}", path.display());
    }
    Ok(())
}
