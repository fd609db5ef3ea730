//! IDX, the format of the MNIST files: a header that gives an element type and dimensions, then the elements.
//!
//! `00 00 type rank`, then `rank` big-endian 32-bit dimensions, then row-major elements
//! (<http://yann.lecun.com/exdb/mnist/>). Only elements of type 8, unsigned bytes, are read.

use crate::file_error::{FileError, FileResult};
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// The most bytes of elements that are read: what a damaged header or a malicious compressed file can cost.
pub const LIMIT: u64 = 1 << 30;
const UNSIGNED_BYTES: u8 = 8;
const MAX_RANK: u8 = 8;

/// The content of an IDX file of unsigned bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idx {
    /// The dimensions, outermost first; the first counts the records.
    pub dims: Vec<u32>,
    /// The elements, in row-major order.
    pub data: Vec<u8>,
}

/// Reads an IDX file, plain or compressed by gzip.
///
/// Fails, naming the file and the byte, where it is cut short or damaged, holds other elements than unsigned bytes, is
/// longer than its header says, or would hold more than [`LIMIT`] bytes. Nothing is allocated for sizes that a header
/// only claims.
///
/// ```
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("labels");
/// std::fs::write(&path, [0, 0, 8, 1, 0, 0, 0, 3, 7, 2, 1])?;
/// let idx = gradlet::idx::read(&path)?;
/// assert_eq!((idx.dims, idx.data), (vec![3], vec![7, 2, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: &Path) -> FileResult<Idx> {
    let mut file = File::open(path).map_err(|error| FileError::io(path, error))?;
    let mut magic = [0; 2];
    let gzip = match file.read_exact(&mut magic) {
        Ok(()) => magic == [0x1f, 0x8b],
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => false,
        Err(error) => return Err(FileError::io(path, error)),
    };
    file.rewind().map_err(|error| FileError::io(path, error))?;
    let file = BufReader::new(file);
    if gzip {
        Reader { path, from: flate2::bufread::MultiGzDecoder::new(file), offset: 0 }.idx()
    } else {
        Reader { path, from: file, offset: 0 }.idx()
    }
}

/// Reads and counts, so that errors know where they are.
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
        if element != UNSIGNED_BYTES {
            return Err(FileError::at(
                self.path,
                2,
                format!("elements of IDX type {element:#04x} are not read, only 0x08, unsigned bytes"),
            ));
        }
        if rank == 0 || rank > MAX_RANK {
            return Err(FileError::at(self.path, 3, format!("an IDX file has 1 to {MAX_RANK} dimensions, not {rank}")));
        }
        let header = self.bytes(4 * u64::from(rank))?;
        let dims: Vec<u32> = header.as_chunks().0.iter().map(|&word| u32::from_be_bytes(word)).collect();
        let size = dims.iter().try_fold(1u64, |size, &dim| size.checked_mul(dim.into())).filter(|&size| size <= LIMIT);
        let size = size.ok_or_else(|| FileError::at(self.path, 4, format!("dimensions {dims:?} make more than {LIMIT} elements")))?;
        let data = self.bytes(size)?;
        let end = self.offset;
        if !self.up_to(1)?.is_empty() {
            return Err(FileError::at(self.path, end, format!("the file goes on, but dimensions {dims:?} make only {size} elements")));
        }
        Ok(Idx { dims, data })
    }

    /// The next `count` bytes.
    fn bytes(&mut self, count: u64) -> FileResult<Vec<u8>> {
        let bytes = self.up_to(count)?;
        let missing = count - bytes.len() as u64;
        if missing > 0 {
            return Err(FileError::at(self.path, self.offset, format!("the file is cut short: {missing} bytes are missing")));
        }
        Ok(bytes)
    }

    /// The next `count` bytes or what there is; memory grows with what comes, not with what is asked for.
    fn up_to(&mut self, count: u64) -> FileResult<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.from.by_ref().take(count).read_to_end(&mut bytes);
        self.offset += bytes.len() as u64;
        match read {
            Ok(_) => Ok(bytes),
            Err(error) => Err(FileError::at(self.path, self.offset, damage(&error))),
        }
    }
}

fn damage(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the compressed file is cut short".into(),
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => format!("the compressed file is damaged: {error}"),
        _ => error.to_string(),
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
        let idx = Idx { dims: vec![1, 2], data: vec![5, 6] };
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
        assert!(with(2, 0x0d).contains("at byte 2: elements of IDX type 0x0d"));
        assert!(with(3, 0).contains("at byte 3: an IDX file has 1 to 8 dimensions"));
        assert!(with(11, 3).contains("at byte 14: the file is cut short: 1 bytes are missing"));
        assert!(with(11, 1).contains("at byte 13: the file goes on"));
        // A claim of 4 Gi elements costs nothing.
        assert!(with(4, 255).contains("make more than"));
        let mut packed = gzip(&GOOD);
        let checksum = packed.len() - 8;
        packed[checksum] ^= 1;
        assert!(try_read(&packed).unwrap_err().contains("the compressed file is damaged"), "{:?}", try_read(&packed));
    }
}
