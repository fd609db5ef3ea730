//! Datasets of the lines of text files and of fixed-length records.

use crate::data::dataset::Dataset;
use crate::files::{FileError, FileResult};
use crate::formats::tfrecord::{Compression, Inflated};
use bytes::Bytes;
use gradlet_core::Result;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// Size of the read buffer of a file, in bytes.
const BUFFER: usize = 256 << 10;

/// Opens a file and decompresses its content.
pub(super) fn open(path: &Path, compression: Compression) -> FileResult<Box<dyn BufRead + Send>> {
    let file = File::open(path).map_err(|error| missing(path, error))?;
    Ok(match compression {
        Compression::None => Box::new(BufReader::with_capacity(BUFFER, file)),
        _ => Box::new(BufReader::with_capacity(BUFFER, Inflated::new(file, compression, Some(path)))),
    })
}

/// Converts an error of opening a file. A missing file has TensorFlow's message.
fn missing(path: &Path, error: io::Error) -> FileError {
    match error.kind() {
        io::ErrorKind::NotFound => FileError::new(path, "No such file or directory"),
        _ => FileError::io(path, error),
    }
}

/// Creates a dataset of the elements that `read` returns for each file, one file after the other. Each file is opened when its first
/// element is needed.
pub(super) fn of_files<T: Send + 'static, I>(
    name: &'static str,
    files: &[impl AsRef<Path>],
    read: impl Fn(&Path) -> FileResult<I> + Clone + Send + Sync + 'static,
) -> Dataset<T>
where
    I: Iterator<Item = Result<T>> + Send + 'static,
{
    let files: Vec<PathBuf> = files.iter().map(|file| file.as_ref().into()).collect();
    Dataset::from_fn(name, move || {
        let read = read.clone();
        Ok(files.clone().into_iter().flat_map(move |path| {
            let (elements, error) = match read(&path) {
                Ok(elements) => (Some(elements), None),
                Err(error) => (None, Some(Err(error.into()))),
            };
            error.into_iter().chain(elements.into_iter().flatten())
        }))
    })
}

impl Dataset<Bytes> {
    /// Creates a dataset of the lines of text files, without line ends. Equivalent of `tf.data.TextLineDataset`, which removes every `\r`,
    /// even within a line.
    ///
    /// An error takes the place of a file that cannot be read, and ends a compressed file that is damaged.
    ///
    /// ```
    /// use gradlet::data::Dataset;
    /// use gradlet::io::tfrecord::Compression;
    /// let folder = tempfile::tempdir()?;
    /// let path = folder.path().join("poem.txt");
    /// gradlet::io::write_file(&path, b"one\r\ntwo\n\nend")?;
    /// let lines: Vec<_> = Dataset::text_lines(&[path], Compression::None).iter().collect::<gradlet::Result<_>>()?;
    /// assert_eq!(lines, ["one", "two", "", "end"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn text_lines(files: &[impl AsRef<Path>], compression: Compression) -> Dataset<Bytes> {
        of_files("text_lines", files, move |path| Ok(Lines { path: path.into(), from: Some(open(path, compression)?) }))
    }

    /// Creates a dataset of the fixed-length records of files. `layout` is the size of the records and of the header and footer, which are
    /// skipped. Equivalent of `tf.data.FixedLengthRecordDataset`.
    ///
    /// An error takes the place of a file that cannot be read, is compressed and damaged, or does not contain a whole number of records.
    pub fn fixed_length_records(files: &[impl AsRef<Path>], layout: FixedLength, compression: Compression) -> Dataset<Bytes> {
        of_files("fixed_length_records", files, move |path| FixedRecords::open(path, layout, compression))
    }
}

struct Lines {
    path: PathBuf,
    /// Reader of the file. `None` after the end.
    from: Option<Box<dyn BufRead + Send>>,
}

impl Iterator for Lines {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        let mut line = Vec::new();
        match self.from.as_mut()?.read_until(b'\n', &mut line) {
            Ok(_) => {
                let ended = line.pop_if(|last| *last == b'\n').is_some();
                if line.contains(&b'\r') {
                    line.retain(|byte| *byte != b'\r');
                }
                // The file ends here, without further bytes or with only `\r`.
                if !ended && line.is_empty() {
                    self.from = None;
                    return None;
                }
                Some(Ok(line.into()))
            }
            Err(error) => {
                self.from = None;
                Some(Err(FileError::io(&self.path, error).into()))
            }
        }
    }
}

/// Layout of a file of fixed-length records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedLength {
    /// Size of a record in bytes, at least 1.
    pub record_bytes: usize,
    /// Number of bytes before the first record.
    pub header_bytes: usize,
    /// Number of bytes after the last record.
    pub footer_bytes: usize,
}

impl FixedLength {
    /// Creates a layout with records of `record_bytes` bytes, without header and footer.
    pub fn new(record_bytes: usize) -> FixedLength {
        FixedLength { record_bytes, header_bytes: 0, footer_bytes: 0 }
    }
}

/// Iterator over the records of a file. `left` is the number of bytes of the records that are not read yet.
struct FixedRecords {
    path: PathBuf,
    from: Box<dyn BufRead + Send>,
    record: usize,
    left: u64,
}

