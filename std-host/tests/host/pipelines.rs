//! Tests that the TensorFlow handbook's programs on data pipelines have its results.

#![allow(dead_code)]

#[path = "../../examples/cats_vs_dogs.rs"]
mod cats_vs_dogs;
#[path = "../../examples/tfdata_tutorial.rs"]
mod tfdata_tutorial;

use gradlet::datasets::Digits;
use gradlet::image;
use std::path::Path;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");

fn printed(run: impl FnOnce(&mut dyn std::io::Write) -> Result<(), Box<dyn std::error::Error>>) -> String {
    let mut out = Vec::new();
    run(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn prices_by_years() {
    assert_eq!(printed(tfdata_tutorial::prices), "2013 12000\n2014 14000\n2015 15000\n2016 16500\n2017 17500\n");
}

#[test]
fn pictures_of_digits() {
    let folder = tempfile::tempdir().unwrap();
    let train = Digits::load(Path::new(DATA), "train").unwrap().first(100);
    let lines = printed(|out| tfdata_tutorial::mnist(&train, folder.path(), out));
    let labels = &train.labels;
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!(lines[0], format!("mnist_1.png: {}", labels[0]));
    assert_eq!(lines[3], format!("mnist_batch.png: {:?}", &labels[..4]));
    assert!(lines.len() == 6 && lines[4].strip_prefix("mnist_shuffle_1.png") != lines[5].strip_prefix("mnist_shuffle_2.png"), "{lines:?}");
    let file = |name: &str| image::decode_png(&std::fs::read(folder.path().join(name)).unwrap(), 0).unwrap();
    // Each pixel of the digit is eight rows and columns of the image. The rotation is NumPy's `rot90`.
    let at = |picture: &gradlet::Tensor, row: u32, column: u32| picture.index((8 * row as i32 + 3, 8 * column as i32 + 5, 0)).unwrap();
    let (plain, turned) = (file("mnist_1.png"), file("mnist_1_rot90.png"));
    let same = |picture: &gradlet::Tensor, digit: &[u8]| {
        (0..28).all(|row| (0..28).all(|column| at(picture, row, column).item::<u8>().unwrap() == digit[(28 * row + column) as usize]))
    };
    assert!(same(&plain, train.image(0)) && same(&turned, train.turned().image(0)));
    assert_eq!(turned.bytes().unwrap(), file("mnist_1_rot90_parallel.png").bytes().unwrap());
    assert_eq!(file("mnist_batch.png").dims(), [224, 4 * 224, 1]);
}

/// The program is the handbook's, but the images are synthetic and small.
#[test]
fn cats_and_dogs() {
    let folder = tempfile::tempdir().unwrap();
    let options = cats_vs_dogs::Options { data_dir: folder.path().into(), size: [32, 32], num_epochs: 5, seed: 1 };
    assert!(printed(|out| cats_vs_dogs::synthetic(&options.data_dir, 60, out)).starts_with("synthetic images"));
    let mut accuracy = 0.0;
    let text = printed(|out| {
        accuracy = cats_vs_dogs::run(&options, out)?;
        cats_vs_dogs::records(&options, out)
    });
    assert!(accuracy > 0.9, "{accuracy}: {text}");
    assert!(text.contains("first record: u8 [") && text.ends_with("records: 60 cats, 60 dogs\n"), "{text}");
}
