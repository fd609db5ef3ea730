//! Telemetry of a device while it trains: scalars, statistics, texts, progress and clock ticks, sent as frames over any [`embedded_io`]
//! writer.
//!
//! [`Telemetry`] puts frames into a buffer and moves its bytes to the writer only as fast as the writer accepts them. A frame that does
//! not fit into the buffer is dropped as a whole. The number of dropped frames is sent as soon as there is room. A slow line therefore
//! loses frames, but never blocks training. [`Decoder`] reads the frames on the host and detects lost and changed bytes. `SPEC.md`
//! specifies the format.

#[cfg(feature = "alloc")]
mod decoder;
#[cfg(feature = "alloc")]
mod fields;
#[cfg(feature = "alloc")]
mod frame;
mod profiler;
mod queue;
mod statistics;

pub use profiler::Profiler;
pub use statistics::Statistics;
#[cfg(feature = "alloc")]
pub use {
    decoder::{Decoder, Link, Received},
    frame::{Frame, Hello},
};

use crate::base::format::{Said, Summary, SummaryKind};
use crate::base::view::TensorView;
use crate::runtime::checkpoint::Identity;
use core::fmt;
use embedded_io::{Write, WriteReady};
use queue::Queue;

/// Version of the protocol that this crate sends and reads.
pub const VERSION: u32 = 1;

/// The numbers of the kinds of frames.
mod kind {
    pub const HELLO: u8 = 0;
    pub const SCALAR: u8 = 1;
    pub const STATISTICS: u8 = 2;
    pub const TEXT: u8 = 3;
    pub const PROGRESS: u8 = 4;
    pub const COUNTS: u8 = 5;
    pub const DROPPED: u8 = 6;
}

/// Maximum number of instructions in one frame of ticks. Small frames find room in the buffer more easily, and a lost one loses little.
const COUNTS: usize = 16;

/// Sends frames to `writer` through a buffer that the caller provides.
///
/// Sending puts a frame into the buffer and returns immediately. [`Telemetry::poll`] moves bytes to the writer. Firmware calls it between
/// training steps, or from the UART's interrupt when the UART can accept another byte. A frame takes about 14 bytes in addition to its
/// texts. A frame that is longer than the whole buffer is always dropped.
///
/// ```
/// use gradlet_core::runtime::telemetry::Telemetry;
/// # struct Uart(Vec<u8>);
/// # impl embedded_io::ErrorType for Uart { type Error = core::convert::Infallible; }
/// # impl embedded_io::Write for Uart {
/// #     fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> { self.0.extend(bytes); Ok(bytes.len()) }
/// #     fn flush(&mut self) -> Result<(), Self::Error> { Ok(()) }
/// # }
/// # impl embedded_io::WriteReady for Uart { fn write_ready(&mut self) -> Result<bool, Self::Error> { Ok(true) } }
/// # fn train() -> f32 { 0.5 }
/// # let uart = Uart(Vec::new()); // a HAL's UART: any `embedded_io::Write` and `WriteReady`
/// let mut buffer = [0; 256];
/// let mut telemetry = Telemetry::new(uart, &mut buffer);
/// telemetry.hello("thermostat", "DWT cycles", 64_000_000, None);
/// for step in 0..10 {
///     let loss = train();
///     telemetry.scalar("loss", step, loss);
///     telemetry.progress(step + 1, 10, 0);
///     telemetry.poll()?; // as many bytes as the UART takes now
/// }
/// telemetry.flush()?; // at the end there is time to wait
/// # Ok::<(), core::convert::Infallible>(())
/// ```
pub struct Telemetry<'b, W> {
    writer: W,
    queue: Queue<'b>,
}

