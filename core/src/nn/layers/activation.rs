//! Activations that layers apply to their output: Keras's activations, by their names.

use crate::base::error::{Error, Result};
use crate::tensor::Tensor;
use core::str::FromStr;

macro_rules! activations {
    ($($(#[$doc:meta])* $variant:ident $($name:literal)|+ => $call:expr;)*) => {
        /// Activation that a layer applies to its output. `"relu".parse::<Activation>()` finds one by Keras's name.
        #[derive(Clone, Copy, Debug, Default)]
        pub enum Activation {
            $($(#[$doc])* $variant,)*
            /// Any other function. It takes the output of the layer before the activation, and returns the activated output.
            Function(fn(&Tensor) -> Result<Tensor>),
        }

        impl Activation {
            /// Applies the activation to `x` and returns the result.
            pub fn call(self, x: &Tensor) -> Result<Tensor> {
                let function: fn(&Tensor) -> Result<Tensor> = match self {
                    $(Activation::$variant => $call,)*
                    Activation::Function(function) => function,
                };
                function(x)
            }
        }

        impl FromStr for Activation {
            type Err = Error;

            fn from_str(name: &str) -> Result<Activation> {
                match name {
                    $($($name)|+ => Ok(Activation::$variant),)*
                    _ => Err(Error::message(concat!("unknown activation; the known ones are", $($(" ", $name),+),*))),
                }
            }
        }
    };
}

activations! {
    /// Identity.
    #[default]
    Linear "linear" => |x| Ok(x.clone());
    /// [`Tensor::celu`] with alpha 1.
    Celu "celu" => |x| x.celu(1.0);
    /// [`Tensor::elu`] with alpha 1.
    Elu "elu" => |x| x.elu(1.0);
    /// [`Tensor::exp`].
    Exponential "exponential" => Tensor::exp;
    /// [`Tensor::gelu`], not approximated.
    Gelu "gelu" => |x| x.gelu(false);
    /// [`Tensor::glu`] over the last axis.
    Glu "glu" => |x| x.glu(-1);
    /// [`Tensor::hard_shrink`] with threshold 0.5.
    HardShrink "hard_shrink" => |x| x.hard_shrink(0.5);
    /// [`Tensor::hard_sigmoid`].
    HardSigmoid "hard_sigmoid" => Tensor::hard_sigmoid;
    /// [`Tensor::hard_silu`].
    HardSilu "hard_silu" | "hard_swish" => Tensor::hard_silu;
    /// [`Tensor::hard_tanh`].
    HardTanh "hard_tanh" => Tensor::hard_tanh;
    /// [`Tensor::leaky_relu`] with alpha 0.2.
    LeakyRelu "leaky_relu" => |x| x.leaky_relu(0.2);
    /// [`Tensor::log_sigmoid`].
    LogSigmoid "log_sigmoid" => Tensor::log_sigmoid;
    /// [`Tensor::log_softmax`] over the last axis.
    LogSoftmax "log_softmax" => |x| x.log_softmax(-1);
    /// [`Tensor::mish`].
    Mish "mish" => Tensor::mish;
    /// [`Tensor::relu`].
    Relu "relu" => Tensor::relu;
    /// [`Tensor::relu6`].
    Relu6 "relu6" => Tensor::relu6;
    /// [`Tensor::selu`].
    Selu "selu" => Tensor::selu;
    /// [`Tensor::sigmoid`].
    Sigmoid "sigmoid" => Tensor::sigmoid;
    /// [`Tensor::silu`].
    Silu "silu" | "swish" => Tensor::silu;
    /// [`Tensor::soft_shrink`] with threshold 0.5.
    SoftShrink "soft_shrink" => |x| x.soft_shrink(0.5);
    /// [`Tensor::softmax`] over the last axis.
    Softmax "softmax" => |x| x.softmax(-1);
    /// [`Tensor::softplus`].
    Softplus "softplus" => Tensor::softplus;
    /// [`Tensor::softsign`].
    Softsign "softsign" => Tensor::softsign;
    /// [`Tensor::sparse_plus`].
    SparsePlus "sparse_plus" => Tensor::sparse_plus;
    /// [`Tensor::sparsemax`].
    Sparsemax "sparsemax" => Tensor::sparsemax;
    /// [`Tensor::sparse_sigmoid`].
    SparseSigmoid "sparse_sigmoid" => Tensor::sparse_sigmoid;
    /// [`Tensor::squareplus`] with b 4.
    Squareplus "squareplus" => |x| x.squareplus(4.0);
    /// [`Tensor::tanh`].
    Tanh "tanh" => Tensor::tanh;
    /// [`Tensor::tanh_shrink`].
    TanhShrink "tanh_shrink" => Tensor::tanh_shrink;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    #[test]
    fn names_are_keras_names() {
        let x = Tensor::new(&ops::portable_cpu(), &[-1.0f32, 0.5], &[2]).unwrap();
        let of = |name: &str| name.parse::<Activation>().unwrap().call(&x).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(of("linear"), [-1.0, 0.5]);
        assert_eq!(of("relu"), [0.0, 0.5]);
        assert_eq!(of("leaky_relu"), [-0.2, 0.5]);
        assert_eq!(of("glu"), [-0.622_459_35]);
        assert_eq!(of("swish"), of("silu"));
        assert_eq!(Activation::Function(Tensor::relu).call(&x).unwrap().to_vec::<f32>().unwrap(), [0.0, 0.5]);
        let error = "rleu".parse::<Activation>().unwrap_err();
        assert!(alloc::format!("{error}").contains(" linear celu elu "), "{error}");
    }
}
