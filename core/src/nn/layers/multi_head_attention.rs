//! Attention: Keras's `MultiHeadAttention`.

use super::affine::options;
use super::{Initializer, Layer, Module, inputs, observed_call};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::{Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use alloc::vec::Vec;

/// Value that a masked-out score gets before the softmax, as in Keras.
const MASKED: f64 = -0.7 * 3.389_53e38;
/// [`MASKED`] for f16.
const MASKED_F16: f64 = -0.7 * 65_500.0;

/// Multi-head attention. Each head computes `softmax(q · kᵀ / √key_dim) · v` from projections of the query `[batch, t, …]`, the
/// value and the key, both `[batch, s, …]`. The results of the heads are projected to the size of the query: `[batch, t, …]`.
///
/// The kernels of query, key and value have the shape `[features, heads, dim]`, and their biases `[heads, dim]`. The output has a
/// kernel `[heads, value_dim, out]` and a bias `[out]`. Kernels are initialised Glorot uniform, and biases with zeros.
///
/// As a layer, it attends to its own input (self-attention). [`MultiHeadAttention::attend`] takes all inputs and masks that Keras's
/// layer takes.
///
/// ```
/// use gradlet_core::layers::{Attend, Layer, MultiHeadAttention};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = MultiHeadAttention::new(2, 4);
/// let (query, value) = (Tensor::full(&scope.device(), 1.0f32, &[1, 3, 6])?, Tensor::full(&scope.device(), 1.0f32, &[1, 5, 7])?);
/// let (y, scores) = layer.attend(&scope, &Attend::new(&query, &value))?;
/// assert_eq!((y.dims(), scores.dims()), (&[1, 3, 6][..], &[1, 2, 3, 5][..]));
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct MultiHeadAttention {
    num_heads: u32,
    key_dim: u32,
    value_dim: u32,
    dropout: f64,
    output_shape: Option<u32>,
    kernel_initializer: Initializer,
    bias_initializer: Initializer,
    #[module(tracked = "_query_dense")]
    query: Projection,
    #[module(tracked = "_key_dense")]
    key: Projection,
    #[module(tracked = "_value_dense")]
    value: Projection,
    #[module(tracked = "_output_dense")]
    attention_output: Projection,
}

#[derive(Module)]
struct Projection {
    #[module(tracked = "_kernel")]
    kernel: Variable,
    bias: Option<Variable>,
}

/// Inputs and masks of a call of [`MultiHeadAttention`].
#[derive(Clone, Copy)]
pub struct Attend<'a> {
    query: &'a Tensor,
    value: &'a Tensor,
    key: &'a Tensor,
    query_mask: Option<&'a Tensor>,
    value_mask: Option<&'a Tensor>,
    key_mask: Option<&'a Tensor>,
    attention_mask: Option<&'a Tensor>,
    use_causal_mask: bool,
}

