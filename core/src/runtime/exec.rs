//! The executor: runs a verified program in memory that the caller provides.

use crate::base::error::{Error, Result};
use crate::base::format::{PRINT, SUMMARY, Said};
use crate::base::op::{Call, MAX_INPUTS, MAX_OUTPUTS, Slice};
use crate::base::shape::TensorType;
use crate::base::view::{TensorView, TensorViewMut};
use crate::runtime::arena::{Around, Bytes, Pieces, Tables, VARIABLES, part};
use crate::runtime::program::{ALIGN, InstructionRecord, NONE, Program, SignatureId, Space};
use crate::runtime::session::{COPIED, FINISHED, Frame, Session, UNFINISHED, mark};
use core::sync::atomic::{Ordering, compiler_fence};
use core::task::Poll;
use heapless::Vec;

/// A listener for the instructions that [`Session::run_profiled`] runs. The instruction of a loop is reported each time the executor asks
/// it for the next block: n + 2 times for n iterations.
pub trait Profile {
    /// Called before an instruction runs. `instruction` is its index in the artifact.
    fn begin(&mut self, instruction: u32);

    /// Called after an instruction has run. `instruction` is its index in the artifact.
    fn end(&mut self, instruction: u32);
}

impl Profile for () {
    fn begin(&mut self, _: u32) {}

    fn end(&mut self, _: u32) {}
}

/// The first row of the check of the variables that an instruction has written. The rows of the instruction itself come before.
const CHECKS: u32 = 1 << 31;
/// Rows of the check of one variable.
const CHECK: u32 = 1 << 28;
/// The first row of the second copy of the variables, which is made before the first instruction that writes one. A row has 16 bytes.
const COPIES: u32 = 3 << 30;
/// Instructions for a row of the second copy.
const COPY_COST: usize = 24;

impl<'p, 'm> Session<'p, 'm> {
    /// Runs `signature` on the inputs that the caller has set.
    ///
    /// Fails with [`Error::IndexOutOfRange`], [`Error::DivisionByZero`], [`Error::NegativePower`], [`Error::Assertion`] or
    /// [`Error::NotFinite`], which name the instruction, if a kernel rejects its data. If no variable was assigned before that instruction,
    /// or if there is a second copy, nothing has changed. Otherwise the session is unfinished. It is also unfinished if the new value of a
    /// variable is not finite, which is [`Error::NotFinite`] too. An unfinished session fails with [`Error::Unfinished`].
    ///
    /// Printed text and summaries are discarded; [`Session::run_printing`] delivers them.
    pub fn run(&mut self, signature: SignatureId) -> Result<()> {
        self.run_with::<false>(signature, &mut |_| (), &mut ())
    }

