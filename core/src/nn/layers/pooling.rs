//! Pooling: Keras's `MaxPooling1D`, `MaxPooling2D`, `AveragePooling1D` and `AveragePooling2D`.

use super::affine::options;
use super::{Layer, Module, Padding};
use crate::base::error::Result;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;

macro_rules! pooling {
    ($($layer:ident $name:literal $size:ty: $pool:ident, $what:literal, $takes:literal, $example:literal;)*) => {$(
        #[doc = concat!("Pooling layer that returns the ", $what, " of windows over ", $takes, ", for each channel.")]
        ///
        /// ```
        #[doc = concat!("use gradlet_core::layers::{Layer, ", stringify!($layer), "};")]
        /// use gradlet_core::{Eager, Scope, Tensor, ops};
        /// let scope = Eager::new(&ops::portable_cpu());
        #[doc = $example]
        /// # Ok::<(), gradlet_core::Error>(())
        /// ```
        #[derive(Clone, Copy, Debug, Module)]
        pub struct $layer {
            pool_size: $size,
            strides: $size,
            padding: Padding,
        }

        impl $layer {
            /// Creates a layer with windows of this size, which are adjacent and do not overlap. There is no padding.
            pub fn new(pool_size: $size) -> $layer {
                $layer { pool_size, strides: pool_size, padding: Padding::Valid }
            }
        }

        options! { $layer {
            /// Sets the strides, the distances between windows (default: the size of the windows).
            strides: $size,
            /// Sets the padding: none or [`Padding::Same`] (default none).
            padding: Padding,
        }}

        impl Layer for $layer {
            fn name(&self) -> &str {
                $name
            }

            fn call(&self, _: &dyn Scope, x: &Tensor) -> Result<Tensor> {
                x.$pool(self.pool_size, self.strides, self.padding)
            }
        }
    )*};
}

pooling! {
    MaxPooling1D "max_pooling1d" u32: max_pool1d, "maxima", "sequences `[batch, steps, channels]`",
        "let y = MaxPooling1D::new(2).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 7, 3])?)?;\n\
        assert_eq!(y.dims(), [1, 3, 3]);";
    MaxPooling2D "max_pooling2d" [u32; 2]: max_pool2d, "maxima", "images `[batch, height, width, channels]`",
        "let y = MaxPooling2D::new([2, 2]).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 7, 6, 3])?)?;\n\
        assert_eq!(y.dims(), [1, 3, 3, 3]);";
    AveragePooling1D "average_pooling1d" u32: avg_pool1d, "averages", "sequences `[batch, steps, channels]`",
        "let y = AveragePooling1D::new(2).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 7, 3])?)?;\n\
        assert_eq!(y.dims(), [1, 3, 3]);";
    AveragePooling2D "average_pooling2d" [u32; 2]: avg_pool2d, "averages", "images `[batch, height, width, channels]`",
        "let y = AveragePooling2D::new([2, 2]).call(&scope, &Tensor::full(&scope.device(), 1.0f32, &[1, 7, 6, 3])?)?;\n\
        assert_eq!(y.dims(), [1, 3, 3, 3]);";
}

/// Keras's other name for [`MaxPooling2D`].
pub type MaxPool2D = MaxPooling2D;
