//! Tests of `gradlet monitor`: the data from any kind of line become events.

use assert_cmd::Command;
use gradlet::monitor::{Monitor, Report};
use gradlet::runtime::telemetry::Profiler;
use gradlet::runtime::{Profile, Telemetry};
use gradlet::summary::{self, Run};
use std::io::Write;
use std::path::Path;

/// Output of a command, as text.
struct Output {
    stdout: String,
    stderr: String,
    success: bool,
}

impl From<std::process::Output> for Output {
    fn from(output: std::process::Output) -> Output {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output { stdout: text(output.stdout), stderr: text(output.stderr), success: output.status.success() }
    }
}

fn monitor(logdir: &Path, words: &[&str], stdin: &[u8]) -> Output {
    let mut command = Command::cargo_bin("gradlet").unwrap();
    command.args(["monitor", "--logdir"]).arg(logdir).args(words).write_stdin(stdin);
    command.output().unwrap().into()
}

/// Returns the data that a device sends in three steps, starting with step `first`.
fn sent(first: u32) -> Vec<u8> {
    let (mut line, mut buffer) = (vec![0; 4096], [0; 4096]);
    let mut telemetry = Telemetry::new(&mut line[..], &mut buffer);
    telemetry.hello("board", "cycles", 1_000_000, None);
    for step in first..first + 3 {
        telemetry.scalar("loss", step, 1.0 / (step + 1) as f32);
        telemetry.progress(step - first + 1, 3, 0);
    }
    telemetry.text("state", first, "warm\x1b[2J");
    telemetry.flush().unwrap();
    line
}

fn losses(logdir: &Path) -> Vec<(i64, f64)> {
    let run = Run::read(logdir).unwrap();
    let points = run.series("loss").map_or(&[][..], |series| &series.points[..]);
    points.iter().map(|point| (point.step, point.number().unwrap())).collect()
}

#[test]
fn the_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let output = monitor(folder.path(), &["--stdin"], &sent(0));
    assert!(output.success, "{}", output.stderr);
    assert_eq!(output.stdout, "frames received: 8, lost: 0, corrupt pieces: 0, dropped by the device: 0\n");
    let lines: Vec<&str> = output.stderr.lines().collect();
    let expected = [
        "board: the clock counts cycles, 1000000 per second",
        "epoch 1: 1/3 - loss: 1.0000 ",
        "epoch 1: 3/3 - loss: 0.3333 ",
        "state at step 0: warm [2J",
        "loss: 0.3333 ",
    ];
    assert_eq!(lines, expected);
    assert_eq!(losses(folder.path()), [(0, 1.0), (1, 0.5), (2, f64::from(1f32 / 3.0))]);
    assert_eq!(monitor(folder.path(), &["--stdin", "--quiet"], &sent(0)).stdout, "");
}

/// A device restarts and repeats some steps. The earlier values of these steps are discarded, as in TensorBoard.
#[test]
fn a_new_start() {
    let folder = tempfile::tempdir().unwrap();
    let output = monitor(folder.path(), &["--stdin"], &[sent(0), sent(1)].concat());
    assert!(
        output.stdout.contains("frames received: 16, lost: 0") && output.stdout.contains("restarts of the device: 1"),
        "{}",
        output.stdout
    );
    assert_eq!(losses(folder.path()).iter().map(|loss| loss.0).collect::<Vec<_>>(), [0, 1, 2, 3]);
}

/// Feeds these bytes to the library's monitor, which writes events to `logdir`. Returns the monitor's report.
fn made(bytes: &[u8], logdir: &Path) -> Report {
    let mut monitor = Monitor::new(summary::create_file_writer(logdir).unwrap());
    monitor.feed(bytes, &mut |_| ()).unwrap();
    monitor.finish().unwrap()
}

