//! Layers, the building blocks of models, with Keras's names, defaults and weight layouts.

mod activation;
mod activation_layers;
mod affine;
mod batch_normalization;
mod conv1d;
mod conv2d;
mod conv2d_transpose;
mod dense;
mod depthwise_conv2d;
mod dropout;
mod embedding;
mod functional;
mod global_pooling;
mod group_normalization;
mod initializers;
mod inputs;
mod layer_normalization;
mod merge;
mod module;
mod multi_head_attention;
mod pooling;
mod recurrent;
mod reshape;
mod scaled;
mod separable_conv2d;
mod sequential;
mod state;
mod summary;
mod up_sampling2d;
mod with_policy;

pub use activation::Activation;
pub use activation_layers::{LeakyReLU, ReLU, Softmax};
pub use batch_normalization::{BatchNormalization, BatchNormalizationWeights};
pub use conv1d::Conv1D;
pub use conv2d::Conv2D;
pub use conv2d_transpose::Conv2DTranspose;
pub use dense::Dense;
pub use depthwise_conv2d::DepthwiseConv2D;
pub use dropout::Dropout;
pub use embedding::Embedding;
pub use functional::{Functional, Value};
pub use global_pooling::{GlobalAveragePooling1D, GlobalAveragePooling2D, GlobalMaxPooling1D, GlobalMaxPooling2D};
pub use gradlet_derive::Module;
pub use group_normalization::GroupNormalization;
pub use initializers::Initializer;
pub use layer_normalization::LayerNormalization;
pub use merge::{Add, Concatenate, Merge};
pub use module::{Module, Visitor};
pub use multi_head_attention::{Attend, MultiHeadAttention};
pub use pooling::{AveragePooling1D, AveragePooling2D, MaxPool2D, MaxPooling1D, MaxPooling2D};
pub use recurrent::{GRU, GRUCell, LSTM, LSTMCell, RNN, RNNCell, Sequence, SimpleRNN, SimpleRNNCell};
pub use reshape::{Flatten, Permute, Reshape, ZeroPadding2D};
pub use separable_conv2d::SeparableConv2D;
pub use sequential::Sequential;
pub use state::{Later, State, Waiting};
pub use summary::{LayerSummary, Size, Summary};
pub use up_sampling2d::UpSampling2D;
pub use with_policy::WithPolicy;

pub use crate::ops::conv1d::Padding1D;
pub use crate::ops::conv2d::Padding;
pub use crate::ops::resize::Resize;

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::{Shared, ThreadSafe};
use crate::nn::type_name;
use crate::tensor::Tensor;
use crate::tensor::policy::DTypePolicy;
use crate::tensor::scope::{Entered, Scope, ScopeHandle};
use crate::trace::tracing::dry_run;
use alloc::boxed::Box;
use alloc::format;

