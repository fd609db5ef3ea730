//! The names of a traced graph's nodes: where they were made, and the op, called and numbered as TensorFlow does it.

use crate::base::sync::Shared;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// `SparseCategoricalCrossentropy` as `sparse_categorical_crossentropy`.
pub(crate) fn snake(name: &str) -> String {
    let mut snake = String::new();
    let mut before = false;
    for character in name.chars() {
        if character.is_uppercase() && before {
            snake.push('_');
        }
        before = character.is_lowercase();
        snake.extend(character.to_lowercase());
    }
    snake
}

/// What TensorFlow calls ops that it does not call as we do.
const TYPES: [(&str, &str); 35] = [
    ("adam_step", "ResourceApplyAdam"),
    ("add", "AddV2"),
    ("argmax", "ArgMax"),
    ("argmin", "ArgMin"),
    ("avg_pool2d", "AvgPool"),
    ("avg_pool2d_grad", "AvgPoolGrad"),
    ("call", "PartitionedCall"),
    ("concat", "ConcatV2"),
    ("cond", "If"),
    ("conv2d", "Conv2D"),
    ("conv2d_filter_grad", "Conv2DBackpropFilter"),
    ("conv2d_input_grad", "Conv2DBackpropInput"),
    ("dense", "_FusedMatMul"),
    ("depthwise_conv2d", "DepthwiseConv2dNative"),
    ("depthwise_conv2d_filter_grad", "DepthwiseConv2dNativeBackpropFilter"),
    ("depthwise_conv2d_input_grad", "DepthwiseConv2dNativeBackpropInput"),
    ("div", "RealDiv"),
    ("divide_no_nan", "DivNoNan"),
    ("floordiv", "FloorDiv"),
    ("floormod", "FloorMod"),
    ("gather", "GatherV2"),
    ("matmul", "MatMul"),
    ("matmul_adam", "MatMulAdam"),
    ("matmul_sgd", "MatMulSgd"),
    ("max_pool2d", "MaxPool"),
    ("max_pool2d_grad", "MaxPoolGrad"),
    ("multiply_no_nan", "MulNoNan"),
    ("pad", "PadV2"),
    ("print", "PrintV2"),
    ("select", "SelectV2"),
    ("sgd_step", "ResourceApplyGradientDescent"),
    ("sparse_softmax_cross_entropy", "SparseSoftmaxCrossEntropyWithLogits"),
    ("top_k", "TopKV2"),
    ("truncatediv", "TruncateDiv"),
    ("while_loop", "While"),
];

/// The type that TensorFlow gives an op of this name; where it has none, the name in its spelling: `relu_grad` is `ReluGrad`.
///
/// ```
/// use gradlet_core::names::op_type;
/// assert_eq!(["matmul", "add", "relu_grad"].map(op_type), ["MatMul", "AddV2", "ReluGrad"]);
/// ```
pub fn op_type(op: &str) -> String {
    if let Ok(index) = TYPES.binary_search_by_key(&op, |(own, _)| own) {
        return TYPES[index].1.into();
    }
    let mut camel = String::new();
    for word in op.split('_') {
        let mut letters = word.chars();
        camel.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        camel += letters.as_str();
    }
    camel
}

/// Gives names that differ.
#[derive(Default)]
pub(crate) struct Names {
    /// The scopes that are open, each with a `/` after it.
    path: String,
    /// The lengths of the paths around.
    around: Vec<usize>,
    counts: BTreeMap<String, usize>,
    /// The layers of each name, by what tells them apart.
    layers: BTreeMap<String, Vec<Option<usize>>>,
}

impl Names {
    pub(crate) fn enter(&mut self, scope: &str) {
        self.around.push(self.path.len());
        self.path += scope;
        self.path.push('/');
    }

    /// Enters the scope of a layer. Others of its name have scopes of their own, such as `dense_1`.
    pub(crate) fn enter_layer(&mut self, name: &str, id: Option<usize>) {
        let known = self.layers.entry(format!("{}{name}", self.path)).or_default();
        let index = known.iter().position(|other| *other == id).unwrap_or(known.len());
        if index == known.len() {
            known.push(id);
        }
        if index == 0 { self.enter(name) } else { self.enter(&format!("{name}_{index}")) }
    }

    pub(crate) fn leave(&mut self) {
        self.path.truncate(self.around.pop().unwrap_or(0));
    }

    /// A name for a node of this op here: `dense/MatMul`, then `dense/MatMul_1`.
    pub(crate) fn node(&mut self, op: &str) -> Shared<str> {
        let name = format!("{}{}", self.path, op_type(op));
        let count = self.counts.entry(name.clone()).or_insert(0);
        *count += 1;
        if *count == 1 { name.into() } else { format!("{name}_{}", *count - 1).into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_op_has_a_type_of_its_own() {
        assert!(TYPES.is_sorted());
        let types = crate::ops::KERNELS.iter().map(|kernel| (op_type(kernel.def.name), kernel.def.name));
        let mut known = BTreeMap::new();
        for (of, name) in types {
            assert_eq!(*known.entry(of).or_insert(name), name);
        }
    }

    #[test]
    fn types_become_names() {
        assert_eq!(["MeanSquaredError", "RMSprop", "Adam"].map(snake), ["mean_squared_error", "rmsprop", "adam"]);
    }

    #[test]
    fn names_differ_and_say_where() {
        let mut names = Names::default();
        assert_eq!(&*names.node("add"), "AddV2");
        names.enter("model");
        names.enter("dense");
        assert_eq!(&*names.node("add"), "model/dense/AddV2");
        assert_eq!(&*names.node("add"), "model/dense/AddV2_1");
        names.leave();
        assert_eq!(&*names.node("mul"), "model/Mul");
        names.leave();
        assert_eq!(&*names.node("add"), "AddV2_1");
    }

    #[test]
    fn layers_of_one_name_are_told_apart() {
        let mut names = Names::default();
        let named = [Some(7), Some(9), Some(7), None].map(|id| {
            names.enter_layer("dense", id);
            let name = names.node("matmul");
            names.leave();
            name
        });
        assert_eq!(named.each_ref().map(|name| &**name), ["dense/MatMul", "dense_1/MatMul", "dense/MatMul_1", "dense_2/MatMul"]);
    }
}
