//! The TensorFlow handbook's programs on `tf.data`: prices by year, and images of digits that are rotated, batched and shuffled.
//!
//! `cargo run --release -p gradlet --features image --example tfdata_tutorial -- [FOLDER]` prints the same output as the handbook's
//! programs. It writes the images to FOLDER instead of showing them.

use gradlet::data::{AUTOTUNE, Dataset, Shuffle};
use gradlet::datasets::{self, Digits};
use gradlet::image::{self, ResizeMethod};
use gradlet::{DType, Result, Tensor, io};
use std::error::Error;
use std::io::Write;
use std::path::Path;

/// Prints a dataset of years and prices.
pub fn prices(out: &mut dyn Write) -> std::result::Result<(), Box<dyn Error>> {
    let x = Tensor::constant(&gradlet::cpu(), [2013, 2014, 2015, 2016, 2017])?;
    let y = Tensor::constant(&gradlet::cpu(), [12000, 14000, 15000, 16500, 17500])?;
    let dataset = Dataset::from_tensor_slices((x, y));
    for element in &dataset {
        let (x, y) = element?;
        writeln!(out, "{} {}", x.item::<i32>()?, y.item::<i32>()?)?;
    }
    Ok(())
}

/// Writes images to a PNG file, side by side and enlarged eight times.
fn show(folder: &Path, name: &str, images: &[Tensor]) -> std::result::Result<(), Box<dyn Error>> {
    let sheet = image::convert_image_dtype(&Tensor::concat(images, 1)?, DType::U8, true)?;
    let &[height, width, _] = sheet.dims() else { return Err("an image must have three dimensions".into()) };
    let large = image::resize(&sheet, [8 * height, 8 * width], ResizeMethod::Nearest)?;
    Ok(io::write_file(folder.join(name), &image::encode_png(&large)?)?)
}

fn show_batch(
    folder: &Path,
    name: &str,
    dataset: &Dataset<(Tensor, Tensor)>,
    out: &mut dyn Write,
) -> std::result::Result<(), Box<dyn Error>> {
    let (images, labels) = dataset.take(1).get_single_element()?;
    show(folder, name, &images.unstack(0)?)?;
    Ok(writeln!(out, "{name}: {:?}", labels.to_vec::<i32>()?)?)
}

/// Shows digits as a dataset: unchanged, rotated, in batches of 4, and shuffled before batching. Prints the labels, and writes the images
/// to `folder`.
pub fn mnist(train: &Digits, folder: &Path, out: &mut dyn Write) -> std::result::Result<(), Box<dyn Error>> {
    let mnist_dataset = Dataset::from_tensor_slices(train.tensors(&gradlet::cpu(), &[28, 28, 1])?);
    let show_first = |name: &str, dataset: &Dataset<(Tensor, Tensor)>, out: &mut dyn Write| {
        let (image, label) = dataset.take(1).get_single_element()?;
        show(folder, name, &[image])?;
        Ok::<_, Box<dyn Error>>(writeln!(out, "{name}: {}", label.item::<i32>()?)?)
    };
    show_first("mnist_1.png", &mnist_dataset, out)?;

    let rot90 = |(image, label): (Tensor, Tensor)| -> Result<(Tensor, Tensor)> { Ok((image::rot90(&image, 1)?, label)) };
    show_first("mnist_1_rot90.png", &mnist_dataset.map(rot90), out)?;
    show_first("mnist_1_rot90_parallel.png", &mnist_dataset.map_parallel(AUTOTUNE, rot90), out)?;

    show_batch(folder, "mnist_batch.png", &mnist_dataset.batch(4), out)?;
    for run in 1..=2 {
        let shuffled = mnist_dataset.shuffle(Shuffle::new(10_000).seed(run)).batch(4);
        show_batch(folder, &format!("mnist_shuffle_{run}.png"), &shuffled, out)?;
    }
    Ok(())
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).unwrap_or("target/tfdata_tutorial".into());
    let out = &mut std::io::stdout();
    prices(out)?;
    mnist(&datasets::load("mnist10k")?.0, Path::new(&folder), out)
}
