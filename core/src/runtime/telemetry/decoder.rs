//! Reads frames off a line that loses and changes bytes.

use super::{Frame, VERSION};
use crate::runtime::program::checksum;

/// Finds the frames in a stream of bytes, and counts what is missing.
///
/// A frame is given only if its checksum is right, so one that noise made is as good as never: once in 2³² pieces of noise. After noise,
/// the next zero byte begins anew. The buffer, of the caller's, is as long as the longest frame can be; longer ones count as corrupt.
///
/// ```
/// use gradlet_core::telemetry::{Decoder, Frame, Telemetry};
/// let (mut line, mut buffer) = ([0; 64], [0; 256]); // memory takes what it is given
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
    /// The bytes of the frame that has begun. More than the buffer has: it does not fit.
    length: usize,
    /// True after the first zero byte: what came before it has no beginning.
    begun: bool,
    /// The number of the next frame.
    next: Option<u32>,
    /// How many frames the device last said that it dropped.
    dropped: u32,
    link: Link,
}

/// What a reader knows of its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Frames that came, those of unknown kinds among them.
    pub frames: u64,
    /// Frames that were sent and did not come, by their sequence numbers.
    pub lost: u64,
    /// Frames that were sent before the first one that came: the reader was late, or they were lost too.
    pub before: u32,
    /// Pieces between zero bytes that are no frames: changed, cut, or too long.
    pub corrupt: u64,
    /// Frames of kinds that this version does not know, or of another version.
    pub unknown: u64,
    /// How often the device started anew.
    pub restarts: u32,
    /// The version that the sender's last hello named, where it is not this crate's: none of its frames can be read.
    pub foreign: Option<u32>,
}

/// A frame that came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Received<'a> {
    /// Its number: 0 for the first one since the device started.
    pub sequence: u32,
    /// How many frames were lost right before it.
    pub lost: u32,
    /// True if the device started anew since the frame before.
    pub restarted: bool,
    /// The frame.
    pub frame: Frame<'a>,
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> Decoder<B> {
    /// Nothing came yet.
    pub fn new(buffer: B) -> Decoder<B> {
        Decoder { buffer, length: 0, begun: false, next: None, dropped: 0, link: Link::default() }
    }

    /// What is known of the line so far.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Takes the next bytes, and gives each frame that ends in them to `each`.
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

    /// A zero byte ends what came before it.
    fn end(&mut self, each: &mut dyn FnMut(Received<'_>)) {
        let (length, begun) = (core::mem::take(&mut self.length), core::mem::replace(&mut self.begun, true));
        if length == 0 {
            return;
        }
        let Some(content) = self.buffer.as_mut().get_mut(..length).and_then(open) else {
            self.link.corrupt += u64::from(begun);
            return;
        };
        // Postcard's numbers can be cut short only by a sender that is none.
        let Ok((sequence, rest)) = postcard::take_from_bytes::<u32>(content) else {
            self.link.corrupt += 1;
            return;
        };
        let (mut lost, mut restarted) = self.link.count(self.next.replace(sequence.wrapping_add(1)), sequence);
        let frame = self.link.read(rest);
        if let Some(Frame::Dropped { frames }) = frame {
            // The account begins anew with the device, even where the frames before this one were lost.
            if frames < self.dropped && !restarted {
                self.link.restarts += 1;
                self.link.lost += u64::from(sequence - lost);
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
    /// Counts a frame, and what is missing between it and the one before. Gives how many that are, and whether the device started anew.
    fn count(&mut self, next: Option<u32>, sequence: u32) -> (u32, bool) {
        self.frames += 1;
        let Some(next) = next else {
            self.before = sequence;
            return (0, false);
        };
        let ahead = sequence.wrapping_sub(next);
        // Nothing comes late on a line, so a number that was there before is that of a new start.
        let restarted = ahead > u32::MAX / 2;
        let lost = if restarted { sequence } else { ahead };
        self.lost += u64::from(lost);
        self.restarts += u32::from(restarted);
        (lost, restarted)
    }

    /// A frame of this version and a known kind.
    fn read<'a>(&mut self, content: &'a [u8]) -> Option<Frame<'a>> {
        if let Ok(((0u32, version), _)) = postcard::take_from_bytes::<(u32, u32)>(content) {
            self.foreign = (version != VERSION).then_some(version);
        }
        if self.foreign.is_some() {
            return None;
        }
        // What follows the fields that are known is a later version's.
        postcard::take_from_bytes(content).ok().map(|(frame, _)| frame)
    }
}

/// Undoes what keeps zero bytes out of a frame, and gives its content if its checksum is right.
fn open(bytes: &mut [u8]) -> Option<&[u8]> {
    let length = cobs::decode_in_place(bytes).ok()?;
    let (content, sum) = bytes.get(..length)?.split_last_chunk()?;
    (checksum(content).to_le_bytes() == *sum).then_some(content)
}
