//! TFRecord files that TensorFlow wrote, intact and damaged, with the records or errors that TensorFlow returns when it reads them.

use crate::golden::checks::{Checks, hex, hex_field, json};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use gradlet::io::tfrecord::{
    Compression, Fault, RecordError, RecordFiles, RecordIndex, RecordReader, RecordWriter, Records, masked_crc32c,
};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Runs `crc32c.json`: checksums of bytes in hexadecimal.
pub fn checksums(folder: &Path, checks: &mut Checks) -> Result<()> {
    for (text, wanted) in json(folder, "crc32c.json")?.as_object().context("expected a JSON object")? {
        checks.check(&format!("crc32c of {text:?}"), || {
            let masked = masked_crc32c(&hex(text)?);
            ensure!(wanted["masked"] == masked, "got masked {masked}, wanted {}", wanted["masked"]);
            let plain = masked.wrapping_sub(0xa282_ead8).rotate_left(15);
            ensure!(wanted["crc32c"] == plain, "got {plain}, wanted {}", wanted["crc32c"]);
            Ok(())
        });
    }
    Ok(())
}

/// Runs `records.json`: the records of intact files, and the order of records from several files.
pub fn records(folder: &Path, checks: &mut Checks) -> Result<()> {
    for (name, wanted) in json(folder, "records.json")?.as_object().context("expected a JSON object")? {
        if name == "multi" {
            many(folder, wanted, checks)?;
        } else {
            checks.check(name, || whole(&folder.join(name), wanted));
        }
    }
    Ok(())
}

/// Reads an intact file with every reader, and writes it again.
fn whole(path: &Path, wanted: &Json) -> Result<()> {
    let compression = Compression::from(wanted["compression"].as_str().context("no compression")?);
    let wanted_bytes = wanted["file_bytes"].as_u64();
    ensure!(wanted_bytes == Some(fs::metadata(path)?.len()), "the file does not have {wanted_bytes:?} bytes");
    let wanted = wanted["records"].as_array().context("no list of records")?;
    let mut reader = RecordReader::open(path, compression)?;
    let mut records = Vec::new();
    let mut written = RecordWriter::new(Vec::new(), Compression::None);
    for (index, wanted) in wanted.iter().enumerate() {
        let offset = reader.offset();
        let record = reader.next_record().with_context(|| format!("only {index} records"))??;
        one(offset, record, wanted).with_context(|| format!("record {index}"))?;
        written.write(record)?;
        records.push(Bytes::copy_from_slice(record));
    }
    ensure!(reader.next_record().is_none(), "more than {} records", wanted.len());
    let written = Bytes::from(written.into_inner()?);
    if compression == Compression::None {
        ensure!(written == fs::read(path)?, "the bytes differ after the records were written again");
        same(&records, Records::open(path)?).context("mapped")?;
    }
    let index = RecordIndex::new(written.clone())?;
    ensure!(index.len() == records.len(), "the index has {} records", index.len());
    for (at, record) in records.iter().enumerate() {
        ensure!(index.get(at)? == record, "record {at} differs when it is read through the index");
    }
    same(&records, Records::new(written)).context("in memory")?;
    for size in [1, 100, 1 << 20] {
        same(&records, RecordReader::open_with(path, compression, size)?).with_context(|| format!("{size} bytes at a time"))?;
    }
    Ok(())
}

fn same(wanted: &[Bytes], records: impl Iterator<Item = Result<Bytes, RecordError>>) -> Result<()> {
    let records = records.collect::<Result<Vec<_>, _>>()?;
    ensure!(records == wanted, "the records differ");
    Ok(())
}

fn one(offset: u64, record: &[u8], wanted: &Json) -> Result<()> {
    ensure!(wanted["offset"] == offset, "at {offset}, wanted {}", wanted["offset"]);
    ensure!(wanted["length"] == record.len(), "{} bytes, wanted {}", record.len(), wanted["length"]);
    let sha256: String = Sha256::digest(record).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(wanted["sha256"] == sha256, "SHA-256 {sha256}, wanted {}", wanted["sha256"]);
    let crcs = [("length_crc_masked", &(record.len() as u64).to_le_bytes()[..]), ("data_crc_masked", record)];
    for (name, bytes) in crcs {
        let crc = masked_crc32c(bytes);
        ensure!(wanted.get(name).is_none_or(|wanted| *wanted == crc), "{name} {crc}, wanted {}", wanted[name]);
    }
    if wanted.get("hex").is_some() {
        ensure!(hex_field(wanted)? == record, "the bytes differ");
    }
    Ok(())
}

