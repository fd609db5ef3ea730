//! What a device tells while it learns: scalars, statistics, texts, progress, clock counts, as frames over any [`embedded_io`] writer.
//!
//! [`Telemetry`] writes frames into a buffer and moves its bytes to the writer only as fast as that takes them. A frame that does not
//! fit is
//! dropped whole, and how many were is told as soon as there is room: so a slow line never slows what it tells of. [`Decoder`] reads the
//! frames again, whatever happened to them on the way. `SPEC.md` has the format.

#[cfg(feature = "alloc")]
mod decoder;
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

/// The version of the protocol that this crate sends and reads.
pub const VERSION: u32 = 1;

/// The kinds of frames. `Queue` has one more.
mod kind {
    pub const HELLO: u8 = 0;
    pub const SCALAR: u8 = 1;
    pub const STATISTICS: u8 = 2;
    pub const TEXT: u8 = 3;
    pub const PROGRESS: u8 = 4;
    pub const COUNTS: u8 = 5;
}

/// How many counts a frame has at most: small frames find room, and a lost one takes little with it.
const COUNTS: usize = 16;

/// Sends frames over `writer`, through a buffer of the caller's.
///
/// Sending puts a frame into the buffer and returns at once. [`Telemetry::poll`] moves bytes on: firmware calls it between training steps,
/// or from the interrupt of a UART that can take another byte. A frame takes about 14 bytes beside its texts; one that is longer than the
/// whole buffer is always dropped.
///
/// ```
/// use gradlet_core::telemetry::Telemetry;
/// # struct Uart(Vec<u8>);
/// # impl embedded_io::ErrorType for Uart { type Error = core::convert::Infallible; }
/// # impl embedded_io::Write for Uart {
/// #     fn write(&mut self, bytes: &[u8]) -> Result<usize, Self::Error> { self.0.extend(bytes); Ok(bytes.len()) }
/// #     fn flush(&mut self) -> Result<(), Self::Error> { Ok(()) }
/// # }
/// # impl embedded_io::WriteReady for Uart { fn write_ready(&mut self) -> Result<bool, Self::Error> { Ok(true) } }
/// # fn train() -> f32 { 0.5 }
/// # let uart = Uart(Vec::new()); // a HAL's UART, or whatever is `embedded_io::Write` and `WriteReady`
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
    /// Nothing is sent yet. The buffer is best as long as what is sent between two polls.
    pub fn new(writer: W, buffer: &'b mut [u8]) -> Telemetry<'b, W> {
        Telemetry { writer, queue: Queue::new(buffer) }
    }

    /// Who sends: the first frame, and another one from time to time for readers that come late.
    ///
    /// `clock` names what [`Telemetry::counts`] counts (`DWT cycles`, `instructions`), of which there are `hz` a second. `artifact` is
    /// [`Program::identity`](crate::Program::identity), so that no reader takes the names of another model's ops.
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

    /// A number at a step, such as a loss.
    pub fn scalar(&mut self, tag: &str, step: u32, value: f32) {
        self.queue.tagged(kind::SCALAR, tag, step);
        self.queue.raw(&value.to_le_bytes());
        self.queue.end();
    }

    /// What a tensor's elements are like at a step, weights for instance: see [`Statistics::of`].
    pub fn statistics(&mut self, tag: &str, step: u32, tensor: &TensorView<'_>) {
        let Statistics { min, max, mean, variance, count, non_finite } = Statistics::of(tensor);
        self.queue.tagged(kind::STATISTICS, tag, step);
        self.queue.raw(bytemuck::bytes_of(&[min, max, mean, variance]));
        self.queue.number(count);
        self.queue.number(non_finite);
        self.queue.end();
    }

    /// A text at a step.
    pub fn text(&mut self, tag: &str, step: u32, text: &str) {
        self.queue.tagged(kind::TEXT, tag, step);
        self.queue.bytes(text.as_bytes());
        self.queue.end();
    }

    /// A text that is to be written first: `telemetry.format("state", step, format_args!("{volts} V"))`. Only firmware that calls this
    /// carries code to write numbers.
    pub fn format(&mut self, tag: &str, step: u32, text: fmt::Arguments<'_>) {
        // The length comes before the text, which is not kept anywhere: so it is written twice.
        let mut length = Length(0);
        let _ = fmt::write(&mut length, text);
        self.queue.tagged(kind::TEXT, tag, step);
        self.queue.number(length.0);
        let _ = fmt::write(&mut self.queue, text);
        self.queue.end();
    }

    /// What a program says while it runs ([`Session::run_printing`](crate::Session::run_printing)): the summary of a scalar as a scalar,
    /// any other one as statistics, and what it prints as a text called `print`. What has no step is of `step`.
    ///
    /// ```no_run
    /// # use gradlet_core::{Session, SignatureId, Telemetry};
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

    /// How far an epoch is: so many steps `of` all are done.
    pub fn progress(&mut self, step: u32, of: u32, epoch: u32) {
        self.queue.begin(kind::PROGRESS);
        [step, of, epoch].into_iter().for_each(|number| self.queue.number(number));
        self.queue.end();
    }

    /// The counts of the run that `profiler` saw last, of the signature that is called so, in frames of a few ops each.
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

    /// How many frames were dropped because there was no room for them.
    pub fn dropped(&self) -> u32 {
        self.queue.dropped
    }

    /// True if the writer has everything, the account of what was dropped included.
    pub fn is_empty(&mut self) -> bool {
        !self.waits()
    }

    /// True if there are bytes for the writer.
    fn waits(&mut self) -> bool {
        self.queue.tell();
        !self.queue.next().is_empty()
    }

    /// The writer, such as a UART's driver.
    pub fn writer_mut(&mut self) -> &mut W {
        &mut self.writer
    }
}

impl<W: Write> Telemetry<'_, W> {
    /// Gives the writer all that there is, waiting for it.
    ///
    /// Fails where the writer does; what it did not take stays.
    pub fn flush(&mut self) -> Result<(), W::Error> {
        while self.waits() && self.advance()? {}
        self.writer.flush()
    }

    /// Gives the writer some bytes; false if it takes none any more.
    fn advance(&mut self) -> Result<bool, W::Error> {
        let written = self.writer.write(self.queue.next())?;
        self.queue.take(written);
        Ok(written > 0)
    }
}

impl<W: Write + WriteReady> Telemetry<'_, W> {
    /// Gives the writer as many bytes as it takes without waiting.
    ///
    /// Fails where the writer does; what it did not take stays.
    pub fn poll(&mut self) -> Result<(), W::Error> {
        while self.waits() && self.writer.write_ready()? && self.advance()? {}
        Ok(())
    }
}

/// How long a text is.
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