    /// Runs `signature` like [`Session::run`] and passes each printed text and each summary of the program to `print`. The callback can
    /// display it with `write!` on a console, or send it as telemetry. The code that formats numbers is linked only into firmware that
    /// displays them.
    ///
    /// ```no_run
    /// # fn firmware(session: &mut gradlet_core::Session<'_, '_>, train: gradlet_core::runtime::SignatureId) -> gradlet_core::Result<()> {
    /// let mut console = String::new(); // or a UART: any `core::fmt::Write`
    /// session.run_printing(train, &mut |text| {
    ///     let _ = std::fmt::Write::write_fmt(&mut console, format_args!("{text}"));
    /// })
    /// # }
    /// ```
    pub fn run_printing(&mut self, signature: SignatureId, print: &mut dyn FnMut(Said<'_>)) -> Result<()> {
        self.run_with::<true>(signature, print, &mut ())
    }

    /// Runs `signature` like [`Session::run`] and reports each instruction to `profile`. A
    /// [`Profiler`](crate::runtime::telemetry::Profiler) measures how long the instructions take.
    pub fn run_profiled(&mut self, signature: SignatureId, profile: &mut impl Profile) -> Result<()> {
        self.run_with::<false>(signature, &mut |_| (), profile)
    }

    /// Begins a run of `signature` on the inputs that the caller has set. [`Session::advance`] does the work, in slices. Until the run is
    /// done, the caller sets no input, because the run may use its bytes, and no variable.
    ///
    /// Abandons an earlier run as [`Session::abort`] does. Fails with [`Error::Unfinished`] if the session is unfinished.
    ///
    /// ```no_run
    /// # fn watchdog() {}
    /// # fn firmware(session: &mut gradlet_core::Session<'_, '_>, train: gradlet_core::runtime::SignatureId) -> gradlet_core::Result<()> {
    /// session.begin(train)?;
    /// while session.advance(20_000)?.is_pending() {
    ///     watchdog(); // or yield to other tasks
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn begin(&mut self, signature: SignatureId) -> Result<()> {
        let block = self.places.program.block(signature)?;
        self.abort();
        self.finished()?;
        self.frame = Frame::new(block);
        Ok(())
    }

    /// Goes on with the run that [`Session::begin`] began, for about `budget` instructions of a Cortex-M4. Returns `Ready` when the run is
    /// done. The outputs are valid from then on. They have the bits of [`Session::run`], whatever the budgets.
    ///
    /// A slice may exceed its budget by an eighth. Kernels estimate their cost, so it can be somewhat more: 22,494 instructions were
    /// measured for a budget of 20,000.
    ///
    /// Each call does at least one part of the work that cannot be divided. `gradlet inspect` prints the longest part of each signature.
    ///
    /// Fails like [`Session::run`]. The run is then over. Fails with [`Error::Interrupted`] if no run is in progress: none was begun, it is
    /// done, or a restore, a reset or [`Session::abort`] ended it.
    pub fn advance(&mut self, budget: u32) -> Result<Poll<()>> {
        self.advance_with::<false>(Slice::of(budget), &mut |_| (), &mut ())
    }

    /// Goes on like [`Session::advance`] and passes each printed text and each summary to `print`, as [`Session::run_printing`] does.
    pub fn advance_printing(&mut self, budget: u32, print: &mut dyn FnMut(Said<'_>)) -> Result<Poll<()>> {
        self.advance_with::<true>(Slice::of(budget), print, &mut ())
    }

    /// Abandons the run in progress, if there is one. If it has changed no variable yet, or if there is a second copy, the variables have
    /// the values from before the run. Otherwise the session is unfinished.
    #[inline(never)]
    pub fn abort(&mut self) {
        self.frame = Frame::IDLE;
        self.around.clear();
        if *self.state == COPIED && self.memory.variables.len() == self.copy.len() {
            self.memory.variables.copy_from_slice(self.copy);
            self.finish();
        }
    }

    fn run_with<const PRINTS: bool>(
        &mut self,
        signature: SignatureId,
        print: &mut dyn FnMut(Said<'_>),
        profile: &mut impl Profile,
    ) -> Result<()> {
        self.begin(signature)?;
        self.advance_with::<PRINTS>(Slice::all(), print, profile).map(|_| ())
    }

    fn advance_with<const PRINTS: bool>(
        &mut self,
        slice: Slice,
        print: &mut dyn FnMut(Said<'_>),
        profile: &mut impl Profile,
    ) -> Result<Poll<()>> {
        if self.frame.next == NONE {
            return Err(Error::Interrupted);
        }
        let outcome = self.advance_block::<PRINTS>(slice, print, profile);
        match outcome {
            Ok(Poll::Pending) => (),
            Ok(Poll::Ready(())) => {
                self.frame = Frame::IDLE;
                self.finish();
            }
            Err(_) => self.abort(),
        }
        outcome
    }

    /// Prepares the first change of a variable in a run: copies the variables if there is a second copy, and then marks the session as
    /// changing. Returns false if the slice ends before all are copied.
    #[inline(never)]
    fn change(&mut self, slice: &mut Slice) -> bool {
        self.count_change();
        if *self.state != FINISHED {
            return true;
        }
        slice.first = slice.first.saturating_sub(COPIES);
        let rows = slice.take(self.copy.len() / ALIGN, COPY_COST);
        let bytes = rows.start * ALIGN..rows.end * ALIGN;
        if let (Some(copy), Some(variables)) = (self.copy.get_mut(bytes.clone()), self.memory.variables.get(bytes))
            && copy.len() == variables.len()
        {
            copy.copy_from_slice(variables);
        }
        if slice.next != NONE {
            slice.next += COPIES;
            return false;
        }
        slice.first = 0;
        compiler_fence(Ordering::SeqCst);
        mark(self.state, if self.copy.is_empty() { UNFINISHED } else { COPIED });
        true
    }

    fn advance_block<const PRINTS: bool>(
        &mut self,
        mut slice: Slice,
        print: &mut dyn FnMut(Said<'_>),
        profile: &mut impl Profile,
    ) -> Result<Poll<()>> {
        let program = self.places.program;
        let mut frame = self.frame;
        slice.first = frame.step;
        loop {
            if frame.next == frame.end {
                let Some(outer) = self.around.pop() else { return Ok(Poll::Ready(())) };
                (frame, slice.first) = (outer, outer.step);
                continue;
            }
            let Some(instruction) = program.instructions.get(frame.next as usize) else { return Err(Error::Internal) };
            if !slice.enter() {
                self.frame = Frame { step: slice.first, ..frame };
                return Ok(Poll::Pending);
            }
            profile.begin(frame.next);
            self.step(instruction, &mut slice).map_err(|error| error.at(frame.next))?;
            profile.end(frame.next);
            slice.first = 0;
            if slice.answer == NONE {
                if slice.next != NONE {
                    self.frame = Frame { step: slice.next, ..frame };
                    return Ok(Poll::Pending);
                }
                frame.next += 1;
                continue;
            }
            match program.blocks.get(slice.answer as usize) {
                None => {
                    if PRINTS && matches!(slice.answer, PRINT | SUMMARY) {
                        self.say(slice.answer, instruction, print);
                    }
                    frame.next += 1;
                }
                Some(block) => {
                    // Without a next step, the instruction is finished when its block is.
                    let done = slice.next == NONE;
                    let outer = Frame { next: frame.next + u32::from(done), end: frame.end, step: if done { 0 } else { slice.next } };
                    self.around.push(outer).map_err(|_| Error::Internal)?;
                    frame = Frame::new(block);
                }
            }
            (slice.next, slice.answer) = (NONE, NONE);
        }
    }

    /// Runs an instruction. The time of this function adds to that of every kernel, so instructions with at most one output, in scratch
    /// memory, take a fast path.
    #[inline(always)]
    fn step(&mut self, instruction: &InstructionRecord, slice: &mut Slice) -> Result<()> {
        if instruction.outputs > 1 {
            return self.step_many(instruction, slice);
        }
        let program = self.places.program;
        let count = usize::from(instruction.inputs) + usize::from(instruction.outputs);
        let Some(operands) = part(program.operands, instruction.operands as usize, count) else { return Err(Error::Internal) };
        let (inputs, written, tensor_type, data, around) = if instruction.outputs == 0 {
            (operands, u16::MAX, &TensorType::EMPTY, Default::default(), Around::whole(&self.places, &self.memory))
        } else {
            let Some((&written, inputs)) = operands.split_last() else { return Err(Error::Internal) };
            let Some(output) = program.tensors.get(usize::from(written)) else { return Err(Error::Internal) };
            let Some(tensor_type) = program.types.get(usize::from(output.tensor_type)) else { return Err(Error::Internal) };
            if output.space != Space::SCRATCH {
                return self.step_variable(instruction, inputs, written, slice);
            }
            let split = Around::split(&self.places, &mut self.memory, 0, output);
            let Some((data, around)) = split else { return Err(Error::Internal) };
            (inputs, written, tensor_type, data, around)
        };
        let outputs = &mut [TensorViewMut { tensor_type, data }];
        let in_place = TensorView { tensor_type, data: None };
        let mut views = [in_place, in_place, in_place];
        for (&operand, view) in inputs.iter().zip(&mut views) {
            around.input(operand, written, view);
        }
        let Some(views) = views.get(..inputs.len()) else { return self.step_many(instruction, slice) };
        call(program, instruction, views, outputs, slice)
    }

    /// Runs an instruction whose only output is the variable `written`.
    #[inline(never)]
    fn step_variable(&mut self, instruction: &InstructionRecord, inputs: &[u16], written: u16, slice: &mut Slice) -> Result<()> {
        if !self.change(slice) {
            return Ok(());
        }
        let program = self.places.program;
        let Some(output) = program.tensors.get(usize::from(written)) else { return Err(Error::Internal) };
        let tensor_type = program.tensor_type(output);
        let split = Around::split(&self.places, &mut self.memory, VARIABLES, output);
        let Some((data, around)) = split else { return Err(Error::Internal) };
        let mut views = Vec::<_, MAX_INPUTS>::new();
        for &operand in inputs {
            let mut view = TensorView { tensor_type, data: None };
            around.input(operand, written, &mut view);
            views.push(view).map_err(|_| Error::Internal)?;
        }
        call_checked(program, instruction, &views, &mut [TensorViewMut { tensor_type, data }], Some(&mut self.finite), slice)
    }

    /// Runs an instruction with any number of inputs and outputs.
    #[cold]
    #[inline(never)]
    fn step_many(&mut self, instruction: &InstructionRecord, slice: &mut Slice) -> Result<()> {
        let program = self.places.program;
        let written = instruction.operands as usize + usize::from(instruction.inputs);
        let written = part(program.operands, written, instruction.outputs.into()).ok_or(Error::Internal)?;
        let is_variable = |&operand: &u16| program.tensors.get(usize::from(operand)).is_some_and(|record| record.space != Space::SCRATCH);
        let changes = written.iter().any(is_variable);
        if changes && !self.change(slice) {
            return Ok(());
        }
        let mut pieces = Pieces::new(&mut self.memory);
        let (mut inputs, mut outputs) = (Vec::new(), Vec::new());
        views(&self.places, instruction, &mut pieces, &mut inputs, &mut outputs).ok_or(Error::Internal)?;
        call_checked(program, instruction, &inputs, &mut outputs, changes.then_some(&mut self.finite), slice)
    }

    fn say(&mut self, word: u32, instruction: &InstructionRecord, print: &mut dyn FnMut(Said<'_>)) {
        let mut pieces = Pieces::new(&mut self.memory);
        let mut inputs = Vec::new();
        if views(&self.places, instruction, &mut pieces, &mut inputs, &mut Vec::new()).is_some() {
            Said::new(word, self.places.program.attributes(instruction), &inputs).into_iter().for_each(print);
        }
    }
}

#[inline(always)]
fn call<'a>(
    program: &Program<'_>,
    instruction: &InstructionRecord,
    inputs: &[TensorView<'a>],
    outputs: &mut [TensorViewMut<'a>],
    slice: &mut Slice,
) -> Result<()> {
    let Some(kernel) = program.kernel(instruction.kernel) else {
        return Err(Error::MissingKernel { kernel: instruction.kernel.into() });
    };
    (kernel.run)(&mut Call { attributes: program.attributes(instruction), inputs, outputs, slice })
}

/// Runs an instruction, and then checks the values that it has written, if `finite` is given: true if all of its values so far are known to
/// be finite.
#[inline(never)]
fn call_checked<'a>(
    program: &Program<'_>,
    instruction: &InstructionRecord,
    inputs: &[TensorView<'a>],
    outputs: &mut [TensorViewMut<'a>],
    finite: Option<&mut bool>,
    slice: &mut Slice,
) -> Result<()> {
    if slice.first < CHECKS {
        let first = slice.first == 0;
        slice.finite = false;
        call(program, instruction, inputs, outputs, slice)?;
        let Some(finite) = finite else { return Ok(()) };
        *finite = (first || *finite) && slice.finite;
        if slice.next != NONE || *finite {
            return Ok(());
        }
        slice.first = CHECKS;
    }
    while let Some(output) = outputs.get(((slice.first - CHECKS) / CHECK) as usize) {
        let from = slice.first & !(CHECK - 1);
        slice.first -= from;
        program.check_finite(output.tensor_type, output.data, slice)?;
        if slice.next != NONE {
            slice.next += from;
            return Ok(());
        }
        slice.first = from + CHECK;
    }
    Ok(())
}

/// Appends the operands of `instruction` to `inputs` and `outputs`, which are empty. Returns `None` if the operands break a rule that
/// [`Program::load`] checks.
#[inline(always)]
fn views<'a, 'p: 'a>(
    places: &Tables<'p, '_>,
    instruction: &InstructionRecord,
    pieces: &'a mut Pieces<'_>,
    inputs: &mut Vec<TensorView<'a>, MAX_INPUTS>,
    outputs: &mut Vec<TensorViewMut<'a>, MAX_OUTPUTS>,
) -> Option<()> {
    let operands = places.program.operands.get(instruction.operands as usize..)?;
    let (read, written) = operands.split_at_checked(instruction.inputs.into())?;
    for &operand in written.get(..instruction.outputs.into())? {
        let (tensor_type, Bytes::Memory(start, bytes)) = places.of(operand.into())? else { return None };
        outputs.push(TensorViewMut { tensor_type, data: pieces.take(start, bytes)? }).ok()?;
    }
    for &operand in read {
        let (tensor_type, place) = places.of(operand.into())?;
        let data = match place {
            Bytes::Flash(data) => Some(data),
            Bytes::Memory(start, bytes) => pieces.read(start, bytes),
        };
        inputs.push(TensorView { tensor_type, data }).ok()?;
    }
    Some(())
}
