//! Reads a checkpoint of a session's variables, in slices.

use super::{Budget, ENTRY_BYTES, Fault, HEAD, Header, Outcome, Reading, find, is_initial, parts, same, take_frame};
use crate::base::error::Error;
use crate::runtime::program::{Checksum, NONE, Program, VariableRecord};
use crate::runtime::session::Session;

/// Maximum number of bytes that are read together.
const CHUNK: usize = 64;
/// Costs in instructions of a Cortex-M4: of a byte that is read, of an entry without its values, of a byte that gets its initial value,
/// and of a variable that does.
const READ: u32 = 16;
const ENTRY: u32 = 1500;
const RESET: u32 = 2;
const VARIABLE: u32 = 100;

/// The receiver of a checkpoint's values.
pub(crate) trait Target<'p, 'm> {
    /// Returns the session whose variables change, or `None` if the checkpoint is only checked.
    fn session(&mut self) -> Option<&mut Session<'p, 'm>>;

    /// True if the values of a variable of `program` go to [`Target::set`]. Otherwise they must be its initial value.
    fn takes(&self, program: &Program<'_>, record: &VariableRecord) -> bool {
        program.in_ram(record)
    }

    /// Overwrites the bytes of a variable in RAM, from byte `at` of the variable on.
    fn set(&mut self, variable: u32, at: usize, bytes: &[u8]) {
        if let Some(session) = self.session() {
            session.overwrite(variable, at, bytes);
        }
    }

    /// Handles a variable whose entry cannot be used, for the reason `fault`. If this method fails, the read ends.
    fn lose(&mut self, _variable: u32, fault: Fault) -> Outcome {
        Err(fault)
    }
}

/// A target that only checks the checkpoint.
pub(super) struct Unchanged;

impl<'p, 'm> Target<'p, 'm> for Unchanged {
    fn session(&mut self) -> Option<&mut Session<'p, 'm>> {
        None
    }
}

impl<'p, 'm> Target<'p, 'm> for Session<'p, 'm> {
    fn session(&mut self) -> Option<&mut Session<'p, 'm>> {
        Some(self)
    }
}

/// A session that takes the values of another artifact's variables.
pub(crate) struct Renamed<'a, 'p, 'm> {
    session: &'a mut Session<'p, 'm>,
    old: &'a Program<'a>,
    /// Index of the last variable in the old artifact, and of the variable with the same name and type in the new one, or [`NONE`].
    variable: u32,
    own: u32,
}

impl<'a, 'p, 'm> Renamed<'a, 'p, 'm> {
    pub(crate) fn new(session: &'a mut Session<'p, 'm>, old: &'a Program<'a>) -> Renamed<'a, 'p, 'm> {
        Renamed { session, old, variable: NONE, own: NONE }
    }

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

impl<'p, 'm> Target<'p, 'm> for Renamed<'_, 'p, 'm> {
    fn session(&mut self) -> Option<&mut Session<'p, 'm>> {
        Some(self.session)
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

/// A session that takes the readable values of a damaged checkpoint.
pub(super) struct Readable<'a, 'p, 'm> {
    pub(super) session: &'a mut Session<'p, 'm>,
    pub(super) lost: &'a mut dyn FnMut(u32, Error),
}

impl<'p, 'm> Target<'p, 'm> for Readable<'_, 'p, 'm> {
    fn session(&mut self) -> Option<&mut Session<'p, 'm>> {
        Some(self.session)
    }

    fn lose(&mut self, variable: u32, fault: Fault) -> Outcome {
        self.session.set_initial(variable as usize);
        (self.lost)(variable, fault.error(variable));
        Ok(())
    }
}

/// The parts of a read.
#[derive(Clone, Copy, PartialEq)]
enum Part {
    /// The header. Nothing has changed yet.
    Header,
    /// All variables get their initial values.
    Reset,
    /// The head of an entry, or the end.
    Head,
    /// The values of an entry, and its checksum.
    Body,
}

/// A position in the reading of a checkpoint.
#[derive(Clone, Copy)]
pub(crate) struct Restoring {
    part: Part,
    /// Number of entries after the current one.
    count: u32,
    /// Number of their bytes.
    left: u32,
    /// Index of the next variable: of the one to reset, or of the first one that the next entry can have.
    next: u32,
    /// Number of bytes of the variable, or of the body, that are done.
    at: u32,
    head: [u32; HEAD],
    /// Checksum of the entry so far.
    sum: Checksum,
    /// The first fault of the entry.
    wrong: Option<Fault>,
}

impl Restoring {
    pub(crate) fn new() -> Restoring {
        Restoring { part: Part::Header, count: 0, left: 0, next: 0, at: 0, head: [0; HEAD], sum: Checksum::NEW, wrong: None }
    }

    /// True if the session may have changed.
    pub(crate) fn is_begun(&self) -> bool {
        self.part != Part::Header
    }

