//! IDX, the format of the MNIST files: a header with the element type and the dimensions, followed by the elements.
//!
//! The layout is `00 00 type rank`, then `rank` dimensions as big-endian 32-bit numbers, then the elements in row-major order, big-endian
//! (<http://yann.lecun.com/exdb/mnist/>).

use crate::files::write_whole;
use crate::files::{FileError, FileResult};
use crate::formats::tfrecord::{Compression, Inflated};
use gradlet_core::{DType, Device, Result, Shape, Tensor, TensorType};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// Maximum size of the elements of a file, in bytes. It limits the memory that a damaged header or a malicious compressed file can claim.
pub const LIMIT: u64 = 1 << 30;
const MAX_RANK: u8 = 8;
/// Codes of the element types, their names, and the element types of the results. 16-bit elements are converted to i32.
const TYPES: [(u8, &str, DType); 6] = [
    (0x08, "unsigned bytes", DType::U8),
    (0x09, "signed bytes", DType::I8),
    (0x0b, "shorts", DType::I32),
    (0x0c, "integers", DType::I32),
    (0x0d, "floats", DType::F32),
    (0x0e, "doubles", DType::F64),
];
const SHORTS: u8 = 0x0b;

/// Content of an IDX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// Element type.
    pub dtype: DType,
    /// Dimensions, outermost first. The first one is the number of records.
    pub dims: Vec<u32>,
    /// Elements in row-major order, little-endian.
    pub data: Vec<u8>,
}

impl Idx {
    /// Returns the elements as a tensor on `device`. Fails if the dimensions do not match the number of elements.
    pub fn tensor(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(device, TensorType::new(self.dtype, Shape::new(&self.dims)?), &self.data)
    }
}

/// Reads an IDX file, uncompressed or compressed with gzip.
///
/// Fails if the file is truncated or damaged, is longer than its header claims, or has more than [`LIMIT`] bytes of elements. The error
/// names the file and the position in bytes. No memory is allocated for sizes that a header merely claims.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("labels");
/// std::fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])?;
/// let idx = gradlet::io::idx::read(&path)?;
/// assert_eq!((idx.dims, idx.data), (vec![3], vec![7, 2, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: &Path) -> FileResult<Idx> {
    parse(path, File::open(path).map_err(|error| FileError::io(path, error))?)
}

/// Reads the content of an IDX file, like [`read`]. Errors name `path`.
pub fn parse(path: &Path, mut file: impl Read + Seek) -> FileResult<Idx> {
    let mut magic = [0; 2];
    let gzip = match file.read_exact(&mut magic) {
        Ok(()) => magic == [0x1f, 0x8b],
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(error) => return Err(FileError::io(path, error)),
    };
    file.rewind().map_err(|error| FileError::io(path, error))?;
    if gzip {
        Reader { path, from: Inflated::new(file, Compression::Gzip, None), offset: 0 }.idx()
    } else {
        Reader { path, from: BufReader::new(file), offset: 0 }.idx()
    }
}

/// Writes an IDX file. It appears only when it is complete. Fails if the format does not support the element type or the number of
/// dimensions, or if the dimensions do not match the number of elements.
pub fn write(path: &Path, idx: &Idx) -> FileResult<()> {
    let known = TYPES.iter().find(|(code, _, dtype)| *dtype == idx.dtype && *code != SHORTS);
    let (code, ..) = known.ok_or_else(|| FileError::new(path, format!("IDX files do not support elements of {}", idx.dtype)))?;
    let bytes = idx.dims.iter().try_fold(idx.dtype.size() as u64, |size, &dim| size.checked_mul(dim.into()));
    if idx.dims.is_empty() || idx.dims.len() > MAX_RANK.into() || bytes != Some(idx.data.len() as u64) {
        let text = format!("{} bytes of {} do not match the dimensions {:?} of an IDX file", idx.data.len(), idx.dtype, idx.dims);
        return Err(FileError::new(path, text));
    }
    let mut file = vec![0, 0, *code, idx.dims.len() as u8];
    idx.dims.iter().for_each(|dim| file.extend(dim.to_be_bytes()));
    let start = file.len();
    file.extend_from_slice(&idx.data);
    swap(&mut file[start..], idx.dtype.size());
    write_whole(path, &file)
}

/// Reverses the byte order of each element.
fn swap(elements: &mut [u8], size: usize) {
    if size > 1 {
        elements.chunks_exact_mut(size).for_each(<[u8]>::reverse);
    }
}

/// Reader that counts bytes, for the positions in errors.
struct Reader<'a, R> {
    path: &'a Path,
    from: R,
    offset: u64,
}

