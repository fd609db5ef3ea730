//! Reads of damaged files allocate no more memory than the files' sizes justify.

use crate::counting::LARGEST;
use gradlet::io::tfrecord::{Compression, RecordFiles, RecordReader, masked_crc32c};
use gradlet_tests::fuzz::readers::{READERS, mutate};
use gradlet_tests::random::Random;
use std::io::Write;
use std::time::{Duration, Instant};

#[test]
fn damaged_files_are_read_or_refused() {
    for reader in &READERS {
        let samples = (reader.samples)();
        assert!(!samples.is_empty() && samples.iter().all(|sample| !sample.is_empty()), "{}", reader.name);
        let accepted = samples.iter().filter(|sample| (reader.read)(sample).is_ok()).count();
        assert!(accepted > 0, "{}: {:?}", reader.name, (reader.read)(&samples[0]));
        let mut random = Random::new(5);
        let mut refused = 0;
        for round in 0..reader.damaged {
            let mut file = samples[round % samples.len()].clone();
            mutate(&mut file, &mut random);
            LARGEST.set(0);
            let begin = Instant::now();
            refused += usize::from((reader.read)(&file).is_err());
            let (largest, most) = (LARGEST.get(), reader.allocation(file.len()));
            assert!(largest <= most, "{} allocates {largest} bytes for a file of {}: {file:?}", reader.name, file.len());
            assert!(begin.elapsed() < Duration::from_secs(10), "{} takes {:?} for {file:?}", reader.name, begin.elapsed());
        }
        assert!(refused > 300, "{} refused only {refused}", reader.name);
    }
}

#[test]
fn every_truncation_of_a_model_is_refused() {
    let reader = gradlet_tests::fuzz::readers::reader("tflite");
    for file in (reader.samples)() {
        for end in 0..file.len() {
            LARGEST.set(0);
            assert!((reader.read)(&file[..end]).is_err(), "the first {end} of {} bytes are accepted", file.len());
            assert!(LARGEST.get() <= reader.allocation(end), "{} bytes for a file of {end}", LARGEST.get());
        }
    }
}

/// A reader allocates no memory for data that a file claims but does not contain.
#[test]
fn claims_cost_nothing() {
    let read = |name| gradlet_tests::fuzz::readers::reader(name).read;
    let header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x06\0\0\0";
    let png = [&[0], &header[..], &crc32(&header[12..])[..]].concat();
    let jpeg = [&[0][..], b"\xff\xd8\xff\xc0\0\x11\x08\xff\xff\xff\xff\x03\x01\x22\0\x02\x11\x01\x03\x11\x01"].concat();
    let idx = b"\0\0\x0e\x01\x07\xff\xff\xff12345678".to_vec();
    let npy = b"\x93NUMPY\x02\0\xff\xff\xff\xff{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }\n".to_vec();
    for (name, file) in [("image", png), ("image", jpeg), ("idx", idx), ("npy", npy)] {
        LARGEST.set(0);
        let said = read(name)(&file);
        assert!(said.is_err() && LARGEST.get() < 64 << 10, "{name}: {said:?}, {} bytes", LARGEST.get());
    }
}

/// Reads 3 MB of GZIP data that hold a record of 3 GB.
#[test]
fn a_record_that_is_too_long_costs_nothing() {
    let packed = |bytes: &[u8]| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(bytes).and_then(|()| gzip.finish()).unwrap()
    };
    let length = (3u64 << 30).to_le_bytes();
    let header = [&length[..], &masked_crc32c(&length).to_le_bytes()].concat();
    let bomb = [packed(&header), packed(&vec![0; 1 << 20]).repeat(3 << 10)].concat();
    assert!(bomb.len() < 4 << 20);
    LARGEST.set(0);
    let mut reader = RecordReader::new(&bomb[..], Compression::Gzip);
    let error = reader.next_record().unwrap().unwrap_err();
    let text = "the record at 0 has 3221225472 bytes of data, which is more than the limit of 268435456: max_record_bytes() of";
    assert!(error.to_string().starts_with(text) && !error.is_data_loss() && error.offset() == Some(0), "{error}");
    assert!(reader.next_record().is_none());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bomb");
    std::fs::write(&path, &bomb).unwrap();
    let files = RecordFiles::new([&path]).compression(Compression::Gzip).max_record_bytes(1 << 30);
    let errors: Vec<_> = files.dataset().iter().map(|record| record.unwrap_err().to_string()).collect();
    assert!(errors.len() == 1 && errors[0].contains("more than the limit of 1073741824"), "{errors:?}");
    // A record that ends before the limit is truncated, as without a limit.
    let mut cut = RecordReader::new(&bomb[..100_000], Compression::Gzip);
    assert!(cut.next_record().unwrap().unwrap_err().to_string().contains("truncated record at 0"));
    assert!(LARGEST.get() <= 512 << 10, "{} bytes", LARGEST.get());
}

fn crc32(bytes: &[u8]) -> [u8; 4] {
    let step = |crc: u32, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg()));
    (!bytes.iter().fold(!0u32, step)).to_be_bytes()
}
