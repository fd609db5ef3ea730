//! Saves the variables of a session to checkpoints and restores them.

use super::restoring::{Readable, Unchanged};
use super::{Contents, Fault, Outcome, Reading, Renamed, Restoring, Saving, Take, Target, Whole, Writer};
use crate::base::error::{Error, Result};
use crate::runtime::program::Program;
use crate::runtime::session::Session;
use embedded_io::{Error as _, Read, Write};

impl Session<'_, '_> {
    /// Writes a checkpoint of the variables, including the optimizer's state.
    ///
    /// ```no_run
    /// use gradlet_core::runtime::checkpoint::Contents;
    /// # fn firmware(session: &mut gradlet_core::Session<'_, '_>) -> gradlet_core::Result<()> {
    /// let mut memory = [0; 4096]; // or a UART or a file: any `embedded_io::Write`
    /// session.save(&mut &mut memory[..], Contents::Changed)?;
    /// session.restore(&mut &memory[..])
    /// # }
    /// ```
    ///
    /// Fails with [`Error::Unfinished`] if the session is unfinished, and with [`Error::VariableNotFinite`] if an element of a variable is
    /// infinite or NaN and the artifact checks this ([`Artifact::finite_steps`](crate::Artifact::finite_steps)). Nothing is written then.
    /// Fails with [`Error::Io`] if the writer does.
    pub fn save<W: Write>(&self, writer: &mut W, contents: Contents) -> Result<()> {
        self.finished()?;
        let (mut saving, mut writer) = (Saving::new(contents), Writer(writer));
        let outcome = saving.whole(self, &mut writer).and_then(|()| writer.flush());
        outcome.map_err(|fault| fault.error(saving.variable))
    }

    /// Returns the number of bytes that [`Session::save`] writes.
    pub fn checkpoint_len(&self, contents: Contents) -> u32 {
        let mut saving = Saving::new(contents);
        // A value that is not finite counts too.
        while saving.measure(self, &mut Whole).is_err() {
            saving.skip();
        }
        saving.bytes
    }

    /// Sets the variables to the values in a checkpoint. Variables that the checkpoint does not contain get their initial values.
    ///
    /// The result is all or nothing. A checkpoint of another artifact changes nothing. A stream is read only once, so damage that is
    /// found after the header resets all variables to their initial values, as [`Session::reset`] does. If the source can be read twice,
    /// the caller can check it first with [`Session::verify`]. [`Slots`](crate::runtime::Slots) always checks the bytes first.
    ///
    /// Fails with [`Error::NotACheckpoint`], [`Error::CheckpointVersion`], [`Error::OtherArtifact`], [`Error::CutShort`] or
    /// [`Error::Io`]. Fails with [`Error::Damaged`], which names the variable if it is known. Fails with [`Error::InFlash`] if the
    /// checkpoint changes a variable that no loaded signature assigns.
    pub fn restore<R: Read>(&mut self, reader: &mut R) -> Result<()> {
        read(self.program(), reader, true, self)
    }

    /// Sets the variables to the values in a checkpoint of another artifact, `old`: those whose name, element type and shape are the same
    /// in both. The other variables get their initial values. A model that was replaced thus keeps what it learned, as far as it fits.
    ///
    /// `old` needs no kernels and no signatures: `Program::load(bytes, &[], &[])`. Its bytes must still be readable, because a checkpoint
    /// does not contain the names of its variables. A variable with the value that it had in the old artifact may be missing in the
    /// checkpoint ([`Contents::Changed`]); it then has the initial value of the new one.
    ///
    /// Fails like [`Session::restore`]; [`Error::OtherArtifact`] means that the checkpoint does not belong to `old`.
    pub fn restore_other<R: Read>(&mut self, old: &Program<'_>, reader: &mut R) -> Result<()> {
        read(old, reader, true, &mut Renamed::new(self, old))
    }

    /// Reads a checkpoint and fails like [`Session::restore`], but changes nothing.
    pub fn verify<R: Read>(&self, reader: &mut R) -> Result<()> {
        read(self.program(), reader, true, &mut Unchanged)
    }

    /// Restores the readable part of a damaged checkpoint. `lost` receives each variable that cannot be read, with the reason. Such a
    /// variable has its initial value afterwards.
    ///
    /// Fails like [`Session::restore`] if nothing can be read. Also fails if the next entry cannot be found, because the checkpoint is
    /// cut short or both copies of an entry's head are damaged. Variables that were read before keep their restored values; the others
    /// have their initial values.
    pub fn restore_readable<R: Read>(&mut self, reader: &mut R, lost: &mut dyn FnMut(u32, Error)) -> Result<()> {
        read(self.program(), reader, false, &mut Readable { session: self, lost })
    }
}

/// Reads a whole checkpoint: see [`Restoring::advance`].
fn read<'p, 'm>(program: &Program<'_>, reader: &mut impl Read, strict: bool, target: &mut impl Target<'p, 'm>) -> Result<()> {
    let mut reader = Reader(reader);
    let (mut restoring, mut source) = (Restoring::new(), Reading::new(&mut reader));
    let outcome = restoring.advance(program, &mut source, strict, target, &mut Whole);
    source.outcome(outcome).map(drop)
}

struct Reader<'a, R>(&'a mut R);

impl<R: Read> Take for Reader<'_, R> {
    // Like `read_exact`, which would link a panic.
    fn take(&mut self, mut bytes: &mut [u8]) -> Outcome {
        while !bytes.is_empty() {
            let read = self.0.read(bytes).map_err(|error| Fault::Io(error.kind()))?;
            bytes = bytes.get_mut(read..).filter(|_| read > 0).ok_or(Fault::CutShort)?;
        }
        Ok(())
    }
}
