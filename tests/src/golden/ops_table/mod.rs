//! Table that maps the ops of golden cases, with their attributes, to tensor methods.

mod array;
mod elementwise;
mod losses;
mod nn;
mod recurrent;
mod reduce;

use crate::golden::fixtures::number;
use gradlet_core::layers::Activation;
use gradlet_core::ops::conv2d::Padding;
use gradlet_core::{DType, Error, Result, Tensor};
use serde_json::Value as Json;

/// Arguments of a case's op.
pub struct Call<'a> {
    /// Names of the inputs.
    pub names: &'a [String],
    /// Inputs, in the order of `names`.
    pub tensors: &'a [Tensor],
    /// Attributes of the op.
    pub attributes: &'a Json,
}

/// An op of the cases.
pub struct Row {
    /// Name of the op in the cases.
    name: &'static str,
    /// Attributes that `forward` supports. `name=value` means that it supports only this value.
    attributes: &'static [&'static str],
    /// Function that computes the outputs, in the order of the case.
    pub forward: fn(&Call<'_>) -> Result<Vec<Tensor>>,
}

/// Returns the row for `op`. If there is none, the error is the name of the op. If the row does not support an attribute, the error is
/// `OP.ATTRIBUTE`.
pub fn find(op: &str, attributes: &Json) -> Result<&'static Row, String> {
    let row = TABLE.iter().copied().flatten().find(|row| row.name == op).ok_or(op)?;
    for (name, value) in attributes.as_object().into_iter().flatten() {
        let known = row.attributes.iter().any(|known| match known.split_once('=') {
            Some((known, only)) => known == name && value.to_string().trim_matches('"') == only,
            None => known == name,
        });
        if !known {
            return Err(format!("{op}.{name}"));
        }
        if let (true, Some(activation)) = (name.ends_with("activation"), value.as_str())
            && activation.parse::<Activation>().is_err()
        {
            return Err(format!("{op}.{name}={activation}"));
        }
    }
    Ok(row)
}

/// True if `op` is in the table of elementwise ops. These compute each element independently, except for the ops that clip by a norm.
pub fn is_elementwise(op: &str) -> bool {
    elementwise::ROWS.iter().any(|row| row.name == op)
}

impl Call<'_> {
    fn optional(&self, name: &str) -> Option<&Tensor> {
        self.names.iter().position(|other| other == name).map(|index| &self.tensors[index])
    }

    fn input(&self, name: &str) -> Result<&Tensor> {
        self.optional(name).ok_or_else(|| Error::message(format!("the case has no input {name:?}")))
    }

    fn unary(&self, op: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        Ok(vec![op(self.input("x")?)?])
    }

    fn binary(&self, op: impl Fn(&Tensor, &Tensor) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        Ok(vec![op(self.input("x")?, self.input("y")?)?])
    }

    fn flag(&self, name: &str) -> bool {
        self.attributes[name].as_bool().unwrap_or(false)
    }

    fn text(&self, name: &str) -> &str {
        self.attributes[name].as_str().unwrap_or_default()
    }

    /// Returns the attribute `name` as a list of integers. A single integer becomes a list of one. Returns `None` if the attribute is null
    /// or missing.
    fn numbers(&self, name: &str) -> Option<Vec<i64>> {
        match &self.attributes[name] {
            Json::Null => None,
            Json::Array(list) => Some(list.iter().filter_map(number).map(|number| number as i64).collect()),
            one => Some(number(one).map(|number| number as i64).into_iter().collect()),
        }
    }

    fn axis(&self) -> i32 {
        self.axis_or(-1)
    }

    fn axis_or(&self, other: i32) -> i32 {
        self.axis_of("axis").unwrap_or(other)
    }

    fn axis_of(&self, name: &str) -> Option<i32> {
        self.numbers(name).and_then(|numbers| numbers.first().map(|&axis| axis as i32))
    }

    fn dims(&self, name: &str) -> Vec<u32> {
        self.numbers(name).unwrap_or_default().into_iter().map(|dim| dim as u32).collect()
    }

    fn pair(&self, name: &str) -> [u32; 2] {
        match self.dims(name).as_slice() {
            [] => [1, 1],
            [both] => [*both, *both],
            [height, width, ..] => [*height, *width],
        }
    }

    /// Returns the activation that an attribute names: linear if it is null, and `default` if it is missing.
    fn activation(&self, name: &str, default: Activation) -> Result<Activation> {
        match self.attributes.get(name) {
            None => Ok(default),
            Some(name) => name.as_str().map_or(Ok(Activation::Linear), str::parse),
        }
    }

    /// Applies the activation that the attribute `activation` names to a result.
    fn activated(&self, y: Result<Tensor>) -> Result<Vec<Tensor>> {
        Ok(vec![self.activation("activation", Activation::Linear)?.call(&y?)?])
    }

    fn padding(&self) -> Result<Padding> {
        match self.text("padding") {
            "VALID" => Ok(Padding::Valid),
            "SAME" => Ok(Padding::Same),
            "EXPLICIT" => {
                let amount = |axis: usize, end: usize| self.attributes["explicit_paddings"][axis][end].as_u64().unwrap_or(0) as u32;
                Ok(Padding::Explicit { top: amount(1, 0), bottom: amount(1, 1), left: amount(2, 0), right: amount(2, 1) })
            }
            other => Err(Error::message(format!("no padding {other}"))),
        }
    }

    fn dtype(&self, name: &str) -> Result<DType> {
        let wanted = self.text(name).replace("float", "f").replace("uint", "u").replace("int", "i");
        DType::ALL.into_iter().find(|dtype| dtype.name() == wanted).ok_or_else(|| Error::message(format!("no element type {wanted}")))
    }

    /// Computes a reduction over the axes in the attribute `axis`. Without this attribute, it reduces all axes. With an empty list, it
    /// reduces none.
    fn reduce(&self, op: impl Fn(&Tensor, &[i32]) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        let axes = self.numbers("axis").map(|axes| axes.into_iter().map(|axis| axis as i32).collect::<Vec<_>>());
        match axes {
            // Equivalent: a reduction over a new axis of size 1.
            Some(axes) if axes.is_empty() => self.unary(|x| op(&x.expand_dims(-1)?, &[-1])?.reshape(x.dims())),
            axes => self.unary(|x| op(x, &axes.clone().unwrap_or_default())),
        }
    }
}

