//! Frames in a ring of bytes: what is sent goes in at one end, as postcard in COBS, and out to the line at the other.
//!
//! Postcard and COBS are written by hand, because this takes a third of the flash; the tests read it with the crates.

use crate::runtime::program::Checksum;

/// Frames that wait for the line, in the caller's bytes.
pub struct Queue<'b> {
    bytes: &'b mut [u8],
    /// Where the first byte is that waits.
    first: usize,
    /// How many wait.
    length: usize,
    /// The number of the next frame, after those that wait, and after those in the making.
    sequence: u32,
    next: u32,
    /// How many frames were dropped.
    pub dropped: u32,
    /// Of these, how many the reader was told of.
    told: u32,
    /// The frames in the making: where their next byte comes, counted from the first one that waits; they do not fit where that is past
    /// the end.
    at: usize,
    /// Where the byte belongs that says how far the next zero is.
    code: usize,
    /// The checksum so far.
    sum: Checksum,
}

/// The kind of frame that says how many were dropped.
const DROPPED: u8 = 6;

impl<'b> Queue<'b> {
    /// With the zero byte that ends whatever was sent before.
    pub fn new(bytes: &'b mut [u8]) -> Queue<'b> {
        let mut queue = Queue { bytes, first: 0, length: 0, sequence: 0, next: 0, dropped: 0, told: 0, at: 0, code: 0, sum: Checksum::NEW };
        queue.store(0, 0);
        queue.length = queue.bytes.len().min(1);
        queue
    }

    /// Begins a frame, after the account of what was dropped. Both go in together, or none.
    #[inline(never)]
    pub fn begin(&mut self, kind: u8) {
        self.account();
        self.open(kind);
    }

    /// Begins a frame about something at a step.
    #[inline(never)]
    pub fn tagged(&mut self, kind: u8, tag: &str, step: u32) {
        self.begin(kind);
        self.bytes(tag.as_bytes());
        self.number(step);
    }

    /// Ends a frame: it waits for the line, or is dropped.
    #[inline(never)]
    pub fn end(&mut self) {
        self.close();
        if !self.keep() {
            self.dropped = self.dropped.wrapping_add(1);
        }
    }

    /// Tells how many frames were dropped, where nothing waits: elsewhere the account would take the room of the frames that it is about.
    #[inline(never)]
    pub fn tell(&mut self) {
        if self.length == 0 && self.account() {
            self.keep();
        }
    }

    /// Makes the frame that says how many were dropped, if that is news.
    fn account(&mut self) -> bool {
        (self.at, self.next) = (self.length, self.sequence);
        let news = self.told != self.dropped;
        if news {
            self.open(DROPPED);
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

    /// The frames in the making wait for the line from now on. False if they do not fit.
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

    /// A number of variable length: seven bits a byte, the lowest first; all bytes but the last have their highest bit.
    #[inline(never)]
    pub fn number(&mut self, mut number: u32) {
        while number > 0x7f {
            self.raw(&[number as u8 | 0x80]);
            number >>= 7;
        }
        self.raw(&[number as u8]);
    }

    /// A text, or some bytes: how many, then they.
    #[inline(never)]
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u32);
        self.raw(bytes);
    }

    /// Bytes as they are, such as those of a float; zeros become what says where they are.
    #[inline(never)]
    pub fn raw(&mut self, bytes: &[u8]) {
        self.sum = self.sum.add(bytes);
        for &byte in bytes {
            // As far as a byte can say.
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

    /// Sets the byte that says how far the next zero is, which is here, and goes on after it.
    fn next_zero(&mut self) {
        self.store(self.code, (self.at - self.code) as u8);
        self.code = self.at;
        self.at += 1;
    }

    /// Sets a byte of the frame in the making, if it has a place.
    #[inline(never)]
    fn store(&mut self, at: usize, byte: u8) {
        let place = if at < self.bytes.len() { self.place(at) } else { at };
        if let Some(place) = self.bytes.get_mut(place) {
            *place = byte;
        }
    }

    /// Bytes for the line: the first ones, up to where the ring closes.
    pub fn next(&self) -> &[u8] {
        let rest = self.bytes.get(self.first..).unwrap_or(&[]);
        rest.get(..self.length).unwrap_or(rest)
    }

    /// The line has so many bytes.
    pub fn take(&mut self, bytes: usize) {
        let bytes = bytes.min(self.length);
        self.length -= bytes;
        self.first = self.place(bytes);
    }

    /// Where the byte is that comes so many after the first one.
    fn place(&self, after: usize) -> usize {
        let place = self.first + after;
        if place < self.bytes.len() { place } else { place - self.bytes.len() }
    }
}
