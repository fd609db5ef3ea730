//! Interrupted saves. After a crash at any point, the latest checkpoint is always one that was saved completely.

mod kills;
mod replay;

use super::{Checkpoint, CheckpointManager, latest_checkpoint};
use gradlet_core::{DType, Eager, Error, Result, Scope, Shape, Tensor, TensorType, Variable};
use std::path::Path;

/// Variables in which every element holds the number of the save that wrote it.
struct Numbered {
    scope: Eager,
    variables: Vec<(&'static str, Variable)>,
}

impl Numbered {
    fn new() -> Numbered {
        let scope = Eager::new(&crate::compute::devices::cpu());
        let shapes: [(&str, DType, &[u32]); 4] =
            [("a", DType::F32, &[300, 7]), ("b", DType::I64, &[]), ("c", DType::I32, &[33]), ("d", DType::F32, &[1, 5])];
        let variables = shapes.map(|(name, dtype, dims)| {
            let value = filled(&scope, TensorType::new(dtype, Shape::new(dims).unwrap()), 0);
            (name, Variable::new(&scope, name, &value).unwrap())
        });
        Numbered { scope, variables: variables.into() }
    }

    fn checkpoint(&self) -> Checkpoint<'_> {
        self.variables.iter().fold(Checkpoint::new(), |checkpoint, (name, variable)| checkpoint.with(name, variable))
    }

    fn manager(&self, folder: &Path) -> Result<CheckpointManager<'_>> {
        CheckpointManager::new(self.checkpoint(), folder, 2)
    }

    fn set(&self, number: u32) {
        for (_, variable) in &self.variables {
            let value = filled(&self.scope, variable.tensor_type().unwrap(), number);
            self.scope.assign(variable, &value).unwrap();
        }
    }

    /// Returns the number that all elements hold. Fails if the elements differ.
    fn number(&self) -> Result<u32> {
        let mut elements = Vec::new();
        for (_, variable) in &self.variables {
            elements.extend(self.scope.read(variable)?.cast(DType::F32)?.to_vec::<f32>()?);
        }
        let first = elements[0];
        match elements.iter().all(|element| *element == first) {
            true => Ok(first as u32),
            false => Err(Error::message("the elements are from different saves")),
        }
    }
}

fn filled(scope: &Eager, tensor_type: TensorType, number: u32) -> Tensor {
    let value = Tensor::full(&scope.device(), number as f32, tensor_type.shape.dims()).unwrap();
    value.cast(tensor_type.dtype).unwrap()
}

/// Returns the number that the latest checkpoint of a folder holds, or `None` if the folder has no checkpoint.
fn latest(folder: &Path) -> Result<Option<u32>> {
    let numbered = Numbered::new();
    let Some(latest) = latest_checkpoint(folder)? else { return Ok(None) };
    numbered.checkpoint().restore(&latest)?.assert_consumed()?;
    numbered.number().map(Some)
}
