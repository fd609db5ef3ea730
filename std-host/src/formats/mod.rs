pub mod example;
pub mod idx;
pub mod npy;
pub mod proto;
pub mod raw;
pub mod tensor_proto;
pub mod tfrecord;
pub mod weights;
