//! `while` and `for` loops.

use super::branch::{Guard, Rest, after, around};
use super::carry::{Carries, Kind, Named, Ops, Slot, Slots, agree, all_tensors, tensors_of};
use super::exit::{After, BREAK, CONTINUE, Exit, NEXT, RETURN, with, zeros};
use super::source::LoopItems;
use super::{Condition, Decision};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::ScopeHandle;
use crate::trace::control::{Body, Open, record_loop};
use alloc::vec::Vec;
use core::marker::PhantomData;

/// Loop that is being traced. Condition and body are traced once, or again if the body can leave the loop early or determines unknown
/// properties of the variables.
struct Trace<S, R> {
    scope: ScopeHandle,
    saved: S,
    before: Vec<Named>,
    /// Loop counters, the variables, and, if the body can leave the loop, the kind of exit and the returned value.
    state: Vec<Tensor>,
    counters: usize,
    carried: usize,
    leaves: bool,
    /// Number of the previous iteration's exit, as an input of the condition or body that is being traced. `None` if the body cannot leave
    /// the loop.
    code: Option<Tensor>,
    condition: Option<Body>,
    open: Option<Open>,
    returned: Option<Ops<R>>,
}

impl<S, R> Trace<S, R> {
    fn new(scope: &ScopeHandle, counters: Vec<Tensor>, slots: &mut impl Slots<Saved = S>, returned: Option<Ops<R>>) -> Result<Trace<S, R>> {
        let (scope, mut before) = (around(scope, slots)?, Vec::new());
        slots.settle(&scope, None)?;
        slots.parts(&mut before)?;
        let saved = slots.save()?;
        let (count, mut state) = (counters.len(), counters);
        state.extend(all_tensors(&before));
        let carried = state.len() - count;
        Ok(Trace {
            carried,
            scope,
            saved,
            before,
            state,
            counters: count,
            leaves: false,
            code: None,
            condition: None,
            open: None,
            returned,
        })
    }

    /// Begins to trace the condition or the body. Returns the loop counters as inputs of it.
    fn open(&mut self, slots: &mut impl Slots<Saved = S>) -> Result<Vec<Tensor>> {
        let open = Open::new(&self.scope);
        let mut inputs = open.inputs(&self.state).into_iter();
        let counters = inputs.by_ref().take(self.counters).collect();
        slots.restore(&self.saved)?;
        slots.fill(&mut inputs)?;
        self.code = inputs.next();
        self.open = Some(open);
        Ok(counters)
    }

    /// Checks that an iteration keeps the types of the variables.
    fn keeps(&self, after: &[Named]) -> Result<()> {
        let mut pairs = self.before.iter().zip(after);
        pairs.try_for_each(|(one, other)| agree(one.name, &one.parts, &other.parts, ["before the loop", "after one iteration"]))
    }

    /// Ends the trace of the condition, whose value is `holds`.
    fn holds(&mut self, holds: Tensor) -> Result<()> {
        let mut open = self.open.take().ok_or(Error::Internal)?;
        let holds = match &self.code {
            Some(code) => holds.logical_and(&code.equal(&code.like(NEXT.into())?)?)?,
            None => holds,
        };
        open.pause();
        self.condition = Some(open.close(&alloc::vec![holds])?);
        Ok(())
    }