    /// Goes on with the read of a checkpoint, which must belong to `program`, and passes its values to `target`. Returns true when it is
    /// done. If `strict` is true, every copy must be intact, and an error resets all variables. If `strict` is false, one intact copy of
    /// the header and of each head suffices, and the values that were read before an error stay.
    pub(crate) fn advance<'p, 'm>(
        &mut self,
        program: &Program<'_>,
        source: &mut Reading<'_>,
        strict: bool,
        target: &mut impl Target<'p, 'm>,
        budget: &mut impl Budget,
    ) -> Outcome<bool> {
        let outcome = self.parts(program, source, strict, target, budget);
        if outcome != Ok(false)
            && self.is_begun()
            && let Some(session) = target.session()
        {
            match outcome {
                Err(_) if strict => session.reset(),
                _ => session.finish(),
            }
        }
        outcome
    }

    #[inline(always)]
    fn parts<'p, 'm>(
        &mut self,
        program: &Program<'_>,
        source: &mut Reading<'_>,
        strict: bool,
        target: &mut impl Target<'p, 'm>,
        budget: &mut impl Budget,
    ) -> Outcome<bool> {
        while !budget.is_spent() {
            match self.part {
                Part::Header => {
                    let header = Header::take(source)?;
                    if strict && !header.whole {
                        return Err(Fault::Damaged);
                    }
                    if program.identity() != header.artifact {
                        source.detail = header.artifact.checksum;
                        return Err(Fault::OtherArtifact);
                    }
                    (self.count, self.left) = (header.count, header.bytes);
                    target.session().into_iter().for_each(|session| session.unfinish());
                    self.part = Part::Reset;
                }
                Part::Reset => self.reset(target.session(), budget),
                Part::Head if self.count == 0 => {
                    source.detail = NONE;
                    return if self.left == 0 { Ok(true) } else { Err(Fault::Damaged) };
                }
                Part::Head => {
                    budget.spend(ENTRY);
                    self.head(program, source, strict)?;
                }
                Part::Body => self.body(program, source, target, budget)?,
            }
        }
        Ok(false)
    }

    /// Gives the next variable its initial value.
    #[inline(always)]
    fn reset(&mut self, session: Option<&mut Session<'_, '_>>, budget: &mut impl Budget) {
        let index = self.next as usize;
        match session {
            Some(session) if index < session.variable_count() => {
                session.set_initial(index);
                self.next += 1;
                budget.spend(VARIABLE + RESET * session.value(index).map_or(0, |value| value.len() as u32));
            }
            _ => (self.next, self.part) = (0, Part::Head),
        }
    }

    #[inline(always)]
    fn head(&mut self, program: &Program<'_>, source: &mut Reading<'_>, strict: bool) -> Outcome {
        source.detail = NONE;
        let copies = take_frame(source, &mut self.head)?;
        let [variable, kind, bytes] = self.head;
        if copies > 0 {
            source.detail = variable;
        }
        let rest = self.left.checked_sub(ENTRY_BYTES).and_then(|left| left.checked_sub(bytes));
        self.left = rest.filter(|_| variable >= self.next && copies > u8::from(strict)).ok_or(Fault::Damaged)?;
        self.next = variable.saturating_add(1);
        let (record, tensor_type) = find(program, variable).ok_or(Fault::NoSuchTensor)?;
        let (own, dims) = parts(tensor_type);
        if own != kind || dims.len() + program.bytes_of(record) as usize != bytes as usize {
            return Err(Fault::TensorType);
        }
        (self.part, self.count, self.at, self.wrong) = (Part::Body, self.count - 1, 0, None);
        self.sum = Checksum::NEW.add(bytemuck::cast_slice(&self.head));
        Ok(())
    }

    /// Reads bytes of an entry's body. After the last one, passes the fault of the entry to the target, if it has one.
    #[inline(always)]
    fn body<'p, 'm>(
        &mut self,
        program: &Program<'_>,
        source: &mut Reading<'_>,
        target: &mut impl Target<'p, 'm>,
        budget: &mut impl Budget,
    ) -> Outcome {
        let [variable, _, bytes] = self.head;
        source.detail = variable;
        let (record, tensor_type) = find(program, variable).ok_or(Fault::NoSuchTensor)?;
        let (_, dims) = parts(tensor_type);
        let mut buffer = [0; CHUNK];
        while self.at < bytes {
            if budget.is_spent() {
                return Ok(());
            }
            let at = self.at as usize;
            let part = if at < dims.len() { dims.len() } else { CHUNK };
            let chunk = buffer.get_mut(..part.min(bytes as usize - at)).unwrap_or_default();
            source.bytes.take(chunk)?;
            self.sum = self.sum.add(chunk);
            if at < dims.len() {
                self.wrong = (!same(chunk, dims)).then_some(Fault::TensorType);
            } else if target.takes(program, record) {
                target.set(variable, at - dims.len(), chunk);
            } else if !is_initial(program, record, at - dims.len(), chunk) {
                self.wrong = Some(Fault::InFlash);
            }
            self.at += chunk.len() as u32;
            budget.spend(READ * chunk.len() as u32);
        }
        let mut stored = [0; 4];
        source.bytes.take(&mut stored)?;
        self.part = Part::Head;
        let wrong = if stored == self.sum.get().to_le_bytes() { self.wrong } else { Some(Fault::Damaged) };
        wrong.map_or(Ok(()), |fault| target.lose(variable, fault))
    }
}
