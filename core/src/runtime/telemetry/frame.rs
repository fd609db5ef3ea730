//! What frames hold.

use super::Statistics;
use crate::runtime::checkpoint::Identity;
use serde::{Deserialize, Serialize};

/// A frame. The order of the kinds is that of their numbers, and each is postcard's encoding of its fields in their order; new kinds come
/// after the last one, new fields after the last field.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Who sends.
    #[serde(borrow)]
    Hello(Hello<'a>),
    /// A number.
    Scalar {
        /// What it is.
        tag: &'a str,
        /// The step.
        step: u32,
        /// The number.
        value: f32,
    },
    /// What a tensor's elements are like.
    Statistics {
        /// Which tensor.
        tag: &'a str,
        /// The step.
        step: u32,
        /// What they are like.
        statistics: Statistics,
    },
    /// A text.
    Text {
        /// What it is.
        tag: &'a str,
        /// The step.
        step: u32,
        /// The text.
        text: &'a str,
    },
    /// How far an epoch is.
    Progress {
        /// The steps that are done.
        step: u32,
        /// Of so many.
        of: u32,
        /// The epoch, from 0 on.
        epoch: u32,
    },
    /// The clock's counts for some instructions, in one run of a signature.
    Counts {
        /// The signature's name.
        signature: &'a str,
        /// The step.
        step: u32,
        /// The counts of the whole run.
        total: u32,
        /// The first instruction of the run, in the artifact.
        first: u32,
        /// How many instructions the run's frames have.
        of: u32,
        /// How many of these come before this frame's.
        at: u32,
        /// The counts, a little-endian u32 for each instruction; how often one ran, in a loop, they do not say.
        ticks: &'a [u8],
    },
    /// Frames were dropped because the line was slower than what was to be told.
    Dropped {
        /// How many, since the device started.
        frames: u32,
    },
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello<'a> {
    /// The version of the protocol: [`VERSION`](super::VERSION).
    pub version: u32,
    /// What sends.
    pub sender: &'a str,
    /// What its clock counts.
    pub clock: &'a str,
    /// How many of these there are in a second.
    pub hz: u32,
    /// The artifact that it runs.
    pub artifact: Option<Identity>,
}
