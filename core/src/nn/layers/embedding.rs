//! Embedding: Keras's `Embedding`.

use super::affine::options;
use super::{Initializer, Layer, Module};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// Embedding lookup: replaces each integer index by its row of `embeddings[input_dim, output_dim]`, so `[…]` becomes
/// `[…, output_dim]`. The embeddings are initialised uniformly from -0.05 to 0.05.
///
/// ```
/// use gradlet_core::layers::{Embedding, Layer};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let words = Tensor::new(&scope.device(), &[4, 0, 1], &[1, 3])?;
/// let y = Embedding::new(5, 8).apply(&scope, &words)?;
/// assert_eq!(y.dims(), [1, 3, 8]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct Embedding {
    input_dim: u32,
    output_dim: u32,
    embeddings_initializer: Initializer,
    mask_zero: bool,
    #[module(tracked = "_embeddings")]
    embeddings: Variable,
}

impl Embedding {
    /// Creates a layer for indices below `input_dim` that returns vectors of `output_dim` elements.
    pub fn new(input_dim: u32, output_dim: u32) -> Embedding {
        Embedding {
            input_dim,
            output_dim,
            embeddings_initializer: Initializer::random_uniform(-0.05, 0.05),
            mask_zero: false,
            embeddings: Variable::deferred("embeddings"),
        }
    }

    /// Returns a mask that is true where an index is not 0, or `None` if the layer does not mask zeros. Recurrent layers take this
    /// mask as an argument.
    pub fn mask(&self, x: &Tensor) -> Result<Option<Tensor>> {
        if self.mask_zero { x.not_equal(&x.like(0.0)?).map(Some) } else { Ok(None) }
    }
}

options! { Embedding {
    /// Sets the initializer of the embeddings (default uniform from -0.05 to 0.05).
    embeddings_initializer: Initializer,
    /// Sets whether index 0 is padding, which [`Embedding::mask`] masks out (default false).
    mask_zero: bool,
}}

impl Layer for Embedding {
    fn name(&self) -> &str {
        "embedding"
    }

    fn build(&self, scope: &dyn Scope, _: &Shape) -> Result<()> {
        self.embeddings.create(scope, &self.embeddings_initializer.call(scope, &[self.input_dim, self.output_dim])?)
    }

    /// Returns false: inputs are indices, and only the rows that are looked up are cast.
    fn autocast(&self) -> bool {
        false
    }

    /// As in Keras, inputs that are neither i32 nor i64 are cast to i32.
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let ids = if matches!(x.dtype(), DType::I32 | DType::I64) { x.clone() } else { x.cast(DType::I32)? };
        scope.read(&self.embeddings)?.embedding_lookup(&ids)?.cast(scope.dtype_policy().compute_dtype())
    }
}
