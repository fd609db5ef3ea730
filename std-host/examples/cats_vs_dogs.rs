//! The TensorFlow handbook's program that classifies images of cats and dogs. It decodes and resizes folders of JPEG files in parallel.
//! Then it shuffles, batches and prefetches the images, and trains a network on them. Finally, it writes the same images to a TFRecord
//! file, and reads them back.
//!
//! `cargo run --release -p gradlet --features image --example cats_vs_dogs -- FOLDER [EPOCHS]` reads the folders `train/cats`,
//! `train/dogs`, `valid/cats` and `valid/dogs` in FOLDER. With `--synthetic` in place of FOLDER, the program draws its own images first.

use gradlet::data::{AUTOTUNE, Dataset, Shuffle};
use gradlet::datasets::ImageFolder;
use gradlet::image::{self, ResizeMethod};
use gradlet::io::example::{Example, FeatureType, Features, FixedLenFeature, parse_single_example};
use gradlet::io::tfrecord::{Compression, RecordFiles, RecordWriter};
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, MaxPool2D, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::SparseCategoricalAccuracy;
use gradlet::optimizers::Adam;
use gradlet::random::Stream;
use gradlet::train::{Compile, Evaluate, Fit, Model, Verbose};
use gradlet::{Eager, Result, Tensor, io};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

const BATCH_SIZE: usize = 32;
const LEARNING_RATE: f32 = 0.001;

/// The program's settings.
pub struct Options {
    /// The folder of the images.
    pub data_dir: PathBuf,
    /// Height and width of the resized images.
    pub size: [u32; 2],
    /// The number of epochs.
    pub num_epochs: usize,
    /// Seed of the initial weights and of the order of the images.
    pub seed: u64,
}

/// Decodes a JPEG file to an image of `size`, with values from 0 to 1.
fn decode_and_resize(file: &[u8], size: [u32; 2]) -> Result<Tensor> {
    let decoded = image::decode_jpeg(file, 3)?;
    image::resize(&decoded, size, ResizeMethod::Bilinear)?.mul_scalar(1.0 / 255.0)
}

/// Returns the images in the subfolders of a folder. The label of an image is the index of its subfolder.
fn pictures(folder: &Path, size: [u32; 2]) -> Result<Dataset<(Tensor, Tensor)>> {
    let files: Dataset<(PathBuf, i32)> = ImageFolder::open(folder)?.files().iter().cloned().collect();
    Ok(files.map_parallel(AUTOTUNE, move |(path, class)| {
        Ok((decode_and_resize(&io::read_file(path)?, size)?, Tensor::scalar(&gradlet::cpu(), class)))
    }))
}

/// Trains on `train`, tests on `valid`, and returns the test accuracy.
pub fn run(options: &Options, out: &mut dyn Write) -> std::result::Result<f64, Box<dyn Error>> {
    let train_dataset = pictures(&options.data_dir.join("train"), options.size)?;
    let train_dataset = train_dataset.shuffle(Shuffle::new(20_000).seed(options.seed)).batch(BATCH_SIZE).prefetch(AUTOTUNE);

    let network = Sequential::new()
        .with(Conv2D::new(32, [3, 3]).activation(Activation::Relu))
        .with(MaxPool2D::new([2, 2]))
        .with(Conv2D::new(32, [5, 5]).activation(Activation::Relu))
        .with(MaxPool2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(64).activation(Activation::Relu))
        .with(Dense::new(2).activation(Activation::Softmax));
    let mut model = Model::new(&Eager::with_seed(&gradlet::cpu(), options.seed), network);
    model.compile(
        Compile::new(Adam::new(LEARNING_RATE), SparseCategoricalCrossentropy::default())
            .metric("sparse_categorical_accuracy", SparseCategoricalAccuracy::default()),
    )?;
    model.fit(&train_dataset, Fit::new().epochs(options.num_epochs))?;

    let test_dataset = pictures(&options.data_dir.join("valid"), options.size)?.batch(BATCH_SIZE);
    let result = model.evaluate(&test_dataset, Evaluate::new().verbose(Verbose::Silent))?;
    for (name, value) in result.iter() {
        writeln!(out, "test {name}: {value:.6}")?;
    }
    Ok(result.get("sparse_categorical_accuracy").ok_or("the evaluation returned no accuracy")?)
}

