//! Sources of gradients: the tensors and variables with respect to which a gradient is taken.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::variable::Variable;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Tensor or variable with respect to which a gradient is taken.
#[derive(Clone, Copy)]
pub enum Source<'a> {
    /// Watched tensor, or a tensor computed from one.
    Tensor(&'a Tensor),
    /// Variable that was read through the tape.
    Variable(&'a Variable),
}

/// One or more sources, with the form of their gradients.
pub trait Sources {
    /// Type of the gradients.
    type Gradients;
    /// Returns the sources in order.
    fn list(&self) -> Vec<Source<'_>>;
    /// Converts gradients, which are in the order of the sources, into [`Sources::Gradients`].
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

impl<S: Sources, const N: usize> Sources for [S; N] {
    type Gradients = [S::Gradients; N];
    fn list(&self) -> Vec<Source<'_>> {
        self.iter().flat_map(Sources::list).collect()
    }
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Self::Gradients> {
        let mut gradients = gradients.into_iter();
        let packed = self.iter().map(|sources| sources.pack(gradients.by_ref().take(sources.list().len()).collect()));
        packed.collect::<Result<Vec<_>>>()?.try_into().map_err(|_| Error::Arity { got: N as u8 })
    }
}

/// Named sources have named gradients.
impl<K: Ord + Clone, S: Sources> Sources for BTreeMap<K, S> {
    type Gradients = BTreeMap<K, S::Gradients>;
    fn list(&self) -> Vec<Source<'_>> {
        self.values().flat_map(Sources::list).collect()
    }
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Self::Gradients> {
        let mut gradients = gradients.into_iter();
        let pack = |(name, sources): (&K, &S)| Ok((name.clone(), sources.pack(gradients.by_ref().take(sources.list().len()).collect())?));
        self.iter().map(pack).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident),*);)*) => {$(
        #[allow(non_snake_case)]
        impl<$($name: Sources),*> Sources for ($($name,)*) {
            type Gradients = ($($name::Gradients,)*);
            fn list(&self) -> Vec<Source<'_>> {
                let ($($name,)*) = self;
                let mut list = Vec::new();
                $(list.extend($name.list());)*
                list
            }
            fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Self::Gradients> {
                let ($($name,)*) = self;
                let mut gradients = gradients.into_iter();
                Ok(($($name.pack(gradients.by_ref().take($name.list().len()).collect())?,)*))
            }
        }
    )*};
}
tuples! { (A, B); (A, B, C); (A, B, C, D); }

impl Sources for [Source<'_>] {
    type Gradients = Vec<Option<Tensor>>;
    fn list(&self) -> Vec<Source<'_>> {
        self.to_vec()
    }
    fn pack(&self, gradients: Vec<Option<Tensor>>) -> Result<Vec<Option<Tensor>>> {
        Ok(gradients)
    }
}

impl Sources for [Variable] {
    /// Pairs of a variable and its gradient, for an optimizer.
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
