//! The example of a Jetson on an emulated integrated GPU: it infers within its limit, trains, saves, restores, and writes its curves.

#[allow(dead_code)]
#[path = "../../../../std-host/examples/jetson.rs"]
mod example;

use clap::Parser;
use gradlet::summary::Run;
use gradlet_tests::gpu;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use xtask::jetson;

/// Arguments of the example in the test's own process.
const ARGUMENTS: &str = "GRADLET_JETSON_ARGUMENTS";
/// A Jetson Orin.
const ORIN: &str = "integrated=1 name=Orin capability=87 driver=11040 memory=67108864 terminated=1 uninitialised=1 global_races=1";
/// Limits of the two devices in MiB.
const LIMITS: [f64; 2] = [1.0, 2.0];

/// A way to run the example.
trait Machine {
    /// Returns a command that runs the example with these arguments, separated by spaces.
    fn command(&self, arguments: &str) -> Command;
    /// Returns the file of the emulated driver.
    fn driver(&self) -> PathBuf;
}

/// A process of this test program.
struct Own;

impl Machine for Own {
    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cuda::jetson::in_a_process", "--ignored", "--nocapture"]).env(ARGUMENTS, arguments);
        command
    }

    fn driver(&self) -> PathBuf {
        gpu::built().unwrap()
    }
}

/// A process of QEMU, with the program and the driver of a Jetson.
struct Arm;

impl Machine for Arm {
    fn command(&self, arguments: &str) -> Command {
        let mut words = jetson::RUNNER.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).arg(jetson::programs().join("examples/jetson")).args(arguments.split_whitespace());
        command
    }

    fn driver(&self) -> PathBuf {
        jetson::programs().join("libgradlet_cuda_emulator.so")
    }
}

/// Runs the example in `folder`, and returns what it prints.
fn run(machine: &dyn Machine, folder: &Path, steps: u32) -> String {
    let library = folder.join("lib");
    fs::create_dir_all(&library).unwrap();
    fs::copy(machine.driver(), library.join("libcuda.so.1")).unwrap();
    let [infer, train] = LIMITS;
    let model = format!("--model mlp:64-16-4 --batch 4 --every 3 --infer-memory {infer} --train-memory {train}");
    let mut command = machine.command(&format!("--folder {} --steps {steps} {model}", folder.display()));
    let output = command.env("LD_LIBRARY_PATH", &library).env("GRADLET_CUDA_EMULATOR", ORIN).output().unwrap();
    let [said, complained] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{said}{complained}");
    assert!(!complained.contains("CUDA emulator"), "{complained}");
    said
}

/// Runs the example twice in `folder`, and checks its results.
fn check(machine: &dyn Machine, folder: &Path) {
    let first = run(machine, folder, 8);
    assert!(!first.contains("the CPU computes") && !first.contains("continuing"), "{first}");
    let second = run(machine, folder, 4);
    assert!(second.contains("continuing with") && second.contains("ckpt-8") && second.contains("step 12: loss"), "{second}");

    let logs = Run::read(&folder.join("logs")).unwrap();
    let curve = |tag: &str| -> Vec<(i64, f64)> {
        let series = logs.series(tag).unwrap_or_else(|| panic!("there is no curve {tag}"));
        series.points.iter().map(|point| (point.step, point.number().unwrap())).collect()
    };
    let steps = |tag: &str| curve(tag).into_iter().map(|(step, _)| step).collect::<Vec<i64>>();
    assert_eq!(steps("loss"), (1..=12).collect::<Vec<i64>>());
    let losses: Vec<f64> = curve("loss").into_iter().map(|(_, loss)| loss).collect();
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    assert!(mean(&losses[9..]) < 0.6 * mean(&losses[..3]), "{losses:?}");
    for (tag, limit) in [("infer_mib", LIMITS[0]), ("train_mib", LIMITS[1])] {
        assert_eq!(steps(tag), [3, 6, 8, 9, 12], "{tag}");
        assert!(curve(tag).iter().all(|(_, used)| (0.001..=limit).contains(used)), "{tag}: {:?}", curve(tag));
    }
    assert!(curve("latency_p50_ms").iter().zip(curve("latency_p99_ms")).all(|((_, p50), (_, p99))| 0.0 < *p50 && *p50 <= p99));
    assert!(curve("accuracy").iter().all(|(_, accuracy)| (0.0..=1.0).contains(accuracy)));
}

/// Returns the weights after 12 steps.
fn weights(folder: &Path) -> Vec<u8> {
    fs::read(folder.join("checkpoints/ckpt-12.data-00000-of-00001")).unwrap()
}

#[test]
fn infers_within_its_limit_and_learns() {
    let folder = tempfile::tempdir().unwrap();
    check(&Own, folder.path());
    assert!(weights(folder.path()).len() > 4 * (64 * 16 + 16 + 16 * 4 + 4));
}

/// Both machines compute the same bits.
#[test]
#[ignore = "`cargo xtask test` builds the example for a Jetson's CPU, and starts this"]
fn on_a_jetsons_cpu() {
    let [own, arm] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    check(&Own, own.path());
    check(&Arm, arm.path());
    assert!(weights(own.path()) == weights(arm.path()), "the weights differ");
}

/// Runs in the process that the tests above start.
#[test]
#[ignore = "the tests above start it"]
fn in_a_process() {
    let words = std::env::var(ARGUMENTS).unwrap();
    let arguments = example::Arguments::parse_from(std::iter::once("jetson").chain(words.split_whitespace()));
    example::run(&arguments, &AtomicBool::new(false), &mut std::io::stdout()).unwrap();
}
