//! Writers and readers of TensorBoard's event files: TensorFlow's `tf.summary`.
//!
//! An event file is a [TFRecord file](crate::formats::tfrecord) of [`Event`](crate::formats::proto::Event) messages. A run is a
//! folder with event files.
//!
//! ```
//! use gradlet::summary::{self, Run};
//!
//! let folder = tempfile::tempdir()?;
//! let writer = summary::create_file_writer(folder.path())?;
//! for step in 0..100 {
//!     writer.scalar("loss", 1.0 / (1.0 + step as f64), step)?;
//! }
//! writer.text("note", "the learning rate was *0.1*", 0)?;
//! writer.close()?;
//!
//! let run = Run::read(folder.path())?;
//! assert_eq!(run.series("loss").unwrap().points[9].number(), Some(f64::from(0.1f32)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `tensorboard --logdir FOLDER` shows a run while it is being written. There is no global writer. A writer can become the [default
//! of a device](SummaryWriter::as_default). Every scope on that device then has the methods `scalar`, `histogram` and `image` of
//! [`Summarize`](crate::Summarize), in compiled functions too.
//!
//! | TensorFlow | gradlet |
//! |---|---|
//! | `tf.summary.create_file_writer(dir)` | [`create_file_writer`] |
//! | `writer.as_default(step)` | [`SummaryWriter::as_default`], [`SummaryWriter::set_step`] |
//! | `tf.summary.scalar`, `histogram`, `image` | [`SummaryWriter::scalar`] …, or `scope.scalar(…)` |
//! | `tf.summary.text`, `audio` | [`SummaryWriter::text`], [`SummaryWriter::audio`] |
//! | `tf.summary.graph`, `write` | [`SummaryWriter::graph`], [`SummaryWriter::write`] |
//! | `tf.summary.record_if`, `tf.name_scope` | [`SummaryWriter::record_if`], [`SummaryWriter::name_scope`] |
//! | `description=` | [`SummaryWriter::described`] |
//! | `hp.hparams`, `hp.hparams_config` | [`SummaryWriter::hparams`], [`SummaryWriter::experiment`] |
//! | TensorBoard's `EventAccumulator` | [`Run`] |

#![doc(alias = "tf.summary")]

mod audio;
mod histogram;
mod hparams;
mod image;
mod queue;
mod reader;
mod run;
mod scalar;
mod writer;

pub use hparams::HParam;
pub use reader::{EventReader, Skipped};
pub use run::{Kind, Point, PointValue, Run, Series};
pub use scalar::Scalar;
pub(crate) use writer::host;
pub use writer::{Options, SummaryWriter};

use crate::files::FileResult;
use std::path::Path;

/// Creates a writer for a new event file in `directory`. The folder is created if it does not exist. Use a separate folder for each
/// run that TensorBoard is to compare.
///
/// Fails if the folder or the file cannot be created.
pub fn create_file_writer(directory: impl AsRef<Path>) -> FileResult<SummaryWriter> {
    SummaryWriter::with_options(directory, Options::default())
}