    /// Ends the trace of the body, which was left by `exit`. Returns the loop's exit, or `None` if condition and body must be traced again.
    /// That is necessary if the body can leave the loop, or if it determined unknown properties of the variables.
    fn end(
        &mut self,
        counters: Vec<Tensor>,
        exit: Exit<(), R>,
        most: u32,
        slots: &mut impl Slots<Saved = S>,
    ) -> Result<Option<Exit<(), R>>> {
        let mut open = self.open.take().ok_or(Error::Internal)?;
        slots.settle(&self.scope, None)?;
        let mut variables = Vec::new();
        slots.parts(&mut variables)?;
        if let Err(error) = self.keeps(&variables) {
            // The body may have determined properties that were unknown before the loop.
            open.pause();
            let after = slots.save()?;
            slots.restore(&self.saved)?;
            slots.settle(&self.scope, Some(&after))?;
            self.before.clear();
            slots.parts(&mut self.before)?;
            self.keeps(&variables).map_err(|_| error)?;
            self.saved = slots.save()?;
            let tensors = all_tensors(&self.before);
            let rest = self.state.split_off(self.counters + self.carried);
            self.state.truncate(self.counters);
            self.carried = tensors.len();
            self.state.extend(tensors.into_iter().chain(rest));
            return Ok(None);
        }
        let returned = match (&exit.returned, self.returned) {
            (Some(value), Some(ops)) => ops.parts(value),
            (Some(_), None) => return Err(Error::message("if the condition is a tensor, only structures of tensors can be returned")),
            (None, _) => Vec::new(),
        };
        if !self.leaves && (exit.may(BREAK) || exit.may(RETURN)) {
            self.leaves = true;
            self.state.push(Tensor::scalar(self.scope.recorder.device(), i32::from(NEXT)));
            self.state.extend(tensors_of(&zeros(&returned)?));
            return Ok(None);
        }
        let mut results = counters;
        results.extend(all_tensors(&variables));
        if self.leaves {
            let code = exit.number(&self.scope);
            results.push(if exit.may(CONTINUE) { without(&code, CONTINUE)? } else { code });
            results.extend(tensors_of(&returned));
        }
        open.pause();
        let bodies = [self.condition.take().ok_or(Error::Internal)?, open.close(&results)?];
        let mut state = record_loop(&self.scope, most, bodies, &self.state)?.into_iter().skip(self.counters);
        slots.fill(&mut state)?;
        let Some(code) = state.next() else { return Ok(Some(Exit::next(()))) };
        if !exit.may(RETURN) {
            return Ok(Some(Exit::next(())));
        }
        let returned = with(exit.returned, self.returned, &mut state)?;
        Ok(Some(Exit { ways: 1 << NEXT | 1 << RETURN, code: Some(without(&code, BREAK)?), value: Some(()), returned }))
    }
}

/// Returns `code` with [`NEXT`] in place of `way`.
fn without(code: &Tensor, way: u8) -> Result<Tensor> {
    code.mul(&code.not_equal(&code.like(way.into())?)?.cast(DType::I32)?)
}

/// A `while`. If the condition is a bool or a computed tensor, it is Rust's own `while`. If it is a traced tensor, condition and body
/// are traced.
pub struct Looping<K, S, R> {
    most: Option<u32>,
    iterations: u32,
    stage: Stage,
    found: Option<ScopeHandle>,
    trace: Option<Trace<S, R>>,
    exit: Exit<(), R>,
    kind: PhantomData<K>,
}

/// Next step of a `while`.
#[derive(PartialEq)]
enum Stage {
    Runs,
    Condition,
    Body,
    Over,
}

/// Begins a `while` of at most `most` iterations.
pub fn looping<K, S, R>(most: Option<u32>) -> Looping<K, S, R> {
    Looping { most, iterations: 0, stage: Stage::Runs, found: None, trace: None, exit: Exit::next(()), kind: PhantomData }
}

impl<K: Kind, S, R> Looping<K, S, R> {
    /// Declares a variable that the loop assigns.
    pub fn slot<'a, T>(&self, name: &'static str, value: &'a mut T) -> Slot<'a, T>
    where
        K: Carries<T>,
    {
        Slot { name, value, ops: K::ops() }
    }