/// Writes the image files of the folder `train` and their labels as records, and reads them back. Prints the first image's shape and the
/// number of records.
pub fn records(options: &Options, out: &mut dyn Write) -> std::result::Result<(), Box<dyn Error>> {
    let tfrecord_file = options.data_dir.join("train/train.tfrecords");
    let mut writer = RecordWriter::create(&tfrecord_file, Compression::None)?;
    for (path, label) in ImageFolder::open(options.data_dir.join("train"))?.files() {
        let example = Example::new().with("image", io::read_file(path)?).with("label", *label);
        writer.write(&example.to_bytes())?;
    }
    writer.finish()?;

    let feature_description = Features::new()
        .with("image", FixedLenFeature::new(FeatureType::Strings, &[]))
        .with("label", FixedLenFeature::new(FeatureType::I64, &[]));
    let dataset = RecordFiles::new([&tfrecord_file]).dataset().map(move |record| {
        let features = parse_single_example(&record, &feature_description)?;
        let image = image::decode_jpeg(&features.strings("image")?.values()[0], 0)?;
        Ok((image, features.tensor("label")?.clone()))
    });
    let mut count = [0, 0];
    for element in &dataset {
        let (image, label) = element?;
        let label = label.item::<i64>()? as usize;
        if count == [0, 0] {
            writeln!(out, "first record: {} {:?}, label {label}", image.dtype(), image.dims())?;
        }
        count[label] += 1;
    }
    Ok(writeln!(out, "records: {} cats, {} dogs", count[0], count[1])?)
}

/// Draws synthetic images in place of cats and dogs: `count` of each class to train on, and half as many to test on. One class has
/// horizontal stripes, the other vertical ones. Colors, sizes and noise are random.
pub fn synthetic(data_dir: &Path, count: u64, out: &mut dyn Write) -> std::result::Result<(), Box<dyn Error>> {
    for (part, count) in [("train", count), ("valid", count / 2)] {
        for (class, name) in ["cats", "dogs"].into_iter().enumerate() {
            for number in 0..count {
                let stream = Stream { key: number, stream: class as u64 * 2 + u64::from(part == "valid") };
                let file = image::encode_jpeg(&drawn(class, stream)?, 90)?;
                io::write_file(data_dir.join(part).join(name).join(format!("{name}.{number}.jpg")), &file)?;
            }
        }
    }
    Ok(writeln!(out, "synthetic images: {count} cats and {count} dogs to train on, half as many to test on")?)
}

fn drawn(class: usize, stream: Stream) -> Result<Tensor> {
    let chance = stream.uniform(7);
    let sides = [40 + (60.0 * chance[0]) as u32, 40 + (60.0 * chance[1]) as u32];
    let noise = Stream { key: !stream.key, ..stream }.uniform((sides[0] * sides[1]) as usize);
    let mut pixels = Vec::new();
    for (at, noise) in (0..).zip(noise) {
        let place = [at / sides[1], at % sides[1]].map(|place| place as f32);
        let wave = (place[class] / sides[class] as f32 * (15.0 + 15.0 * chance[2]) + 6.0 * chance[3]).sin();
        pixels.extend(chance[4..].iter().map(|colour| (128.0 + 80.0 * wave * (0.3 + colour) + 50.0 * (noise - 0.5)) as u8));
    }
    Tensor::new(&gradlet::cpu(), &pixels, &[sides[0], sides[1], 3])
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("usage: cats_vs_dogs FOLDER [EPOCHS], where FOLDER has the images, or is --synthetic")?;
    let num_epochs = arguments.next().map_or(Ok(10), |epochs| epochs.parse())?;
    let out = &mut std::io::stdout();
    let data_dir = if folder == "--synthetic" { "target/cats_vs_dogs".into() } else { PathBuf::from(folder) };
    if data_dir == Path::new("target/cats_vs_dogs") {
        synthetic(&data_dir, 100, out)?;
    }
    let options = Options { data_dir, size: [256, 256], num_epochs, seed: 1 };
    run(&options, out)?;
    records(&options, out)
}
