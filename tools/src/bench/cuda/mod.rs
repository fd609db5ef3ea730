//! Benchmark on an NVIDIA GPU. gradlet, PyTorch and JAX take turns on one machine.

mod machine;
mod plot;
mod report;
mod rows;

use super::{Late, Runner, build, write_json, write_script};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use machine::Machine;
use report::{Line, Program, Table};
use rows::{Kind, Row, rows};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
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
    let mut table = Table { machine, programs, lines: Vec::new(), rounds: options.rounds.max(1), quick: options.quick };
    measure(rows, &mut turns, options, |line| {
        table.lines.push(line);
        // A long race that ends early has its table.
        if options.write { write(&table) } else { Ok(()) }
    })?;
    print!("{}", table.markdown());
    if options.write {
        pages(&table).iter().for_each(|page| println!("wrote {}", page.display()));
    }
    write_json(options.json.as_deref(), &table.figures())
}

/// A program that takes turns. An absent one has no runner.
struct Turn {
    program: Program,
    runner: Option<Runner>,
    /// The command of a peer: a Python, a script and its arguments.
    command: Option<(PathBuf, PathBuf, &'static [&'static str])>,
    /// Runners that have prepared a row, with its request.
    prepared: Vec<(String, Result<Runner>)>,
    patience: Duration,
}

/// Builds and starts gradlet's program, and starts the peers.
fn start(options: &CudaOptions) -> Result<Vec<Turn>> {
    let own = Runner::start(&mut Command::new(build("bench_cuda")?))?;
    let mut turns = vec![Turn::new("gradlet", "", Some(own), options)];
    let folder = shell::root().join("target/bench-cuda");
    for (name, text) in SCRIPTS {
        write_script(&folder, name, text)?;
    }
    for Peer { name, script, arguments, install } in PEERS {
        let (python, script) = (options.python.clone(), folder.join(script));
        let mut turn = Turn::new(name, install, Runner::start(&mut command(&python, &script, arguments)).ok(), options);
        turn.command = turn.runner.is_some().then_some((python, script, arguments));
        turns.push(turn);
    }
    Ok(turns)
}

fn command(python: &Path, script: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(python);
    command.arg(script).args(arguments);
    command
}

impl Turn {
    /// Takes a program whose first line is `ready` with its version, or the reason why it is not.
    fn new(name: &str, install: &str, runner: Option<Runner>, options: &CudaOptions) -> Turn {
        let said = runner.as_ref().map_or("not installed", |runner| runner.ready.trim());
        let state = said.strip_prefix("ready ").map(String::from).ok_or_else(|| said.to_string());
        let (runner, patience) = (runner.filter(|_| state.is_ok()), Duration::from_secs(options.patience));
        let program = Program { name: name.into(), install: install.into(), state };
        Turn { program, runner, command: None, prepared: Vec::new(), patience }
    }

    /// Starts a process for each row, which then prepares it.
    fn prepare(&mut self, rows: &[Row]) {
        let Some((python, script, arguments)) = &self.command else { return };
        let prepare = |row: &Row| {
            let mut runner = Runner::spawn(&mut command(python, script, arguments))?;
            runner.request(&row.request, 1)?;
            Ok(runner)
        };
        self.prepared = rows.iter().map(|row| (row.request.clone(), prepare(row))).collect();
    }

    /// Waits until the processes have prepared their rows, at most until `end`.
    fn wait(&mut self, end: Instant) {
        let patience = self.patience.as_secs();
        for (_, prepared) in &mut self.prepared {
            let Ok(runner) = prepared else { continue };
            let left = || end.saturating_duration_since(Instant::now());
            if let Err(error) = runner.answer(left()).and_then(|_| runner.answer(left())) {
                *prepared = Err(if error.is::<Late>() { anyhow::anyhow!("not prepared in {patience} s") } else { error });
            }
        }
    }

    /// Adds the times of one turn to `times`, until the program fails.
    fn take(&mut self, row: &Row, steps: usize, times: &mut std::result::Result<Vec<f64>, String>) {
        let Ok(known) = times.as_mut() else { return };
        let prepared = self.prepared.iter_mut().find(|(request, _)| *request == row.request).map(|(_, runner)| runner);
        let new = match (prepared, &mut self.runner) {
            (Some(Ok(runner)), _) | (None, Some(runner)) => runner.ask_all(&row.request, steps, self.patience),
            (Some(Err(error)), _) => Err(anyhow::anyhow!("{error:#}")),
            (None, None) => return,
        };
        match new {
            Ok(new) => known.extend(new),
            Err(error) => {
                // Another process takes the next rows, because this one still works.
                if error.is::<Late>()
                    && let Some((python, script, arguments)) = &self.command
                {
                    self.runner = Runner::start(&mut command(python, script, arguments)).ok();
                }
                *times = Err(format!("{error:#}"));
            }
        }
    }
}

/// Measures the rows one after another, and calls `add` with each. The programs take turns at each row; every other round, they do so in
/// the opposite order.
fn measure(rows: Vec<Row>, turns: &mut [Turn], options: &CudaOptions, mut add: impl FnMut(Line) -> Result<()>) -> Result<()> {
    let progress = ProgressBar::new((rows.len() * options.rounds.max(1)) as u64);
    progress.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {msg}, {eta} left")?);
    let (models, mut batch): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| options.jobs > 1 && matches!(row.kind, Kind::Training | Kind::Latency));
    let mut models = models.into_iter().peekable();
    while !batch.is_empty() || models.peek().is_some() {
        let prepared: Vec<Row> = models.by_ref().take(options.jobs).collect();
        progress.set_message("the peers prepare");
        turns.iter_mut().for_each(|turn| turn.prepare(&prepared));
        let end = Instant::now() + Duration::from_secs(options.patience);
        turns.iter_mut().for_each(|turn| turn.wait(end));
        for row in batch.drain(..).chain(prepared) {
            progress.set_message(row.request.clone());
            add(race(row, turns, options, &progress))?;
        }
    }
    progress.finish_and_clear();
    Ok(())
}

/// Measures a row.
fn race(row: Row, turns: &mut [Turn], options: &CudaOptions, progress: &ProgressBar) -> Line {
    let mut times = vec![Ok(Vec::new()); turns.len()];
    for round in 0..options.rounds.max(1) {
        let mut order: Vec<usize> = (0..turns.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        order.into_iter().for_each(|index| turns[index].take(&row, steps(row.kind, options.quick), &mut times[index]));
        progress.inc(1);
    }
    Line { row, times }
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

/// Returns the paths of the table, the figures and the plot.
fn pages(table: &Table) -> [PathBuf; 3] {
    let (folder, name) = (shell::root().join("docs/gpu"), table.machine.file_name());
    ["md", "json", "svg"].map(|ending| folder.join(format!("{name}.{ending}")))
}

/// Writes the table, the figures and the plot.
fn write(table: &Table) -> Result<()> {
    let page = format!("{}\n![The figures as bars]({}.svg)\n", table.markdown(), table.machine.file_name());
    let figures = serde_json::to_string_pretty(&table.figures())? + "\n";
    for (path, text) in pages(table).iter().zip([page, figures, plot::svg(table)]) {
        let written = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(path, text));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
