//! Damaged TFRecord files. A reader returns the intact records before the damage, then an error or the end of the file.

use gradlet::io::tfrecord::{Compression, Fault, RecordReader, RecordWriter};
use gradlet_tests::fuzz::records::exercise;
use gradlet_tests::random::Random;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

/// Number of damaged files.
const MUTATIONS: u64 = 20_000;
/// Time limit of one file. An intact one takes microseconds.
const LIMIT: Duration = Duration::from_secs(1);

const SIZES: [usize; 8] = [5, 0, 1, 300, 0, 70, 2000, 12];

fn good(compression: Compression) -> Vec<u8> {
    let mut random = Random::new(1);
    let mut writer = RecordWriter::new(Vec::new(), compression);
    for size in SIZES {
        let record: Vec<u8> = (0..size).map(|_| random.below(16) as u8).collect();
        writer.write(&record).unwrap();
    }
    writer.into_inner().unwrap()
}

/// Returns valid files. Each follows a byte that selects its compression for the fuzz target.
pub fn seeds() -> Vec<Vec<u8>> {
    let files = [Compression::None, Compression::Gzip, Compression::Zlib].map(good);
    (0u8..).zip(files).map(|(choice, file)| [&[choice], &file[..]].concat()).collect()
}

#[test]
fn every_truncation_gives_the_records_before() {
    let good = good(Compression::None);
    let mut ends = vec![0];
    SIZES.iter().for_each(|size| ends.push(ends[ends.len() - 1] + size + 16));
    for length in 0..=good.len() {
        let whole = ends.iter().filter(|&&end| end <= length).count() - 1;
        let (records, error) = exercise(&[&[0], &good[..length]].concat());
        assert_eq!(records, whole, "cut to {length} bytes");
        let left = length - ends[whole];
        // A truncation within a record's header is a clean end.
        let offset = (left >= 12).then_some(ends[whole] as u64);
        assert_eq!(error.and_then(|error| error.offset()), offset, "cut to {length} bytes");
    }
}

/// Like TensorFlow's reader, gradlet's ends without an error in a truncated header, but `RecordReader::cut` reports the truncation.
#[test]
fn cuts_are_told() {
    for compression in [Compression::None, Compression::Gzip, Compression::Zlib] {
        let good = good(compression);
        for length in 0..=good.len() {
            let mut reader = RecordReader::new(&good[..length], compression);
            assert_eq!(reader.cut(), None);
            let errors = reader.by_ref().filter(Result::is_err).count();
            let offset = reader.offset() as usize;
            let whole = length == good.len() || length == 0 || compression == Compression::None && length == offset;
            assert_eq!(reader.cut().is_some(), errors == 0 && !whole, "{compression}, cut to {length} bytes");
        }
    }
}

#[test]
fn every_changed_bit_is_found() {
    let good = good(Compression::None);
    for bit in 0..good.len() * 8 {
        let mut bytes = good.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let (records, error) = exercise(&[&[0], &bytes[..]].concat());
        assert!(records < SIZES.len() && error.is_some_and(|error| error.is_data_loss()), "bit {bit}");
    }
}

#[test]
fn compressed_files_may_be_cut() {
    for (choice, compression) in [(1, Compression::Gzip), (2, Compression::Zlib)] {
        let good = good(compression);
        let mut before = 0;
        for length in 0..=good.len() {
            let (records, error) = exercise(&[&[choice], &good[..length]].concat());
            assert!(records >= before, "{compression}, cut to {length} bytes: {records} records");
            assert!(error.is_none_or(|error| error.offset().is_some()), "{compression}, cut to {length} bytes");
            before = records;
        }
        assert_eq!(before, SIZES.len());
    }
}

#[test]
fn mutations_end() {
    let mut random = Random::new(7);
    let samples = [Compression::None, Compression::Gzip, Compression::Zlib].map(good);
    let (mut whole, mut damaged) = (0, 0);
    for _ in 0..MUTATIONS {
        let choice = random.bits() as u8;
        let sample = if choice & 8 == 0 { usize::from(choice & 3) % 3 } else { 0 };
        let mut data = [&[choice], &samples[sample][..]].concat();
        for _ in 0..random.below(4) {
            let at = random.below(data.len());
            data[at] = [0, 1, 0x7f, 0xff, random.bits() as u8][random.below(5)];
        }
        data.truncate(if random.coin() { data.len() } else { random.below(data.len() + 1) });
        let start = Instant::now();
        let (records, error) = exercise(&data);
        assert!(start.elapsed() < LIMIT, "{data:?} took {:?}", start.elapsed());
        whole += usize::from(records > 0);
        damaged += usize::from(error.is_some());
    }
    assert!(whole > 1000 && damaged > 1000, "{whole} with records, {damaged} damaged");
}

/// zlib-rs loses the cause of an error in its fast loop. For a file, gradlet finds the cause again. For any other stream, the error
/// lists the possible causes.
#[test]
fn inflating_fails_in_the_words_of_zlib() {
    let mut random = Random::new(2);
    let record: Vec<u8> = (0..100_000).flat_map(|at| format!("{} {} ", at % 97, random.below(16)).into_bytes()).collect();
    let mut writer = RecordWriter::new(Vec::new(), Compression::Gzip);
    writer.write(&record).unwrap();
    let good = writer.into_inner().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("damaged.gz");
    let (mut causes, mut open) = (BTreeMap::<String, usize>::new(), 0);
    for round in 0..400 {
        let mut bytes = good.clone();
        let at = 20 + random.below(bytes.len() - 20);
        bytes[at] ^= 1 << (round % 8);
        std::fs::write(&path, &bytes).unwrap();
        let text = |mut reader: RecordReader<_>| match reader.next_record() {
            Some(Err(error)) if matches!(error.fault(), Fault::Inflate { .. }) => {
                assert!(error.to_string().contains("damaged.gz: "), "{error}");
                Some(error.to_string().rsplit_once("of the compressed file: ").unwrap().1.to_string())
            }
            _ => None,
        };
        let Some(cause) = text(RecordReader::open(&path, Compression::Gzip).unwrap()) else { continue };
        let file = |name: &Path| RecordReader::new(std::fs::File::open(&path).unwrap(), Compression::Gzip).with_path(name);
        let elsewhere = text(file(&path.with_file_name("not there").join("damaged.gz"))).unwrap();
        assert!(elsewhere == cause || elsewhere.contains(" or ") && elsewhere.contains(&cause), "{cause}: {elsewhere}");
        open += usize::from(elsewhere != cause);
        *causes.entry(cause).or_default() += 1;
    }
    assert!(causes.contains_key("invalid distance too far back") && causes.contains_key("incorrect data check"), "{causes:?}");
    assert!(open > 0 && causes.keys().all(|cause| !cause.contains(" or ") && !cause.contains("bad state")), "{causes:?}");
}

/// A record length without data behind it does not make the reader allocate memory.
#[test]
fn claims_are_not_believed() {
    for length in [1u64 << 30, 1 << 40, 1 << 62, u64::MAX - 4, u64::MAX] {
        let mut bytes = [0; 100];
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        let crc = gradlet::io::tfrecord::masked_crc32c(&length.to_le_bytes());
        bytes[8..12].copy_from_slice(&crc.to_le_bytes());
        let mut reader = RecordReader::new(&bytes[..], Compression::None);
        let error = reader.next_record().unwrap().unwrap_err();
        assert_eq!(error.offset(), Some(0));
        assert!(error.to_string().contains("truncated record at 0"), "{error}");
        let (records, error) = exercise(&[&[0], &bytes[..]].concat());
        assert!(records == 0 && error.is_some());
    }
}