/// A layer: a function from a tensor to a tensor, with variables. [`Layer::build`] creates the variables once the shape of the
/// input is known.
///
/// ```
/// use gradlet_core::layers::{Layer, Module};
/// use gradlet_core::{Eager, Result, Scope, Shape, Tensor, Variable, ops};
///
/// #[derive(Module)]
/// struct Scale { factor: Variable }
///
/// impl Layer for Scale {
///     fn name(&self) -> &str { "scale" }
///     fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
///         let channels = input.back(0).unwrap_or(1);
///         self.factor.create(scope, &Tensor::full(&scope.device(), 1.0f32, &[channels])?)
///     }
///     fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
///         x.mul(&scope.read(&self.factor)?)
///     }
/// }
///
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = Scale { factor: Variable::deferred("factor") };
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 2.0f32, &[4, 3])?)?;
/// assert_eq!(y.dims(), [4, 3]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub trait Layer: Module + ThreadSafe {
    /// Returns the kind of the layer, such as `dense` or `conv2d`. A model appends numbers to the names of layers of the same kind.
    fn name(&self) -> &str;

    /// Returns the name of the type for display, such as `Conv2D`.
    fn kind(&self) -> &str {
        type_name::<Self>()
    }

    /// Returns the layer's own dtype policy, or `None` if the layer takes the policy of the scope in which it is called.
    fn dtype_policy(&self) -> Option<DTypePolicy> {
        None
    }

    /// True if floating-point inputs are cast to the compute dtype before [`Layer::call`], and variables where `call` reads them: Keras's
    /// `layer.autocast`. This is the default. If it is false, `call` receives the input as it is, and casts its result to
    /// [`DTypePolicy::compute_dtype`]. Models return false, because their layers cast.
    fn autocast(&self) -> bool {
        true
    }

    /// Returns the layer with a dtype policy of its own: the argument `dtype` of Keras's layers. The layers inside a model or another layer
    /// take the policy, too, unless they have one of their own.
    ///
    /// ```
    /// use gradlet_core::layers::{Activation, Dense, Layer, Module, Sequential};
    /// use gradlet_core::{DType, DTypePolicy, Eager, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let head = Dense::new(10).dtype(DTypePolicy::Float32);
    /// let model = Sequential::new().with(Dense::new(32).activation(Activation::Relu)).with(head).dtype(DTypePolicy::MixedFloat16);
    /// let y = model.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[2, 4])?)?;
    /// assert_eq!(y.dtype(), DType::F32, "the last layer has a policy of its own");
    /// assert!(model.variables().iter().all(|variable| variable.tensor_type().unwrap().dtype == DType::F32));
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    fn dtype(self, policy: DTypePolicy) -> WithPolicy<Self>
    where
        Self: Sized,
    {
        WithPolicy::new(self, policy)
    }

    /// Creates the variables for inputs of this shape. It is called once, before the first [`Layer::call`], in a scope outside of
    /// all tapes and traces: tensors that it creates have values and may be kept in the layer. It is not called for a layer without
    /// variables. A layer that consists of other layers does not need this method, because the inner layers are built when they are
    /// applied.
    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let _ = (scope, input);
        Ok(())
    }

    /// Computes the output for `x`. The layer's own variables exist already. A layer calls its inner layers with [`Layer::apply`].
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor>;

    /// Builds the layer if it is not built yet, then calls it. Keras does the same when a layer is called.
    fn apply(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        self.apply_as(self.name(), scope, x)
    }

    /// Builds the layer for inputs like `x`, if it is not built yet. This is the first part of [`Layer::apply`].
    fn ensure_built(&self, scope: &dyn Scope, x: &Tensor) -> Result<()> {
        if self.is_built() { Ok(()) } else { self.build(&scope.handle().building(), x.shape()) }
    }

    /// The same as [`Layer::apply`], under the name that the layer has in its model. Errors and summaries show this name.
    fn apply_as(&self, name: &str, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let scope = scope.handle();
        let scope = self.dtype_policy().map_or(scope.clone(), |policy| scope.with_dtype_policy(policy));
        let call = |scope: &ScopeHandle| {
            let x = scope.input(x)?;
            self.ensure_built(scope, &x)?;
            self.call(scope, &x)
        };
        observed_call(&scope.in_layer(self.autocast()), name, self.kind(), self, Tensor::tensor_type, call)
    }

    /// Returns the type of the output for an input of this type, like Keras's `compute_output_spec`. Creates all variables, also
    /// those of inner layers, but computes nothing.
    fn output_type(&self, scope: &dyn Scope, input: TensorType) -> Result<TensorType> {
        dry_run(scope, input, |scope, x| self.apply(scope, x)).map(|y| y.tensor_type())
    }

    /// Returns a table of the layers with their output shapes and numbers of parameters, as Keras prints it. `input` holds the
    /// dimensions of an f32 input, without the batch. Creates all variables.
    fn summary(&self, scope: &dyn Scope, input: &[u32]) -> Result<Summary> {
        let shape = Shape::new(&[&[1], input].concat())?;
        Summary::new(self, scope, TensorType::new(DType::F32, shape))
    }
}

/// Runs `call` as a call of `layer` in `scope`, the inside of the layer, and returns its result. `output` extracts the type of the output
/// from that result. Observers of the scope receive the layer and this type. If `call` fails, the error contains `name`.
fn observed_call<L: Module + ?Sized, R>(
    scope: &ScopeHandle,
    name: &str,
    kind: &str,
    layer: &L,
    output: impl FnOnce(&R) -> TensorType,
    call: impl FnOnce(&ScopeHandle) -> Result<R>,
) -> Result<R> {
    let recorder = &scope.recorder;
    let id = (core::mem::size_of_val(layer) > 0).then_some(core::ptr::from_ref(layer).cast::<u8>() as usize);
    recorder.enter(&Entered { name, kind, id, variables: &|| layer.named_variables() });
    let result = call(scope);
    recorder.leave(result.as_ref().ok().map(output));
    result.map_err(|error| error.context(format!("layer {name:?}")))
}

macro_rules! transparent {
    ($([$($generics:tt)*] $ty:ty),*) => {$(
        // The wrapped type may override any method, so the wrapper must forward all of them.
        #[deny(clippy::missing_trait_methods)]
        impl<$($generics)*> Layer for $ty {
            fn name(&self) -> &str {
                (**self).name()
            }
            fn kind(&self) -> &str {
                (**self).kind()
            }
            fn dtype_policy(&self) -> Option<DTypePolicy> {
                (**self).dtype_policy()
            }
            fn autocast(&self) -> bool {
                (**self).autocast()
            }
            fn dtype(self, policy: DTypePolicy) -> WithPolicy<Self> {
                WithPolicy::new(self, policy)
            }
            fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
                (**self).build(scope, input)
            }
            fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
                (**self).call(scope, x)
            }
            fn apply(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
                (**self).apply(scope, x)
            }
            fn ensure_built(&self, scope: &dyn Scope, x: &Tensor) -> Result<()> {
                (**self).ensure_built(scope, x)
            }
            fn apply_as(&self, name: &str, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
                (**self).apply_as(name, scope, x)
            }
            fn output_type(&self, scope: &dyn Scope, input: TensorType) -> Result<TensorType> {
                (**self).output_type(scope, input)
            }
            fn summary(&self, scope: &dyn Scope, input: &[u32]) -> Result<Summary> {
                (**self).summary(scope, input)
            }
        }
    )*};
}
transparent!([L: Layer + ?Sized] &L, [L: Layer + ?Sized] Box<L>, [L: Layer + ?Sized] Shared<L>);

#[cfg(test)]
mod tests;
