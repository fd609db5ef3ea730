//! Writes a checkpoint of a session's variables, in slices.

use super::{Budget, Fault, HEADER_BYTES, Outcome, Put, Value, Whole, find, is_initial, measure, put_head, put_header};
use crate::runtime::program::{Checksum, NONE};
use crate::runtime::session::Session;

/// The set of variables that a checkpoint contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "defmt", derive(defmt::Format))]
pub enum Contents {
    /// All variables that have a value.
    Full,
    /// The variables whose value differs from their initial value in the artifact.
    Changed,
}

/// Costs in instructions of a Cortex-M4: of a byte that is compared with its initial value, of a byte that is written, of a variable, and
/// of an entry without its values.
const COMPARE: u32 = 4;
const WRITE: u32 = 24;
const VARIABLE: u32 = 250;
const ENTRY: u32 = 6000;
/// Number of bytes from which on the values of an entry are summed only once.
const LONG: usize = 512;

/// A position in the writing of a checkpoint. There are two passes over the variables: [`Saving::measure`], then [`Saving::write`].
#[derive(Clone, Copy)]
pub(crate) struct Saving {
    contents: Contents,
    /// True in the second pass, after the header.
    writes: bool,
    /// Number of variables in the checkpoint.
    count: u32,
    /// Size of the checkpoint, in bytes.
    pub(crate) bytes: u32,
    /// Index of the next variable.
    pub(crate) variable: u32,
    /// Number of its bytes that are done.
    at: u32,
    /// True if the checkpoint contains it.
    included: bool,
    /// Checksum of its entry before and after the bytes that are done.
    entry: [Checksum; 2],
    /// Checksum of the checkpoint before these bytes.
    pub(crate) sum: Checksum,
}

/// A destination that sums its bytes.
struct Summed<'a> {
    put: &'a mut dyn Put,
    sum: Checksum,
}

impl Put for Summed<'_> {
    fn put(&mut self, bytes: &[u8]) -> Outcome {
        self.sum = self.sum.add(bytes);
        self.put.put(bytes)
    }
}

impl Saving {
    pub(crate) fn new(contents: Contents) -> Saving {
        let [count, variable, at] = [0; 3];
        let sum = Checksum::NEW;
        Saving { contents, writes: false, count, bytes: HEADER_BYTES, variable, at, included: false, entry: [sum; 2], sum }
    }

    /// Measures and writes a whole checkpoint.
    pub(crate) fn whole(&mut self, session: &Session<'_, '_>, put: &mut dyn Put) -> Outcome {
        self.measure(session, &mut Whole)?;
        self.write(session, put, &mut Whole).map(drop)
    }

    /// Goes on with the first pass, which computes the size of the checkpoint. Returns true when it is done. Fails if an element of the
    /// next variable is not finite.
    #[inline(never)]
    pub(crate) fn measure(&mut self, session: &Session<'_, '_>, budget: &mut impl Budget) -> Outcome<bool> {
        while let Some(value) = self.next(session, budget) {
            if self.at == 0 {
                measure(value, &mut self.count, &mut self.bytes);
            }
            let (_, tensor_type, data) = value;
            let mut slice = budget.slice(self.at);
            session.program().check_finite(tensor_type, data, &mut slice).map_err(|_| Fault::NotFinite)?;
            budget.leave(&slice);
            match slice.next {
                NONE => self.skip(),
                next => self.at = next,
            }
        }
        Ok(self.variable as usize >= session.variable_count())
    }

    /// Goes on with the second pass, which writes the checkpoint to `put`. Returns true when it is done.
    #[inline(never)]
    pub(crate) fn write(&mut self, session: &Session<'_, '_>, put: &mut dyn Put, budget: &mut impl Budget) -> Outcome<bool> {
        let mut put = Summed { put, sum: self.sum };
        if !self.writes {
            put_header(&mut put, session.program().identity(), self.count, self.bytes)?;
            (self.writes, self.variable) = (true, 0);
        }
        while let Some(value @ (_, _, data)) = self.next(session, budget) {
            let [before, after] = &mut self.entry;
            if self.at == 0 {
                *before = put_head(&mut put, value)?;
                *after = *before;
                budget.spend(ENTRY);
            }
            let part = part(data, self.at, WRITE, budget);
            *after = after.add(part);
            match data.len() {
                ..LONG => put.put(part)?,
                _ => put.put.put(part)?,
            }
            self.at += part.len() as u32;
            if self.at as usize == data.len() {
                if data.len() >= LONG {
                    put.sum = before.follow(*after, put.sum, data.len());
                }
                put.put(&after.get().to_le_bytes())?;
                self.skip();
            }
        }
        self.sum = put.sum;
        Ok(self.variable as usize >= session.variable_count())
    }

    /// Returns the value of the next variable that the checkpoint contains, or `None` if there is none, or if the budget is spent. A
    /// variable whose initial value is zero and that no loaded signature assigns has no value, so no checkpoint contains it.
    #[inline(never)]
    fn next<'s>(&mut self, session: &'s Session<'_, '_>, budget: &mut impl Budget) -> Option<Value<'s>> {
        let program = session.program();
        while !budget.is_spent() {
            let (record, tensor_type) = find(program, self.variable)?;
            let full = self.contents == Contents::Full;
            match session.value(self.variable as usize).filter(|_| full || program.in_ram(record)) {
                Some(data) if self.included => return Some((self.variable, tensor_type, data)),
                Some(data) => {
                    let part = if full { &[] } else { part(data, self.at, COMPARE, budget) };
                    let included = full || !is_initial(program, record, self.at as usize, part);
                    self.at += part.len() as u32;
                    match included {
                        true => (self.included, self.at) = (true, 0),
                        false if self.at as usize == data.len() => self.skip(),
                        false => (),
                    }
                }
                None => self.skip(),
            }
            budget.spend(VARIABLE);
        }
        None
    }

    /// Moves on to the variable after the next one.
    pub(crate) fn skip(&mut self) {
        (self.variable, self.at, self.included) = (self.variable + 1, 0, false);
    }
}

/// Returns the bytes from `at` on that the budget covers.
fn part<'d>(data: &'d [u8], at: u32, cost: u32, budget: &mut impl Budget) -> &'d [u8] {
    let rest = data.get(at as usize..).unwrap_or_default();
    rest.get(..budget.bytes(rest.len(), cost)).unwrap_or_default()
}
