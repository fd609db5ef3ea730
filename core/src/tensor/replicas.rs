//! Replicas: the same program on several devices, each of which has its own copy of every variable.

use crate::base::sync::{Shared, ThreadSafe};
use crate::tensor::device::Device;
use crate::tensor::scope::Op;
use core::any::Any;

/// Combination of the values that the replicas assign to a variable: TensorFlow's `tf.VariableAggregation`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VariableAggregation {
    /// Each replica changes its own copy.
    #[default]
    None,
    /// The sum of the values.
    Sum,
    /// The mean of the values.
    Mean,
    /// The value of the first replica.
    OnlyFirstReplica,
}

/// Time at which the copies of a variable are combined: TensorFlow's `tf.VariableSynchronization`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum VariableSynchronization {
    /// On each assignment.
    #[default]
    Auto,
    /// Never.
    None,
    /// On each assignment.
    OnWrite,
    /// When the variable is read outside of the replicas. In between, each replica changes its own copy.
    OnRead,
}

/// Replicas of a program. A strategy such as `gradlet::distribute::MirroredStrategy` implements them.
pub trait Replicas: ThreadSafe {
    /// Returns the device of each replica.
    fn devices(&self) -> &[Device];
    /// Returns the op with which a replica combines a tensor with those of the other replicas. It has one input and one output of the same
    /// type. Its attribute word is one of [`reduction`].
    fn reduction(&self) -> &'static Op;
    /// Returns the strategy itself, so that its crate can find it again.
    fn as_any(&self) -> &dyn Any;
}

/// Attribute words of the op of [`Replicas::reduction`].
pub mod reduction {
    /// The sum over the replicas.
    pub const SUM: u32 = 0;
    /// The mean over the replicas.
    pub const MEAN: u32 = 1;
    /// The tensor of the first replica.
    pub const FIRST: u32 = 2;
}

/// Role of a scope among replicas.
#[derive(Clone)]
pub struct Role {
    /// The replicas.
    pub replicas: Shared<dyn Replicas>,
    /// Number of the replica whose scope this is. `None` for the scope around all of them, in which variables are created and read.
    pub rank: Option<usize>,
}