impl FixedRecords {
    fn open(path: &Path, layout: FixedLength, compression: Compression) -> FileResult<FixedRecords> {
        let FixedLength { record_bytes, header_bytes, footer_bytes } = layout;
        let failed = |error| FileError::io(path, error);
        let mut from = open(path, compression)?;
        let size = match compression {
            Compression::None => std::fs::metadata(path).map_err(failed)?.len(),
            // The size of the content is known only after decompression.
            _ => io::copy(&mut open(path, compression)?, &mut io::sink()).map_err(failed)?,
        };
        let body = size.checked_sub(header_bytes as u64).and_then(|rest| rest.checked_sub(footer_bytes as u64));
        match body {
            Some(left) if record_bytes > 0 && left % record_bytes as u64 == 0 => {
                io::copy(&mut from.by_ref().take(header_bytes as u64), &mut io::sink()).map_err(failed)?;
                Ok(FixedRecords { path: path.into(), from, record: record_bytes, left })
            }
            _ => {
                let body = i128::from(size) - header_bytes as i128 - footer_bytes as i128;
                let text = format!(
                    "Excluding the header ({header_bytes} bytes) and footer ({footer_bytes} bytes), input file \"{}\" has body length \
                     {body} bytes, which is not an exact multiple of the record length ({record_bytes} bytes).",
                    path.display()
                );
                Err(FileError::new(path, text))
            }
        }
    }
}

impl Iterator for FixedRecords {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Result<Bytes>> {
        self.left = self.left.checked_sub(self.record as u64)?;
        let mut record = vec![0; self.record];
        match self.from.read_exact(&mut record) {
            Ok(()) => Some(Ok(record.into())),
            Err(error) => {
                self.left = 0;
                Some(Err(FileError::io(&self.path, error).into()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn all(dataset: Dataset<Bytes>) -> Vec<std::result::Result<Bytes, String>> {
        dataset.iter().map(|element| element.map_err(|error| error.to_string())).collect()
    }

    #[test]
    fn lines_of_several_files() {
        let folder = tempfile::tempdir().unwrap();
        let (plain, packed, cut) = (folder.path().join("a"), folder.path().join("b.gz"), folder.path().join("c.z"));
        std::fs::write(&plain, b"first\nsecond\r\n\nlast\rword").unwrap();
        let lines = all(Dataset::text_lines(&[plain.clone(), folder.path().join("none"), plain.clone()], Compression::None));
        assert_eq!(lines[..4], ["first", "second", "", "lastword"].map(|line| Ok(Bytes::from(line))));
        assert!(lines[4].as_ref().unwrap_err().contains("none: No such file or directory"), "{:?}", lines[4]);
        assert_eq!(lines.len(), 9);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"x\ny\n").unwrap();
        std::fs::write(&packed, gzip.finish().unwrap()).unwrap();
        assert_eq!(all(Dataset::text_lines(&[packed], Compression::Gzip)), [Ok("x".into()), Ok("y".into())]);
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
        zlib.write_all(&[b'a'; 1000]).unwrap();
        std::fs::write(&cut, &zlib.finish().unwrap()[..9]).unwrap();
        assert!(matches!(&all(Dataset::text_lines(&[cut], Compression::Zlib))[..], [.., Err(_)]));
    }

    /// The expected lines come from TensorFlow 2.21, for the same bytes.
    #[test]
    fn lines_lose_every_carriage_return() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        let cases: [(&[u8], &[&str]); 6] = [
            (b"first\nsecond\r\n\nlast\rword", &["first", "second", "", "lastword"]),
            (b"a\r\rb\r\nc\r", &["ab", "c"]),
            (b"x\r\n\ry\n", &["x", "y"]),
            (b"\r\n\r", &[""]),
            (b"\r", &[]),
            (b"", &[]),
        ];
        for (text, wanted) in cases {
            std::fs::write(&path, text).unwrap();
            let lines: Vec<_> = all(Dataset::text_lines(&[&path], Compression::None)).into_iter().map(Result::unwrap).collect();
            assert_eq!(lines, wanted, "{text:?}");
        }
    }

    #[test]
    fn damage_is_told_in_the_words_of_zlib() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text.gz");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(b"one\ntwo\n").unwrap();
        let mut bytes = gzip.finish().unwrap();
        let checksum = bytes.len() - 8;
        bytes[checksum] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        let lines = all(Dataset::text_lines(&[&path], Compression::Gzip));
        let error = lines.last().unwrap().as_ref().unwrap_err();
        assert!(error.contains("text.gz: GZIP data damaged near byte "), "{error}");
        assert!(error.ends_with(" of the compressed file: incorrect data check"), "{error}");
        std::fs::write(&path, &bytes[..checksum]).unwrap();
        let lines = all(Dataset::text_lines(&[&path], Compression::Gzip));
        assert!(lines.last().unwrap().as_ref().unwrap_err().ends_with("text.gz: the compressed file is cut short"), "{lines:?}");
    }

    #[test]
    fn records_of_one_length() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fixed.bin");
        std::fs::write(&path, (0..14).collect::<Vec<u8>>()).unwrap();
        let records = |layout| all(Dataset::fixed_length_records(std::slice::from_ref(&path), layout, Compression::None));
        let layout = FixedLength { header_bytes: 2, ..FixedLength::new(3) };
        assert_eq!(records(layout)[3], Ok(Bytes::from_static(&[11, 12, 13])));
        assert_eq!(records(FixedLength { footer_bytes: 1, header_bytes: 1, ..layout }).len(), 4);
        let error = records(FixedLength { header_bytes: 1, ..FixedLength::new(4) })[0].clone().unwrap_err();
        let wanted = "Excluding the header (1 bytes) and footer (0 bytes), input file \"";
        let end = "has body length 13 bytes, which is not an exact multiple of the record length (4 bytes).";
        assert!(error.contains(wanted) && error.contains(end), "{error}");
        assert!(records(FixedLength::new(0))[0].is_err());
        assert!(records(FixedLength { footer_bytes: 20, ..layout })[0].is_err());
    }
}
