//! Feeds arbitrary bytes to the telemetry code: to the decoder, as input from a noisy line, and to a sender, as commands.

use gradlet_core::runtime::Telemetry;
use gradlet_core::runtime::checkpoint::Identity;
use gradlet_core::runtime::program::checksum;
use gradlet_core::runtime::telemetry::{Decoder, Frame, Link};
use std::convert::Infallible;

/// A line that accepts a limited number of bytes before it blocks.
#[derive(Default)]
pub struct Line {
    /// Bytes that the line accepted.
    pub bytes: Vec<u8>,
    /// Number of bytes that the line accepts before it blocks. During a flush, it always accepts at least one.
    pub room: usize,
}

impl embedded_io::ErrorType for Line {
    type Error = Infallible;
}

impl embedded_io::Write for Line {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Infallible> {
        let taken = bytes.len().min(self.room.max(1));
        self.bytes.extend(&bytes[..taken]);
        self.room = self.room.saturating_sub(taken);
        Ok(taken)
    }

    fn flush(&mut self) -> Result<(), Infallible> {
        Ok(())
    }
}

impl embedded_io::WriteReady for Line {
    fn write_ready(&mut self) -> Result<bool, Infallible> {
        Ok(self.room > 0)
    }
}

/// Decodes `bytes`, in chunks of `piece` bytes. Returns the debug texts of the frames, and the counters of the line.
pub fn frames(bytes: &[u8], piece: usize) -> (Vec<String>, Link) {
    let (mut frames, mut decoder) = (Vec::new(), Decoder::new(vec![0; 1 << 16]));
    for piece in bytes.chunks(piece) {
        decoder.feed(piece, &mut |received| frames.push(format!("{} {:?}", received.sequence, received.frame)));
    }
    (frames, *decoder.link())
}

/// Decodes `data` as the bytes of a line, then uses it as commands for a sender. Panics if the counters are inconsistent.
pub fn read(data: &[u8]) {
    let (found, link) = frames(data, usize::MAX);
    assert_eq!(frames(data, 3), (found.clone(), link));
    assert_eq!(found.len() as u64 + link.unknown, link.frames);
    assert!(link.frames + link.corrupt <= data.len() as u64);
    // As the content of a frame whose checksum is right.
    let content = [data, &checksum(data).to_le_bytes()].concat();
    let (found, link) = frames(&[&[0], &cobs::encode_vec(&content)[..], &[0]].concat(), usize::MAX);
    assert_eq!((found.len() as u64 + link.unknown + link.corrupt, link.lost), (1, 0));
    send(data);
}

/// Sends the frames that the commands in `data` select, and decodes them. `data` also determines the size of the sender's buffer, and how
/// many bytes the line accepts before it blocks.
fn send(data: &[u8]) {
    let [size, rest @ ..] = data else { return };
    let mut buffer = vec![0; usize::from(*size)];
    let mut telemetry = Telemetry::new(Line::default(), &mut buffer);
    let (mut sent, mut rest) = (Vec::new(), rest);
    while let [kind, room, length, more @ ..] = rest {
        let text: String = more.iter().take(usize::from(*length)).map(|&byte| char::from(byte)).collect();
        rest = &more[usize::from(*length).min(more.len())..];
        let (tag, number, dropped) = (text.as_str(), u32::from(*room) << (kind % 25), telemetry.dropped());
        let value = f32::from_bits(number);
        let frame = match kind % 5 {
            0 => {
                let artifact = (number > 0).then_some(Identity { length: number, checksum: !number });
                telemetry.hello(tag, tag, number, artifact);
                format!(
                    "{:?}",
                    Frame::Hello(gradlet_core::runtime::telemetry::Hello { version: 1, sender: tag, clock: tag, hz: number, artifact })
                )
            }
            1 => {
                telemetry.scalar(tag, number, value);
                format!("{:?}", Frame::Scalar { tag, step: number, value })
            }
            2 => {
                telemetry.text("t", number, tag);
                format!("{:?}", Frame::Text { tag: "t", step: number, text: tag })
            }
            3 => {
                telemetry.format("t", number, format_args!("{tag}{number}"));
                format!("{:?}", Frame::Text { tag: "t", step: number, text: &format!("{tag}{number}") })
            }
            _ => {
                telemetry.progress(number, !number, 0);
                format!("{:?}", Frame::Progress { step: number, of: !number, epoch: 0 })
            }
        };
        if telemetry.dropped() == dropped {
            sent.push(frame);
        }
        telemetry.writer_mut().room = usize::from(*room);
        let Ok(()) = telemetry.poll();
    }
    let Ok(()) = telemetry.flush();
    let dropped = telemetry.dropped();
    let bytes = std::mem::take(&mut telemetry.writer_mut().bytes);
    let (found, link) = frames(&bytes, 7);
    let contents: Vec<&str> = found.iter().filter_map(|frame| frame.split_once(' ')).map(|(_, frame)| frame).collect();
    let (told, came): (Vec<&str>, Vec<&str>) = contents.into_iter().partition(|frame| frame.starts_with("Dropped"));
    assert_eq!(came, sent);
    assert_eq!((link.lost, link.corrupt, link.unknown, link.frames), (0, 0, 0, found.len() as u64));
    // The count of dropped frames arrives if the buffer has room for it.
    if dropped > 0 && *size >= 32 {
        assert_eq!(told.last(), Some(&format!("Dropped {{ frames: {dropped} }}").as_str()));
    }
}
