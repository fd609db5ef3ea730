//! Finds records behind damage.

use super::BLOCK;
use super::frame::{FOOTER, HEADER, check, length};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// How many times the bytes of a file are checked at most. Whole records are found in two; a file that needs more was made to.
const MOST_CHECKED: u64 = 16;

/// Where the first whole record begins, at byte `from` of an uncompressed file or later: one whose length and data have the checksums
/// that are stored. `None` if there is none.
///
/// Fails where the file cannot be read, and where it is full of lengths with checksums whose data have none.
pub fn find_record(path: &Path, from: u64) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut budget = end.saturating_mul(MOST_CHECKED);
    let mut block = Vec::new();
    let mut start = from;
    while start < end {
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        file.by_ref().take((BLOCK + HEADER) as u64).read_to_end(&mut block)?;
        let Some(last) = block.len().checked_sub(HEADER) else { break };
        for at in 0..=last.min(BLOCK - 1) {
            let offset = start + at as u64;
            let Some(length) = block[at..].first_chunk().and_then(|header| length(header, offset).ok()) else { continue };
            if is_whole(&mut file, offset, length, end)? {
                return Ok(Some(offset));
            }
            let most = || io::Error::new(io::ErrorKind::InvalidData, "it has lengths with checksums, but no data with one behind them");
            budget = budget.checked_sub(length.min(end - offset)).ok_or_else(most)?;
        }
        start += BLOCK as u64;
    }
    Ok(None)
}

/// Whether a whole record begins at byte `offset` of an uncompressed file.
pub fn is_record(path: &Path, offset: u64) -> io::Result<bool> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut header = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.by_ref().take(HEADER as u64).read_to_end(&mut header)?;
    let length = header.first_chunk().and_then(|header| length(header, offset).ok());
    length.map_or(Ok(false), |length| is_whole(&mut file, offset, length, end))
}

fn is_whole(file: &mut File, offset: u64, length: u64, end: u64) -> io::Result<bool> {
    let (data, size) = (offset + HEADER as u64, length.saturating_add(FOOTER as u64));
    if size > end.saturating_sub(data) {
        return Ok(false);
    }
    let mut whole = Vec::new();
    file.seek(SeekFrom::Start(data))?;
    file.by_ref().take(size).read_to_end(&mut whole)?;
    Ok(check(&whole, data).is_ok())
}

#[cfg(test)]
mod tests {
    use super::super::frame::header;
    use super::*;

    #[test]
    fn lengths_without_data_end_the_search_in_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lengths");
        let claim = header(1 << 19);
        std::fs::write(&path, claim.repeat((1 << 20) / claim.len())).unwrap();
        let begun = std::time::Instant::now();
        let error = find_record(&path, 0).unwrap_err().to_string();
        assert!(error.contains("no data with one behind them") && begun.elapsed().as_secs() < 5, "{error}");
    }
}
