//! Sources of records.

use super::input::size;
use anyhow::{Result, bail};
use bytes::Bytes;
use gradlet::Dataset;
use gradlet::io::FileError;
use gradlet::io::example::{Example, Feature};
use gradlet::io::idx as idx_file;
use gradlet::io::tfrecord::Compression;
use std::fs;
use std::path::{Path, PathBuf};

/// Endings of the names of image files.
const IMAGES: [&str; 5] = ["bmp", "gif", "jpeg", "jpg", "png"];

/// Records to write, each with the number of bytes that were read from the source for it. `bytes` is the size of the source. The
/// progress bar uses both.
pub struct Feed {
    pub bytes: u64,
    pub records: Box<dyn Iterator<Item = Result<(Bytes, u64)>>>,
}

/// Produces an Example for each image and its label.
pub fn idx(images: &Path, labels: &Path) -> Result<Feed> {
    let (pixels, classes) = (idx_file::read(images)?, idx_file::read(labels)?);
    let &[count, height, width] = pixels.dims.as_slice() else {
        bail!(FileError::new(images, format!("images must have 3 dimensions [number, height, width], not {:?}", pixels.dims)));
    };
    if classes.dims != [count] {
        bail!(FileError::new(labels, format!("the labels of {count} images must have the dimensions [{count}], not {:?}", classes.dims)));
    }
    let (area, data) = ((height * width) as usize, Bytes::from(pixels.data));
    let record = move |index: usize| {
        let image = data.slice(index * area..(index + 1) * area);
        let example = Example::new().with("image", image).with("label", i64::from(classes.data[index]));
        Ok((example.with("height", i64::from(height)).with("width", i64::from(width)).to_bytes(), area as u64))
    };
    Ok(Feed { bytes: u64::from(count) * area as u64, records: Box::new((0..count as usize).map(record)) })
}

/// Produces an Example for each image file in the subfolders of a folder. The subfolders are the classes, sorted by name.
pub fn images(folder: &Path) -> Result<Feed> {
    let (mut files, mut bytes) = (Vec::new(), 0);
    let classes: Vec<PathBuf> = list(folder)?.into_iter().filter(|path| path.is_dir()).collect();
    for (label, class) in classes.iter().enumerate() {
        for path in list(class)?.into_iter().filter(|path| is_image(path)) {
            bytes += size(&path)?;
            files.push((label, path));
        }
    }
    if files.is_empty() {
        bail!(FileError::new(folder, format!("has no folders of images (files that end in {})", IMAGES.join(", "))));
    }
    let record = |(label, path): (usize, PathBuf)| {
        let image = Bytes::from(fs::read(&path).map_err(|error| FileError::io(&path, error))?);
        let name = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name).unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let length = image.len() as u64;
        let example = Example::new().with("image", image).with("label", label as i64);
        Ok((example.with("class", name(path.parent())).with("filename", name(Some(&path))).to_bytes(), length))
    };
    Ok(Feed { bytes, records: Box::new(files.into_iter().map(record)) })
}

fn is_image(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    path.is_file() && ending.is_some_and(|ending| IMAGES.contains(&ending.as_str()))
}

/// Returns the paths in a folder, sorted.
fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect());
    let mut paths: Vec<PathBuf> = entries.map_err(|error| FileError::io(folder, error))?;
    paths.sort();
    Ok(paths)
}

/// Type of a column that fits all of its cells.
#[derive(Clone, Copy)]
enum Kind {
    Int64,
    Float,
    Bytes,
}

impl Kind {
    /// Returns the narrowest type that fits `cell` and all cells that `self` fits.
    fn and(self, cell: &str) -> Kind {
        match self {
            Kind::Int64 if cell.parse::<i64>().is_ok() => Kind::Int64,
            Kind::Int64 | Kind::Float if cell.parse::<f32>().is_ok() => Kind::Float,
            _ => Kind::Bytes,
        }
    }

    fn feature(self, cell: &str) -> Feature {
        match self {
            Kind::Int64 => cell.parse::<i64>().map(Feature::from).ok(),
            Kind::Float => cell.parse::<f32>().map(Feature::from).ok(),
            Kind::Bytes => None,
        }
        .unwrap_or_else(|| cell.into())
    }
}

/// Produces an Example for each row. An empty cell has no feature. The file is read twice: the first time to determine the types
/// of the columns.
pub fn csv(path: &Path) -> Result<Feed> {
    let broken = |path: &Path, error: ::csv::Error| FileError::new(path, error.to_string());
    let open = || ::csv::Reader::from_path(path).map_err(|error| broken(path, error));
    let mut reader = open()?;
    let names = reader.headers().map_err(|error| broken(path, error))?.clone();
    let mut kinds = vec![Kind::Int64; names.len()];
    for row in reader.records() {
        let row = row.map_err(|error| broken(path, error))?;
        for (kind, cell) in kinds.iter_mut().zip(&row).filter(|(_, cell)| !cell.is_empty()) {
            *kind = kind.and(cell);
        }
    }
    let (reader, path, bytes) = (open()?, path.to_path_buf(), size(path)?);
    let record = move |row: ::csv::Result<::csv::StringRecord>| {
        let row = row.map_err(|error| broken(&path, error))?;
        let cells = names.iter().zip(&kinds).zip(&row).filter(|(_, cell)| !cell.is_empty());
        let example = cells.fold(Example::new(), |example, ((name, kind), cell)| example.with(name, kind.feature(cell)));
        Ok((example.to_bytes(), row.as_slice().len() as u64 + row.len() as u64))
    };
    Ok(Feed { bytes, records: Box::new(reader.into_records().map(record)) })
}

/// Produces a record for each line, as [`Dataset::text_lines`] reads them.
pub fn lines(path: &Path) -> Result<Feed> {
    let record = |line: gradlet::Result<Bytes>| {
        let line = line?;
        let read = line.len() as u64 + 1;
        Ok((line, read))
    };
    Ok(Feed { bytes: size(path)?, records: Box::new(Dataset::text_lines(&[path], Compression::None).iter().map(record)) })
}

/// Produces a record for each file.
pub fn files(paths: Vec<PathBuf>) -> Result<Feed> {
    let bytes = paths.iter().map(|path| size(path)).sum::<Result<u64>>()?;
    let record = |path: PathBuf| {
        let content = fs::read(&path).map_err(|error| FileError::io(&path, error))?;
        let length = content.len() as u64;
        Ok((content.into(), length))
    };
    Ok(Feed { bytes, records: Box::new(paths.into_iter().map(record)) })
}
