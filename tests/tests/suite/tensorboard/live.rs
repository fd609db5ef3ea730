//! Test of TensorBoard during the training of an emulated microcontroller.

use crate::tensorboard::browser::Browser;
use crate::tensorboard::server::TensorBoard;
use gradlet::monitor::Monitor;
use gradlet::runtime::telemetry::Frame;
use gradlet::summary;
use std::collections::HashMap;
use std::io::Read;
use std::process::{ChildStdout, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The first tag that the device sends.
const TAG: &str = "train_head/loss";
/// Number of losses to wait for before the browser opens the page.
const ENOUGH: usize = 50;

/// Passes the device's bytes to the monitor, and records the losses by step.
fn listen(mut line: ChildStdout, mut monitor: Monitor, losses: &Mutex<HashMap<u32, f32>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = line.read(&mut buffer) {
        let told = monitor.feed(&buffer[..count], &mut |received| {
            if let Frame::Scalar { tag: TAG, step, value } = received.frame {
                losses.lock().unwrap().insert(step, value);
            }
        });
        told.unwrap();
    }
    let report = monitor.finish().unwrap();
    assert_eq!((report.link.lost, report.link.corrupt, report.dropped), (0, 0, 0), "{report}");
}

#[test]
#[ignore = "needs TensorBoard, Chromium and QEMU: `cargo xtask test TensorBoard` installs and runs it"]
fn the_curve_of_a_device_appears_while_it_learns() {
    // The emulator's command, one word per line.
    let words = std::env::var("GRADLET_DEVICE").expect("GRADLET_DEVICE is not set: run `cargo xtask test TensorBoard`, which sets it");
    let words: Vec<&str> = words.lines().collect();
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let monitor = Monitor::new(summary::create_file_writer(logs.join("cortex-m4")).unwrap());
    let board = TensorBoard::serve(&logs);
    let mut browser = Browser::start();

    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut device = command.spawn().unwrap();
    let line = device.stdout.take().unwrap();
    let losses = Mutex::new(HashMap::new());
    std::thread::scope(|threads| {
        let listener = threads.spawn(|| listen(line, monitor, &losses));
        let begun = Instant::now();
        while losses.lock().unwrap().len() < ENOUGH {
            assert!(begun.elapsed() < Duration::from_secs(120), "the device says nothing");
            std::thread::sleep(Duration::from_millis(50));
        }
        // The writer flushes once per second, and TensorBoard reloads once per second.
        std::thread::sleep(Duration::from_secs(3));
        browser.open(&board.page(&format!("?tagFilter={TAG}#timeseries")));
        // The page shows the last part of a tag separately.
        browser.shows(&["train_head", "/loss", "Run", "Smoothed", "Value", "Step", "cortex-m4"]);
        let cells = browser.run("const at = texts.lastIndexOf('cortex-m4'); return texts.slice(at + 1, at + 4)");
        assert!(device.try_wait().unwrap().is_none(), "the device was done before somebody saw its curve");
        browser.keep("live");

        // The page writes a step above 999 with a comma.
        let number = |cell: &serde_json::Value| cell.as_str().and_then(|cell| cell.replace(',', "").parse().ok());
        let cells: Vec<f64> = cells.as_array().unwrap().iter().map(|cell| number(cell).unwrap_or_else(|| panic!("{cells}"))).collect();
        let (value, step) = (cells[1], cells[2] as u32);
        let own = f64::from(losses.lock().unwrap()[&step]);
        assert!(step as usize >= ENOUGH / 2 && (value - own).abs() <= 1e-3 * own.max(1.0), "step {step}: {value}, the device said {own}");
        device.wait().unwrap();
        listener.join().unwrap();
    });
}
