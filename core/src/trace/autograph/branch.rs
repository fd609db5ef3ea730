//! `if` statements, and the code after a statement that may leave its block.

use super::carry::{Carries, Dynamic, Kind, Named, Ops, Plain, Slot, Slots, all_tensors};
use super::exit::{After, Carriers, Exit, NEXT, Side, merge};
use super::operators::{Host, Literal};
use super::{Condition, Decision};
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::ScopeHandle;
use crate::trace::control::{Open, meeting};
use alloc::vec::Vec;
use core::marker::PhantomData;

/// An `if`. If the condition is a bool or a computed tensor, one branch runs. If it is a traced tensor, both branches run for
/// tracing, one after the other.
pub struct Branch<K, S, E> {
    chosen: bool,
    /// Condition, if it is a tensor.
    predicate: Option<Tensor>,
    /// Scope that traces the condition, if the condition is traced.
    scope: Option<ScopeHandle>,
    open: Option<Open>,
    saved: Option<S>,
    first: Option<(Open, Vec<Named>, S, E)>,
    kind: PhantomData<K>,
}

/// Begins an `if` on `condition`.
pub fn branch<C: Condition, S, E>(condition: C) -> Result<Branch<C::Kind, S, E>> {
    let Decision { holds, tensor, scope } = condition.decide()?;
    Ok(Branch { chosen: holds, predicate: tensor, scope, open: None, saved: None, first: None, kind: PhantomData })
}

/// State after a branch ran.
pub enum Ran<V, A> {
    /// The `if` is done, with its value.
    Done(V),
    /// The other branch must run.
    Again(A),
}

impl<K: Kind, S, E> Branch<K, S, E> {
    /// Begins to trace the first branch and saves the variables that the branches assign. Does nothing if the condition is not traced.
    pub fn begin(&mut self, slots: impl Slots<Saved = S>) -> Result<()> {
        let Some(scope) = &mut self.scope else { return Ok(()) };
        *scope = around(scope, &slots)?;
        self.open = Some(Open::new(scope));
        self.chosen = true;
        self.saved = Some(slots.save()?);
        Ok(())
    }

    /// True if the first branch runs now, false if the other branch does.
    pub fn chosen(&self) -> bool {
        self.chosen
    }

    /// Declares a variable that a branch assigns.
    pub fn slot<'a, T>(&self, name: &'static str, value: &'a mut T) -> Slot<'a, T>
    where
        K: Carries<T>,
    {
        Slot { name, value, ops: K::ops() }
    }

    /// Returns how the generated code takes values out of variables at the end of a branch. `Ok`: it moves them, because only one branch
    /// runs. `Err`: it copies them, because a trace runs both branches, and the second one needs the same values.
    pub fn moves(&self) -> core::result::Result<K::Moves, K::Copies> {
        K::moves()
    }
}

impl<K: Kind, S, V> Branch<K, S, Exit<V, ()>> {
    /// Ends a branch with the value `value`. Returns [`Ran::Again`] if the other branch must be traced too.
    pub fn end(&mut self, value: V, slots: impl Slots<Saved = S>) -> Result<Ran<V, K::Again>>
    where
        K: Carries<V> + Carries<()>,
    {
        Ok(match self.leave(Exit::next(value), slots)? {
            Ran::Done(exit) => Ran::Done(exit.value.ok_or(Error::Internal)?),
            Ran::Again(again) => Ran::Again(again),
        })
    }
}

impl<K: Kind, S, V, R> Branch<K, S, Exit<V, R>> {
    /// Ends a branch that was left by `exit`. Returns [`Ran::Again`] if the other branch must be traced too.
    pub fn leave(&mut self, exit: Exit<V, R>, mut slots: impl Slots<Saved = S>) -> Result<Ran<Exit<V, R>, K::Again>>
    where
        K: Carries<V> + Carries<R>,
    {
        let (Some(scope), Some(predicate), Some(mut open)) = (&self.scope, &self.predicate, self.open.take()) else {
            return Ok(Ran::Done(exit));
        };
        slots.settle(scope, self.first.as_ref().map(|(_, _, first, _)| first))?;
        open.pause();
        let mut variables = Vec::new();
        slots.parts(&mut variables)?;
        if let (Some(again), None, Some(saved)) = (K::again(), &self.first, &self.saved) {
            self.first = Some((open, variables, slots.save()?, exit));
            slots.restore(saved)?;
            self.open = Some(Open::new(scope));
            self.chosen = false;
            return Ok(Ran::Again(again));
        }
        let (one, names, _, first) = self.first.take().ok_or(Error::Internal)?;
        let sides = [Side { open: one, variables: names, exit: first }, Side { open, variables, exit }];
        let carriers = Carriers { value: <K as Carries<V>>::ops(), returned: <K as Carries<R>>::ops() };
        let (variables, exit) = merge(scope, predicate, sides, &carriers, ["in the main branch", "in the else branch"])?;
        slots.fill(&mut variables.into_iter())?;
        Ok(Ran::Done(exit))
    }
}

