//! Networks that are known by name: Keras's MobileNets, and those of MLPerf Tiny, with the layer names and weights of the originals.

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

/// A network that is not built yet: the arguments of Keras's `applications`, with their defaults.
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
    /// The least height and width that it can do something with.
    smallest: u32,
    input_shape: [u32; 3],
    include_top: bool,
    classes: u32,
    alpha: f64,
    pooling: Option<Pooling>,
    classifier_activation: Activation,
    weights: Option<PathBuf>,
}

/// What is done with the last features where there is no top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooling {
    /// Their mean over the image.
    Avg,
    /// Their maximum over the image.
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

    /// The height, width and channels of an image.
    pub fn input_shape(self, input_shape: [u32; 3]) -> Application {
        Application { input_shape, ..self }
    }

    /// Whether the network ends with its classifier; else it gives features.
    pub fn include_top(self, include_top: bool) -> Application {
        Application { include_top, ..self }
    }

    /// How many classes the classifier tells apart.
    pub fn classes(self, classes: u32) -> Application {
        Application { classes, ..self }
    }

    /// How wide the network is: about what the number of filters is multiplied by.
    pub fn alpha(self, alpha: f64) -> Application {
        Application { alpha, ..self }
    }

    /// How features become a vector, where there is no top; else they stay an image.
    pub fn pooling(self, pooling: Pooling) -> Application {
        Application { pooling: Some(pooling), ..self }
    }

    /// What the classifier does to its output: softmax, if it is not said.
    pub fn classifier_activation(self, classifier_activation: Activation) -> Application {
        Application { classifier_activation, ..self }
    }

    /// The safetensors file to take the weights from; else they are random.
    pub fn weights(self, path: impl Into<PathBuf>) -> Application {
        Application { weights: Some(path.into()), ..self }
    }

    /// The network, with its variables.
    ///
    /// Fails where the images are too small, something is 0, and where the file of weights does not fit.
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

    /// `filters` times the width of the network.
    fn scaled(&self, filters: u32) -> u32 {
        ((f64::from(filters) * self.alpha) as u32).max(1)
    }
}

/// A network that is being made.
struct Network {
    model: Functional,
    /// What the next layer is fed by.
    x: Value,
}

impl Network {
    fn new(name: &str) -> Network {
        Network { model: Functional::new(name), x: Functional::INPUT }
    }

    /// Goes on with `layer`.
    fn then(&mut self, name: &str, layer: impl Layer + 'static) {
        self.x = self.model.layer(name, layer, self.x);
    }

    /// What MLPerf's networks have again and again.
    fn normalized_relu(&mut self) {
        self.then("batch_normalization", BatchNormalization::default());
        self.then("activation", Activation::Relu);
    }

    /// The end of a network without a classifier.
    fn features(mut self, of: &Application) -> Functional {
        match of.pooling {
            Some(Pooling::Avg) => self.then("global_average_pooling2d", GlobalAveragePooling2D::default()),
            Some(Pooling::Max) => self.then("global_max_pooling2d", GlobalMaxPooling2D::default()),
            None => (),
        }
        self.model
    }

    /// The end of a network with a dense classifier.
    fn classified(mut self, of: &Application, name: &str, dense: Dense) -> Functional {
        self.then(name, dense.activation(of.classifier_activation));
        self.model
    }
}

/// A convolution that keeps the size of images, divided by its stride.
fn conv(filters: u32, kernel_size: [u32; 2], stride: u32) -> Conv2D {
    Conv2D::new(filters, kernel_size).strides([stride, stride]).padding(Padding::Same)
}

/// A depthwise convolution of 3 × 3 without bias; with a stride, its input must be padded before.
fn depthwise(stride: u32) -> DepthwiseConv2D {
    let padding = if stride == 1 { Padding::Same } else { Padding::Valid };
    DepthwiseConv2D::new([3, 3]).strides([stride, stride]).padding(padding).use_bias(false)
}
