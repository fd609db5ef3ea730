//! Saves the variables of a session to checkpoints and restores them.

use super::{
    ENTRY_BYTES, Fault, HEAD, HEADER_BYTES, Header, Outcome, Put, Reading, Take, Value, Writer, measure, parts, put_header, put_value,
    take_frame, told,
};
use crate::base::error::{Error, Result};
use crate::base::op::Slice;
use crate::base::shape::TensorType;
use crate::runtime::exec::Session;
use crate::runtime::program::{Checksum, NONE, Program, VariableRecord};
use embedded_io::{Error as _, Read, Write};

/// Maximum number of bytes that are read together.
const CHUNK: usize = 64;

/// The set of variables that a checkpoint contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// All variables that have a value.
    Full,
    /// The variables whose value differs from their initial value in the artifact.
    Changed,
}

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
        self.savable(contents)?;
        let mut writer = Writer(writer);
        told(self.save_to(&mut writer, contents).and_then(|()| writer.flush()))
    }

    /// Fails if the session is unfinished, or if a value that would be saved is not finite.
    pub(crate) fn savable(&self, contents: Contents) -> Result<()> {
        self.finished()?;
        let odd = |(_, tensor_type, data): &Value<'_>| self.program().check_finite(tensor_type, data, &mut Slice::all()).is_err();
        match self.saved(contents).find(odd) {
            Some((variable, ..)) => Err(Error::VariableNotFinite { variable }),
            None => Ok(()),
        }
    }

    pub(crate) fn save_to(&self, put: &mut dyn Put, contents: Contents) -> Outcome {
        let [count, bytes] = self.extent(contents);
        put_header(put, self.program().identity(), count, bytes)?;
        self.saved(contents).try_for_each(|value| put_value(put, value))
    }

    /// Returns the number of bytes that [`Session::save`] writes.
    pub fn checkpoint_len(&self, contents: Contents) -> u32 {
        let [_, bytes] = self.extent(contents);
        bytes
    }

    /// Returns the number of variables in a checkpoint and the size of the checkpoint in bytes.
    #[inline(never)]
    fn extent(&self, contents: Contents) -> [u32; 2] {
        let [mut count, mut bytes] = [0, HEADER_BYTES];
        self.saved(contents).for_each(|value| measure(value, &mut count, &mut bytes));
        [count, bytes]
    }

    fn saved(&self, contents: Contents) -> impl Iterator<Item = Value<'_>> {
        (0..self.variable_count() as u32).filter_map(move |variable| self.saved_value(variable, contents))
    }

    /// Returns the value of a variable if a checkpoint with these `contents` contains it, otherwise `None`. A variable whose initial
    /// value is zero and that no loaded signature assigns has no value, so no checkpoint contains it.
    #[inline(never)]
    fn saved_value(&self, variable: u32, contents: Contents) -> Option<Value<'_>> {
        let program = self.program();
        let (record, tensor_type) = find(program, variable)?;
        let data = self.value(variable as usize)?;
        let is_saved = contents == Contents::Full || !is_initial(program, record, 0, data);
        is_saved.then_some((variable, tensor_type, data))
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
        self.restore_from(&mut Reader(reader))
    }

    pub(crate) fn restore_from(&mut self, bytes: &mut dyn Take) -> Result<()> {
        let mut source = Reading::new(bytes);
        let outcome = read(self.program(), &mut source, true, self);
        source.outcome(outcome)
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
        self.restore_other_from(old, &mut Reader(reader))
    }

    pub(crate) fn restore_other_from(&mut self, old: &Program<'_>, bytes: &mut dyn Take) -> Result<()> {
        let mut source = Reading::new(bytes);
        let outcome = read(old, &mut source, true, &mut Renamed { session: self, old, variable: NONE, own: NONE });
        source.outcome(outcome)
    }

    /// Reads a checkpoint and fails like [`Session::restore`], but changes nothing.
    pub fn verify<R: Read>(&self, reader: &mut R) -> Result<()> {
        let mut reader = Reader(reader);
        let mut source = Reading::new(&mut reader);
        let outcome = read(self.program(), &mut source, true, &mut Unchanged);
        source.outcome(outcome)
    }

    /// Restores the readable part of a damaged checkpoint. `lost` receives each variable that cannot be read, with the reason. Such a
    /// variable has its initial value afterwards.
    ///
    /// Fails like [`Session::restore`] if nothing can be read. Also fails if the next entry cannot be found, because the checkpoint is
    /// cut short or both copies of an entry's head are damaged. Variables that were read before keep their restored values; the others
    /// have their initial values.
    pub fn restore_readable<R: Read>(&mut self, reader: &mut R, lost: &mut dyn FnMut(u32, Error)) -> Result<()> {
        let program = self.program();
        let mut reader = Reader(reader);
        let mut source = Reading::new(&mut reader);
        let outcome = read(program, &mut source, false, &mut Readable { session: self, lost });
        source.outcome(outcome)
    }
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

