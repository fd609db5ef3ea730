//! The writer of the sorted string table of an index file. For the same keys and values it writes the same bytes as TensorFlow.

use super::block::put_varint;
use super::table::footer;
use crate::formats::tfrecord::masked_crc32c;

/// Size, in bytes, at which a block ends.
const BLOCK: usize = 256 << 10;
/// Number of keys from one restart to the next. The key at a restart is stored whole; the others omit the prefix that they share
/// with the previous key.
const INTERVAL: usize = 16;

/// A block under construction.
#[derive(Default)]
struct Block {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    keys: usize,
    last: Vec<u8>,
}

impl Block {
    fn add(&mut self, key: &[u8], value: &[u8], interval: usize) {
        let whole = self.keys.is_multiple_of(interval);
        if whole {
            self.restarts.push(self.bytes.len() as u32);
        }
        let shared = if whole { 0 } else { common(&self.last, key) };
        [shared, key.len() - shared, value.len()].iter().for_each(|number| put_varint(&mut self.bytes, *number as u64));
        self.bytes.extend(&key[shared..]);
        self.bytes.extend(value);
        self.keys += 1;
        self.last = key.into();
    }

    /// Returns the size of the block in bytes, with its restarts.
    fn size(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len().max(1) + 4
    }

    /// Appends the block to `file`. Returns its offset and size.
    fn write(mut self, file: &mut Vec<u8>) -> (u64, u64) {
        if self.restarts.is_empty() {
            self.restarts.push(0);
        }
        let start = file.len();
        file.extend(self.bytes);
        self.restarts.iter().for_each(|restart| file.extend(restart.to_le_bytes()));
        file.extend((self.restarts.len() as u32).to_le_bytes());
        let size = file.len() - start;
        file.push(0);
        let crc = masked_crc32c(&file[start..]);
        file.extend(crc.to_le_bytes());
        (start as u64, size as u64)
    }
}

/// Builds the table of `records`, pairs of a key and a value. The keys must be unique and in ascending order.
pub fn table(records: impl IntoIterator<Item = (impl AsRef<[u8]>, Vec<u8>)>) -> Vec<u8> {
    let (mut file, mut index, mut block) = (Vec::new(), Block::default(), Block::default());
    // The last key of the block that was just written, and the block's location.
    let mut written: Option<(Vec<u8>, (u64, u64))> = None;
    for (key, value) in records {
        if let Some((last, place)) = written.take() {
            index.add(&between(last, key.as_ref()), &handle(place), 1);
        }
        block.add(key.as_ref(), &value, INTERVAL);
        if block.size() >= BLOCK {
            let block = std::mem::take(&mut block);
            written = Some((block.last.clone(), block.write(&mut file)));
        }
    }
    if block.keys > 0 {
        written = Some((block.last.clone(), block.write(&mut file)));
    }
    let metaindex = Block::default().write(&mut file);
    if let Some((last, place)) = written {
        index.add(&after(last), &handle(place), 1);
    }
    let index = index.write(&mut file);
    file.extend(footer(metaindex, index));
    file
}

fn handle((offset, size): (u64, u64)) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, offset);
    put_varint(&mut bytes, size);
    bytes
}

/// Returns the length of the common prefix of two keys.
fn common(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}

/// Returns a short key that is at least `last` and less than `next`.
fn between(mut last: Vec<u8>, next: &[u8]) -> Vec<u8> {
    let at = common(&last, next);
    if let (Some(byte), Some(limit)) = (last.get(at), next.get(at))
        && u16::from(*byte) + 1 < u16::from(*limit)
    {
        last[at] += 1;
        last.truncate(at + 1);
    }
    last
}

/// Returns a short key that is at least `last`.
fn after(mut last: Vec<u8>) -> Vec<u8> {
    if let Some(at) = last.iter().position(|byte| *byte != 0xff) {
        last[at] += 1;
        last.truncate(at + 1);
    }
    last
}
