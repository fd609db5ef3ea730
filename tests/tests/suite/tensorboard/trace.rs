//! Checks TensorBoard's pages for a trace: the graph of a training step, and the times of its ops.

use crate::tensorboard::browser::Browser;
use crate::tensorboard::server::TensorBoard;
use gradlet::datasets::Digits;
use std::path::Path;

#[allow(dead_code)]
#[path = "../../../../std-host/examples/trace.rs"]
mod example;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");

#[test]
#[ignore = "needs TensorBoard, xprof and Chromium: `cargo xtask test TensorBoard` installs and runs it"]
fn graph_and_profile_show_a_step() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    let digits = Digits::load(Path::new(DATA), "train").unwrap().first(200);
    example::run(&digits, &logs.join("mlp"), 5).unwrap();
    let board = TensorBoard::serve(&logs);
    let mut browser = Browser::start();

    browser.open(&board.page("#graphs"));
    browser.shows(&["mlp", "model_trace", "Main Graph"]);
    let nodes = ["mlp", "sparse_categori…", "gradient_tape", "adam"];
    let wanted = serde_json::json!(nodes);
    // The nodes, and the shape on the model's input edge.
    browser.wait(&format!(
        "const drawn = elements.filter(e => e.tagName === 'text').flatMap(e => [...e.childNodes].map(c => c.textContent)); \
         return {wanted}.every(node => drawn.includes(node)) && drawn.includes('50×28×28×1')"
    ));
    browser.keep("graphs");

    browser.open(&board.page("#profile"));
    browser.shows(&["Sessions (1)"]);
    browser.click("mat-select", "Overview Page");
    browser.click("mat-option", "Trace Viewer");
    browser.wait("return elements.some(e => e.tagName === 'INPUT' && e.placeholder === 'Find Events...')");
    browser.wait("return texts.some(text => text.includes('/host:CPU'))");
    browser.keep("profile");
}
