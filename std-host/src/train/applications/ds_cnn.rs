//! DS-CNN: a network of depthwise separable convolutions for keyword spotting, with the size that MLPerf Tiny uses. (Zhang et al.,
//! "Hello Edge: Keyword Spotting on Microcontrollers", 2017.)

use super::{Application, Network, conv};
use gradlet_core::layers::{AveragePooling2D, Dense, DepthwiseConv2D, Dropout, Flatten, Functional, Padding};

/// Returns MLPerf Tiny's network for keyword spotting. The defaults are 12 words and spectrograms of 49 × 10 × 1.
pub fn ds_cnn() -> Application {
    Application::new(network, [49, 10, 1], 12)
}

fn network(of: &Application) -> Functional {
    let filters = of.scaled(64);
    let mut network = Network::new("ds_cnn");
    network.then("conv2d", conv(filters, [10, 4], 2));
    network.normalized_relu();
    network.then("dropout", Dropout::new(0.2));
    for _ in 0..4 {
        network.then("depthwise_conv2d", DepthwiseConv2D::new([3, 3]).padding(Padding::Same));
        network.normalized_relu();
        network.then("conv2d", conv(filters, [1, 1], 1));
        network.normalized_relu();
    }
    if !of.include_top {
        return network.features(of);
    }
    let [height, width, _] = of.input_shape;
    network.then("dropout", Dropout::new(0.4));
    network.then("average_pooling2d", AveragePooling2D::new([height, width].map(|size| size.div_ceil(2))));
    network.then("flatten", Flatten);
    network.classified(of, "dense", Dense::new(of.classes))
}
