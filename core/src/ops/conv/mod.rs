//! Convolution and pooling over images, with their gradients.

pub mod avg_pool2d;
pub mod avg_pool2d_grad;
pub mod conv2d;
pub mod conv2d_filter_grad;
pub mod conv2d_input_grad;
pub mod conv2d_max_pool2d;
pub mod conv2d_max_pool2d_filter_grad;
pub mod conv2d_max_pool2d_input_grad;
pub mod depthwise_conv2d;
pub mod depthwise_conv2d_filter_grad;
pub mod depthwise_conv2d_input_grad;
pub mod max_pool2d;
pub mod max_pool2d_grad;
pub mod max_pool2d_pick;
