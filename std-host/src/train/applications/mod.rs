//! Predefined networks: Keras's MobileNets and the networks of MLPerf Tiny. Layer names and weights match the originals.

#![doc(alias = "keras.applications")]

mod ds_cnn;
mod mobilenet;
mod mobilenet_v2;
mod resnet8;

pub use crate::train::models::{ModelSpec, cnn, mlp};
pub use ds_cnn::ds_cnn;
pub use mobilenet::mobilenet;
pub use mobilenet_v2::mobilenet_v2;
pub use resnet8::resnet8;

use crate::formats::weights;
use gradlet_core::layers::{
    Activation, BatchNormalization, Conv2D, Dense, DepthwiseConv2D, Functional, GlobalAveragePooling2D, GlobalMaxPooling2D, Layer, Padding,
    Value,
};
use gradlet_core::{Error, Result, Scope, Shape};
use std::path::PathBuf;

/// The configuration of a network, with the arguments and defaults of Keras's `applications`. [`build`](Application::build)
/// creates the network.
///
/// ```
/// use gradlet::layers::Layer;
/// use gradlet::{Eager, applications};
/// let scope = Eager::new(&gradlet::cpu());
/// let model = applications::mobilenet_v2().input_shape([96, 96, 3]).alpha(0.35).classes(10).build(&scope)?;
/// assert_eq!(model.summary(&scope, &[96, 96, 3])?.parameters().count, 423_018);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Application {
    network: fn(&Application) -> Functional,
    /// Minimum height and width of the input.
    smallest: u32,
    input_shape: [u32; 3],
    include_top: bool,
    classes: u32,
    alpha: f64,
    pooling: Option<Pooling>,
    classifier_activation: Activation,
    weights: Option<PathBuf>,
}

/// Pooling of the last features in a network without its classifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Mean of each channel over all positions.
    Avg,
    /// Maximum of each channel over all positions.
    Max,
}

impl Application {
    fn new(network: fn(&Application) -> Functional, input_shape: [u32; 3], classes: u32) -> Application {
        Application {
            network,
            smallest: 1,
            input_shape,
            include_top: true,
            classes,
            alpha: 1.0,
            pooling: None,
            classifier_activation: Activation::Softmax,
            weights: None,
        }
    }

    /// Sets the height, width and channels of an image.
    pub fn input_shape(self, input_shape: [u32; 3]) -> Application {
        Application { input_shape, ..self }
    }

    /// Includes the classifier at the end of the network, if `include_top` is true (the default). Otherwise, the network outputs features.
    pub fn include_top(self, include_top: bool) -> Application {
        Application { include_top, ..self }
    }

    /// Sets the number of classes of the classifier.
    pub fn classes(self, classes: u32) -> Application {
        Application { classes, ..self }
    }

    /// Sets the width of the network: a factor for the number of filters in most layers.
    pub fn alpha(self, alpha: f64) -> Application {
        Application { alpha, ..self }
    }

    /// Sets the pooling that reduces features to a vector in a network without a classifier. By default, features are not pooled.
    pub fn pooling(self, pooling: Pooling) -> Application {
        Application { pooling: Some(pooling), ..self }
    }

    /// Sets the activation of the classifier. The default is softmax.
    pub fn classifier_activation(self, classifier_activation: Activation) -> Application {
        Application { classifier_activation, ..self }
    }

    /// Sets the safetensors file from which the weights are loaded. By default, the weights are random.
    pub fn weights(self, path: impl Into<PathBuf>) -> Application {
        Application { weights: Some(path.into()), ..self }
    }

    /// Builds the network and creates its variables.
    ///
    /// Fails if the images are too small, if the number of channels or classes is 0, if `alpha` is not positive, or if the weights in the
    /// file do not match the network.
    pub fn build(&self, scope: &dyn Scope) -> Result<Functional> {
        let [height, width, channels] = self.input_shape;
        if height.min(width) < self.smallest || channels == 0 {
            let (smallest, got) = (self.smallest, self.input_shape);
            return Err(Error::message(format!("input_shape must be at least [{smallest}, {smallest}, 1], not {got:?}")));
        }
        if self.classes == 0 || self.alpha.is_nan() || self.alpha <= 0.0 {
            return Err(Error::message(format!("classes and alpha must be more than 0, not {} and {}", self.classes, self.alpha)));
        }
        let model = (self.network)(self);
        model.build(scope, &Shape::new(&[1, height, width, channels])?)?;
        if let Some(path) = &self.weights {
            weights::load(scope, &model, path)?;
        }
        Ok(model)
    }

    /// Returns `filters` times the width factor, at least 1.
    fn scaled(&self, filters: u32) -> u32 {
        ((f64::from(filters) * self.alpha) as u32).max(1)
    }
}

/// A network under construction.
struct Network {
    model: Functional,
    /// Value that is the input of the next layer.
    x: Value,
}

impl Network {
    fn new(name: &str) -> Network {
        Network { model: Functional::new(name), x: Functional::INPUT }
    }

    /// Adds `layer` after the last one.
    fn then(&mut self, name: &str, layer: impl Layer + 'static) {
        self.x = self.model.layer(name, layer, self.x);
    }

    /// Adds a batch normalization and a ReLU, which follow most convolutions of MLPerf's networks.
    fn normalized_relu(&mut self) {
        self.then("batch_normalization", BatchNormalization::default());
        self.then("activation", Activation::Relu);
    }

    /// Returns the network without a classifier. The pooling that `of` selects, if any, is added first.
    fn features(mut self, of: &Application) -> Functional {
        match of.pooling {
            Some(Pooling::Avg) => self.then("global_average_pooling2d", GlobalAveragePooling2D::default()),
            Some(Pooling::Max) => self.then("global_max_pooling2d", GlobalMaxPooling2D::default()),
            None => (),
        }
        self.model
    }

    /// Returns the network with `dense` as its classifier, under the name `name`.
    fn classified(mut self, of: &Application, name: &str, dense: Dense) -> Functional {
        self.then(name, dense.activation(of.classifier_activation));
        self.model
    }
}

/// Creates a convolution with same padding: the output has the size of the input divided by the stride.
fn conv(filters: u32, kernel_size: [u32; 2], stride: u32) -> Conv2D {
    Conv2D::new(filters, kernel_size).strides([stride, stride]).padding(Padding::Same)
}

/// Creates a depthwise 3 × 3 convolution without bias. With a stride above 1 it does not pad, so its input must be padded before.
fn depthwise(stride: u32) -> DepthwiseConv2D {
    let padding = if stride == 1 { Padding::Same } else { Padding::Valid };
    DepthwiseConv2D::new([3, 3]).strides([stride, stride]).padding(padding).use_bias(false)
}
