//! ResNet-8: a residual network with the size that MLPerf Tiny uses. (He et al., "Deep Residual Learning for Image Recognition", 2016.)

use super::{Application, Network, conv};
use gradlet_core::layers::{Activation, Add, AveragePooling2D, BatchNormalization, Conv2D, Dense, Flatten, Functional, Initializer};

/// Returns MLPerf Tiny's network for image classification. The defaults are 10 classes and images of 32 × 32 × 3.
pub fn resnet8() -> Application {
    Application::new(network, [32, 32, 3], 10)
}

fn network(of: &Application) -> Functional {
    let conv =
        |filters, size, stride| -> Conv2D { conv(of.scaled(filters), [size, size], stride).kernel_initializer(Initializer::he_normal()) };
    let mut network = Network::new("resnet8");
    network.then("conv2d", conv(16, 3, 1));
    network.normalized_relu();
    let mut index = 0;
    let mut name = || {
        index += 1;
        format!("conv2d_{index}")
    };
    for (filters, stride) in [(16, 1), (32, 2), (64, 2)] {
        let shortcut = network.x;
        network.then(&name(), conv(filters, 3, stride));
        network.normalized_relu();
        network.then(&name(), conv(filters, 3, 1));
        // The convolution of a shortcut is added before the normalization, because Keras lists its weights in that order.
        let shortcut = if stride > 1 { network.model.layer(&name(), conv(filters, 1, stride), shortcut) } else { shortcut };
        network.then("batch_normalization", BatchNormalization::default());
        network.x = network.model.merge("add", Add, &[shortcut, network.x]);
        network.then("activation", Activation::Relu);
    }
    if !of.include_top {
        return network.features(of);
    }
    let [height, width, _] = of.input_shape;
    let pool = height.min(width).div_ceil(4);
    network.then("average_pooling2d", AveragePooling2D::new([pool, pool]));
    network.then("flatten", Flatten);
    network.classified(of, "dense", Dense::new(of.classes).kernel_initializer(Initializer::he_normal()))
}
