//! The sorted string table of an index file, in LevelDB's format as TensorFlow writes it.
//!
//! | | |
//! |---|---|
//! | data blocks | keys and values; each block is followed by its compression method and checksum |
//! | metaindex block | no keys |
//! | index block | for each data block: an upper bound of its keys, and its location |
//! | footer, 48 bytes | locations of the metaindex block and the index block, zeros, the magic number |

use super::block::{self, Entries, TRAILER, put_varint, varint};
use super::crc::Crc;
use std::ops::Range;

pub(super) const FOOTER: usize = 48;
pub(super) const MAGIC: u64 = 0xdb47_7524_8b80_fb57;

/// Maximum ratio of the size of all keys to the size of the file. Keys share prefixes, so without a limit a small file could
/// need much memory.
const MOST_EXPANDED: usize = 64;

/// Range of a data block with its trailer, and an upper bound of the block's keys, if it is known.
type DataBlock = (Range<usize>, Option<Vec<u8>>);

/// The readable contents of a table, and its errors.
#[derive(Default)]
pub struct Table {
    /// The keys with their values, in order.
    pub records: Vec<(Vec<u8>, Vec<u8>)>,
    /// Number of data blocks.
    pub blocks: usize,
    /// Errors: the offset in the file, and a message.
    pub faults: Vec<(u64, String)>,
    /// Number of bytes of keys that may still be read before the limit of [`MOST_EXPANDED`] is exceeded.
    room: usize,
}

/// Location of a block, without its trailer.
#[derive(Clone, Copy)]
struct Handle {
    offset: u64,
    size: u64,
}

impl Handle {
    fn read(bytes: &mut &[u8]) -> Option<Handle> {
        Some(Handle { offset: varint(bytes)?, size: varint(bytes)? })
    }

    /// Returns the range of the block and its trailer, or `None` if it is not completely inside the file.
    fn place(self, file: &[u8]) -> Option<Range<usize>> {
        let end = self.offset.checked_add(self.size)?.checked_add(TRAILER as u64)?;
        (end <= file.len() as u64).then_some(self.offset as usize..end as usize)
    }
}

/// Builds the footer of a table.
pub(super) fn footer(metaindex: (u64, u64), index: (u64, u64)) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(FOOTER);
    [metaindex.0, metaindex.1, index.0, index.1].iter().for_each(|number| put_varint(&mut bytes, *number));
    bytes.resize(FOOTER - 8, 0);
    bytes.extend(MAGIC.to_le_bytes());
    bytes
}

impl Table {
    /// Reads a table. Damage is recorded, and the undamaged parts are read. A single flipped bit is repaired and recorded.
    pub fn read(file: &[u8]) -> Table {
        let mut table = Table { room: file.len().saturating_mul(MOST_EXPANDED), ..Table::default() };
        let Some((blocks, end)) = file.split_last_chunk::<FOOTER>() else {
            table.fault(0, format!("the file is too short to be an index: it has {} bytes, a table has at least {FOOTER}", file.len()));
            return table;
        };
        let places = match table.handles(blocks, end) {
            Some(places) => places,
            None => found(blocks),
        };
        table.blocks = places.len();
        let mut before = Vec::new();
        for (place, last) in places {
            table.data_block(blocks, place, &before, last.as_deref());
            before = last.unwrap_or_default();
        }
        table
    }

    fn fault(&mut self, offset: usize, text: impl Into<String>) {
        self.faults.push((offset as u64, text.into()));
    }

    /// Finds the data blocks through the footer and the index block. Returns `None` if these are damaged beyond repair.
    fn handles(&mut self, blocks: &[u8], end: &[u8; FOOTER]) -> Option<Vec<DataBlock>> {
        if end[FOOTER - 8..] != MAGIC.to_le_bytes() {
            self.fault(blocks.len() + FOOTER - 8, "not an index: the file does not end with the magic number of a table");
            return None;
        }
        let Some((metaindex, index)) = places(blocks, end) else {
            self.fault(blocks.len(), "the footer does not contain the location of the index block");
            return None;
        };
        let block = self.block(blocks, metaindex.clone(), "the metaindex block");
        if block.is_some_and(|block| Entries::new(&block).map_or(true, |mut records| records.next().is_some())) {
            self.fault(metaindex.start, "the metaindex block has keys: such tables are not supported");
        }
        let contents = self.block(blocks, index.clone(), "the index block")?;
        let places = data_blocks(&contents, &blocks[..metaindex.start]);
        places.map_err(|text| self.fault(index.start, text)).ok()
    }

