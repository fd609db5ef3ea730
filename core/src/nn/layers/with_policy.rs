//! Layers with a dtype policy of their own: the argument `dtype` of Keras's layers.

use super::{Layer, Summary};
use crate::base::error::Result;
use crate::base::shape::{Shape, TensorType};
use crate::tensor::Tensor;
use crate::tensor::policy::DTypePolicy;
use crate::tensor::scope::{Scope, ScopeHandle};
use core::ops::Deref;

/// A layer with a [`DTypePolicy`] of its own, created by [`Layer::dtype`]. It has the name, the kind and the variables of the layer inside,
/// so checkpoints do not depend on the policy.
pub struct WithPolicy<L> {
    layer: L,
    policy: DTypePolicy,
}

impl<L> WithPolicy<L> {
    pub(super) fn new(layer: L, policy: DTypePolicy) -> WithPolicy<L> {
        WithPolicy { layer, policy }
    }
}

/// A `WithPolicy` has the methods of the layer inside. [`Layer`]'s own methods use the policy. Others, such as
/// [`MultiHeadAttention::attend`](super::MultiHeadAttention::attend), use the policy of the scope.
impl<L> Deref for WithPolicy<L> {
    type Target = L;

    fn deref(&self) -> &L {
        &self.layer
    }
}

impl<L: Layer> WithPolicy<L> {
    /// Returns `scope` with the policy of the layer.
    fn within(&self, scope: &dyn Scope) -> ScopeHandle {
        scope.with_dtype_policy(self.policy)
    }
}

// The layer inside may override any method, so the wrapper must forward all of them.
#[deny(clippy::missing_trait_methods)]
impl<L: Layer> Layer for WithPolicy<L> {
    fn name(&self) -> &str {
        self.layer.name()
    }

    fn kind(&self) -> &str {
        self.layer.kind()
    }

    fn dtype_policy(&self) -> Option<DTypePolicy> {
        Some(self.policy)
    }

    fn autocast(&self) -> bool {
        self.layer.autocast()
    }

    fn dtype(self, policy: DTypePolicy) -> WithPolicy<WithPolicy<L>> {
        WithPolicy::new(self, policy)
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        self.layer.build(&self.within(scope), input)
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.layer.call(&self.within(scope), x)
    }

    fn apply(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.layer.apply(&self.within(scope), x)
    }

    fn ensure_built(&self, scope: &dyn Scope, x: &Tensor) -> Result<()> {
        self.layer.ensure_built(&self.within(scope), x)
    }

    fn apply_as(&self, name: &str, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.layer.apply_as(name, &self.within(scope), x)
    }

    fn output_type(&self, scope: &dyn Scope, input: TensorType) -> Result<TensorType> {
        self.layer.output_type(&self.within(scope), input)
    }

    fn summary(&self, scope: &dyn Scope, input: &[u32]) -> Result<Summary> {
        self.layer.summary(&self.within(scope), input)
    }
}