impl<'b, W> Telemetry<'b, W> {
    /// Creates an empty queue of frames for `writer`. The buffer should hold all frames that are sent between two polls.
    pub fn new(writer: W, buffer: &'b mut [u8]) -> Telemetry<'b, W> {
        Telemetry { writer, queue: Queue::new(buffer) }
    }

    /// Sends a hello frame, which introduces the sender. It should be the first frame, and should be repeated occasionally for readers that
    /// connect later.
    ///
    /// `clock` names the unit that [`Telemetry::counts`] counts, such as `DWT cycles` or `instructions`, and `hz` is the number of these
    /// units in a second. `artifact` is the result of [`Program::identity`](crate::Program::identity). It prevents a reader from showing
    /// the names of another model's ops.
    pub fn hello(&mut self, sender: &str, clock: &str, hz: u32, artifact: Option<Identity>) {
        self.queue.begin(kind::HELLO);
        self.queue.number(VERSION);
        self.queue.bytes(sender.as_bytes());
        self.queue.bytes(clock.as_bytes());
        self.queue.number(hz);
        self.queue.number(artifact.is_some().into());
        if let Some(Identity { length, checksum }) = artifact {
            self.queue.number(length);
            self.queue.number(checksum);
        }
        self.queue.end();
    }

    /// Sends a scalar for a step, such as a loss.
    pub fn scalar(&mut self, tag: &str, step: u32, value: f32) {
        self.queue.tagged(kind::SCALAR, tag, step);
        self.queue.raw(&value.to_le_bytes());
        self.queue.end();
    }

    /// Sends statistics of a tensor's elements for a step, for example of weights. [`Statistics::of`] computes them.
    pub fn statistics(&mut self, tag: &str, step: u32, tensor: &TensorView<'_>) {
        let Statistics { min, max, mean, variance, count, non_finite } = Statistics::of(tensor);
        self.queue.tagged(kind::STATISTICS, tag, step);
        self.queue.raw(bytemuck::bytes_of(&[min, max, mean, variance]));
        self.queue.number(count);
        self.queue.number(non_finite);
        self.queue.end();
    }

    /// Sends a text for a step.
    pub fn text(&mut self, tag: &str, step: u32, text: &str) {
        self.queue.tagged(kind::TEXT, tag, step);
        self.queue.bytes(text.as_bytes());
        self.queue.end();
    }

    /// Formats a text and sends it: `telemetry.format("state", step, format_args!("{volts} V"))`. The code that formats numbers is linked
    /// only into firmware that calls this method or [`Telemetry::said`].
    pub fn format(&mut self, tag: &str, step: u32, text: fmt::Arguments<'_>) {
        // The length precedes the text, which is not buffered. The text is therefore formatted twice.
        let mut length = Length(0);
        let _ = fmt::write(&mut length, text);
        self.queue.tagged(kind::TEXT, tag, step);
        self.queue.number(length.0);
        let _ = fmt::write(&mut self.queue, text);
        self.queue.end();
    }

    /// Sends the printed texts and summaries of a program, as [`Session::run_printing`](crate::Session::run_printing) delivers them. The
    /// summary of a scalar is sent as a scalar, every other summary as statistics, and a printed text as a text with the tag `print`.
    /// `step` is the step of texts, and of summaries that have no step.
    ///
    /// ```no_run
    /// # use gradlet_core::Session;
    /// # use gradlet_core::runtime::{SignatureId, Telemetry};
    /// # fn firmware<W>(telemetry: &mut Telemetry<'_, W>, session: &mut Session<'_, '_>, train: SignatureId) -> gradlet_core::Result<()> {
    /// session.run_printing(train, &mut |said| telemetry.said(&said, 100))
    /// # }
    /// ```
    pub fn said(&mut self, said: &Said<'_>, step: u32) {
        match said {
            Said::Print(printed) => self.format("print", step, format_args!("{printed}")),
            Said::Summary(Summary { kind, tag, step: own, value, .. }) => {
                let step = own.and_then(|step| u32::try_from(step).ok()).unwrap_or(step);
                match statistics::value(value, 0).filter(|_| *kind == SummaryKind::Scalar) {
                    Some(value) => self.scalar(tag, step, value),
                    None => self.statistics(tag, step, value),
                }
            }
        }
    }

    /// Sends the progress of an epoch: `step` of `of` steps are completed.
    pub fn progress(&mut self, step: u32, of: u32, epoch: u32) {
        self.queue.begin(kind::PROGRESS);
        [step, of, epoch].into_iter().for_each(|number| self.queue.number(number));
        self.queue.end();
    }

    /// Sends the ticks of the last run that `profiler` measured, under the name `signature`. Each frame has the ticks of up to 16
    /// instructions.
    pub fn counts<C>(&mut self, signature: &str, step: u32, profiler: &Profiler<'_, C>) {
        let (counts, mut at) = (profiler.counts(), 0);
        for ticks in counts.chunks(COUNTS) {
            self.queue.tagged(kind::COUNTS, signature, step);
            [profiler.total(), profiler.first(), counts.len() as u32, at].into_iter().for_each(|number| self.queue.number(number));
            self.queue.bytes(bytemuck::cast_slice(ticks));
            self.queue.end();
            at += COUNTS as u32;
        }
    }

    /// Returns the number of frames that were dropped because there was no room for them.
    pub fn dropped(&self) -> u32 {
        self.queue.dropped
    }

    /// True if the writer has accepted everything, including the number of dropped frames.
    pub fn is_empty(&mut self) -> bool {
        !self.waits()
    }

    /// True if bytes wait for the writer. If none wait and a report of dropped frames is due, queues the report first.
    fn waits(&mut self) -> bool {
        self.queue.tell();
        !self.queue.next().is_empty()
    }

    /// Returns the writer, such as a UART driver.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.writer
    }
}

impl<W: Write> Telemetry<'_, W> {
    /// Passes all waiting bytes to the writer, blocking until it has accepted them.
    ///
    /// Fails if the writer does. The bytes that it did not accept stay in the buffer.
    pub fn flush(&mut self) -> Result<(), W::Error> {
        while self.waits() && self.advance()? {}
        self.writer.flush()
    }

    /// Passes some bytes to the writer. Returns false if the writer accepts no more.
    fn advance(&mut self) -> Result<bool, W::Error> {
        let written = self.writer.write(self.queue.next())?;
        self.queue.take(written);
        Ok(written > 0)
    }
}

impl<W: Write + WriteReady> Telemetry<'_, W> {
    /// Passes as many bytes to the writer as it accepts without blocking.
    ///
    /// Fails if the writer does. The bytes that it did not accept stay in the buffer.
    pub fn poll(&mut self) -> Result<(), W::Error> {
        while self.waits() && self.writer.write_ready()? && self.advance()? {}
        Ok(())
    }
}

/// Counts the bytes of a formatted text.
struct Length(u32);

impl fmt::Write for Length {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 += text.len() as u32;
        Ok(())
    }
}

impl fmt::Write for Queue<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.raw(text.as_bytes());
        Ok(())
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests;
