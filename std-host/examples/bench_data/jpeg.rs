//! Benchmark of JPEG files: decoded, resized to 256×256 and batched by 32. Also an epoch of a small CNN that trains on them.

use super::{Outcome, noise};
use gradlet::data::{AUTOTUNE, Dataset};
use gradlet::image::{ResizeMethod, decode_jpeg, encode_jpeg, resize};
use gradlet::layers::{Activation, Conv2D, Dense, GlobalAveragePooling2D, MaxPool2D, Sequential};
use gradlet::losses::SparseCategoricalCrossentropy;
use gradlet::optimizers::Adam;
use gradlet::train::{Compile, Fit, Model, Verbose};
use gradlet::{Eager, Result, Tensor, io};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Height of an image. Many photographs in public datasets have 500×375 pixels.
const ROWS: u32 = 375;
const COLS: u32 = 500;
const FILES: usize = 512;
const BATCH: usize = 32;

/// Writes synthetic images, unless they exist: horizontal or vertical stripes with noise. They compress about as well as photographs.
pub fn make(folder: &Path) -> Outcome<()> {
    let folder = folder.join("jpeg");
    if folder.join(file_name(FILES - 1)).exists() {
        return Ok(());
    }
    std::fs::create_dir_all(&folder)?;
    let grain = noise((ROWS * COLS) as usize + FILES);
    for file in 0..FILES {
        let pixel = |at: u32| {
            let (row, col) = (at / COLS, at % COLS);
            let along = if file % 2 == 0 { row } else { col } as f32;
            let wave = 90.0 * (along / (6.0 + (file % 13) as f32)).sin() + (row + col) as f32 / 12.0;
            let light = 128.0 + wave + f32::from(grain[at as usize + file] % 24) - 12.0;
            [light, 0.8 * light + 20.0, 255.0 - light].map(|channel| channel.clamp(0.0, 255.0) as u8)
        };
        let pixels: Vec<u8> = (0..ROWS * COLS).flat_map(pixel).collect();
        let image = Tensor::new(&gradlet::cpu(), &pixels, &[ROWS, COLS, 3])?;
        std::fs::write(folder.join(file_name(file)), encode_jpeg(&image, 90)?)?;
    }
    Ok(())
}

fn file_name(file: usize) -> String {
    format!("{file:04}.jpg")
}

fn load((path, label): (PathBuf, i32)) -> Result<(Tensor, i32)> {
    let image = decode_jpeg(&io::read_file(path)?, 3)?;
    Ok((resize(&image, [256, 256], ResizeMethod::Bilinear)?.mul_scalar(1.0 / 255.0)?, label))
}

fn files(folder: &Path) -> Dataset<(PathBuf, i32)> {
    (0..FILES).map(|file| (folder.join("jpeg").join(file_name(file)), (file % 2) as i32)).collect()
}

/// Returns a dataset that decodes the images one after another, on the consumer's thread.
fn serial(folder: &Path) -> Dataset<(Tensor, Tensor)> {
    files(folder).map(load).batch(BATCH)
}

fn parallel(folder: &Path) -> Dataset<(Tensor, Tensor)> {
    files(folder).map_parallel(AUTOTUNE, load).batch(BATCH).prefetch(AUTOTUNE)
}

/// Measures images per second of the dataset alone, without training.
pub fn images_per_s(folder: &Path) -> Outcome<f64> {
    let dataset = parallel(folder);
    let start = Instant::now();
    let images = dataset.reduce(0, |images, (batch, _)| Ok(images + batch.dims()[0]))?;
    Ok(f64::from(images) / start.elapsed().as_secs_f64())
}

/// Measures images per second of a training epoch of a CNN.
fn epoch(dataset: &Dataset<(Tensor, Tensor)>) -> Outcome<f64> {
    let scope = Eager::with_seed(&gradlet::cpu(), 1);
    let layers = Sequential::new()
        .with(Conv2D::new(16, [3, 3]).strides([4, 4]).activation(Activation::Relu))
        .with(MaxPool2D::new([2, 2]))
        .with(Conv2D::new(32, [3, 3]).activation(Activation::Relu))
        .with(GlobalAveragePooling2D::default())
        .with(Dense::new(2));
    let mut model = Model::new(&scope, layers);
    model.compile(Compile::new(Adam::new(0.001), SparseCategoricalCrossentropy::default().from_logits(true)))?;
    let fit = || Fit::new().verbose(Verbose::Silent);
    // Before the timed epoch: traces the step, warms the caches, and lets AUTOTUNE find its settings.
    model.fit(dataset, fit().steps_per_epoch(4))?;
    let start = Instant::now();
    model.fit(dataset, fit())?;
    Ok(FILES as f64 / start.elapsed().as_secs_f64())
}

/// Measures [`epoch`] on a dataset with parallel map and prefetch.
pub fn epoch_images_per_s(folder: &Path) -> Outcome<f64> {
    epoch(&parallel(folder))
}

/// Measures [`epoch`] on a dataset without parallel map and prefetch.
pub fn serial_epoch_images_per_s(folder: &Path) -> Outcome<f64> {
    epoch(&serial(folder))
}