/// Returns the bytes of a variable's initial value; an empty slice for zeros.
fn initial<'p>(program: &'p Program<'_>, record: &VariableRecord) -> &'p [u8] {
    if record.initial == NONE { &[] } else { program.flash(record.initial, program.bytes_of(record)) }
}

/// True if the bytes of a variable's initial value, from `at` on, begin with `bytes`.
fn is_initial(program: &Program<'_>, record: &VariableRecord, at: usize, bytes: &[u8]) -> bool {
    match initial(program, record) {
        [] => bytes.iter().all(|&byte| byte == 0),
        initial => initial.get(at..).is_some_and(|rest| rest.starts_with(bytes)),
    }
}

/// Returns the record and the type of a variable, or `None` if there is no variable with this index.
#[inline(never)]
fn find<'p>(program: &'p Program<'_>, variable: u32) -> Option<(&'p VariableRecord, &'p TensorType)> {
    let record = program.variables.get(variable as usize)?;
    let tensor = program.tensors.get(record.tensor as usize)?;
    Some((record, program.types.get(usize::from(tensor.tensor_type))?))
}

/// The receiver of a checkpoint's values.
trait Target {
    /// Sets all variables to their initial values. Called before the first value is set, and after an error.
    fn reset(&mut self) {}

    /// Called after the last change.
    fn finish(&mut self) {}

    /// True if the values of a variable of `program` go to [`Target::set`]. Otherwise they must be its initial value.
    fn takes(&self, program: &Program<'_>, record: &VariableRecord) -> bool {
        program.in_ram(record)
    }

    /// Overwrites the bytes of a variable in RAM, from byte `at` of the variable on.
    fn set(&mut self, _variable: u32, _at: usize, _bytes: &[u8]) {}

    /// Handles a variable whose entry cannot be used, for the reason `fault`. If this method fails, the read ends.
    fn lose(&mut self, _variable: u32, fault: Fault) -> Outcome {
        Err(fault)
    }
}

struct Unchanged;

impl Target for Unchanged {}

impl Target for Session<'_, '_> {
    fn reset(&mut self) {
        self.set_initial();
    }

    fn finish(&mut self) {
        Session::finish(self);
    }

    fn set(&mut self, variable: u32, at: usize, bytes: &[u8]) {
        self.overwrite(variable, at, bytes);
    }
}

/// A session that takes the values of another artifact's variables.
struct Renamed<'a, 'p, 'm> {
    session: &'a mut Session<'p, 'm>,
    old: &'a Program<'a>,
    /// Index of the last variable in the old artifact, and of the variable with the same name and type in the new one, or [`NONE`].
    variable: u32,
    own: u32,
}

impl Renamed<'_, '_, '_> {
    /// Returns the index of the variable that has the name and the type of variable `variable` in the old artifact.
    fn find(&self, variable: u32) -> Option<u32> {
        let (record, tensor_type) = find(self.old, variable)?;
        let (name, new) = (self.old.name_bytes(record.name)?, self.session.program());
        let same = |&own: &u32| {
            find(new, own).is_some_and(|(record, own_type)| own_type == tensor_type && new.name_bytes(record.name) == Some(name))
        };
        (0..new.variables.len() as u32).find(same)
    }
}

impl Target for Renamed<'_, '_, '_> {
    fn reset(&mut self) {
        Target::reset(self.session);
    }

    fn finish(&mut self) {
        self.session.finish();
    }

    fn takes(&self, _: &Program<'_>, _: &VariableRecord) -> bool {
        true
    }

    fn set(&mut self, variable: u32, at: usize, bytes: &[u8]) {
        if variable != self.variable {
            (self.variable, self.own) = (variable, self.find(variable).unwrap_or(NONE));
        }
        self.session.overwrite(self.own, at, bytes);
    }
}

