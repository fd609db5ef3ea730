//! The handbook's program that tells pictures of cats and dogs apart: folders of JPEG files, decoded and resized in parallel, shuffled,
//! batched and read ahead, train a network; then the same pictures are written to a TFRecord file, and read from it.
//!
//! `cargo run --release -p gradlet --example cats_vs_dogs -- FOLDER [EPOCHS]`; the folder has `train/cats`, `train/dogs`,
//! `valid/cats` and `valid/dogs`. With `--synthetic` in its place, drawn pictures are made first.

use gradlet::data::{AUTOTUNE, Dataset, Shuffle};
use gradlet::datasets::ImageFolder;
use gradlet::example::{Example, FeatureType, Features, FixedLenFeature, parse_single_example};
use gradlet::image::{self, ResizeMethod};
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, MaxPool2D, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::metrics::SparseCategoricalAccuracy;
use gradlet::model::{Compile, Evaluate, Fit, Model, Verbose};
use gradlet::optimizers::Adam;
use gradlet::random::Stream;
use gradlet::tfrecord::{Compression, RecordFiles, RecordWriter};
use gradlet::{Eager, Result, Tensor, io};
use std::error::Error;
use std::io::Write;
use std::path::{Path, PathBuf};

const BATCH_SIZE: usize = 32;
const LEARNING_RATE: f32 = 0.001;

/// What the program is told.
pub struct Options {
    /// The folder of the pictures.
    pub data_dir: PathBuf,
    /// How many rows and columns they are given.
    pub size: [u32; 2],
    /// How often they are gone through.
    pub num_epochs: usize,
    /// Decides the weights at first, and the order of the pictures.
    pub seed: u64,
}

/// A picture with values from 0 to 1.
fn decode_and_resize(file: &[u8], size: [u32; 2]) -> Result<Tensor> {
    let decoded = image::decode_jpeg(file, 3)?;
    image::resize(&decoded, size, ResizeMethod::Bilinear)?.mul_scalar(1.0 / 255.0)
}

/// The pictures in the folders of a folder, with the numbers of these.
fn pictures(folder: &Path, size: [u32; 2]) -> Result<Dataset<(Tensor, Tensor)>> {
    let files: Dataset<(PathBuf, i32)> = ImageFolder::open(folder)?.files().iter().cloned().collect();
    Ok(files.map_parallel(AUTOTUNE, move |(path, class)| {
        Ok((decode_and_resize(&io::read_file(path)?, size)?, Tensor::scalar(&gradlet::cpu(), class)))
    }))
}

/// Trains on `train`, tests on `valid`, and says how good the network became.
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
    Ok(result.get("sparse_categorical_accuracy").ok_or("no accuracy")?)
}

/// Writes the files of `train` and their labels as records, and reads them again: how many there are, and of which shape the first is.
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

/// Draws pictures that stand for cats and dogs, `count` of each to train on, and half as many to test on: stripes along and across, of
/// all colours, with noise, in all sizes. They are made up.
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
    Ok(writeln!(out, "synthetic pictures: {count} cats and {count} dogs to train on, half as many to test on")?)
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
    let folder = arguments.next().ok_or("give the folder of the pictures, or --synthetic")?;
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
