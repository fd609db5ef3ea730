//! Separable convolution: Keras's `SeparableConv2D`.

use super::affine::options;
use super::{Activation, Initializer, Layer, Module, Padding, inputs};
use crate::base::error::Result;
use crate::base::shape::Shape;
use crate::ops::conv2d::Conv2DOptions;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;

/// Depthwise and then pointwise convolution of images `[batch, height, width, channels]`:
/// `activation(x * depthwise_kernel * pointwise_kernel + bias)`. The depthwise kernel has the shape
/// `[h, w, channels, depth_multiplier]`, and the pointwise kernel `[1, 1, channels · depth_multiplier, filters]`. Both are
/// initialised Glorot uniform. The bias has the shape `[filters]` and is initialised with zeros.
///
/// ```
/// use gradlet_core::layers::{Layer, Module, SeparableConv2D};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let layer = SeparableConv2D::new(8, [3, 3]);
/// let y = layer.apply(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 5, 5, 4])?)?;
/// assert_eq!(y.dims(), [1, 3, 3, 8]);
/// let names: Vec<String> = layer.named_variables().into_iter().map(|(name, _)| name).collect();
/// assert_eq!(names, ["depthwise_kernel", "pointwise_kernel", "bias"]);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[derive(Module)]
pub struct SeparableConv2D {
    filters: u32,
    kernel_size: [u32; 2],
    strides: [u32; 2],
    padding: Padding,
    dilation_rate: [u32; 2],
    depth_multiplier: u32,
    activation: Activation,
    depthwise_initializer: Initializer,
    pointwise_initializer: Initializer,
    bias_initializer: Initializer,
    depthwise_kernel: Variable,
    pointwise_kernel: Variable,
    bias: Option<Variable>,
}

impl SeparableConv2D {
    /// Creates a layer with `filters` filters of this height and width, stride 1, no padding and no activation.
    pub fn new(filters: u32, kernel_size: [u32; 2]) -> SeparableConv2D {
        SeparableConv2D {
            filters,
            kernel_size,
            strides: [1, 1],
            padding: Padding::Valid,
            dilation_rate: [1, 1],
            depth_multiplier: 1,
            activation: Activation::Linear,
            depthwise_initializer: Initializer::glorot_uniform(),
            pointwise_initializer: Initializer::glorot_uniform(),
            bias_initializer: Initializer::zeros(),
            depthwise_kernel: Variable::deferred("depthwise_kernel"),
            pointwise_kernel: Variable::deferred("pointwise_kernel"),
            bias: Some(Variable::deferred("bias")),
        }
    }

    /// Sets whether the layer has a bias (default true).
    pub fn use_bias(self, use_bias: bool) -> SeparableConv2D {
        SeparableConv2D { bias: use_bias.then(|| Variable::deferred("bias")), ..self }
    }
}

options! { SeparableConv2D {
    /// Sets the vertical and horizontal strides (default 1).
    strides: [u32; 2],
    /// Sets the padding (default none).
    padding: Padding,
    /// Sets the vertical and horizontal dilation, the distance between the taps of the window (default 1).
    dilation_rate: [u32; 2],
    /// Sets the number of depthwise filters for each channel (default 1).
    depth_multiplier: u32,
    /// Sets the activation (default none).
    activation: Activation,
    /// Sets the initializer of the depthwise kernel (default Glorot uniform).
    depthwise_initializer: Initializer,
    /// Sets the initializer of the pointwise kernel (default Glorot uniform).
    pointwise_initializer: Initializer,
    /// Sets the initializer of the bias (default zeros).
    bias_initializer: Initializer,
}}

impl Layer for SeparableConv2D {
    fn name(&self) -> &str {
        "separable_conv2d"
    }

    fn build(&self, scope: &dyn Scope, input: &Shape) -> Result<()> {
        let [_, _, _, channels] = inputs::dims(self.name(), inputs::IMAGES, input.dims())?;
        let (multiplier, filters, [height, width]) = (self.depth_multiplier, self.filters, self.kernel_size);
        let depthwise = self.depthwise_initializer.call(scope, &[height, width, channels, multiplier])?;
        self.depthwise_kernel.create(scope, &depthwise)?;
        let pointwise = self.pointwise_initializer.call(scope, &[1, 1, channels * multiplier, filters])?;
        self.pointwise_kernel.create(scope, &pointwise)?;
        self.bias.iter().try_for_each(|bias| bias.create(scope, &self.bias_initializer.call(scope, &[filters])?))
    }

    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (depthwise, pointwise) = (scope.read(&self.depthwise_kernel)?, scope.read(&self.pointwise_kernel)?);
        let bias = self.bias.as_ref().map(|bias| scope.read(bias)).transpose()?;
        inputs::images(self.name(), x)?;
        inputs::features(self.name(), depthwise.dims()[2], x)?;
        let options = Conv2DOptions::default().strides(self.strides).dilations(self.dilation_rate).padding(self.padding);
        self.activation.call(&x.separable_conv2d(&depthwise, &pointwise, bias.as_ref(), &options)?)
    }
}
