//! Checks the text and the numbers on TensorBoard's pages for gradlet's runs.

use crate::tensorboard::browser::Browser;
use crate::tensorboard::server::TensorBoard;
use gradlet::{Tensor, summary};
use serde_json::json;
use std::f32::consts::TAU;
use std::path::Path;

/// Returns the loss of a run at a step.
fn loss(rate: f64, step: i64) -> f64 {
    2.0 * (-rate * step as f64).exp() + 0.25
}

/// Writes two runs. Both have a loss, and `train` also has one summary of each kind.
fn write(folder: &Path) -> gradlet::Result<()> {
    for (name, rate) in [("slower", 0.05), ("train", 0.1)] {
        let writer = summary::create_file_writer(folder.join(name))?;
        writer.hparams([("rate", rate.into()), ("optimizer", "adam".into())], Some(name))?;
        (0..41).try_for_each(|step| writer.scalar("loss", loss(rate, step), step))?;
        if name == "train" {
            write_rest(&writer)?;
        }
        writer.close()?;
    }
    Ok(())
}

fn write_rest(writer: &summary::SummaryWriter) -> gradlet::Result<()> {
    let device = gradlet::cpu();
    // Bell curves that become wider. The last one reaches from -8 to 8.
    for step in 0..8 {
        let bell: Vec<f32> = (0..4000).map(|index| (step + 1) as f32 * ((index as f32 * TAU / 4000.0).sin().powi(3))).collect();
        writer.histogram("dense/kernel", &Tensor::new(&device, &bell, &[40, 100])?, step)?;
    }
    let mut images = vec![0u8; 3 * 28 * 28 * 3];
    for (index, pixel) in images.as_chunks_mut::<3>().0.iter_mut().enumerate() {
        let (image, y, x) = (index / 784, index / 28 % 28, index % 28);
        *pixel = match image {
            0 => [200, 0, 0],
            1 => [(9 * x) as u8, (9 * y) as u8, 90],
            _ if (7..21).contains(&x) && (7..21).contains(&y) => [10, 20, 250],
            _ => [240, 240, 240],
        };
    }
    writer.image("digits", &Tensor::new(&device, &images, &[3, 28, 28, 3])?, 12)?;
    writer.text("note", "# Run 4217\n\n| of | value |\n|---|---|\n| rate | **0.1** |", 3)?;
    let tone: Vec<f32> = (0..4000).map(|frame| (frame as f32 * TAU * 440.0 / 8000.0).sin()).collect();
    writer.audio("tone", &Tensor::new(&device, &tone, &[1, 4000, 1])?, 8000, 5)
}

#[test]
#[ignore = "needs TensorBoard and Chromium: `cargo xtask test TensorBoard` installs and runs it"]
fn every_page_shows_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    write(&logs).unwrap();
    let board = TensorBoard::serve(&logs);
    let mut browser = Browser::start();

    browser.open(&board.page("#scalars"));
    browser.shows(&["slower", "train", "loss", "tag:", "loss", "0.4", "2", "40"]);
    // Step 20 is in the middle, or next to it.
    browser.hover("vz-line-chart2", 0.5, 0.5);
    browser.shows(&["Name", "Value", "Step", "slower", "train"]);
    let shown = browser.run("const at = texts.lastIndexOf('slower'); return texts.slice(at, at + 10)");
    let cells: Vec<&str> = shown.as_array().unwrap().iter().map(|cell| cell.as_str().unwrap()).collect();
    let step: i64 = cells[3].parse().unwrap();
    assert!((15..=20).contains(&step), "{cells:?}");
    let number = |cell: &str| cell.parse::<f64>().unwrap();
    let [slower, train] = [0.05, 0.1].map(|rate| loss(rate, step));
    assert!((number(cells[2]) - slower).abs() < 5e-4 && (number(cells[8]) - train).abs() < 5e-4, "{cells:?}, not {slower}, {train}");
    browser.keep("scalars");

    browser.open(&board.page("?tagFilter=loss#timeseries"));
    let last = [0.05, 0.1].map(|rate| format!("{:.4}", loss(rate, 40)));
    browser.shows(&["loss", "Run", "Smoothed", "Value", "Step", "slower", &last[0], "40", "train", &last[1], "40"]);
    browser.keep("timeseries");

    browser.open(&board.page("#images"));
    browser.shows(&["digits", "train", "sample: 1 of 3", "12", "sample: 2 of 3", "sample: 3 of 3"]);
    browser.wait("return elements.filter(e => e.tagName === 'IMG' && e.naturalWidth === 28 && e.naturalHeight === 28).length === 3");
    let middles = browser.run(
        "return elements.filter(e => e.tagName === 'IMG').map(image => {
            const canvas = document.createElement('canvas');
            [canvas.width, canvas.height] = [28, 28];
            const context = canvas.getContext('2d');
            context.drawImage(image, 0, 0);
            return [...context.getImageData(14, 14, 1, 1).data];
        })",
    );
    assert_eq!(middles, json!([[200, 0, 0, 255], [126, 126, 90, 255], [10, 20, 250, 255]]));
    browser.keep("images");

    browser.open(&board.page("#histograms"));
    browser.shows(&["dense", "dense/kernel", "train", "tag:", "dense/kernel", "-7", "-1", "1", "7", "2", "6"]);
    browser.keep("histograms");
    browser.open(&board.page("#distributions"));
    browser.shows(&["dense", "dense/kernel", "train", "tag:", "dense/kernel", "0", "7"]);
    browser.keep("distributions");

    browser.open(&board.page("#text"));
    browser.shows(&["note", "train", "tag:", "note", "step", "3", "Run 4217", "of", "value", "rate", "0.1"]);
    browser.keep("text");

    browser.open(&board.page("#audio"));
    browser.shows(&["tone", "train", "tag:", "tone", "step", "5"]);
    browser.wait("return elements.some(e => e.tagName === 'AUDIO' && e.duration === 0.5)");
    browser.keep("audio");

    browser.open(&board.page("#hparams"));
    let last = [0.05, 0.1].map(|rate| format!("{:.5}", loss(rate, 40)));
    // The order of the parameters varies, so each is checked separately.
    browser.shows(&["Trial ID", "slower", "0.050000", &last[0], "train", "0.10000", &last[1]]);
    browser.shows(&["Trial ID", "optimizer", "slower", "adam", "train", "adam"]);
    browser.keep("hparams");
}