    /// Returns the contents of a block. Returns `None`, and records the error, if the block is damaged beyond repair.
    fn block(&mut self, blocks: &[u8], place: Range<usize>, name: &str) -> Option<Vec<u8>> {
        match block::open(&blocks[place.clone()]) {
            Ok(block) => {
                if let Some(byte) = block.flipped {
                    self.fault(place.start + byte, format!("block checksum mismatch: a bit is flipped in {name}"));
                }
                Some(block.contents.into_owned())
            }
            Err(text) => {
                self.fault(place.start, format!("in {name}: {text}"));
                None
            }
        }
    }

    /// Reads the records of a data block. Error messages state that its keys are greater than `before` and at most `last`, if
    /// known.
    fn data_block(&mut self, blocks: &[u8], place: Range<usize>, before: &[u8], last: Option<&[u8]>) {
        let opened = block::open(&blocks[place.clone()]);
        let lost = || format!("; it holds the keys after {:?} up to {:?}", text(before), last.map_or("the last".into(), text));
        let block = match opened {
            Ok(block) => block,
            Err(wrong) => return self.fault(place.start, wrong + &lost()),
        };
        let mut hit = None;
        match Entries::new(&block.contents) {
            Err(wrong) => self.fault(place.start, wrong + &lost()),
            Ok(records) => {
                for record in records {
                    let record = match record {
                        Ok(record) => record,
                        Err(wrong) => return self.fault(place.start, wrong + &lost()),
                    };
                    if self.records.last().is_some_and(|(known, _)| *known >= record.key) {
                        return self.fault(place.start, format!("the key {:?} is out of order", text(&record.key)));
                    }
                    let Some(room) = self.room.checked_sub(record.key.len()) else {
                        return self.fault(place.start, format!("the keys have more than {MOST_EXPANDED} times the size of the file"));
                    };
                    self.room = room;
                    if block.flipped.is_some_and(|byte| record.place.contains(&byte)) {
                        hit = Some(text(&record.key));
                    }
                    self.records.push((record.key, record.value.to_vec()));
                }
            }
        }
        if let Some(byte) = block.flipped {
            let whose = hit.map_or(format!("after the entries of a block{}", lost()), |key| format!("in the entry of {key:?}"));
            self.fault(place.start + byte, format!("block checksum mismatch: a bit is flipped {whose}"));
        }
    }
}

/// Returns the ranges of the metaindex block and the index block, which are the last blocks. Returns `None` if the footer is not
/// valid.
fn places(blocks: &[u8], end: &[u8; FOOTER]) -> Option<(Range<usize>, Range<usize>)> {
    let mut bytes = &end[..];
    let (metaindex, index) = (Handle::read(&mut bytes)?, Handle::read(&mut bytes)?);
    // A number has several encodings, and the padding counts too. Only the canonical footer is valid.
    let right = footer((metaindex.offset, metaindex.size), (index.offset, index.size)) == end;
    let (metaindex, index) = (metaindex.place(blocks)?, index.place(blocks)?);
    (right && metaindex.end == index.start && index.end == blocks.len()).then_some((metaindex, index))
}

/// Returns the data blocks that an index block lists. They must fill `blocks` completely.
fn data_blocks(contents: &[u8], blocks: &[u8]) -> Result<Vec<DataBlock>, String> {
    let (mut places, mut end) = (Vec::new(), 0);
    for record in Entries::new(contents)? {
        let record = record?;
        let handle = Handle::read(&mut &record.value[..]).and_then(|handle| handle.place(blocks));
        let place = handle.filter(|place| place.start == end).ok_or("the index block does not contain the locations of the data blocks")?;
        end = place.end;
        places.push((place, Some(record.key)));
    }
    match end == blocks.len() {
        true => Ok(places),
        false => Err(format!("the bytes from {end} to {} belong to no block", blocks.len())),
    }
}

/// Finds the data blocks, up to the first damaged one, by their checksums. Used if the index block is damaged.
fn found(blocks: &[u8]) -> Vec<DataBlock> {
    let mut places = Vec::new();
    let mut start = 0;
    while let Some(length) = whole_block(&blocks[start..]) {
        places.push((start..start + length, None));
        start += length;
    }
    // If the scan reached the end, the last two blocks are the metaindex block and the index block.
    if start == blocks.len() {
        places.truncate(places.len().saturating_sub(2));
    }
    places
}

/// Returns the length, with the trailer, of the block at the start of `bytes`. Returns `None` if there is no valid block.
fn whole_block(bytes: &[u8]) -> Option<usize> {
    let mut crc = Crc::new();
    for (at, byte) in bytes.iter().enumerate() {
        crc.update(&[*byte]);
        let stored = bytes.get(at + 1..at + TRAILER)?;
        if *byte <= 1 && crc.masked().to_le_bytes() == stored && block::open(&bytes[..at + TRAILER]).is_ok() {
            return Some(at + TRAILER);
        }
    }
    None
}

/// Converts a key to text for messages, with replacement characters for invalid UTF-8.
fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
