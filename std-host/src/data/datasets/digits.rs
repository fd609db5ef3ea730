//! Handwritten digits from the MNIST files: loading, shuffling, rotating and batching.

use crate::files::{FileError, FileResult};
use crate::formats::idx;
use crate::formats::idx::Idx;
use gradlet_core::random::Stream;
use gradlet_core::{DType, Device, Error, Result, Tensor};
use std::path::{Path, PathBuf};

/// Number of classes of digits.
pub const CLASSES: u8 = 10;

/// Labelled images of digits.
///
/// ```
/// use gradlet::datasets::Digits;
/// let digits = Digits { images: vec![0, 51, 102, 255], labels: vec![7], rows: 2, cols: 2 };
/// assert_eq!(digits.turned().image(0), [51, 255, 0, 102]);
/// let (x, y) = digits.batch(&gradlet::cpu(), &[0], &[2, 2, 1])?;
/// assert_eq!(x.to_vec::<f32>()?, [0.0, 0.2, 0.4, 1.0]);
/// assert_eq!(y.to_vec::<i32>()?, [7]);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digits {
    /// Pixels of all images, `[images, rows, cols]`. 0 is the background and 255 is full ink.
    pub images: Vec<u8>,
    /// Digit shown in each image.
    pub labels: Vec<u8>,
    /// Number of rows of an image.
    pub rows: usize,
    /// Number of columns of an image.
    pub cols: usize,
}

/// Reads the training digits and the test digits from `folder`. It must contain the four MNIST files (`train-images-idx3-ubyte`,
/// `train-labels-idx1-ubyte`, `t10k-images-idx3-ubyte`, `t10k-labels-idx1-ubyte`), each uncompressed or as `.gz`.
///
/// Fails if a file is missing or damaged, if the numbers of images and labels differ, or if a label is not 0 to 9. The error names the
/// file and the position in bytes.
pub fn load(folder: &Path) -> FileResult<(Digits, Digits)> {
    Ok((Digits::load(folder, "train")?, Digits::load(folder, "t10k")?))
}

impl Digits {
    /// Reads `{prefix}-images-idx3-ubyte` and `{prefix}-labels-idx1-ubyte` from `folder`, like [`load`].
    pub fn load(folder: &Path, prefix: &str) -> FileResult<Digits> {
        let (images_path, labels_path) = (find(folder, prefix, "images-idx3-ubyte")?, find(folder, prefix, "labels-idx1-ubyte")?);
        let (images, labels) = (idx::read(&images_path)?, idx::read(&labels_path)?);
        for (path, idx) in [(&images_path, &images), (&labels_path, &labels)] {
            if idx.dtype != DType::U8 {
                return Err(FileError::at(path, 2, format!("the elements are {}, but must be unsigned bytes", idx.dtype)));
            }
        }
        let [count, rows, cols] = images.dims[..] else { return Err(rank(&images_path, &images, "three: pictures, rows, columns")) };
        let [labelled] = labels.dims[..] else { return Err(rank(&labels_path, &labels, "one: labels")) };
        if labelled != count {
            return Err(FileError::at(&labels_path, 4, format!("there are {labelled} labels for {count} images")));
        }
        if let Some(record) = labels.data.iter().position(|&label| label >= CLASSES) {
            let text = format!("label {} of record {record} is not a digit: it must be 0 to 9", labels.data[record]);
            return Err(FileError::at(&labels_path, 8 + record as u64, text));
        }
        Ok(Digits { images: images.data, labels: labels.data, rows: rows as usize, cols: cols as usize })
    }

    /// Returns the number of digits.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// True if there are no digits.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// Returns the pixels of image `index`, row by row. Panics if the index is out of range.
    pub fn image(&self, index: usize) -> &[u8] {
        let pixels = self.rows * self.cols;
        &self.images[index * pixels..][..pixels]
    }