const fn row(name: &'static str, attributes: &'static [&'static str], forward: fn(&Call<'_>) -> Result<Vec<Tensor>>) -> Row {
    Row { name, attributes, forward }
}

/// All rows, grouped by kind of op.
static TABLE: [&[Row]; 6] = [elementwise::ROWS, reduce::ROWS, array::ROWS, nn::ROWS, recurrent::ROWS, losses::ROWS];

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::ops;
    use serde_json::json;

    /// Keras's names of the activations without arguments.
    const ACTIVATIONS: [&str; 31] = [
        "celu",
        "elu",
        "exponential",
        "gelu",
        "glu",
        "hard_shrink",
        "hard_sigmoid",
        "hard_silu",
        "hard_swish",
        "hard_tanh",
        "leaky_relu",
        "linear",
        "log_sigmoid",
        "log_softmax",
        "mish",
        "relu",
        "relu6",
        "selu",
        "sigmoid",
        "silu",
        "soft_shrink",
        "softmax",
        "softplus",
        "softsign",
        "sparse_plus",
        "sparse_sigmoid",
        "sparsemax",
        "squareplus",
        "swish",
        "tanh",
        "tanh_shrink",
    ];

    /// Op of a layer, with the names and the dimensions of its tensors.
    type Sample = (&'static str, [&'static str; 2], [&'static [u32]; 2]);

    #[test]
    fn layers_have_every_activation_of_keras() {
        let numbers = |dims: &[u32]| {
            let numbers: Vec<f32> = (0..dims.iter().product()).map(|number| (number as f32).sin()).collect();
            Tensor::new(&ops::portable_cpu(), &numbers, dims).unwrap()
        };
        let same = json!({ "padding": "SAME", "output_shape": [1, 4, 4, 2] });
        let layers: [Sample; 5] = [
            ("dense", ["x", "kernel"], [&[3, 4], &[4, 2]]),
            ("conv1d", ["x", "w"], [&[1, 4, 3], &[2, 3, 2]]),
            ("conv2d", ["x", "w"], [&[1, 4, 4, 3], &[2, 2, 3, 2]]),
            ("conv2d_transpose", ["x", "w"], [&[1, 4, 4, 3], &[2, 2, 2, 3]]),
            ("depthwise_conv2d", ["x", "w"], [&[1, 4, 4, 2], &[2, 2, 2, 1]]),
        ];
        for (op, names, dims) in layers {
            let (names, tensors) = (names.map(String::from), dims.map(numbers));
            let run = |activation: &str| {
                let mut attributes = if op == "dense" { json!({}) } else { same.clone() };
                if op != "conv2d_transpose" {
                    attributes.as_object_mut().unwrap().remove("output_shape");
                }
                attributes["activation"] = activation.into();
                let row = find(op, &attributes).unwrap();
                (row.forward)(&Call { names: &names, tensors: &tensors, attributes: &attributes }).unwrap().remove(0)
            };
            let plain = run("linear");
            for activation in ACTIVATIONS {
                let wanted = activation.parse::<Activation>().unwrap().call(&plain).unwrap();
                assert_eq!(run(activation).to_vec::<f32>().unwrap(), wanted.to_vec::<f32>().unwrap(), "{op} {activation}");
            }
        }
        assert_eq!(find("dense", &json!({ "activation": "rleu" })).err().as_deref(), Some("dense.activation=rleu"));
    }
}
