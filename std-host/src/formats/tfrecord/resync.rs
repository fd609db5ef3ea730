//! Search for intact records after damage.

use super::BLOCK;
use super::frame::{FOOTER, HEADER, check, length};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Maximum number of bytes that a search checks, as a multiple of the file size. Files with intact records need at most two. Only files
/// that were crafted to be slow to read need more.
const MOST_CHECKED: u64 = 16;

/// Returns the start of the first intact record at byte `from` or later of an uncompressed file, or `None`. The length and the data of an
/// intact record match the stored checksums.
///
/// Fails if the file cannot be read, or if it contains very many lengths with valid checksums whose data is not valid.
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
            let most = || io::Error::new(io::ErrorKind::InvalidData, "it has many lengths with valid checksums, but no valid data");
            budget = budget.checked_sub(length.min(end - offset)).ok_or_else(most)?;
        }
        start += BLOCK as u64;
    }
    Ok(None)
}

/// True if an intact record begins at byte `offset` of an uncompressed file.
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
        assert!(error.contains("no valid data") && begun.elapsed().as_secs() < 5, "{error}");
    }
}