impl<'a> Attend<'a> {
    /// Creates the inputs from `query[batch, t, …]` and `value[batch, s, …]`. The value is also the key.
    pub fn new(query: &'a Tensor, value: &'a Tensor) -> Attend<'a> {
        let (query_mask, value_mask, key_mask, attention_mask) = (None, None, None, None);
        Attend { query, value, key: value, query_mask, value_mask, key_mask, attention_mask, use_causal_mask: false }
    }

    /// Sets a key `[batch, s, …]` that differs from the value.
    pub fn key(self, key: &'a Tensor) -> Attend<'a> {
        Attend { key, ..self }
    }

    /// Sets the mask of the query: boolean `[batch, t]`, true at the positions that count.
    pub fn query_mask(self, mask: &'a Tensor) -> Attend<'a> {
        Attend { query_mask: Some(mask), ..self }
    }

    /// Sets the mask of the value: boolean `[batch, s]`, true at the positions that count.
    pub fn value_mask(self, mask: &'a Tensor) -> Attend<'a> {
        Attend { value_mask: Some(mask), ..self }
    }

    /// Sets the mask of the key: boolean `[batch, s]`, true at the positions that count.
    pub fn key_mask(self, mask: &'a Tensor) -> Attend<'a> {
        Attend { key_mask: Some(mask), ..self }
    }

    /// Sets the attention mask: boolean `[batch, t, s]` or `[batch, heads, t, s]`, true where a position of the query may attend to
    /// a position of the value.
    pub fn attention_mask(self, mask: &'a Tensor) -> Attend<'a> {
        Attend { attention_mask: Some(mask), ..self }
    }

    /// Sets whether positions may attend only to themselves and earlier positions (default false).
    pub fn use_causal_mask(self, use_causal_mask: bool) -> Attend<'a> {
        Attend { use_causal_mask, ..self }
    }

    /// Combines all masks into one that broadcasts to `[batch, heads, t, s]`. Returns `None` if there are no masks.
    fn mask(&self) -> Result<Option<Tensor>> {
        let mut masks = Vec::new();
        if let Some(mask) = self.attention_mask {
            masks.push(if mask.dims().len() == 3 { mask.expand_dims(1)? } else { mask.clone() });
        }
        if let Some(mask) = self.query_mask {
            masks.push(mask.expand_dims(1)?.expand_dims(-1)?);
        }
        for mask in [self.value_mask, self.key_mask].into_iter().flatten() {
            masks.push(mask.expand_dims(1)?.expand_dims(1)?);
        }
        if self.use_causal_mask {
            let (&[_, t, ..], &[_, s, ..]) = (self.query.dims(), self.value.dims()) else { return Err(Error::Rank { input: 0 }) };
            let places = |count: u32| (0..count as i32).collect::<Vec<_>>();
            let device = self.query.device()?;
            let (rows, columns) = (Tensor::new(&device, &places(t), &[t, 1])?, Tensor::new(&device, &places(s), &[1, s])?);
            masks.push(rows.greater_equal(&columns)?);
        }
        let mut masks = masks.into_iter();
        let Some(first) = masks.next() else { return Ok(None) };
        masks.try_fold(first, |all, mask| all.logical_and(&mask)).map(Some)
    }
}

impl MultiHeadAttention {
    /// Creates a layer with `num_heads` heads. Queries, keys and values have `key_dim` elements for each head.
    pub fn new(num_heads: u32, key_dim: u32) -> MultiHeadAttention {
        let projection = || Projection { kernel: Variable::deferred("kernel"), bias: Some(Variable::deferred("bias")) };
        MultiHeadAttention {
            num_heads,
            key_dim,
            value_dim: key_dim,
            dropout: 0.0,
            output_shape: None,
            kernel_initializer: Initializer::glorot_uniform(),
            bias_initializer: Initializer::zeros(),
            query: projection(),
            key: projection(),
            value: projection(),
            attention_output: projection(),
        }
    }

    /// Sets the number of features of the output (default: the number of features of the query).
    pub fn output_shape(self, output_shape: u32) -> MultiHeadAttention {
        MultiHeadAttention { output_shape: Some(output_shape), ..self }
    }

    /// Sets whether the layer has biases (default true).
    pub fn use_bias(mut self, use_bias: bool) -> MultiHeadAttention {
        for projection in [&mut self.query, &mut self.key, &mut self.value, &mut self.attention_output] {
            projection.bias = use_bias.then(|| Variable::deferred("bias"));
        }
        self
    }

    /// Returns the output, and the scores `[batch, heads, t, s]`. Builds the layer if it is not built yet.
    ///
    /// Fails if the shapes of query, value, key and masks do not fit together, or do not fit the shapes that the layer was built
    /// for.
    pub fn attend(&self, scope: &dyn Scope, on: &Attend<'_>) -> Result<(Tensor, Tensor)> {
        let call = |scope: &ScopeHandle| {
            let (query, value, key) = (scope.input(on.query)?, scope.input(on.value)?, scope.input(on.key)?);
            let on = &Attend { query: &query, value: &value, key: &key, ..*on };
            let features = |x| inputs::sequences(self.name(), x).map(|[_, _, features]| features);
            let features = [features(on.query)?, features(on.value)?, features(on.key)?];
            if !self.is_built() {
                self.build_for(&scope.handle().building(), features)?;
            }
            self.outputs(scope, on)
        };
        observed_call(&scope.handle().in_layer(true), self.name(), self.kind(), self, |(y, _): &(Tensor, Tensor)| y.tensor_type(), call)
    }

    /// Computes the result of [`MultiHeadAttention::attend`] with a layer that is already built.
    fn outputs(&self, scope: &dyn Scope, on: &Attend<'_>) -> Result<(Tensor, Tensor)> {
        for input in [on.query, on.key, on.value] {
            inputs::sequences(self.name(), input)?;
        }
        let heads = self.num_heads;
        let query = self.query.split(scope, on.query, [heads, self.key_dim])?;
        let key = self.key.split(scope, on.key, [heads, self.key_dim])?;
        let value = self.value.split(scope, on.value, [heads, self.value_dim])?;
        let scale = 1.0 / libm::sqrt(f64::from(self.key_dim));
        let mut fit = query.mul_scalar(scale)?.matmul_with(&key, false, true)?;
        if let Some(mask) = on.mask()? {
            let masked = if fit.dtype() == crate::base::dtype::DType::F16 { MASKED_F16 } else { MASKED };
            fit = mask.select(&fit, &fit.like(masked)?)?;
        }
        let scores = fit.softmax(-1)?;
        let kept =
            if scope.training() && self.dropout > 0.0 { scores.dropout(scope, self.dropout, scores.dims())? } else { scores.clone() };
        let mixed = kept.matmul(&value)?.transpose(&[0, 2, 1, 3])?;
        let &[batch, t, heads, dim] = mixed.dims() else { return Err(Error::Rank { input: 0 }) };
        let (kernel, bias) = self.attention_output.read(scope)?;
        let out = kernel.dims()[2];
        let y = mixed.reshape(&[batch, t, heads * dim])?.dense(&kernel.reshape(&[heads * dim, out])?, bias.as_ref())?;
        Ok((y, scores))
    }

    /// Creates the variables for a query, a value and a key with these numbers of features.
    fn build_for(&self, scope: &dyn Scope, [query, value, key]: [u32; 3]) -> Result<()> {
        let (heads, dim, out) = (self.num_heads, self.value_dim, self.output_shape.unwrap_or(query));
        let create = |projection: &Projection, kernel: [u32; 3], bias: &[u32]| {
            projection.kernel.create(scope, &self.kernel_initializer.call(scope, &kernel)?)?;
            projection.bias.iter().try_for_each(|variable| variable.create(scope, &self.bias_initializer.call(scope, bias)?))
        };
        create(&self.query, [query, heads, self.key_dim], &[heads, self.key_dim])?;
        create(&self.key, [key, heads, self.key_dim], &[heads, self.key_dim])?;
        create(&self.value, [value, heads, dim], &[heads, dim])?;
        create(&self.attention_output, [heads, dim, out], &[out])
    }
}

options! { MultiHeadAttention {
    /// Sets the number of elements of the values for each head (default: `key_dim`).
    value_dim: u32,
    /// Sets the fraction of the scores to drop in training (default 0).
    dropout: f64,
    /// Sets the initializer of the kernels (default Glorot uniform).
    kernel_initializer: Initializer,
    /// Sets the initializer of the biases (default zeros).
    bias_initializer: Initializer,
}}

impl Projection {
    fn read(&self, scope: &dyn Scope) -> Result<(Tensor, Option<Tensor>)> {
        Ok((scope.read(&self.kernel)?, self.bias.as_ref().map(|bias| scope.read(bias)).transpose()?))
    }

    /// Projects `x[batch, steps, features]` to the heads: `[batch, heads, steps, dim]`.
    fn split(&self, scope: &dyn Scope, x: &Tensor, [heads, dim]: [u32; 2]) -> Result<Tensor> {
        let (kernel, bias) = self.read(scope)?;
        let features = kernel.dims()[0];
        inputs::features("multi_head_attention", features, x)?;
        let bias = bias.map(|bias| bias.reshape(&[heads * dim])).transpose()?;
        let y = x.dense(&kernel.reshape(&[features, heads * dim])?, bias.as_ref())?;
        let &[batch, steps, _] = y.dims() else { return Err(Error::Rank { input: 0 }) };
        y.reshape(&[batch, steps, heads, dim])?.transpose(&[0, 2, 1, 3])
    }
}

impl Layer for MultiHeadAttention {
    fn name(&self) -> &str {
        "multi_head_attention"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [_, _, features] = inputs::dims(self.name(), inputs::SEQUENCES, input.dims())?;
        self.build_for(scope, [features; 3])
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        Ok(self.outputs(scope, &Attend::new(x, x))?.0)
    }
}
