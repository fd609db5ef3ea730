//! What gradients are taken with respect to.

use crate::error::Result;
use crate::tensor::Tensor;
use crate::variable::Variable;
use alloc::vec::Vec;

/// What a gradient can be taken with respect to.
pub enum Source<'a> {
    /// A watched tensor, or one computed from it.
    Tensor(&'a Tensor),
    /// A variable that was read through the tape.
    Variable(&'a Variable),
}

/// One source or several, and the form in which their gradients are wanted.
pub trait Sources {
    /// The gradients.
    type Gradients;
    /// The sources, in order.
    fn list(&self) -> Vec<Source<'_>>;
    /// Puts the gradients, in the order of the sources, into their form.
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Self::Gradients>;
}

impl Sources for Tensor {
    type Gradients = Option<Tensor>;
    fn list(&self) -> Vec<Source<'_>> {
        alloc::vec![Source::Tensor(self)]
    }
    fn pack(&self, mut gradients: Vec<Option<Tensor>>) -> Result<Option<Tensor>> {
        Ok(gradients.pop().flatten())
    }
}

impl Sources for Variable {
    type Gradients = Option<Tensor>;
    fn list(&self) -> Vec<Source<'_>> {
        alloc::vec![Source::Variable(self)]
    }
    fn pack(&self, mut gradients: Vec<Option<Tensor>>) -> Result<Option<Tensor>> {
        Ok(gradients.pop().flatten())
    }
}

impl Sources for [Tensor] {
    type Gradients = Vec<Option<Tensor>>;
    fn list(&self) -> Vec<Source<'_>> {
        self.iter().map(Source::Tensor).collect()
    }
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        Ok(gradients)
    }
}

impl Sources for [Variable] {
    /// Each variable with its gradient: what an optimizer applies.
    type Gradients = Vec<(Variable, Option<Tensor>)>;
    fn list(&self) -> Vec<Source<'_>> {
        self.iter().map(Source::Variable).collect()
    }
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Self::Gradients> {
        Ok(self.iter().cloned().zip(gradients).collect())
    }
}

impl Sources for Vec<Variable> {
    type Gradients = Vec<(Variable, Option<Tensor>)>;
    fn list(&self) -> Vec<Source<'_>> {
        self.as_slice().list()
    }
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Self::Gradients> {
        self.as_slice().pack(gradients)
    }
}
