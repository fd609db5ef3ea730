//! The sizes that an artifact can hold. Its format stores sizes and offsets as u32.

use crate::artifact::Signature;
use crate::base::error::{Error, Result};
use crate::compile::plan::Plan;
use crate::runtime::program::{ALIGN, MAX_MEMORY};
use crate::tensor::variable::Variable;
use alloc::format;
use alloc::string::String;

/// Checks the sizes of `variables`, with their `names`, and of the values and the memory of `signatures`. An error says what is too large,
/// and by how many bytes.
pub(super) fn check(variables: &[Variable], names: &[String], signatures: &[Signature]) -> Result<()> {
    let mut memory = 0;
    for (variable, name) in variables.iter().zip(names) {
        let tensor_type = variable.tensor_type()?;
        let bytes = tensor_type.wide_bytes();
        at_most(u32::MAX.into(), bytes, || format!("variable {name:?} of type {tensor_type}"))?;
        memory += bytes + ALIGN as u128;
    }
    // A reader accepts arenas up to this size.
    let most = u128::from(MAX_MEMORY) - 1;
    for signature in signatures {
        check_values(&signature.name, &signature.plan)?;
        let scratch = signature.plan.scratch as u128;
        at_most(most, memory + scratch, || format!("the memory of signature {:?}, with all variables,", signature.name))?;
    }
    at_most(most, memory, || "the memory of the variables".into())
}

/// Checks the values of a plan and of its bodies.
fn check_values(signature: &str, plan: &Plan) -> Result<()> {
    for value in &plan.graph.values {
        let tensor_type = value.tensor_type;
        at_most(u32::MAX.into(), tensor_type.wide_bytes(), || format!("a {tensor_type} tensor of signature {signature:?}"))?;
    }
    plan.bodies.iter().flat_map(|bodies| &bodies.plans).try_for_each(|body| check_values(signature, body))
}

/// Fails if `bytes` exceeds `most`. The error begins with what `what` returns.
pub(super) fn at_most(most: u128, bytes: u128, what: impl FnOnce() -> String) -> Result<()> {
    match bytes.checked_sub(most) {
        None | Some(0) => Ok(()),
        Some(more) => {
            Err(Error::TooLarge.context(format!("{} has {bytes} bytes, {more} more than the {most} that an artifact can hold", what())))
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tensor::scope::Scope;
    use crate::{Artifact, Eager, Error, Function, Result, Tensor, ops};
    use alloc::string::{String, ToString};

    /// Returns the error of an artifact whose signature `large` has a tensor of these dimensions.
    fn refused(dims: &'static [u32]) -> Result<String> {
        let scope = Eager::new(&ops::portable_cpu());
        let sum = Function::new(move |_: &dyn Scope, x: Tensor| x.broadcast_to(dims)?.sum(&[], false));
        let mut artifact = Artifact::new();
        artifact.signature("large", &*sum.concrete(&scope, &Tensor::scalar(&scope.device(), 1.0f32))?, &["x"], &["sum"])?;
        let error = artifact.to_bytes().err().unwrap_or(Error::Internal);
        assert_eq!(error.root(), &Error::TooLarge, "{error}");
        Ok(error.to_string())
    }

    #[test]
    fn an_error_says_what_is_too_large_and_by_how_much() -> Result<()> {
        let tensor = refused(&[40_000, 40_000])?;
        let want = "a f32[40000,40000] tensor of signature \"large\" has 6400000000 bytes, 2105032705 more than the 4294967295 that an \
                    artifact can hold: ";
        assert!(tensor.starts_with(want), "{tensor}");
        // The sum takes 4 of these bytes.
        let memory = refused(&[1 << 15, 1 << 14])?;
        let want = "the memory of signature \"large\", with all variables, has 2147483652 bytes, 6 more than the 2147483646 that";
        assert!(memory.starts_with(want), "{memory}");
        Ok(())
    }
}