impl<R: Read> Reader<'_, R> {
    fn idx(mut self) -> FileResult<Idx> {
        let magic = self.bytes(4)?;
        let [0, 0, element, rank] = magic[..] else {
            return Err(FileError::at(self.path, 0, "not an IDX file: it must begin with two bytes of 0"));
        };
        let Some(&(_, _, dtype)) = TYPES.iter().find(|(code, ..)| *code == element) else {
            let known = TYPES.map(|(code, name, _)| format!("{code:#04x} ({name})")).join(", ");
            return Err(FileError::at(self.path, 2, format!("an IDX file must have elements of type {known}, not {element:#04x}")));
        };
        if rank == 0 || rank > MAX_RANK {
            return Err(FileError::at(self.path, 3, format!("an IDX file must have 1 to {MAX_RANK} dimensions, not {rank}")));
        }
        let header = self.bytes(4 * u64::from(rank))?;
        let dims: Vec<u32> = header.as_chunks().0.iter().map(|&word| u32::from_be_bytes(word)).collect();
        let width = if element == SHORTS { 2 } else { dtype.size() };
        let size = dims.iter().try_fold(width as u64, |size, &dim| size.checked_mul(dim.into())).filter(|&size| size <= LIMIT);
        let size = size.ok_or_else(|| FileError::at(self.path, 4, format!("dimensions {dims:?} need more than {LIMIT} bytes")))?;
        let mut data = self.bytes(size)?;
        let end = self.offset;
        if !self.up_to(1)?.is_empty() {
            return Err(FileError::at(self.path, end, format!("the file continues, but dimensions {dims:?} need only {size} bytes")));
        }
        swap(&mut data, width);
        if element == SHORTS {
            data = data.as_chunks().0.iter().flat_map(|&short| i32::from(i16::from_le_bytes(short)).to_le_bytes()).collect();
        }
        Ok(Idx { dtype, dims, data })
    }

    /// Reads the next `count` bytes.
    fn bytes(&mut self, count: u64) -> FileResult<Vec<u8>> {
        let bytes = self.up_to(count)?;
        let missing = count - bytes.len() as u64;
        if missing > 0 {
            return Err(FileError::at(self.path, self.offset, format!("the file is cut short: {missing} bytes are missing")));
        }
        Ok(bytes)
    }

    /// Reads the next `count` bytes, or fewer at the end of the file. The memory grows with the bytes read, not with `count`.
    fn up_to(&mut self, count: u64) -> FileResult<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(count).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(FileError::at(self.path, self.offset, error.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn try_read(bytes: &[u8]) -> Result<Idx, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        read(file.path()).map_err(|error| error.to_string())
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    const GOOD: [u8; 14] = [0, 0, 8, 2, 0, 0, 0, 1, 0, 0, 0, 2, 5, 6];

    #[test]
    fn plain_and_compressed() {
        let idx = Idx { dtype: DType::U8, dims: vec![1, 2], data: vec![5, 6] };
        assert_eq!(try_read(&GOOD), Ok(idx.clone()));
        assert_eq!(try_read(&gzip(&GOOD)), Ok(idx));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let packed = gzip(&GOOD);
        for bytes in [&GOOD[..], &packed] {
            for length in 0..bytes.len() {
                assert!(try_read(&bytes[..length]).is_err(), "{length} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn damage_names_the_place() {
        let with = |index: usize, value: u8| {
            let mut bytes = GOOD;
            bytes[index] = value;
            try_read(&bytes).unwrap_err()
        };
        assert!(with(0, 1).contains("at byte 0: not an IDX file"));
        assert!(with(2, 0x0a).contains("at byte 2: an IDX file must have elements of type 0x08 (unsigned bytes), 0x09"));
        assert!(with(2, 0x0d).contains("6 bytes are missing"));
        assert!(with(3, 0).contains("at byte 3: an IDX file must have 1 to 8 dimensions"));
        assert!(with(11, 3).contains("at byte 14: the file is cut short: 1 bytes are missing"));
        assert!(with(11, 1).contains("at byte 13: the file continues"));
        // A claim of 4 Gi elements allocates no memory.
        assert!(with(4, 255).contains("need more than"));
        let mut packed = gzip(&GOOD);
        let checksum = packed.len() - 8;
        packed[checksum] ^= 1;
        let damaged = try_read(&packed).unwrap_err();
        assert!(damaged.contains("GZIP data damaged near byte "), "{damaged}");
        assert!(damaged.ends_with(" of the compressed file: incorrect data check"), "{damaged}");
    }

    #[test]
    fn every_element_type() {
        let shorts = try_read(&[0, 0, 0x0b, 1, 0, 0, 0, 2, 1, 2, 0xff, 0xfe]).unwrap();
        assert_eq!(shorts.tensor(&crate::compute::devices::cpu()).unwrap().to_vec::<i32>().unwrap(), [0x0102, -2]);
        let folder = tempfile::tempdir().unwrap();
        for dtype in DType::ALL {
            let idx = Idx { dtype, dims: vec![3, 1], data: (0..3 * dtype.size() as u8).collect() };
            let written = write(&folder.path().join(dtype.name()), &idx);
            assert_eq!(written.is_ok(), TYPES.iter().any(|(.., known)| *known == dtype), "{dtype}");
            if written.is_ok() {
                assert_eq!(read(&folder.path().join(dtype.name())).unwrap(), idx);
            }
        }
        let few = Idx { dtype: DType::F32, dims: vec![2], data: vec![0; 7] };
        assert!(write(&folder.path().join("few"), &few).is_err());
    }
}
