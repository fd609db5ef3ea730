//! What must hold of any bytes that are read as TFRecord: for the fuzz target, and for the short run in the tests.

use bytes::Bytes;
use gradlet::tfrecord::{Compression, RecordError, RecordIndex, RecordReader, RecordWriter, Records, masked_crc32c};
use std::io::Write;

const COMPRESSIONS: [Compression; 3] = [Compression::None, Compression::Gzip, Compression::Zlib];

/// The bytes that are read at a time: less than usual, which takes less time.
const BLOCK: usize = 4096;

/// Reads `data` as records in every way; panics where the ways differ. The first byte chooses: the compression; whether checksums
/// are made right first; whether the rest is compressed first; whether a byte of that is changed then.
///
/// Gives how many records there were, and the error if there was one.
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

/// Stores the right checksum after each length, and after all data that is there.
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

/// All records up to the first error, and that error.
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
        // How much is inflated at a time decides which of two errors is met first, not which records are whole.
        assert!(again == records && other.is_some() == error.is_some(), "{} and {}", text(&error), text(&other));
    }
    for at in [0, 1, records.len() / 2, records.len()] {
        let found = RecordReader::with_buffer_size(&bytes[..], compression, BLOCK).nth(at).and_then(Result::ok);
        assert!(found.as_ref() == records.get(at), "record {at}, found by its number, is another");
    }
    (records.len(), error)
}

/// The ways to read that do not know compression.
fn uncompressed(bytes: &Bytes, records: &[Bytes], error: &Option<RecordError>) {
    let (again, other) = all(Records::new(bytes.clone()));
    assert!(again == records && text(&other) == text(error), "{} and {}", text(error), text(&other));
    let mut writer = RecordWriter::new(Vec::new(), Compression::None);
    records.iter().for_each(|record| writer.write(record).expect("memory can be written"));
    let written = writer.into_inner().expect("memory can be written");
    assert!(bytes.starts_with(&written), "written again, the bytes are others");
    if let Ok(index) = RecordIndex::new(bytes.clone()) {
        for (at, record) in records.iter().enumerate() {
            assert!(index.get(at).is_ok_and(|found| found == record), "record {at} of the index is another");
        }
        assert!(index.get(index.len()).is_err());
    }
}
