//! The check of `gradlet new`: makes a project for every board, builds it, and runs the one for the board that QEMU emulates.

use crate::models;
use anyhow::{Context, Result, bail, ensure};
use gradlet::device::AlignedBytes;
use gradlet::runtime::telemetry::{Decoder, Frame};
use gradlet::{Program, Session, ops};
use gradlet_tools::firmware::{self, Firmware, Project};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use xtask::boards::{self, M4F};
use xtask::setup::Toolchain;
use xtask::shell;

/// Rounds of the project for the emulated board before and after its restart, steps in a round, and steps between two reported losses.
const ROUNDS: [u32; 2] = [2, 2];
const ROUND: u32 = 1_000;
const REPORTED: u32 = 10;
const LIMIT: Duration = Duration::from_secs(300);

/// Makes and builds the project of every board with a small model. Compares the losses of the emulated board with the host's.
pub fn check() -> Result<()> {
    let artifact = models::of("mlp:64-32-10", &["infer", "train"])?;
    let folder = models::write("projects", &artifact)?;
    let (mut built, mut skipped) = (0, 0);
    for board in board_names()? {
        let made = Made::new(&board, &folder).with_context(|| format!("the project for {board}"))?;
        let Some(toolchain) = Toolchain::with_target(&made.project.triple) else {
            skipped += 1;
            println!("{board:<14} skipped: there is no Rust for {0}: run `rustup target add {0}`", made.project.triple);
            continue;
        };
        let before = cpu_seconds();
        let elf = made.build(&toolchain).with_context(|| format!("the project for {board}"))?;
        built += 1;
        println!("{board:<14} builds, in {:.0} CPU seconds", cpu_seconds() - before);
        if board == M4F.board {
            same_losses(elf, &made.folder, &artifact)?;
        }
    }
    println!("{built} projects built, {skipped} skipped");
    Ok(())
}

/// Returns the names of the boards: the folders of their templates.
fn board_names() -> Result<Vec<String>> {
    let folders = fs::read_dir(shell::root().join("cli/templates"))?;
    let mut names = folders.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<Vec<_>>>()?;
    names.retain(|name| !["common", "measure"].contains(&name.as_str()));
    names.sort();
    Ok(names)
}

/// The project of a board.
struct Made {
    /// Name of the project. A dependency can have the board's name.
    name: String,
    folder: PathBuf,
    project: Project,
}

impl Made {
    /// Makes the project with the model in `models`, by the command `gradlet new`. Checks that `cargo fmt` would not change it.
    fn new(board: &str, models: &Path) -> Result<Made> {
        let name = format!("{board}-firmware");
        let folder = models::empty(&boards::folder("projects")?.join(&name))?;
        let gradlet = std::env::current_exe()?.with_file_name(format!("gradlet{}", std::env::consts::EXE_SUFFIX));
        let mut new = Command::new(gradlet);
        new.args(["--quiet", "new", "--board", board, "--model"]).arg(models.join("model.grdl"));
        shell::run(new.arg("--core").arg(shell::root().join("core")).arg(&folder))?;
        for source in fs::read_dir(folder.join("src"))? {
            let source = source?.path();
            ensure!(formatted(&source)? == fs::read_to_string(&source)?, "`cargo fmt` would change {}", source.display());
        }
        let project = Project::open(&folder)?;
        Ok(Made { name, folder, project })
    }

    /// Builds the project with its committed versions, in the folder of the firmwares' builds: it shares libraries with a firmware for the
    /// same processor. Returns the path of the firmware.
    fn build(&self, toolchain: &Toolchain) -> Result<PathBuf> {
        let target = boards::builds();
        shell::run(self.project.cargo(toolchain, &target, "build").arg("--locked"))?;
        Ok(target.join(&self.project.triple).join("release").join(&self.name))
    }
}

/// Returns a source in rustfmt's default format. It goes through stdin, so that the settings of this checkout do not count.
fn formatted(source: &Path) -> Result<String> {
    let mut format = Command::new("rustfmt");
    format.args(["--edition", "2024"]).current_dir(std::env::temp_dir()).stdin(File::open(source)?);
    let output = format.output().context("cannot start rustfmt")?;
    ensure!(output.status.success(), "rustfmt cannot read {}: {}", source.display(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Runs the project of the emulated board. Checks that it restarts once, goes on from its checkpoint, and has the host's losses.
fn same_losses(elf: PathBuf, folder: &Path, artifact: &[u8]) -> Result<()> {
    let mut bytes = Vec::new();
    firmware::run_with_uart(&Firmware::new(elf, &M4F), folder, &[], LIMIT, &mut |more| bytes.extend(more))?.ok()?;
    let (mut losses, mut saved) = (Vec::new(), Vec::new());
    let mut decoder = Decoder::new(vec![0; 1 << 10]);
    decoder.feed(&bytes, &mut |received| match received.frame {
        Frame::Scalar { step, value, .. } => losses.push((step, value.to_bits())),
        Frame::Text { tag: "state", step, .. } => saved.push(step),
        _ => {}
    });
    let rounds = ROUNDS[0] + ROUNDS[1];
    let expected: Vec<u32> = (1..=rounds).map(|round| round * ROUND).collect();
    ensure!(saved == expected, "the project saved after the steps {saved:?}, not {expected:?}");
    ensure!(decoder.link().restarts == 1, "the project restarted {} times, not once", decoder.link().restarts);
    let host = host_losses(artifact, rounds * ROUND)?;
    if losses != host {
        let at = losses.iter().zip(&host).position(|(own, host)| own != host).unwrap_or(losses.len().min(host.len()));
        bail!("the losses differ from the host's at report {at}: {:?}, not {:?}", losses.get(at), host.get(at));
    }
    println!("{:<14} {} losses with the host's bits, before and after a restart", M4F.board, losses.len());
    Ok(())
}

/// Returns the reported losses of `steps` steps, with the data of the template's function `sample`.
fn host_losses(artifact: &[u8], steps: u32) -> Result<Vec<(u32, u32)>> {
    let artifact = AlignedBytes::from(artifact);
    let program = Program::load(&artifact, ops::KERNELS, &["train"])?;
    let train = program.signature("train")?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let mut losses = Vec::new();
    for step in 0..steps {
        let (class, mut noise) = (step % 2, step + 1);
        let input = session.input_mut::<f32>(train, 0)?;
        let half = input.len() / 2;
        for (index, element) in input.iter_mut().enumerate() {
            noise ^= noise << 13;
            noise ^= noise >> 17;
            noise ^= noise << 5;
            let random = (noise >> 8) as f32 / (1 << 24) as f32;
            *element = 0.5 * random + if (index < half) == (class == 0) { 0.5 } else { 0.0 };
        }
        session.input_mut::<i32>(train, 1)?.fill(class as i32);
        session.run(train)?;
        if step % REPORTED == 0 {
            losses.push((step, session.output::<f32>(train, 0)?[0].to_bits()));
        }
    }
    Ok(losses)
}

/// Returns the CPU time of the processes that this one has waited for, in seconds, or 0 where the system does not tell it.
fn cpu_seconds() -> f64 {
    /// Ticks of the clock in /proc, in a second.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in parentheses, can have spaces. After it, the times of children are the 14th and the 15th number.
    let numbers = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    numbers.skip(13).take(2).filter_map(|number| number.parse::<f64>().ok()).sum::<f64>() / TICKS
}