    /// Proceeds to the next stage: the condition, the body, or the end of the loop. Returns false at the end.
    pub fn again(&mut self, mut slots: impl Slots<Saved = S>) -> Result<bool>
    where
        K: Carries<R>,
    {
        if let Some(scope) = self.found.take() {
            let mut trace = Trace::new(&scope, Vec::new(), &mut slots, K::ops())?;
            trace.open(&mut slots)?;
            self.stage = Stage::Condition;
            self.trace = Some(trace);
            return Ok(true);
        }
        let Some(trace) = &mut self.trace else { return Ok(self.stage == Stage::Runs) };
        match self.stage {
            Stage::Condition => {
                trace.open(&mut slots)?;
                self.stage = Stage::Body;
            }
            Stage::Body => {
                let exit = core::mem::replace(&mut self.exit, Exit::next(()));
                match trace.end(Vec::new(), exit, self.most.unwrap_or(u32::MAX), &mut slots)? {
                    Some(exit) => {
                        self.exit = exit;
                        self.stage = Stage::Over;
                    }
                    None => {
                        trace.open(&mut slots)?;
                        self.stage = Stage::Condition;
                    }
                }
            }
            Stage::Runs | Stage::Over => (),
        }
        Ok(self.stage != Stage::Over)
    }

    /// True if the condition must be evaluated now.
    pub fn asks(&self) -> bool {
        self.stage != Stage::Body
    }

    /// Handles the value of the condition and returns true if the body runs now. Returns false if the condition is traced, or if the loop
    /// is over.
    pub fn holds<C: Condition<Kind = K>>(&mut self, condition: C) -> Result<bool> {
        let Decision { holds, tensor, scope } = condition.decide()?;
        match (&mut self.trace, scope) {
            (Some(trace), _) => {
                trace.holds(tensor.ok_or(Error::Traced)?)?;
                Ok(false)
            }
            (None, Some(scope)) => {
                self.found = Some(scope);
                Ok(false)
            }
            (None, None) => {
                let holds = holds && self.most.is_none_or(|most| self.iterations < most);
                self.iterations = self.iterations.saturating_add(1);
                if !holds {
                    self.stage = Stage::Over;
                }
                Ok(holds)
            }
        }
    }

    /// Ends an iteration whose body was left by `exit`. Returns false if this also leaves the loop.
    pub fn leave(&mut self, exit: Exit<(), R>) -> Result<bool> {
        if self.trace.is_some() {
            self.exit = exit;
            return Ok(true);
        }
        match exit.known() {
            Some(NEXT | CONTINUE) => Ok(true),
            Some(BREAK) => Ok(false),
            Some(_) => {
                self.exit = exit;
                Ok(false)
            }
            None if !exit.may(BREAK) && !exit.may(RETURN) => Ok(true),
            None => Err(Error::message("a tensor decides whether this `while` is left early: its condition must be a tensor, too")),
        }
    }

    /// Returns the exit of the loop.
    pub fn exit(self) -> Exit<(), R> {
        self.exit
    }
}

/// A `for`. Over a Rust iterable, it is Rust's own `for`. Over a traced tensor, its body is traced.
pub struct Each<I, S, R> {
    source: I,
    most: Option<u32>,
    iterations: u32,
    trace: Option<(Trace<S, R>, Vec<Tensor>)>,
    /// Exit of the last iteration. Once a traced loop is complete, the exit of the loop.
    exit: Exit<(), R>,
    rest: Option<Rest<S, R>>,
    returned: Option<Ops<R>>,
}

/// Begins a `for` over `source`, of at most `most` iterations.
pub fn each<I: super::Iterable, S, R>(source: I, most: Option<u32>) -> Result<Each<I::LoopItems, S, R>> {
    let source = source.source()?;
    Ok(Each { source, most, iterations: 0, trace: None, exit: Exit::next(()), rest: None, returned: None })
}

