//! Two banks of flash for models that arrive while the device runs. A bank counts once its record is complete, and the newest one is the
//! model to run. The other bank takes the next model, so a loss of power never costs the model that runs.

use crate::Failure;
use crate::flash::{self, Flash};
use core::cmp::Reverse;
use embedded_storage::nor_flash::NorFlash;

/// Bytes of a bank: blocks for the model, and a block for the record.
const BYTES: u32 = 96 << 10;
const RECORD: u32 = BYTES - Flash::ERASE_SIZE as u32;
const FIRST: u32 = 0x2_0000;
/// First word of a record.
const MAGIC: u32 = 0x4b4e_4142;
/// Bytes that are written at once.
const PIECE: usize = 64;

/// The banks.
pub struct Banks {
    flash: Flash,
}

/// A model in a bank.
pub struct Stored {
    bank: u32,
    sequence: u32,
    /// Bytes of the artifact, in flash.
    pub model: &'static [u8],
}

impl Banks {
    /// Opens the banks.
    pub fn new(flash: Flash) -> Banks {
        Banks { flash }
    }

    /// Returns the models that have arrived, the newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = Stored> {
        let mut models = [stored(0), stored(1)];
        models.sort_unstable_by_key(|model| Reverse(model.as_ref().map(|stored| stored.sequence)));
        models.into_iter().flatten()
    }

    /// Writes a model of `length` bytes to the bank that `running` is not in. Calls `next` for its bytes, in pieces. Then `verify` looks at
    /// the model, and the bank counts only if it returns `Ok`.
    pub fn replace(
        &mut self,
        running: Option<&Stored>,
        length: u32,
        mut next: impl FnMut(&mut [u8]) -> Result<(), Failure>,
        verify: impl FnOnce(&'static [u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if length > RECORD {
            return Err(Failure::Check("the model is larger than a bank"));
        }
        let bank = running.map_or(0, |running| 1 - running.bank);
        let start = FIRST + bank * BYTES;
        // The record goes first: from here on, the bank does not count.
        self.erase(start + RECORD, start + BYTES)?;
        self.erase(start, start + length.next_multiple_of(Flash::ERASE_SIZE as u32))?;
        for at in (0..length).step_by(PIECE) {
            let mut piece = [u8::MAX; PIECE];
            let count = PIECE.min((length - at) as usize);
            next(piece.get_mut(..count).unwrap_or_default())?;
            let whole = piece.get(..count.next_multiple_of(Flash::WRITE_SIZE)).unwrap_or_default();
            self.flash.write(start + at, whole).map_err(|_| Failure::Check("a write of the flash"))?;
        }
        verify(flash::bytes(start, length))?;
        let sequence = running.map_or(1, |running| running.sequence + 1);
        // The last word is written last, and makes the record complete.
        for (at, words) in (start + RECORD..).step_by(Flash::WRITE_SIZE).zip([[sequence, length], [MAGIC, !MAGIC]]) {
            let [low, high] = words.map(u32::to_le_bytes);
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(low.into_iter().chain(high)).for_each(|(byte, new)| *byte = new);
            self.flash.write(at, &bytes).map_err(|_| Failure::Check("a write of the flash"))?;
        }
        Ok(())
    }

    fn erase(&mut self, from: u32, to: u32) -> Result<(), Failure> {
        self.flash.erase(from, to).map_err(|_| Failure::Check("an erasure of the flash"))
    }
}

/// Returns the model in a bank, if its record is complete.
fn stored(bank: u32) -> Option<Stored> {
    let start = FIRST + bank * BYTES;
    let word = |index: u32| flash::bytes(start + RECORD + 4 * index, 4).first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
    let (sequence, length) = (word(0), word(1));
    (word(2) == MAGIC && word(3) == !MAGIC && length <= RECORD).then(|| Stored { bank, sequence, model: flash::bytes(start, length) })
}
