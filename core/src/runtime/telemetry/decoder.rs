//! Reads frames from a serial line that may lose or change bytes.

use super::fields::Fields;
use super::{Frame, VERSION, kind};
use crate::runtime::program::checksum;

/// Finds the frames in a stream of bytes and counts the missing ones.
///
/// A frame is delivered only if its checksum is right. Noise passes as a frame about once in 2³² corrupt frames. After noise, decoding
/// resumes at the next zero byte. The caller provides the buffer, which must hold the longest frame. A longer frame counts as corrupt.
///
/// ```
/// use gradlet_core::runtime::telemetry::{Decoder, Frame, Telemetry};
/// let (mut line, mut buffer) = ([0; 64], [0; 256]); // the memory stands in for a UART
/// let mut telemetry = Telemetry::new(&mut line[..], &mut buffer);
/// telemetry.scalar("loss", 7, 0.25);
/// telemetry.flush().expect("64 bytes are enough");
///
/// let mut decoder = Decoder::new([0; 256]);
/// decoder.feed(&line, &mut |received| {
///     assert_eq!(received.frame, Frame::Scalar { tag: "loss", step: 7, value: 0.25 });
/// });
/// assert_eq!((decoder.link().frames, decoder.link().lost), (1, 0));
/// ```
pub struct Decoder<B> {
    buffer: B,
    /// Number of bytes of the current frame. If it exceeds the buffer's length, the frame is too long.
    length: usize,
    /// True after the first zero byte. The bytes before it are the rest of a frame whose beginning is unknown.
    begun: bool,
    /// Sequence number of the next frame, once a frame has arrived.
    next: Option<u32>,
    /// Number of dropped frames that the device last reported.
    dropped: u32,
    link: Link,
}

/// The state of a line, as its reader sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Number of frames received, including those of unknown kinds.
    pub frames: u64,
    /// Number of frames that were sent but not received, according to the sequence numbers.
    pub lost: u64,
    /// Number of frames that were sent before the first received one, because the reader started late or they were lost.
    pub before: u32,
    /// Number of byte sequences between zero bytes that are not frames: changed, incomplete, or too long.
    pub corrupt: u64,
    /// Number of frames of unknown kinds or of another protocol version.
    pub unknown: u64,
    /// Number of times that the device restarted.
    pub restarts: u32,
    /// Protocol version in the sender's last hello, if it is not this crate's. Its frames cannot be read.
    pub foreign: Option<u32>,
}

/// A received frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received<'a> {
    /// Its sequence number: 0 for the first frame since the device started.
    pub sequence: u32,
    /// Number of frames that were lost directly before it.
    pub lost: u32,
    /// True if the device restarted since the previous frame.
    pub restarted: bool,
    /// The content of the frame.
    pub frame: Frame<'a>,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Decoder<B> {
    /// Creates a decoder that uses `buffer` for the current frame.
    pub fn new(buffer: B) -> Decoder<B> {
        Decoder { buffer, length: 0, begun: false, next: None, dropped: 0, link: Link::default() }
    }

    /// Returns the state of the line so far.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Processes the next bytes and passes each frame that ends in them to `each`.
    pub fn feed(&mut self, bytes: &[u8], each: &mut dyn FnMut(Received<'_>)) {
        for &byte in bytes {
            if byte == 0 {
                self.end(each);
            } else if let Some(place) = self.buffer.as_mut().get_mut(self.length) {
                *place = byte;
                self.length += 1;
            } else {
                self.length = self.buffer.as_ref().len() + 1;
            }
        }
    }

    /// Handles a zero byte, which ends the current frame.
    fn end(&mut self, each: &mut dyn FnMut(Received<'_>)) {
        let (length, begun) = (core::mem::take(&mut self.length), core::mem::replace(&mut self.begun, true));
        if length == 0 {
            return;
        }
        let Some(content) = self.buffer.as_mut().get_mut(..length).and_then(open) else {
            self.link.corrupt += u64::from(begun);
            return;
        };
        let mut fields = Fields(content);
        let Some(sequence) = fields.number() else {
            self.link.corrupt += 1;
            return;
        };
        let (mut lost, mut restarted) = self.link.count(self.next.replace(sequence.wrapping_add(1)), sequence);
        let frame = self.link.read(fields);
        if let Some(Frame::Dropped { frames }) = frame {
            // The number of dropped frames restarts with the device, so a smaller one shows a restart even if the frames before this one
            // were lost.
            if frames < self.dropped && !restarted {
                self.link.restarts += 1;
                self.link.lost += u64::from(sequence.saturating_sub(lost));
                (lost, restarted) = (sequence, true);
            }
            self.dropped = frames;
        } else if restarted {
            self.dropped = 0;
        }
        match frame {
            Some(frame) => each(Received { sequence, lost, restarted, frame }),
            None => self.link.unknown += 1,
        }
    }
}

impl Link {
    /// Counts frame number `sequence` and the frames missing before it. `next` is the expected sequence number, or `None` for the first
    /// frame received. Returns the number of missing frames, and whether the device restarted.
    fn count(&mut self, next: Option<u32>, sequence: u32) -> (u32, bool) {
        self.frames += 1;
        let Some(next) = next else {
            self.before = sequence;
            return (0, false);
        };
        let ahead = sequence.wrapping_sub(next);
        // Frames never arrive late on a line, so a sequence number that went back shows a restart.
        let restarted = ahead > u32::MAX / 2;
        let lost = if restarted { sequence } else { ahead };
        self.lost += u64::from(lost);
        self.restarts += u32::from(restarted);
        (lost, restarted)
    }

    /// Parses the content of a frame. Returns `None` if the frame is of another protocol version, of an unknown kind, or invalid.
    fn read<'a>(&mut self, mut fields: Fields<'a>) -> Option<Frame<'a>> {
        let kind = u8::try_from(fields.number()?).ok()?;
        if kind == kind::HELLO
            && let Some(version) = Fields(fields.0).number()
        {
            self.foreign = (version != VERSION).then_some(version);
        }
        if self.foreign.is_some() {
            return None;
        }
        // A later version may append fields to a kind.
        Frame::read(kind, &mut fields)
    }
}

/// Decodes a COBS frame in place. Returns its content without the checksum, or `None` if the frame is incomplete or its checksum is wrong.
fn open(bytes: &mut [u8]) -> Option<&[u8]> {
    let length = decode_cobs(bytes)?;
    let (content, sum) = bytes.get(..length)?.split_last_chunk()?;
    (checksum(content).to_le_bytes() == *sum).then_some(content)
}

/// Decodes consistent overhead byte stuffing in place, and returns the length of the result. Returns `None` if the last block is cut short.
fn decode_cobs(bytes: &mut [u8]) -> Option<usize> {
    let (mut from, mut to) = (0, 0);
    while let Some(&code) = bytes.get(from) {
        let block = from + 1..from + usize::from(code.max(1));
        bytes.get(block.clone())?;
        let (end, length) = (block.end, block.len());
        bytes.copy_within(block, to);
        (from, to) = (end, to + length);
        // A block of 254 bytes has no zero after it, and neither has the last block.
        if code != 0xff && from < bytes.len() {
            bytes[to] = 0;
            to += 1;
        }
    }
    Some(to)
}
