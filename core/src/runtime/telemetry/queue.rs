//! A ring buffer of frames. Frames enter at one end, as postcard in COBS, and leave to the line at the other.
//!
//! Postcard and COBS are implemented here by hand, because this takes a third of the flash that the crates need. The tests decode the
//! frames with the crates.

use super::kind;
use crate::runtime::program::Checksum;

/// Frames that wait for the line, in the caller's bytes.
pub struct Queue<'b> {
    bytes: &'b mut [u8],
    /// Position of the first waiting byte.
    first: usize,
    /// Number of waiting bytes.
    length: usize,
    /// Sequence number of the next frame. `sequence` counts the waiting frames; `next` also counts the unfinished ones.
    sequence: u32,
    next: u32,
    /// Number of frames dropped.
    pub dropped: u32,
    /// Number of dropped frames that was last reported to the reader.
    told: u32,
    /// Position of the next byte of the unfinished frames, counted from the first waiting byte. The frames do not fit if it is past the
    /// end of the buffer.
    at: usize,
    /// Position of the COBS code byte, which holds the distance to the next zero.
    code: usize,
    /// Checksum of the unfinished frame so far.
    sum: Checksum,
}

impl<'b> Queue<'b> {
    /// Creates a queue that first sends a zero byte, which ends any frame sent before.
    pub fn new(bytes: &'b mut [u8]) -> Queue<'b> {
        let mut queue = Queue { bytes, first: 0, length: 0, sequence: 0, next: 0, dropped: 0, told: 0, at: 0, code: 0, sum: Checksum::NEW };
        queue.store(0, 0);
        queue.length = queue.bytes.len().min(1);
        queue
    }

    /// Begins a frame, preceded by a report of dropped frames if one is due. Both are queued together or not at all.
    #[inline(never)]
    pub fn begin(&mut self, kind: u8) {
        self.account();
        self.open(kind);
    }

    /// Begins a frame with a tag and a step.
    #[inline(never)]
    pub fn tagged(&mut self, kind: u8, tag: &str, step: u32) {
        self.begin(kind);
        self.bytes(tag.as_bytes());
        self.number(step);
    }

    /// Ends a frame, which is then queued or dropped.
    #[inline(never)]
    pub fn end(&mut self) {
        self.close();
        if !self.keep() {
            self.dropped = self.dropped.wrapping_add(1);
        }
    }

    /// Queues a report of dropped frames, but only if nothing else waits. Otherwise the report would take the room of further frames.
    #[inline(never)]
    pub fn tell(&mut self) {
        if self.length == 0 && self.account() {
            self.keep();
        }
    }

    /// Moves to the end of the waiting bytes. If the number of dropped frames has changed since the last report, writes a new report
    /// there. Returns true if it wrote one.
    fn account(&mut self) -> bool {
        (self.at, self.next) = (self.length, self.sequence);
        let news = self.told != self.dropped;
        if news {
            self.open(kind::DROPPED);
            self.number(self.dropped);
            self.close();
        }
        news
    }

    #[inline(never)]
    fn open(&mut self, kind: u8) {
        (self.code, self.at, self.sum) = (self.at, self.at + 1, Checksum::NEW);
        self.number(self.next);
        self.number(kind.into());
        self.next = self.next.wrapping_add(1);
    }

    #[inline(never)]
    fn close(&mut self) {
        self.raw(&self.sum.get().to_le_bytes());
        self.next_zero();
        self.store(self.at - 1, 0);
    }

    /// Queues the unfinished frames. Returns false if they do not fit.
    #[inline(never)]
    fn keep(&mut self) -> bool {
        let fits = self.at <= self.bytes.len();
        if fits {
            self.length = self.at;
            self.sequence = self.next;
            self.told = self.dropped;
        }
        fits
    }

    /// Writes a varint: seven bits in each byte, lowest first. All bytes but the last have their highest bit set.
    #[inline(never)]
    pub fn number(&mut self, mut number: u32) {
        while number > 0x7f {
            self.raw(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.raw(&[number as u8]);
    }

    /// Writes a text or bytes, preceded by their number.
    #[inline(never)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u32);
        self.raw(bytes);
    }

    /// Writes raw bytes, such as those of a float. COBS replaces each zero by a code byte.
    #[inline(never)]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.sum = self.sum.add(bytes);
        for &byte in bytes {
            // A code byte cannot hold a larger distance.
            if self.at - self.code == 0xff {
                self.next_zero();
            }
            if byte == 0 {
                self.next_zero();
            } else {
                self.store(self.at, byte);
                self.at += 1;
            }
        }
    }

    /// Sets the current code byte to the distance to this position, where the next code byte begins.
    fn next_zero(&mut self) {
        self.store(self.code, (self.at - self.code) as u8);
        self.code = self.at;
        self.at += 1;
    }

    /// Sets a byte of the unfinished frame, unless it is past the end of the buffer.
    #[inline(never)]
    fn store(&mut self, at: usize, byte: u8) {
        let place = if at < self.bytes.len() { self.place(at) } else { at };
        if let Some(place) = self.bytes.get_mut(place) {
            *place = byte;
        }
    }

    /// Returns the first waiting bytes, up to the end of the ring's memory.
    pub fn next(&self) -> &[u8] {
        let rest = self.bytes.get(self.first..).unwrap_or(&[]);
        rest.get(..self.length).unwrap_or(rest)
    }

    /// Removes the first `bytes` bytes, which the line has accepted.
    pub fn take(&mut self, bytes: usize) {
        let bytes = bytes.min(self.length);
        self.length -= bytes;
        self.first = self.place(bytes);
    }

    /// Returns the index in `bytes` of the byte that follows the first waiting byte at distance `after`. The index wraps around at the
    /// end.
    fn place(&self, after: usize) -> usize {
        let place = self.first + after;
        if place < self.bytes.len() { place } else { place - self.bytes.len() }
    }
}
