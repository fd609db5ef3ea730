//! MobileNetV2, as in Keras. (Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018.)

use super::{Application, Network, conv, depthwise};
use gradlet_core::layers::{Add, BatchNormalization, Dense, Functional, GlobalAveragePooling2D, ReLU, ZeroPadding2D};

/// Returns Keras's `MobileNetV2`. The defaults are 1,000 classes and images of 224 × 224 × 3. Pixels range from −1 to 1.
pub fn mobilenet_v2() -> Application {
    Application { smallest: 32, ..Application::new(network, [224, 224, 3], 1000) }
}

/// Groups of blocks: expansion factor, filters, number of blocks, and stride of the first block.
const BLOCKS: [(u32, u32, u32, u32); 7] =
    [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)];

fn network(of: &Application) -> Functional {
    let [height, width, _] = of.input_shape;
    let mut network = Network::new(&format!("mobilenetv2_{:.2}_{height}", of.alpha));
    let mut channels = divisible(32.0 * of.alpha);
    network.then("Conv1", conv(channels, [3, 3], 2).use_bias(false));
    network.normalized("bn_Conv1", Some("Conv1_relu"));
    let mut size = [height, width].map(|size| size.div_ceil(2));
    let mut index = 0;
    for (expansion, filters, number, first_stride) in BLOCKS {
        for repetition in 0..number {
            let stride = if repetition == 0 { first_stride } else { 1 };
            let filters = divisible((f64::from(filters) * of.alpha).floor());
            network.block(index, Block { channels, size, expansion, filters, stride });
            channels = filters;
            size = size.map(|size| size.div_ceil(stride));
            index += 1;
        }
    }
    let last = if of.alpha > 1.0 { divisible(1280.0 * of.alpha) } else { 1280 };
    network.then("Conv_1", conv(last, [1, 1], 1).use_bias(false));
    network.normalized("Conv_1_bn", Some("out_relu"));
    if !of.include_top {
        return network.features(of);
    }
    network.then("global_average_pooling2d", GlobalAveragePooling2D::default());
    network.classified(of, "predictions", Dense::new(of.classes))
}

/// Rounds `filters` to the nearest multiple of 8, or up if that would be less than nine tenths of `filters`.
fn divisible(filters: f64) -> u32 {
    let rounded = ((filters + 4.0) as u32 / 8 * 8).max(8);
    if f64::from(rounded) < 0.9 * filters { rounded + 8 } else { rounded }
}

/// An inverted residual block.
struct Block {
    channels: u32,
    /// Height and width of the input.
    size: [u32; 2],
    expansion: u32,
    filters: u32,
    stride: u32,
}

impl Network {
    fn normalized(&mut self, name: &str, relu: Option<&str>) {
        self.then(name, BatchNormalization::default().momentum(0.999));
        if let Some(relu) = relu {
            self.then(relu, ReLU::default().max_value(6.0));
        }
    }

    fn block(&mut self, index: u32, Block { channels, size, expansion, filters, stride }: Block) {
        let prefix = if index == 0 { "expanded_conv".into() } else { format!("block_{index}") };
        let name = |part: &str| format!("{prefix}_{part}");
        let shortcut = self.x;
        if index > 0 {
            self.then(&name("expand"), conv(expansion * channels, [1, 1], 1).use_bias(false));
            self.normalized(&name("expand_BN"), Some(&name("expand_relu")));
        }
        if stride > 1 {
            // An odd size is padded on both sides, an even size only at the end.
            self.then(&name("pad"), ZeroPadding2D::new(size.map(|size| [size % 2, 1])));
        }
        self.then(&name("depthwise"), depthwise(stride));
        self.normalized(&name("depthwise_BN"), Some(&name("depthwise_relu")));
        self.then(&name("project"), conv(filters, [1, 1], 1).use_bias(false));
        self.normalized(&name("project_BN"), None);
        if channels == filters && stride == 1 {
            self.x = self.model.merge(&name("add"), Add, &[shortcut, self.x]);
        }
    }
}