/// Runs `multi`: several files, and the order of their records for each number of parallel reads.
fn many(folder: &Path, wanted: &Json, checks: &mut Checks) -> Result<()> {
    let files = wanted["files"].as_array().context("no list of files")?;
    let paths = files.iter().map(|file| Ok(folder.join(file.as_str().context("no name")?))).collect::<Result<Vec<PathBuf>>>()?;
    for (name, wanted) in wanted.as_object().context("expected a JSON object")?.iter().filter(|(name, _)| *name != "files") {
        checks.check(&format!("multi/{name}"), || {
            let parallel = name.strip_prefix("num_parallel_reads_").context("unknown name of a case")?;
            let parallel = if parallel == "none" { 1 } else { parallel.parse()? };
            let wanted = list(wanted)?;
            let files = RecordFiles::new(&paths).num_parallel_reads(parallel);
            let dataset = files.dataset().iter().collect::<gradlet::Result<Vec<_>>>()?;
            ensure!(dataset == wanted, "the records of the dataset differ");
            for at in 0..=wanted.len() {
                let found = files.clone().into_iter().nth(at).transpose()?;
                ensure!(found.as_ref() == wanted.get(at), "record {at} differs when it is read by its number");
            }
            same(&wanted, files.clone().memory_mapped().into_iter()).context("mapped")?;
            same(&wanted, files.into_iter())
        });
    }
    Ok(())
}

fn list(json: &Json) -> Result<Vec<Bytes>> {
    json.as_array().context("expected a JSON list")?.iter().map(|record| Ok(hex_field(record)?.into())).collect()
}

/// Runs `corrupt/expected.json`: damaged files, the records before the damage, and the error.
pub fn damage(folder: &Path, checks: &mut Checks) -> Result<()> {
    let folder = folder.join("corrupt");
    let expected = json(&folder, "expected.json")?;
    let good = list(&expected["records"])?;
    for (name, case) in expected["files"].as_object().context("no object \"files\"")? {
        let compression = Compression::from(case["compression_type"].as_str().unwrap_or_default());
        for (reader, wanted) in case.as_object().context("expected a JSON object")? {
            let check = || match (name.as_str(), reader.as_str()) {
                ("bad_compression_name", "ok") => same(&list(wanted)?, RecordReader::open(&folder.join("good.tfrecord"), "BAD".into())?),
                ("missing_file", _) => {
                    let path = wanted["end"]["core"].as_str().and_then(|text| text.strip_prefix("<DIR>/")?.split(';').next());
                    damaged(&folder.join(path.context("no path")?), reader, compression, wanted, &good)
                }
                _ => damaged(&folder.join(name), reader, compression, wanted, &good),
            };
            if !["compression_type", "note"].contains(&reader.as_str()) {
                checks.check(&format!("corrupt/{name}, {reader}"), check);
            }
        }
    }
    Ok(())
}

/// Compares a reader's result for a damaged file with that of TensorFlow's reader.
fn damaged(path: &Path, reader: &str, compression: Compression, wanted: &Json, good: &[Bytes]) -> Result<()> {
    let before = list(&wanted["records_before_end"])?;
    let wanted = Wanted { before: &before, end: &wanted["end"], inflates: compression != Compression::None, good };
    let files = || RecordFiles::new([path]).compression(compression).into_iter();
    match reader {
        "TFRecordDataset" => {
            wanted.judge(files()).context("files")?;
            dataset(path, compression).context("as a dataset")?;
            wanted.judge(RecordFiles::new([path]).compression(compression).memory_mapped().into_iter()).context("mapped")
        }
        "tf_record_iterator" => {
            for size in [1, 100, 1 << 20] {
                wanted.judge(RecordReader::open_with(path, compression, size)?).with_context(|| format!("{size} bytes at a time"))?;
            }
            Ok(())
        }
        "TFRecordDataset_ignore_errors" => wanted.judge(files().filter(Result::is_ok)),
        _ => bail!("unknown reader"),
    }
}

