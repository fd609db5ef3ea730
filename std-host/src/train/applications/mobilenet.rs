//! MobileNet, version 1, as in Keras. (Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile Vision
//! Applications", 2017.)

use super::{Application, Network, conv, depthwise};
use gradlet_core::layers::{BatchNormalization, Dropout, Functional, GlobalAveragePooling2D, ReLU, Reshape, ZeroPadding2D};

/// Returns Keras's `MobileNet`. The defaults are 1,000 classes and images of 224 × 224 × 3. Pixels range from −1 to 1.
pub fn mobilenet() -> Application {
    Application { smallest: 32, ..Application::new(network, [224, 224, 3], 1000) }
}

/// Number of filters and stride of each block.
const BLOCKS: [(u32, u32); 13] =
    [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1), (512, 1), (512, 1), (512, 1), (512, 1), (1024, 2), (1024, 1)];

fn network(of: &Application) -> Functional {
    let mut network = Network::new(&format!("mobilenet_{:.2}_{}", of.alpha, of.input_shape[0]));
    network.then("conv1", conv(of.scaled(32), [3, 3], 2).use_bias(false));
    network.normalized_relu6("conv1");
    for (index, (filters, stride)) in (1..).zip(BLOCKS) {
        if stride > 1 {
            network.then(&format!("conv_pad_{index}"), ZeroPadding2D::new([[0, 1], [0, 1]]));
        }
        let [depthwise_name, pointwise_name] = ["dw", "pw"].map(|kind| format!("conv_{kind}_{index}"));
        network.then(&depthwise_name, depthwise(stride));
        network.normalized_relu6(&depthwise_name);
        network.then(&pointwise_name, conv(of.scaled(filters), [1, 1], 1).use_bias(false));
        network.normalized_relu6(&pointwise_name);
    }
    if !of.include_top {
        return network.features(of);
    }
    network.then("global_average_pooling2d", GlobalAveragePooling2D::default().keepdims(true));
    network.then("dropout", Dropout::new(1e-3));
    network.then("conv_preds", conv(of.classes, [1, 1], 1));
    network.then("reshape_2", Reshape::new(&[of.classes.into()]));
    network.then("predictions", of.classifier_activation);
    network.model
}

impl Network {
    fn normalized_relu6(&mut self, name: &str) {
        self.then(&format!("{name}_bn"), BatchNormalization::default());
        self.then(&format!("{name}_relu"), ReLU::default().max_value(6.0));
    }
}