impl<S, E> Branch<Plain, S, E> {
    /// Returns the literal value of a branch unchanged. Used if the other branch's value is not a literal.
    pub fn literal<T>(&self, value: T) -> Result<T> {
        Ok(value)
    }

    /// Returns the literal value of a branch unchanged. Used if the other branch's value is a literal too.
    pub fn number<T>(&self, value: T) -> Result<T> {
        Ok(value)
    }
}

impl<S, E> Branch<Dynamic, S, E> {
    /// Converts the literal value of a branch to the type of the other branch's value, which may be a tensor. Used if the latter is not a
    /// literal.
    pub fn literal<L, T: Literal<L>>(&self, value: L) -> Result<T> {
        Ok(T::literal(value, &self.predicate.as_ref().ok_or(Error::Internal)?.device()?))
    }

    /// Converts the literal value of a branch to a tensor. Used if the other branch's value is a literal too.
    pub fn number<L: Host>(&self, value: L) -> Result<Tensor> {
        self.literal(value)
    }
}

/// Returns the innermost of `scope` and the scopes of the variables' tensors.
pub(super) fn around(scope: &ScopeHandle, slots: &impl Slots) -> Result<ScopeHandle> {
    let mut variables = Vec::new();
    slots.parts(&mut variables)?;
    let tensors = all_tensors(&variables);
    meeting(scope, &tensors.iter().collect::<Vec<_>>())
}

/// Condition under which the rest of a block runs, if a traced tensor decides whether the block was left before.
pub struct Guard<R> {
    left: Option<Left<R>>,
}

/// Possible earlier exit from the block.
struct Left<R> {
    scope: ScopeHandle,
    stays: Tensor,
    exit: Exit<(), R>,
}

/// Returns how to continue after a statement that may have left its block by `exit`.
pub fn after<V, W, R>(exit: Exit<V, R>) -> Result<After<V, W, R>> {
    let Exit { ways, code, value, returned } = exit;
    let exit = Exit { ways, code, value: None::<()>, returned };
    let (Some(value), true) = (value, exit.may(NEXT)) else { return Ok(After::Left(exit.out())) };
    let Some(code) = exit.code.clone().filter(|_| exit.known().is_none()) else { return Ok(After::Rest(value, Guard { left: None })) };
    let scope = code.scope()?.ok_or(Error::Traced)?;
    let stays = code.equal(&code.like(NEXT.into())?)?;
    Ok(After::Rest(value, Guard { left: Some(Left { scope, stays, exit: exit.out() }) }))
}

/// Rest of a block while it is traced.
pub struct Rest<S, R> {
    traced: Option<(Left<R>, Open, S, Vec<Named>)>,
}

impl<R> Guard<R> {
    /// Begins the rest of the block. If it is traced, saves the variables that it assigns.
    pub fn begin<T: Slots>(self, mut slots: T) -> Result<Rest<T::Saved, R>> {
        let Some(mut left) = self.left else { return Ok(Rest { traced: None }) };
        left.scope = around(&left.scope, &slots)?;
        slots.settle(&left.scope, None)?;
        let (mut variables, saved) = (Vec::new(), slots.save()?);
        slots.parts(&mut variables)?;
        let open = Open::new(&left.scope);
        Ok(Rest { traced: Some((left, open, saved, variables)) })
    }
}

impl<S, R> Rest<S, R> {
    /// Ends the rest of the block, which was left by `exit`. Returns the exit of the whole block. `value` and `returned` are the [`Ops`]
    /// of the block's value and of the function's result.
    pub fn end<V>(
        self,
        (value, returned): (Option<Ops<V>>, Option<Ops<R>>),
        exit: Exit<V, R>,
        mut slots: impl Slots<Saved = S>,
    ) -> Result<Exit<V, R>> {
        let Some((left, mut open, _, before)) = self.traced else { return Ok(exit) };
        slots.settle(&left.scope, None)?;
        open.pause();
        let mut variables = Vec::new();
        slots.parts(&mut variables)?;
        let mut nothing = Open::new(&left.scope);
        nothing.pause();
        let sides = [Side { open, variables, exit }, Side { open: nothing, variables: before, exit: left.exit.out() }];
        let carriers = Carriers { value, returned };
        let (variables, exit) = merge(&left.scope, &left.stays, sides, &carriers, ["if the block continues", "if it was left before"])?;
        slots.fill(&mut variables.into_iter())?;
        Ok(exit)
    }
}
