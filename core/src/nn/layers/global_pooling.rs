//! Pooling of whole sequences and images: Keras's `GlobalAveragePooling1D`, `GlobalAveragePooling2D`, `GlobalMaxPooling1D` and
//! `GlobalMaxPooling2D`.

use super::affine::options;
use super::{Layer, Module, inputs};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

macro_rules! global_pooling {
    ($($layer:ident $name:literal: $reduce:ident over $axes:expr, $check:ident, $what:literal;)*) => {$(
        #[doc = concat!("Pooling layer that returns the ", $what, ", in the shape `[batch, channels]`.")]
        #[derive(Clone, Copy, Debug, Default, Module)]
        pub struct $layer {
            keepdims: bool,
        }

        options! { $layer {
            /// Sets whether the output keeps each reduced axis with size 1 (default false).
            keepdims: bool,
        }}

        impl Layer for $layer {
            fn name(&self) -> &str {
                $name
            }

            fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
                inputs::$check(self.name(), x)?;
                x.$reduce(&$axes, self.keepdims)
            }
        }
    )*};
}

global_pooling! {
    GlobalAveragePooling1D "global_average_pooling1d": mean over [1], sequences, "average of sequences `[batch, steps, channels]`";
    GlobalAveragePooling2D "global_average_pooling2d": mean over [1, 2], images, "average of images `[batch, height, width, channels]`";
    GlobalMaxPooling1D "global_max_pooling1d": max over [1], sequences, "maximum of sequences `[batch, steps, channels]`";
    GlobalMaxPooling2D "global_max_pooling2d": max over [1, 2], images, "maximum of images `[batch, height, width, channels]`";
}