struct Readable<'a, 'p, 'm> {
    session: &'a mut Session<'p, 'm>,
    lost: &'a mut dyn FnMut(u32, Error),
}

impl Target for Readable<'_, '_, '_> {
    fn reset(&mut self) {
        Target::reset(self.session);
    }

    fn finish(&mut self) {
        self.session.finish();
    }

    fn set(&mut self, variable: u32, at: usize, bytes: &[u8]) {
        self.session.set(variable, at, bytes);
    }

    fn lose(&mut self, variable: u32, fault: Fault) -> Outcome {
        let program = self.session.program();
        if let (Some(record), Ok(value)) = (program.variables.get(variable as usize), self.session.variable_mut(variable as usize)) {
            value.fill(0);
            value.iter_mut().zip(initial(program, record)).for_each(|(byte, initial)| *byte = *initial);
        }
        (self.lost)(variable, fault.error(variable));
        Ok(())
    }
}

/// Reads a checkpoint, which must belong to this program, and passes its values to `target`. If `strict` is true, every copy must be
/// intact, and an error resets all variables. If `strict` is false, one intact copy of the header and of each head suffices, and the
/// values that were read before an error stay.
fn read(program: &Program<'_>, source: &mut Reading<'_>, strict: bool, target: &mut impl Target) -> Outcome {
    let header = Header::take(source)?;
    let (own, other) = (program.identity(), header.artifact);
    if strict && !header.whole {
        return Err(Fault::Damaged);
    }
    if own != other {
        source.detail = other.checksum;
        return Err(Fault::OtherArtifact);
    }
    target.reset();
    let done = entries(program, &header, source, strict, target);
    if strict && done.is_err() {
        target.reset();
    }
    target.finish();
    done
}

fn entries(program: &Program<'_>, header: &Header, source: &mut Reading<'_>, strict: bool, target: &mut impl Target) -> Outcome {
    let (mut next, mut left) = (0, header.bytes);
    for _ in 0..header.count {
        let mut head = [0; HEAD];
        source.detail = NONE;
        let copies = take_frame(source, &mut head)?;
        let [variable, _, bytes] = head;
        if copies > 0 {
            source.detail = variable;
        }
        let rest = left.checked_sub(ENTRY_BYTES).and_then(|left| left.checked_sub(bytes));
        left = rest.filter(|_| variable >= next && copies > u8::from(strict)).ok_or(Fault::Damaged)?;
        next = variable.saturating_add(1);
        if let Some(fault) = body(program, head, source, target)? {
            target.lose(variable, fault)?;
        }
    }
    source.detail = NONE;
    if left == 0 { Ok(()) } else { Err(Fault::Damaged) }
}

/// Reads the body of an entry to its end. Returns the fault of the entry, or `None` if the entry is correct. Fails if the read cannot
/// continue after this entry.
#[inline(always)]
fn body(program: &Program<'_>, head: [u32; HEAD], source: &mut Reading<'_>, target: &mut impl Target) -> Outcome<Option<Fault>> {
    let [variable, kind, bytes] = head;
    let bytes = bytes as usize;
    let (record, tensor_type) = find(program, variable).ok_or(Fault::NoSuchTensor)?;
    let (own, dims) = parts(tensor_type);
    if own != kind || dims.len() + program.bytes_of(record) as usize != bytes {
        return Err(Fault::TensorType);
    }
    let mut sum = Checksum::NEW.add(bytemuck::cast_slice(&head));
    let (mut buffer, mut stored, mut at, mut wrong) = ([0; CHUNK], [0; 4], 0, None);
    while at < bytes {
        let part = if at < dims.len() { dims.len() } else { CHUNK };
        let chunk = buffer.get_mut(..part.min(bytes - at)).unwrap_or_default();
        source.bytes.take(chunk)?;
        sum = sum.add(chunk);
        if at < dims.len() {
            wrong = (chunk != dims).then_some(Fault::TensorType);
        } else if target.takes(program, record) {
            target.set(variable, at - dims.len(), chunk);
        } else if !is_initial(program, record, at - dims.len(), chunk) {
            wrong = Some(Fault::InFlash);
        }
        at += chunk.len();
    }
    source.bytes.take(&mut stored)?;
    Ok(if stored == sum.get().to_le_bytes() { wrong } else { Some(Fault::Damaged) })
}
