//! NPZ, NumPy's ZIP archives of NPY files.

use super::npy::{LIMIT, Npy, decode, encode};
use crate::files::{FileError, FileResult, write_whole};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Cursor, Read, Seek, Write};
use std::path::Path;
use zip::{CompressionMethod, ZipArchive, ZipWriter, write::SimpleFileOptions};

/// Reads the arrays of an NPZ file by name. `numpy.savez` and `numpy.savez_compressed` write such files.
///
/// Fails if the file is damaged, or if an array has an unsupported element type or is larger than [`LIMIT`]. The error names the file.
///
/// ```
/// use gradlet::Tensor;
/// use gradlet::io::npy;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("set.npz");
/// let x = npy::Npy::of(&Tensor::new(&gradlet::cpu(), &[1i32, 2], &[2])?)?;
/// npy::write_npz(&path, &[("x", &x), ("again", &x)])?;
/// assert_eq!(npy::read_npz(&path)?["x"], x);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read_npz(path: &Path) -> FileResult<BTreeMap<String, Npy>> {
    parse_npz(path, BufReader::new(File::open(path).map_err(|error| FileError::io(path, error))?))
}

/// Reads the arrays of an NPZ file, like [`read_npz`]. Errors name `path`.
pub fn parse_npz(path: &Path, file: impl Read + Seek) -> FileResult<BTreeMap<String, Npy>> {
    let wrong = |error: &dyn std::fmt::Display| FileError::new(path, format!("not an NPZ file, or a damaged NPZ file: {error}"));
    let mut archive = ZipArchive::new(file).map_err(|error| wrong(&error))?;
    let mut arrays = BTreeMap::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|error| wrong(&error))?;
        let name = entry.name().map_err(|error| wrong(&error))?.into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_string();
        // The memory grows with the bytes read, not with the size that the file claims.
        let mut bytes = Vec::new();
        entry.take(LIMIT + 1).read_to_end(&mut bytes).map_err(|error| wrong(&format!("{name}: {error}")))?;
        if bytes.len() as u64 > LIMIT {
            return Err(FileError::new(path, format!("the array {name:?} has more than {LIMIT} bytes")));
        }
        let array =
            decode(&bytes).map_err(|(offset, text)| FileError::new(path, format!("the array {name:?}: at byte {offset}: {text}")))?;
        arrays.insert(name, array);
    }
    Ok(arrays)
}

/// Writes named arrays as a compressed NPZ file. It appears only when it is complete. Fails in the same cases as
/// [`write`](super::npy::write), and if two arrays have the same name.
pub fn write_npz(path: &Path, arrays: &[(&str, &Npy)]) -> FileResult<()> {
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
    for (name, array) in arrays {
        let wrong = |text: String| FileError::new(path, format!("the array {name:?}: {text}"));
        archive.start_file(format!("{name}.npy"), options).map_err(|error| wrong(error.to_string()))?;
        archive.write_all(&encode(array).map_err(wrong)?).map_err(|error| wrong(error.to_string()))?;
    }
    let file = archive.finish().map_err(|error| FileError::new(path, error.to_string()))?;
    write_whole(path, file.get_ref())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::Tensor;

    #[test]
    fn several_arrays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("set.npz");
        let large = Npy::of(&Tensor::full(&crate::compute::devices::cpu(), 3i64, &[100, 50]).unwrap()).unwrap();
        let small = Npy::of(&Tensor::new(&crate::compute::devices::cpu(), &[1.5f32, -2.0], &[1, 2]).unwrap()).unwrap();
        write_npz(&path, &[("large", &large), ("small", &small)]).unwrap();
        let file = std::fs::read(&path).unwrap();
        assert!(file.len() < 4000, "{}", file.len());
        let arrays = read_npz(&path).unwrap();
        assert_eq!((arrays.len(), &arrays["large"], &arrays["small"]), (2, &large, &small));
        assert!(write_npz(&path, &[("twice", &small), ("twice", &small)]).is_err());
        for length in 0..file.len() {
            let cut = parse_npz(&path, Cursor::new(&file[..length]));
            assert!(cut.is_err(), "{length}");
        }
        let checksum = file.windows(4).position(|window| window == b"PK\x01\x02").unwrap() + 16;
        let mut damaged = file;
        damaged[checksum] ^= 1;
        assert!(parse_npz(&path, Cursor::new(damaged)).unwrap_err().to_string().contains("damaged"));
    }
}
