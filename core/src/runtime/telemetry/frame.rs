//! The contents of frames.

use super::fields::Fields;
use super::{Statistics, kind};
use crate::runtime::checkpoint::Identity;

/// The content of a frame. The order of the variants is that of their numbers in the format, and the fields are encoded as in postcard,
/// in their order. New variants are added after the last one, and new fields after the last field.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// A hello, with which the sender introduces itself.
    Hello(Hello<'a>),
    /// A scalar.
    Scalar {
        /// Name of the value.
        tag: &'a str,
        /// Step that the value belongs to.
        step: u32,
        /// The value.
        value: f32,
    },
    /// Statistics of a tensor's elements.
    Statistics {
        /// Name of the tensor.
        tag: &'a str,
        /// Step that the value belongs to.
        step: u32,
        /// The statistics.
        statistics: Statistics,
    },
    /// A text.
    Text {
        /// Name of the text.
        tag: &'a str,
        /// Step that the value belongs to.
        step: u32,
        /// The text.
        text: &'a str,
    },
    /// Progress in an epoch.
    Progress {
        /// Number of completed steps.
        step: u32,
        /// Number of steps in the epoch.
        of: u32,
        /// The epoch, counted from 0.
        epoch: u32,
    },
    /// Clock ticks of some instructions in one run of a signature.
    Counts {
        /// Name of the signature.
        signature: &'a str,
        /// Step that the value belongs to.
        step: u32,
        /// Ticks of the whole run.
        total: u32,
        /// Index in the artifact of the first instruction of the run.
        first: u32,
        /// Number of instructions that all frames of the run cover together.
        of: u32,
        /// Number of these instructions in earlier frames.
        at: u32,
        /// The ticks: a little-endian u32 for each instruction. An instruction that ran several times has the sum; the number of times is
        /// not stored.
        ticks: &'a [u8],
    },
    /// A report that frames were dropped because the line was too slow.
    Dropped {
        /// Number of frames dropped since the device started.
        frames: u32,
    },
}

impl<'a> Frame<'a> {
    /// Reads the fields of a frame. Returns `None` if the kind is unknown, or a field is cut short or invalid.
    pub(super) fn read(kind: u8, fields: &mut Fields<'a>) -> Option<Frame<'a>> {
        // Struct expressions evaluate their fields in the order in which they are written.
        Some(match kind {
            kind::HELLO => Frame::Hello(Hello {
                version: fields.number()?,
                sender: fields.text()?,
                clock: fields.text()?,
                hz: fields.number()?,
                artifact: match fields.present()? {
                    true => Some(Identity { length: fields.number()?, checksum: fields.number()? }),
                    false => None,
                },
            }),
            kind::SCALAR => Frame::Scalar { tag: fields.text()?, step: fields.number()?, value: fields.float()? },
            kind::STATISTICS => Frame::Statistics {
                tag: fields.text()?,
                step: fields.number()?,
                statistics: Statistics {
                    min: fields.float()?,
                    max: fields.float()?,
                    mean: fields.float()?,
                    variance: fields.float()?,
                    count: fields.number()?,
                    non_finite: fields.number()?,
                },
            },
            kind::TEXT => Frame::Text { tag: fields.text()?, step: fields.number()?, text: fields.text()? },
            kind::PROGRESS => Frame::Progress { step: fields.number()?, of: fields.number()?, epoch: fields.number()? },
            kind::COUNTS => Frame::Counts {
                signature: fields.text()?,
                step: fields.number()?,
                total: fields.number()?,
                first: fields.number()?,
                of: fields.number()?,
                at: fields.number()?,
                ticks: fields.bytes()?,
            },
            kind::DROPPED => Frame::Dropped { frames: fields.number()? },
            _ => return None,
        })
    }
}

/// The fields of a hello frame, with which a sender introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The version of the protocol: [`VERSION`](super::VERSION).
    pub version: u32,
    /// Name of the sender.
    pub sender: &'a str,
    /// Unit that the sender's clock counts, such as `DWT cycles`.
    pub clock: &'a str,
    /// Number of these units in a second.
    pub hz: u32,
    /// Identity of the artifact that the sender runs.
    pub artifact: Option<Identity>,
}
