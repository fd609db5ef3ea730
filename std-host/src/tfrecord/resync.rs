//! Finds records behind damage.

use super::BLOCK;
use super::frame::{FOOTER, HEADER, check, length};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

/// Where the first whole record begins, at byte `from` of an uncompressed file or later: one whose length and data have the checksums
/// that are stored. `None` if there is none.
pub fn find_record(path: &Path, from: u64) -> io::Result<Option<u64>> {
    let mut file = File::open(path)?;
    let end = file.metadata()?.len();
    let mut block = Vec::new();
    let mut start = from;
    while start < end {
        file.seek(SeekFrom::Start(start))?;
        block.clear();
        file.by_ref().take((BLOCK + HEADER) as u64).read_to_end(&mut block)?;
        let Some(last) = block.len().checked_sub(HEADER) else { break };
        for at in 0..=last.min(BLOCK - 1) {
            let offset = start + at as u64;
            let Some(header) = block[at..].first_chunk() else { break };
            let Ok(length) = length(header, offset) else { continue };
            if is_whole(&mut file, offset + HEADER as u64, length, end)? {
                return Ok(Some(offset));
            }
        }
        start += BLOCK as u64;
    }
    Ok(None)
}

fn is_whole(file: &mut File, offset: u64, length: u64, end: u64) -> io::Result<bool> {
    let size = length.saturating_add(FOOTER as u64);
    if size > end.saturating_sub(offset) {
        return Ok(false);
    }
    let mut whole = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.by_ref().take(size).read_to_end(&mut whole)?;
    Ok(check(&whole, offset).is_ok())
}
