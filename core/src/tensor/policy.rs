//! Dtype policies: the element types in which layers compute and in which they keep their variables.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use crate::tensor::scope::ScopeHandle;
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Element types of a layer: Keras's `DTypePolicy`. A layer casts its floating-point inputs to the compute dtype, and creates its variables
/// in the variable dtype. If the two differ, [`Scope::read`](crate::Scope::read) in the layer casts each floating-point variable to the
/// compute dtype: *mixed precision*.
///
/// [`Layer::dtype`](crate::layers::Layer::dtype) sets the policy of a layer or a model.
/// [`Scope::with_dtype_policy`](crate::Scope::with_dtype_policy) sets that of all layers that have none of their own.
///
/// ```
/// use gradlet_core::{DType, DTypePolicy};
/// let policy: DTypePolicy = "mixed_float16".parse()?;
/// assert_eq!(policy, DTypePolicy::MixedFloat16);
/// assert_eq!((policy.compute_dtype(), policy.variable_dtype()), (DType::F16, DType::F32));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(alias("keras.DTypePolicy", "keras.mixed_precision.Policy"))]
pub enum DTypePolicy {
    /// Computes in f32 and keeps variables in f32. This is the default.
    #[default]
    Float32,
    /// Computes in f64 and keeps variables in f64.
    Float64,
    /// Computes in f16 and keeps variables in f16.
    Float16,
    /// Computes in bf16 and keeps variables in bf16.
    Bfloat16,
    /// Computes in f16 and keeps variables in f32. Training needs a [`LossScaleOptimizer`](crate::optimizers::LossScaleOptimizer), because
    /// small gradients are 0 in f16.
    MixedFloat16,
    /// Computes in bf16 and keeps variables in f32. bf16 has the range of f32, so the loss needs no scale.
    MixedBfloat16,
}

impl DTypePolicy {
    const ALL: [DTypePolicy; 6] = [
        DTypePolicy::Float32,
        DTypePolicy::Float64,
        DTypePolicy::Float16,
        DTypePolicy::Bfloat16,
        DTypePolicy::MixedFloat16,
        DTypePolicy::MixedBfloat16,
    ];

    /// Returns Keras's name, such as `mixed_float16`.
    pub const fn name(self) -> &'static str {
        match self {
            DTypePolicy::Float32 => "float32",
            DTypePolicy::Float64 => "float64",
            DTypePolicy::Float16 => "float16",
            DTypePolicy::Bfloat16 => "bfloat16",
            DTypePolicy::MixedFloat16 => "mixed_float16",
            DTypePolicy::MixedBfloat16 => "mixed_bfloat16",
        }
    }

    /// Returns the element type in which layers compute. Their outputs have this type.
    pub const fn compute_dtype(self) -> DType {
        match self {
            DTypePolicy::Float32 => DType::F32,
            DTypePolicy::Float64 => DType::F64,
            DTypePolicy::Float16 | DTypePolicy::MixedFloat16 => DType::F16,
            DTypePolicy::Bfloat16 | DTypePolicy::MixedBfloat16 => DType::Bf16,
        }
    }

    /// Returns the element type in which layers create their variables.
    pub const fn variable_dtype(self) -> DType {
        match self {
            DTypePolicy::MixedFloat16 | DTypePolicy::MixedBfloat16 => DType::F32,
            other => other.compute_dtype(),
        }
    }
}

impl fmt::Display for DTypePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DTypePolicy {
    type Err = Error;

    /// Parses one of Keras's names.
    fn from_str(name: &str) -> Result<DTypePolicy> {
        let unknown = || {
            let names: String = DTypePolicy::ALL.iter().map(|policy| format!(" {policy}")).collect();
            Error::message(format!("there is no dtype policy {name:?}; the policies are{names}"))
        };
        DTypePolicy::ALL.into_iter().find(|policy| policy.name() == name).ok_or_else(unknown)
    }
}

/// Mode of a scope. Tapes and functions inherit it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mode {
    /// True in training, false in inference.
    pub training: bool,
    /// Policy of the layers that have none of their own.
    pub policy: DTypePolicy,
    /// True in a layer that casts its inputs and variables to the compute dtype.
    pub autocast: bool,
}

impl Mode {
    /// Returns a number of 5 bits that differs for each mode.
    pub fn key(self) -> u64 {
        u64::from(self.training) | u64::from(self.autocast) << 1 | (self.policy as u64) << 2
    }
}

impl ScopeHandle {
    /// Returns a handle for the inside of a layer. If `autocast` is true, the layer casts its inputs to the compute dtype of the policy,
    /// and with a policy of mixed precision also the variables that it reads.
    pub(crate) fn in_layer(self, autocast: bool) -> ScopeHandle {
        let mode = Mode { autocast, ..self.mode() };
        self.in_mode(mode)
    }

    /// Returns the input `x` of a layer as the layer computes with it. The handle is that for the inside of the layer.
    pub(crate) fn input(&self, x: &Tensor) -> Result<Tensor> {
        if self.mode().autocast { as_float(x.clone(), self.mode().policy.compute_dtype()) } else { Ok(x.clone()) }
    }

    /// Returns the value of a variable as the layer for whose inside this handle is computes with it.
    pub(super) fn computed(&self, value: Tensor) -> Result<Tensor> {
        if self.casts_variables() { as_float(value, self.mode().policy.compute_dtype()) } else { Ok(value) }
    }

    /// Returns a value that the layer for whose inside this handle is assigns to `variable`, in the element type of the variable.
    pub(super) fn stored(&self, variable: &Variable, value: &Tensor) -> Result<Tensor> {
        let dtype = variable.tensor_type()?.dtype;
        if self.casts_variables() && dtype.is_float() { as_float(value.clone(), dtype) } else { Ok(value.clone()) }
    }

    fn casts_variables(&self) -> bool {
        let Mode { policy, autocast, .. } = self.mode();
        autocast && policy.compute_dtype() != policy.variable_dtype()
    }
}

/// Casts a float to `dtype`. Returns any other tensor unchanged.
fn as_float(x: Tensor, dtype: DType) -> Result<Tensor> {
    if x.dtype().is_float() { x.cast(dtype) } else { Ok(x) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn names_are_keras_names() {
        for policy in DTypePolicy::ALL {
            assert_eq!(policy.to_string().parse::<DTypePolicy>().unwrap(), policy);
        }
        let error = "mixed_float32".parse::<DTypePolicy>().unwrap_err().to_string();
        assert!(error.ends_with("the policies are float32 float64 float16 bfloat16 mixed_float16 mixed_bfloat16"), "{error}");
    }

    #[test]
    fn every_mode_has_a_key_of_its_own() {
        let mut keys = alloc::vec::Vec::new();
        for policy in DTypePolicy::ALL {
            for bits in 0..4 {
                keys.push(Mode { training: bits & 1 == 1, policy, autocast: bits & 2 == 2 }.key());
            }
        }
        keys.sort_unstable();
        keys.dedup();
        assert!(keys.len() == 24 && keys[23] < 32);
    }
}