/// After a restart, one tag continues at a later step, and another repeats its steps. The earlier values of the repeated steps are
/// discarded.
#[test]
fn each_tag_starts_anew() {
    let (mut line, mut buffer) = (vec![0; 4096], [0; 4096]);
    let mut lines = Vec::new();
    for (accuracy, value) in [(10, 0.5), (20, 0.25)] {
        line.fill(0);
        let mut telemetry = Telemetry::new(&mut line[..], &mut buffer);
        telemetry.scalar("accuracy", accuracy, 0.9);
        (1..4).for_each(|step| telemetry.scalar("loss", step, value));
        telemetry.flush().unwrap();
        lines.extend(&line);
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(made(&lines, folder.path()).link.restarts, 1);
    assert_eq!(losses(folder.path()), [(1, 0.25), (2, 0.25), (3, 0.25)]);
}

/// Sends the profile of a signature with 20 instructions. It takes two frames.
fn counted(telemetry: &mut Telemetry<'_, &mut [u8]>, step: u32) {
    let (mut now, mut counts) = (0, [0; 20]);
    let clock = || {
        now += 10;
        now
    };
    let mut profiler = Profiler::new(clock, &mut counts);
    profiler.begin(19);
    profiler.end(19);
    telemetry.counts("train", step, &profiler);
}

#[test]
fn profiles_wait_for_their_clock_but_not_for_ever() {
    let sent = |send: &dyn Fn(&mut Telemetry<'_, &mut [u8]>)| {
        let (mut line, mut buffer) = (vec![0; 4096], [0; 4096]);
        let mut telemetry = Telemetry::new(&mut line[..], &mut buffer);
        send(&mut telemetry);
        telemetry.flush().unwrap();
        line
    };
    let names = |report: &Report| -> Vec<String> {
        report.profiles.iter().map(|path| path.parent().unwrap().file_name().unwrap().to_str().unwrap().into()).collect()
    };
    let folder = tempfile::tempdir().unwrap();
    let late = sent(&|telemetry| {
        (1..=5).for_each(|step| counted(telemetry, step));
        telemetry.hello("board", "cycles", 1000, None);
    });
    let report = made(&late, folder.path());
    assert_eq!((names(&report), report.unclocked), (vec!["train-5".to_string()], 4));
    // One frame of the first run is lost.
    let whole = sent(&|telemetry| {
        telemetry.hello("board", "cycles", 1000, None);
        (1..=2).for_each(|step| counted(telemetry, step));
    });
    let frames: Vec<&[u8]> = whole.split_inclusive(|&byte| byte == 0).collect();
    let report = made(&[&frames[..3], &frames[4..]].concat().concat(), folder.path());
    assert_eq!((names(&report), report.link.lost), (vec!["train-1".to_string(), "train-2".to_string()], 1));
}

#[test]
fn a_server() {
    let folder = tempfile::tempdir().unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || listener.accept().unwrap().0.write_all(&sent(0)).unwrap());
    let output = monitor(folder.path(), &["--tcp", &address], &[]);
    server.join().unwrap();
    assert!(output.success && output.stdout.contains("frames received: 8"), "{}", output.stderr);
    let output = monitor(folder.path(), &["--tcp", "127.0.0.1:1"], &[]);
    assert!(!output.success && output.stderr.contains("cannot connect to 127.0.0.1:1"), "{}", output.stderr);
}

#[test]
fn errors_say_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let error = |words: &[&str], stdin: &[u8]| {
        let output = monitor(folder.path(), words, stdin);
        assert!(!output.success);
        output.stderr
    };
    let noise = error(&["--stdin"], &[1; 100]);
    assert!(noise.contains("100 bytes were received, but they contain no frame"), "{noise}");
    assert!(error(&["--stdin", "--model", "Cargo.toml"], &[]).contains("Cargo.toml: not a gradlet artifact"));
    assert!(error(&[], &[]).contains("--port"));
    assert!(error(&["--stdin", "--baud", "9600"], &[]).contains("--baud"));
    #[cfg(unix)]
    {
        assert!(error(&["--port", "/dev/null"], &[]).contains("/dev/null: is not a serial port"));
        assert!(error(&["--port", "/dev/none"], &[]).contains("/dev/none: No such file"));
        assert!(error(&["--socket", "/dev/none"], &[]).contains("cannot connect to /dev/none"));
        // If the line cannot be opened, no file is created.
        let empty = tempfile::tempdir().unwrap();
        assert!(!monitor(empty.path(), &["--port", "/dev/none"], &[]).success);
        assert_eq!(std::fs::read_dir(empty.path()).unwrap().count(), 0);
    }
}

/// A pseudo terminal replaces the serial port. Ctrl-C ends the command without losing data.
#[cfg(unix)]
#[test]
fn a_port_until_ctrl_c() {
    use rustix::process::{Pid, Signal, kill_process};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    use std::process::Stdio;
    use std::time::{Duration, Instant};
    let folder = tempfile::tempdir().unwrap();
    let mut port = std::fs::File::from(openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap());
    grantpt(&port).unwrap();
    unlockpt(&port).unwrap();
    let name = ptsname(&port, Vec::new()).unwrap().into_string().unwrap();
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin("gradlet"));
    command.args(["monitor", "--port", &name, "--baud", "9600", "--logdir"]).arg(folder.path());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (begin, mut steps) = (Instant::now(), 0);
    let mut send = || {
        port.write_all(&sent(steps)).unwrap();
        steps += 3;
        i64::from(steps) - 1
    };
    while Run::read(folder.path()).map_or(true, |run| run.series("loss").is_none()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "nothing came");
        send();
        std::thread::sleep(Duration::from_millis(100));
    }
    let last = send();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = Output::from(child.wait_with_output().unwrap());
    assert!(output.success && output.stdout.contains("lost: 0,"), "{} {}", output.stdout, output.stderr);
    assert_eq!(losses(folder.path()).last().map(|loss| loss.0), Some(last));
}
