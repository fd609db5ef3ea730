//! Properties of any bytes that are read as TFRecord files, for the fuzz target and for the short run in the tests.

use bytes::Bytes;
use gradlet::io::tfrecord::{Compression, RecordError, RecordIndex, RecordReader, RecordWriter, Records, masked_crc32c};
use std::io::Write;

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zlib];

/// Buffer size of the readers, in bytes. It is smaller than the default, which is faster here.
const BLOCK: usize = 4096;

/// Reads the bytes after the first as records, with every reader. Panics if two readers return different results. The first byte selects
/// the compression. It also selects whether this function first corrects the checksums, whether it first compresses the bytes, and whether
/// it changes a byte of the compressed data.
///
/// Returns the number of records, and the error if there was one.
pub fn exercise(data: &[u8]) -> (usize, Option<RecordError>) {
    let Some((&choice, rest)) = data.split_first() else { return (0, None) };
    let mut bytes = rest.to_vec();
    if choice & 4 != 0 {
        fix_checksums(&mut bytes);
    }
    let compression = COMPRESSIONS[usize::from(choice & 3) % 3];
    if choice & 8 != 0 {
        bytes = compressed(&bytes, compression);
        let length = bytes.len();
        if let Some(byte) = bytes.get_mut(usize::from(choice >> 5) * length / 8).filter(|_| choice & 16 != 0) {
            *byte ^= rest.first().copied().unwrap_or(1);
        }
    }
    read(bytes.into(), compression)
}

/// Stores the correct checksum after each length, and after each record that is complete.
fn fix_checksums(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some((length, rest)) = bytes.get_mut(at..).and_then(|bytes| bytes.split_first_chunk_mut::<8>()) {
        let crc = masked_crc32c(length);
        let Some((stored, rest)) = rest.split_first_chunk_mut::<4>() else { return };
        *stored = crc.to_le_bytes();
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
        let Some((data, rest)) = rest.split_at_mut_checked(length) else { return };
        let Some(stored) = rest.first_chunk_mut::<4>() else { return };
        *stored = masked_crc32c(data).to_le_bytes();
        at += 16 + length;
    }
}

fn compressed(bytes: &[u8], compression: Compression) -> Vec<u8> {
    let level = flate2::Compression::fast();
    let written = match compression {
        Compression::None => return bytes.to_vec(),
        Compression::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish())
        }
        Compression::Zlib => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
            encoder.write_all(bytes).and_then(|()| encoder.finish())
        }
    };
    written.expect("memory can be written")
}

/// Returns all records up to the first error, and that error, or `None` if there is no error.
fn all(items: impl Iterator<Item = Result<Bytes, RecordError>>) -> (Vec<Bytes>, Option<RecordError>) {
    let (mut records, mut error) = (Vec::new(), None);
    for item in items {
        assert!(error.is_none(), "an item follows the error");
        match item {
            Ok(record) => records.push(record),
            Err(found) => error = Some(found),
        }
    }
    (records, error)
}

fn text(error: &Option<RecordError>) -> String {
    error.as_ref().map(RecordError::to_string).unwrap_or_default()
}

fn read(bytes: Bytes, compression: Compression) -> (usize, Option<RecordError>) {
    let (records, error) = all(RecordReader::with_buffer_size(&bytes[..], compression, BLOCK));
    assert!(error.as_ref().is_none_or(RecordError::is_data_loss), "{error:?}");
    let (again, other) = all(RecordReader::with_buffer_size(&bytes[..], compression, 64));
    if compression == Compression::None {
        assert!(again == records && text(&other) == text(&error), "{} and {}", text(&error), text(&other));
        uncompressed(&bytes, &records, &error);
    } else {
        // The buffer size may decide which of two errors comes first, but not which records are complete.
        assert!(again == records && other.is_some() == error.is_some(), "{} and {}", text(&error), text(&other));
    }
    for at in [0, 1, records.len() / 2, records.len()] {
        let found = RecordReader::with_buffer_size(&bytes[..], compression, BLOCK).nth(at).and_then(Result::ok);
        assert!(found.as_ref() == records.get(at), "record {at} differs when it is read by its number");
    }
    (records.len(), error)
}

/// Checks that the readers without support for compression return `records` and `error` too, and that writing `records` produces the same
/// bytes again.
fn uncompressed(bytes: &Bytes, records: &[Bytes], error: &Option<RecordError>) {
    let (again, other) = all(Records::new(bytes.clone()));
    assert!(again == records && text(&other) == text(error), "{} and {}", text(error), text(&other));
    let mut writer = RecordWriter::new(Vec::new(), Compression::None);
    records.iter().for_each(|record| writer.write(record).expect("memory can be written"));
    let written = writer.into_inner().expect("memory can be written");
    assert!(bytes.starts_with(&written), "the bytes differ after the records were written again");
    if let Ok(index) = RecordIndex::new(bytes.clone()) {
        for (at, record) in records.iter().enumerate() {
            assert!(index.get(at).is_ok_and(|found| found == record), "record {at} differs when it is read through the index");
        }
        assert!(index.get(index.len()).is_err());
    }
}
