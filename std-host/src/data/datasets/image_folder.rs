//! Folders of images, with one subfolder for each class.

use crate::data::dataset::{Dataset, Parallel};
use crate::data::image::{ResizeOptions, decode_image, resize};
use crate::data::io::read_file;
use crate::files::{FileError, FileResult};
use gradlet_core::random::Stream;
use gradlet_core::{Error, Result, Tensor};
use std::path::{Path, PathBuf};

/// Images in one subfolder for each class, such as `cats/1.jpg` and `dogs/1.jpg`. Equivalent of
/// `tf.keras.utils.image_dataset_from_directory`.
///
/// ```
/// use gradlet::data::AUTOTUNE;
/// use gradlet::datasets::{ImageFolder, LabelMode};
/// use gradlet::image::{ResizeMethod, encode_png};
/// use gradlet::{Tensor, io};
/// let folder = tempfile::tempdir()?;
/// for (class, colour) in [("night", 0u8), ("day", 255)] {
///     let image = Tensor::full(&gradlet::cpu(), colour, &[6, 8, 3])?;
///     io::write_file(folder.path().join(class).join("1.png"), &encode_png(&image)?)?;
/// }
/// let images = ImageFolder::open(folder.path())?;
/// assert_eq!(images.class_names(), ["day", "night"]);
/// let dataset = images.dataset([4, 4], 3, ResizeMethod::Bilinear, LabelMode::Int, AUTOTUNE).batch(32);
/// let (x, y) = dataset.get_single_element()?;
/// assert_eq!((x.dims(), y.to_vec::<i32>()?), (&[2, 4, 4, 3][..], vec![0, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageFolder {
    class_names: Vec<String>,
    files: Vec<(PathBuf, i32)>,
}

/// Form of the labels of images.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelMode {
    /// Index of the class, i32.
    #[default]
    Int,
    /// One-hot vector of the class: f32 `[classes]`.
    Categorical,
    /// 0 or 1, for two classes: f32 `[1]`.
    Binary,
}

const EXTENSIONS: [&str; 5] = ["bmp", "gif", "jpeg", "jpg", "png"];

impl ImageFolder {
    /// Lists the images in the subfolders of `folder` and in all folders below them, sorted by name. The class of an image is the index of
    /// its subfolder, in the order of the names. Subfolders whose names begin with a dot are ignored.
    ///
    /// Fails if a folder cannot be read or if there are no images.
    pub fn open(folder: impl AsRef<Path>) -> FileResult<ImageFolder> {
        let folder = folder.as_ref();
        let mut images = ImageFolder { class_names: Vec::new(), files: Vec::new() };
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') {
                images.collect(&path, images.class_names.len() as i32)?;
                images.class_names.push(name);
            }
        }
        if images.files.is_empty() {
            let text = format!("the folder has no folders with images ({}), one for each class", EXTENSIONS.join(", "));
            return Err(FileError::new(folder, text));
        }
        Ok(images)
    }

    fn collect(&mut self, folder: &Path, class: i32) -> FileResult<()> {
        for path in entries(folder)? {
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            if path.is_dir() {
                self.collect(&path, class)?;
            } else if EXTENSIONS.contains(&extension.as_str()) {
                self.files.push((path, class));
            }
        }
        Ok(())
    }

    /// Returns the names of the classes, by class index.
    pub fn class_names(&self) -> &[String] {
        &self.class_names
    }

    /// Returns the path and the class of each image.
    pub fn files(&self) -> &[(PathBuf, i32)] {
        &self.files
    }

    /// Returns the same images in a random order, which `stream` determines.
    pub fn shuffled(&self, stream: Stream) -> ImageFolder {
        let files = stream.permutation(self.files.len()).into_iter().map(|index| self.files[index].clone()).collect();
        ImageFolder { files, ..self.clone() }
    }

    /// Splits the images into training and validation images. The validation images are the share `validation_split` at the end. In a
    /// sorted folder those all belong to the last classes, so shuffle the images first.
    ///
    /// Fails unless `validation_split` is greater than 0 and less than 1.
    pub fn split(&self, validation_split: f64) -> Result<(ImageFolder, ImageFolder)> {
        if !(validation_split > 0.0 && validation_split < 1.0) {
            return Err(Error::message(format!("`validation_split` must be between 0 and 1, not {validation_split}")));
        }
        let held = (validation_split * self.files.len() as f64) as usize;
        let (train, validation) = self.files.split_at(self.files.len() - held);
        let part = |files: &[(PathBuf, i32)]| ImageFolder { class_names: self.class_names.clone(), files: files.to_vec() };
        Ok((part(train), part(validation)))
    }

    /// Creates a dataset of all images with their labels. `parallel` threads decode the images and resize them to `size` rows and columns
    /// with `channels` channels (1, 3 or 4). Images are f32 with values from 0 to 255.
    ///
    /// If an image cannot be read, an error that names the file takes its place. `Binary` labels fail unless there are exactly two classes.
    pub fn dataset(
        &self,
        size: [u32; 2],
        channels: u32,
        resizing: impl Into<ResizeOptions>,
        labels: LabelMode,
        parallel: impl Into<Parallel>,
    ) -> Dataset<(Tensor, Tensor)> {
        let (resizing, classes) = (resizing.into(), self.class_names.len());
        let files: Dataset<(PathBuf, i32)> = self.files.iter().cloned().collect();
        files.map_parallel(parallel, move |(path, class)| {
            let named = |error: Error| error.context(path.display().to_string());
            let image = decode_image(&read_file(&path)?, channels).map_err(named)?;
            Ok((resize(&image, size, resizing).map_err(named)?, label(class, classes, labels)?))
        })
    }
}