impl<I: LoopItems, S, R> Each<I, S, R> {
    /// Declares a variable that the loop assigns.
    pub fn slot<'a, T>(&self, slot: Slot<'a, T>) -> Slot<'a, T>
    where
        I::Kind: Carries<T>,
    {
        slot
    }

    /// Returns the item of the next iteration, or `None` if the loop is over.
    pub fn next(&mut self, mut slots: impl Slots<Saved = S>) -> Result<Option<I::Item>>
    where
        I::Kind: Carries<R>,
    {
        let most = self.most.or(self.source.most());
        if let Some(scope) = self.source.scope()? {
            if let Some((trace, counters)) = &mut self.trace {
                let next = counters.iter().map(|counter| self.source.advance(counter)).collect::<Result<Vec<_>>>()?;
                let exit = core::mem::replace(&mut self.exit, Exit::next(()));
                if let Some(exit) = trace.end(next, exit, most.unwrap_or(u32::MAX), &mut slots)? {
                    self.exit = exit;
                    return Ok(None);
                }
            } else {
                let first = alloc::vec![self.source.first()?];
                self.trace = Some((Trace::new(&scope, first, &mut slots, <I::Kind as Carries<R>>::ops())?, Vec::new()));
            }
            return self.body(&mut slots).map(Some);
        }
        self.end(&mut slots)?;
        let open = self.exit.may(NEXT) || self.exit.may(CONTINUE);
        if !open || most.is_some_and(|most| self.iterations >= most) {
            return Ok(None);
        }
        let Some(item) = self.source.next()? else { return Ok(None) };
        self.iterations += 1;
        if self.exit.known().is_none() {
            let exit = core::mem::replace(&mut self.exit, Exit::next(()));
            let after: After<(), (), R> = after(exit)?;
            if let After::Rest((), guard) = after {
                self.begin(guard, slots)?;
            }
        }
        Ok(Some(item))
    }

    fn begin(&mut self, guard: Guard<R>, slots: impl Slots<Saved = S>) -> Result<()> {
        self.rest = Some(guard.begin(slots)?);
        Ok(())
    }

    /// Ends an iteration of a loop that may have been left before.
    fn end(&mut self, slots: &mut impl Slots<Saved = S>) -> Result<()> {
        if let Some(rest) = self.rest.take() {
            let exit = core::mem::replace(&mut self.exit, Exit::next(()));
            self.exit = continued(rest.end((Some(Ops::OF), self.returned), exit, slots)?)?;
        }
        Ok(())
    }

    /// Traces the condition, begins to trace the body, and returns the item that the body receives.
    fn body(&mut self, slots: &mut impl Slots<Saved = S>) -> Result<I::Item> {
        let (trace, counters) = self.trace.as_mut().ok_or(Error::Internal)?;
        let counter = trace.open(slots)?;
        let holds = self.source.holds(counter.first().ok_or(Error::Internal)?)?;
        trace.holds(holds)?;
        *counters = trace.open(slots)?;
        self.source.item(counters.first().ok_or(Error::Internal)?)
    }

    /// Ends an iteration whose body was left by `exit`. Returns false if this also leaves the loop.
    pub fn leave(&mut self, returned: Option<Ops<R>>, exit: Exit<(), R>) -> Result<bool> {
        self.returned = returned;
        if self.trace.is_some() || self.rest.is_some() {
            self.exit = exit;
            return Ok(true);
        }
        self.exit = continued(exit)?;
        Ok(!matches!(self.exit.known(), Some(BREAK | RETURN)))
    }

    /// Returns the exit of the loop.
    pub fn exit(self) -> Result<Exit<(), R>> {
        let Exit { mut ways, code, returned, .. } = self.exit;
        let code = code.filter(|_| ways & (1 << RETURN) != 0 && ways != 1 << RETURN);
        let code = code.map(|code| without(&code, BREAK)).transpose()?;
        if ways & !(1 << RETURN) != 0 {
            ways = ways & (1 << RETURN) | 1 << NEXT;
        }
        Ok(Exit { ways, code, value: Some(()), returned })
    }
}

/// Converts `continue` to the exit at the end of an iteration.
fn continued<R>(exit: Exit<(), R>) -> Result<Exit<(), R>> {
    if !exit.may(CONTINUE) {
        return Ok(exit);
    }
    let code = exit.code.map(|code| without(&code, CONTINUE)).transpose()?;
    Ok(Exit { ways: exit.ways & !(1 << CONTINUE) | 1 << NEXT, code, value: Some(()), returned: exit.returned })
}