/// Checks that the dataset of a file has the same records and errors as the reader of the file.
fn dataset(path: &Path, compression: Compression) -> Result<()> {
    let files = RecordFiles::new([path]).compression(compression);
    let text = |item: gradlet::Result<Bytes>| item.map_err(|error| error.to_string());
    let wanted: Vec<_> = files.clone().into_iter().map(|item| text(item.map_err(Into::into))).collect();
    let got: Vec<_> = files.dataset().iter().map(text).collect();
    ensure!(got == wanted, "got {got:?}, wanted {wanted:?}");
    let ignored = files.dataset().ignore_errors().iter().count();
    ensure!(ignored == wanted.iter().filter(|item| item.is_ok()).count(), "{ignored} records without errors");
    Ok(())
}

/// TensorFlow's result for a damaged file.
struct Wanted<'a> {
    before: &'a [Bytes],
    end: &'a Json,
    inflates: bool,
    good: &'a [Bytes],
}

impl Wanted<'_> {
    fn judge(&self, items: impl Iterator<Item = Result<Bytes, RecordError>>) -> Result<()> {
        let (mut records, mut error) = (Vec::new(), None);
        for item in items {
            ensure!(error.is_none(), "items follow the error");
            match item {
                Ok(record) => records.push(record),
                Err(found) => error = Some(found),
            }
        }
        let core = self.end["core"].as_str().or(self.end["message"].as_str());
        if self.inflates && core.is_some_and(|core| core.starts_with("inflate()")) {
            // TensorFlow loses the records that it inflated together with the damage. gradlet returns them before the error.
            ensure!(records.starts_with(self.before), "the records before the damage differ: {records:?}");
            let whole = self.good.iter().cycle().zip(&records).all(|(good, record)| good == record);
            ensure!(whole, "a record after those that TensorFlow read is not intact: {records:?}");
        } else {
            ensure!(records == self.before, "{} records, wanted {}: {records:?}", records.len(), self.before.len());
        }
        match (&error, self.end, core) {
            (None, Json::String(end), _) if end == "clean" => Ok(()),
            // TensorFlow's process crashes on an impossible length. gradlet reports a truncated record.
            (Some(error), end, _) if end.get("process_exit").is_some() => {
                let offset = records.iter().map(|record| record.len() as u64 + 16).sum();
                truncated_at(error, offset)
            }
            (Some(error), end, Some(core)) => judge_error(error, end["type"].as_str().unwrap_or_default(), core),
            _ => bail!("got {error:?}, wanted {}", self.end),
        }
        .with_context(|| format!("wanted {}", self.end))
    }
}

fn truncated_at(error: &RecordError, wanted: u64) -> Result<()> {
    ensure!(matches!(error.fault(), Fault::Truncated { offset, .. } if *offset == wanted), "got {error:?}");
    Ok(())
}

fn judge_error(error: &RecordError, kind: &str, core: &str) -> Result<()> {
    let right = match (kind, error.fault()) {
        ("NotFoundError", Fault::Io(io)) => io.kind() == ErrorKind::NotFound && error.path().is_some_and(Path::is_absolute),
        ("DataLossError", fault) => {
            ensure!(error.is_data_loss(), "{error} does not report damage");
            let number = core.split_once(" at ").map(|(_, rest)| rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default());
            let number = number.and_then(|number| number.parse::<u64>().ok());
            match core {
                _ if core.starts_with("truncated record") => return truncated_at(error, number.context("the message contains no offset")?),
                _ if core.starts_with("corrupted record") => {
                    let damaged = matches!(fault, Fault::Length { .. } | Fault::Data { .. });
                    let text = error.to_string();
                    let no_records = text.contains("is this a TFRecord file?") || text.contains("begins like a compressed file");
                    damaged && error.offset() == number && number.is_some() && core.contains("Is this even") == no_records
                }
                _ if core.starts_with("inflate()") => matches!(fault, Fault::Inflate { text, .. } if core.ends_with(&format!(": {text}"))),
                _ => bail!("unknown message"),
            }
        }
        _ => bail!("the error is unknown or wrong: {error}"),
    };
    ensure!(right, "got {error}");
    Ok(())
}
