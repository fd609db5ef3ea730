//! Files and messages of other programs: NumPy, safetensors, IDX, and TensorFlow's protocol buffers.

pub mod example;
pub mod idx;
pub mod npy;
#[cfg(feature = "npz")]
mod npz;
pub mod proto;
pub mod raw;
mod safetensors;
pub mod tensor_proto;
#[cfg(feature = "tflite")]
pub(crate) mod tflite;
pub mod tfrecord;
pub mod weights;
