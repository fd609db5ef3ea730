//! The predefined models of the `gradlet` command.

use gradlet_core::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Padding, Sequential};
use gradlet_core::{Error, Result, Scope, Shape};
use std::fmt;
use std::str::FromStr;

/// Creates a small CNN for images `[batch, 28, 28, 1]` of ten classes. It consists of two convolutions with pooling and two dense
/// layers, with 26,698 parameters. It outputs logits.
pub fn cnn() -> Sequential {
    let conv = |filters| Conv2D::new(filters, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
    Sequential::new()
        .with(conv(8))
        .with(MaxPool2D::new([2, 2]))
        .with(conv(16))
        .with(MaxPool2D::new([2, 2]))
        .with(Flatten)
        .with(Dense::new(32).activation(Activation::Relu))
        .with(Dense::new(10))
}

/// Creates a multilayer perceptron with ReLU for inputs `[batch, features]`. It outputs logits.
pub fn mlp(hidden: &[u32], classes: u32) -> Sequential {
    let dense = |model: Sequential, &units| model.with(Dense::new(units).activation(Activation::Relu));
    hidden.iter().fold(Sequential::new(), dense).with(Dense::new(classes))
}

/// A model by name, as accepted by `gradlet train` and `gradlet export`.
///
/// ```
/// use gradlet::layers::Module;
/// use gradlet::Eager;
/// use gradlet::applications::ModelSpec;
/// let spec: ModelSpec = "mlp:64-32-10".parse()?;
/// let model = spec.build(&Eager::new(&gradlet::cpu()))?;
/// assert_eq!(model.variables().len(), 4);
/// assert_eq!(spec.to_string(), "mlp:64-32-10");
/// # Ok::<(), gradlet::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSpec {
    /// The model of [`cnn`].
    Cnn,
    /// The model of [`mlp`].
    Mlp {
        /// Number of features of an input.
        inputs: u32,
        /// Number of units of each hidden layer.
        hidden: Vec<u32>,
        /// Number of units of the last layer.
        classes: u32,
    },
}

impl ModelSpec {
    /// Returns the shape of an input, without the batch.
    pub fn input(&self) -> Vec<u32> {
        match self {
            ModelSpec::Cnn => vec![28, 28, 1],
            ModelSpec::Mlp { inputs, .. } => vec![*inputs],
        }
    }

    /// Builds the model and creates its variables. Their initial values depend on the seed of the scope.
    pub fn build(&self, scope: &dyn Scope) -> Result<Sequential> {
        let model = match self {
            ModelSpec::Cnn => cnn(),
            ModelSpec::Mlp { hidden, classes, .. } => mlp(hidden, *classes),
        };
        model.build(scope, &Shape::new(&[&[1], &self.input()[..]].concat())?)?;
        Ok(model)
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelSpec::Cnn => f.write_str("cnn"),
            ModelSpec::Mlp { inputs, hidden, classes } => {
                write!(f, "mlp:{inputs}")?;
                hidden.iter().chain([classes]).try_for_each(|units| write!(f, "-{units}"))
            }
        }
    }
}

impl FromStr for ModelSpec {
    type Err = Error;

    /// Parses `cnn`, `mlp` (short for `mlp:784-100-10`), or `mlp:` followed by the inputs, the units of the hidden layers,
    /// and the classes.
    fn from_str(name: &str) -> Result<ModelSpec> {
        let units = match name {
            "cnn" => return Ok(ModelSpec::Cnn),
            "mlp" => "784-100-10",
            _ => name.strip_prefix("mlp:").unwrap_or_default(),
        };
        let unknown = || Error::message(format!("there is no model {name:?}: it must be cnn, mlp, or units as in mlp:784-100-10"));
        let units: Option<Vec<u32>> =
            units.split('-').map(|units| units.parse().ok().filter(|&units| (1..=1 << 20).contains(&units))).collect();
        match units.ok_or_else(unknown)?[..] {
            [inputs, ref hidden @ .., classes] => Ok(ModelSpec::Mlp { inputs, hidden: hidden.to_vec(), classes }),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::Eager;
    use gradlet_core::layers::Module;

    fn parameters(name: &str) -> usize {
        let model = name.parse::<ModelSpec>().unwrap().build(&Eager::new(&crate::compute::devices::cpu())).unwrap();
        model.variables().iter().map(|variable| variable.tensor_type().unwrap().shape.elements().unwrap()).sum()
    }

    #[test]
    fn sizes() {
        assert_eq!(parameters("cnn"), 26_698);
        assert_eq!(parameters("mlp"), 784 * 100 + 100 + 1000 + 10);
        assert_eq!(parameters("mlp:64-32-10"), 64 * 32 + 32 + 320 + 10);
    }

    #[test]
    fn names() {
        for name in ["cnn", "mlp:3-2", "mlp:64-32-10"] {
            assert_eq!(name.parse::<ModelSpec>().unwrap().to_string(), name);
        }
        for name in ["", "mlp:", "mlp:3", "mlp:3-0", "mlp:3-x", "cnn:3"] {
            assert!(name.parse::<ModelSpec>().unwrap_err().to_string().contains("it must be"), "{name}");
        }
    }
}