fn label(class: i32, classes: usize, mode: LabelMode) -> Result<Tensor> {
    let device = crate::compute::devices::cpu();
    match mode {
        LabelMode::Int => Ok(Tensor::scalar(&device, class)),
        LabelMode::Binary if classes == 2 => Tensor::new(&device, &[class as f32], &[1]),
        LabelMode::Binary => Err(Error::message(format!("binary labels need exactly 2 classes, but there are {classes}"))),
        LabelMode::Categorical => {
            let one_hot: Vec<f32> = (0..classes as i32).map(|at| f32::from(u8::from(at == class))).collect();
            Tensor::new(&device, &one_hot, &[classes as u32])
        }
    }
}

/// Returns the paths in a folder, sorted.
fn entries(folder: &Path) -> FileResult<Vec<PathBuf>> {
    let failed = |error| FileError::io(folder, error);
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let mut paths = entries.map(|entry| Ok(entry?.path())).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::image::{ResizeMethod, encode_png};
    use crate::data::io::write_file;

    fn folder(names: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let image = encode_png(&Tensor::full(&crate::compute::devices::cpu(), 9u8, &[3, 2, 1]).unwrap()).unwrap();
        names.iter().for_each(|name| write_file(folder.path().join(name), &image).unwrap());
        folder
    }

    #[test]
    fn classes_are_folders() {
        let folder = folder(&["dogs/b.PNG", "dogs/a.jpg", "cats/deep/z.jpeg", "cats/notes.txt", ".hidden/a.jpg", "top.jpg", "ants/x.png"]);
        let images = ImageFolder::open(folder.path()).unwrap();
        assert_eq!(images.class_names(), ["ants", "cats", "dogs"]);
        let names: Vec<_> = images.files().iter().map(|(path, class)| (path.file_name().unwrap().to_str().unwrap(), *class)).collect();
        assert_eq!(names, [("x.png", 0), ("z.jpeg", 1), ("a.jpg", 2), ("b.PNG", 2)]);
        let (train, validation) = images.shuffled(Stream { key: 1, stream: 1 }).split(0.3).unwrap();
        assert_eq!((train.files().len(), validation.files().len()), (3, 1));
        assert!(images.split(1.0).is_err());
        assert!(ImageFolder::open(folder.path().join("ants")).unwrap_err().to_string().contains("no folders with images"));
    }

    #[test]
    fn labels_and_errors() {
        let folder = folder(&["a/1.png", "b/1.png"]);
        write_file(folder.path().join("b/0.png"), b"damaged").unwrap();
        let images = ImageFolder::open(folder.path()).unwrap();
        let labels = |mode| {
            let dataset = images.dataset([2, 2], 3, ResizeMethod::Nearest, mode, 1);
            dataset.iter().map(|element| element.map(|(_, label)| label)).collect::<Vec<_>>()
        };
        let one_hot = labels(LabelMode::Categorical);
        assert_eq!(one_hot[2].as_ref().unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0]);
        assert_eq!(labels(LabelMode::Binary)[2].as_ref().unwrap().to_vec::<f32>().unwrap(), [1.0]);
        let error = one_hot[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("0.png") && error.contains("unknown image file format"), "{error}");
    }
}