    /// Returns the first `count` digits, or all if there are fewer.
    pub fn first(&self, count: usize) -> Digits {
        let count = count.min(self.len());
        let images = self.images[..count * self.rows * self.cols].to_vec();
        Digits { images, labels: self.labels[..count].to_vec(), ..*self }
    }

    /// Rotates each image by 90° counter-clockwise, like NumPy's `rot90`.
    pub fn turned(&self) -> Digits {
        let (rows, cols) = (self.rows, self.cols);
        let turn = |index| {
            let image = self.image(index);
            (0..cols).rev().flat_map(move |col| (0..rows).map(move |row| image[row * cols + col]))
        };
        Digits { images: (0..self.len()).flat_map(turn).collect(), labels: self.labels.clone(), rows: cols, cols: rows }
    }

    /// Returns all indices in a random order, which `stream` determines.
    pub fn shuffled(&self, stream: Stream) -> Vec<usize> {
        stream.permutation(self.len())
    }

    /// Returns all images and labels, as [`Digits::batch`] returns them. `picture` is the shape of an image.
    pub fn tensors(&self, device: &Device, picture: &[u32]) -> Result<(Tensor, Tensor)> {
        self.batch(device, &(0..self.len()).collect::<Vec<_>>(), picture)
    }

    /// Returns the images and labels at `indices`. `picture` is the shape of an image, such as `[28, 28, 1]`. The images are f32 of shape
    /// `[number of indices, picture…]`, with each pixel divided by 255. The labels are i32 of shape `[number of indices]`.
    ///
    /// Fails if the shape `picture` does not have as many elements as an image has pixels, or if an index is out of range.
    pub fn batch(&self, device: &Device, indices: &[usize], picture: &[u32]) -> Result<(Tensor, Tensor)> {
        let pixels = self.rows * self.cols;
        if picture.iter().map(|&dim| dim as usize).product::<usize>() != pixels {
            let (rows, cols) = (self.rows, self.cols);
            return Err(Error::message(format!("an image of {rows} × {cols} pixels does not fit an input of shape {picture:?}")));
        }
        let mut values = Vec::with_capacity(indices.len() * pixels);
        let mut labels = Vec::with_capacity(indices.len());
        for &index in indices {
            let label = self.labels.get(index);
            labels.push(i32::from(
                *label.ok_or_else(|| {
                    Error::message(format!("there is no digit with index {index}: the number of digits is {}", self.len()))
                })?,
            ));
            values.extend(self.image(index).iter().map(|&pixel| f32::from(pixel) / 255.0));
        }
        let count = indices.len() as u32;
        Ok((Tensor::new(device, &values, &[&[count], picture].concat())?, Tensor::new(device, &labels, &[count])?))
    }
}

/// Returns the path of the file `{prefix}-{kind}` in `folder`, uncompressed or as `.gz`. Fails if neither exists.
fn find(folder: &Path, prefix: &str, kind: &str) -> FileResult<PathBuf> {
    let name = format!("{prefix}-{kind}");
    let candidates = [folder.join(&name), folder.join(format!("{name}.gz"))];
    let found = candidates.into_iter().find(|path| path.exists());
    found.ok_or_else(|| FileError::new(folder, format!("the folder has no file {name}, nor {name}.gz")))
}

fn rank(path: &Path, idx: &Idx, want: &str) -> FileError {
    FileError::at(path, 3, format!("the file has {} dimensions, but must have {want}", idx.dims.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(count: u8) -> Digits {
        let images = (0..count * 6).collect();
        Digits { images, labels: (0..count).collect(), rows: 2, cols: 3 }
    }

    #[test]
    fn turns_as_numpy() {
        // np.rot90([[0, 1, 2], [3, 4, 5]]) == [[2, 5], [1, 4], [0, 3]]
        let turned = some(2).turned();
        assert_eq!((turned.rows, turned.cols), (3, 2));
        assert_eq!(turned.image(0), [2, 5, 1, 4, 0, 3]);
        assert_eq!(turned.turned().turned().turned(), some(2));
    }
}
