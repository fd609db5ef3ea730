//! Embedding: Keras's `Embedding`.

use super::affine::options;
use super::{Initializer, Layer, Module};
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// For each number its row of `embeddings`, `[input_dim, output_dim]`, which begin uniform from -0.05 to 0.05: `[…]` → `[…, output_dim]`.
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
    /// A layer for numbers below `input_dim` that gives vectors of `output_dim`.
    pub fn new(input_dim: u32, output_dim: u32) -> Embedding {
        Embedding {
            input_dim,
            output_dim,
            embeddings_initializer: Initializer::random_uniform(-0.05, 0.05),
            mask_zero: false,
            embeddings: Variable::deferred("embeddings"),
        }
    }

    /// Which numbers are not 0, if the layer masks those: what recurrent layers take as their mask.
    pub fn mask(&self, x: &Tensor) -> Result<Option<Tensor>> {
        if self.mask_zero { x.not_equal(&x.like(0.0)?).map(Some) } else { Ok(None) }
    }
}

options! { Embedding {
    /// The same with embeddings that begin so.
    embeddings_initializer: Initializer,
    /// The same with 0 as no word but what fills sequences up: see [`Embedding::mask`]; at first it is a word.
    mask_zero: bool,
}}

impl Layer for Embedding {
    fn name(&self) -> &str {
        "embedding"
    }

    fn build(&self, scope: &dyn Scope, _: &Shape) -> Result<()> {
        self.embeddings.create(scope, &self.embeddings_initializer.call(scope, &[self.input_dim, self.output_dim])?)
    }

    /// Numbers of a type that is no index are cast to i32, as in Keras.
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let ids = if matches!(x.dtype(), DType::I32 | DType::I64) { x.clone() } else { x.cast(DType::I32)? };
        scope.read(&self.embeddings)?.embedding_lookup(&ids)
    }
}
