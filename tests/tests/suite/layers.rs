//! Compares layers with Keras's: outputs, and names, shapes and order of the weights. The script in `fixtures/layers` made the fixtures.

use gradlet_core::device::AlignedBytes;
use gradlet_core::layers::*;
use gradlet_core::tensor::Bool;
use gradlet_core::{Artifact, DType, DTypePolicy, Eager, Function, Program, Result, Scope, Session, Tensor, Variable, ops};
use serde_json::Value as Json;

/// A layer in the form that the cases need: its variables, and its outputs for several inputs and the case's options.
trait Subject: Module {
    fn name(&self) -> &str;
    fn give(&self, scope: &dyn Scope, inputs: &[Tensor], call: &Json) -> Result<Vec<Tensor>>;
}

/// A layer with one input.
#[derive(Module)]
struct Plain<L>(L);

impl<L: Layer> Subject for Plain<L> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn give(&self, scope: &dyn Scope, inputs: &[Tensor], call: &Json) -> Result<Vec<Tensor>> {
        let scope = scope.with_training(call["training"].as_bool().unwrap_or(false));
        Ok(vec![self.0.apply(&scope, &inputs[0])?])
    }
}

/// A recurrent layer. If the flag is true, it also returns its states.
struct Recurrent<C>(RNN<C>, bool);

impl<C: RNNCell> Module for Recurrent<C> {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.0.visit(visitor);
    }
}

impl<C: RNNCell> Subject for Recurrent<C> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn give(&self, scope: &dyn Scope, inputs: &[Tensor], call: &Json) -> Result<Vec<Tensor>> {
        let mask = flags(&scope.device(), &call["mask"]);
        let sequence = self.0.run(scope, &inputs[0], None, mask.as_ref())?;
        let states = if self.1 { sequence.states } else { Vec::new() };
        Ok([vec![sequence.output], states].concat())
    }
}

#[derive(Module)]
struct Attention(MultiHeadAttention);

impl Subject for Attention {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn give(&self, scope: &dyn Scope, inputs: &[Tensor], call: &Json) -> Result<Vec<Tensor>> {
        let mask = flags(&scope.device(), &call["attention_mask"]);
        let mut on = Attend::new(&inputs[0], &inputs[1]).use_causal_mask(call["use_causal_mask"].as_bool().unwrap_or(false));
        if let Some(key) = inputs.get(2) {
            on = on.key(key);
        }
        if let Some(mask) = &mask {
            on = on.attention_mask(mask);
        }
        let (y, scores) = self.0.attend(scope, &on)?;
        Ok(if call["return_attention_scores"].as_bool().unwrap_or(false) { vec![y, scores] } else { vec![y] })
    }
}

fn plain(layer: impl Layer + 'static) -> Box<dyn Subject> {
    Box::new(Plain(layer))
}

fn recurrent(layer: RNN<impl RNNCell + 'static>, states: bool) -> Box<dyn Subject> {
    Box::new(Recurrent(layer, states))
}

fn attention(layer: MultiHeadAttention) -> Box<dyn Subject> {
    Box::new(Attention(layer))
}

/// Creates the layer of a case.
fn subject(case: &str) -> Box<dyn Subject> {
    let same = Padding::Same;
    match case {
        "dense" => plain(Dense::new(4).activation(Activation::Tanh)),
        "conv1d causal" => plain(Conv1D::new(4, 3).padding(Padding1D::Causal).dilation_rate(2).activation(Activation::Relu)),
        "conv2d same" => plain(Conv2D::new(4, [3, 2]).strides([2, 1]).padding(same)),
        "conv2d groups" => plain(Conv2D::new(6, [3, 3]).groups(2).use_bias(false)),
        "depthwise" => plain(DepthwiseConv2D::new([3, 3]).strides([2, 2]).padding(same).depth_multiplier(2)),
        "separable" => plain(SeparableConv2D::new(5, [3, 3]).depth_multiplier(2).activation(Activation::Elu)),
        "transpose" => plain(Conv2DTranspose::new(4, [3, 3]).strides([2, 2]).padding(same)),
        "transpose valid" => plain(Conv2DTranspose::new(4, [2, 5]).strides([3, 3])),
        "transpose more" => plain(Conv2DTranspose::new(4, [3, 3]).strides([2, 2]).output_padding([1, 1])),
        "transpose less" => plain(Conv2DTranspose::new(4, [3, 3]).strides([2, 2]).padding(same).output_padding([0, 0])),
        "max1d" => plain(MaxPooling1D::new(2)),
        "max2d" => plain(MaxPooling2D::new([3, 2]).strides([2, 2]).padding(same)),
        "average1d" => plain(AveragePooling1D::new(2).padding(same)),
        "average2d" => plain(AveragePooling2D::new([3, 2])),
        "global average 1d" => plain(GlobalAveragePooling1D::default()),
        "global average 2d" => plain(GlobalAveragePooling2D::default().keepdims(true)),
        "global max 1d" => plain(GlobalMaxPooling1D::default()),
        "global max 2d" => plain(GlobalMaxPooling2D::default()),
        "batch norm" => plain(BatchNormalization::default()),
        "batch norm training" => plain(BatchNormalization::default().axis(1).momentum(0.9).scale(false)),
        "layer norm" => plain(LayerNormalization::default()),
        "layer norm axes" => plain(LayerNormalization::default().axis(&[3, 1]).center(false)),
        "group norm" => plain(GroupNormalization::new(2)),
        "instance norm" => plain(GroupNormalization::instance().axis(1)),
        "upsampling" => plain(UpSampling2D::new([2, 3])),
        "upsampling bilinear" => plain(UpSampling2D::new([3, 2]).interpolation(Resize::Bilinear)),
        "zero padding" => plain(ZeroPadding2D::new([[0, 1], [2, 3]])),
        "permute" => plain(Permute::new(&[3, 1, 2])),
        "reshape" => plain(Reshape::new(&[-1, 3])),
        "flatten" => plain(Flatten),
        "relu" => plain(ReLU::default().max_value(1.0).negative_slope(0.1).threshold(0.25)),
        "relu6" => plain(ReLU::default().max_value(6.0)),
        "leaky relu" => plain(LeakyReLU::default()),
        "softmax" => plain(Softmax::default().axis(1)),
        "activation" => plain(Activation::Gelu),
        "simple rnn" => recurrent(SimpleRNN::new(4).return_sequences(true).activation(Activation::Relu), false),
        "lstm" => recurrent(LSTM::new(4), true),
        "lstm no bias" => recurrent(LSTM::new(4).use_bias(false).recurrent_activation(Activation::HardSigmoid).go_backwards(true), false),
        "lstm masked" => recurrent(LSTM::new(3).return_sequences(true).zero_output_for_mask(true), false),
        "gru" => recurrent(GRU::new(4).return_sequences(true), true),
        "gru before" => recurrent(GRU::new(4).reset_after(false), false),
        "gru no bias" => recurrent(GRU::new(4).use_bias(false), false),
        "attention" => attention(MultiHeadAttention::new(2, 3)),
        "attention scores" => attention(MultiHeadAttention::new(2, 3).value_dim(4).output_shape(8).use_bias(false)),
        "attention causal" => attention(MultiHeadAttention::new(3, 2)),
        "attention mask" => attention(MultiHeadAttention::new(2, 3)),
        "embedding" => plain(Embedding::new(6, 4)),
        other => panic!("no layer for the case {other:?}"),
    }
}

fn dims(json: &Json) -> Vec<u32> {
    json["shape"].as_array().unwrap().iter().map(|dim| dim.as_u64().unwrap() as u32).collect()
}

fn numbers(json: &Json) -> Vec<f32> {
    json["data"].as_array().unwrap().iter().map(|number| number.as_f64().unwrap() as f32).collect()
}

fn tensor(device: &gradlet_core::Device, json: &Json) -> Tensor {
    Tensor::new(device, &numbers(json), &dims(json)).unwrap()
}

fn flags(device: &gradlet_core::Device, json: &Json) -> Option<Tensor> {
    let flags: Vec<Bool> = json.get("data").map(|_| numbers(json).iter().map(|&flag| Bool::from(flag != 0.0)).collect())?;
    Some(Tensor::new(device, &flags, &dims(json)).unwrap())
}

fn near(case: &str, what: &str, got: &Tensor, want: &Json) {
    assert_eq!(got.dims(), dims(want), "{case}: {what}");
    for (index, (got, want)) in got.to_vec::<f32>().unwrap().iter().zip(numbers(want)).enumerate() {
        assert!((got - want).abs() <= 2e-5 * (1.0 + want.abs()), "{case}: {what}[{index}] is {got}, not {want}");
    }
}

#[test]
fn layers_are_keras_layers() {
    let text = include_str!("../../fixtures/layers/cases.json");
    let cases: Json = serde_json::from_str(text).unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let scope = Eager::new(&ops::portable_cpu());
        let subject = subject(name);
        assert_eq!(subject.name(), case["layer"].as_str().unwrap());
        let inputs: Vec<Tensor> = case["inputs"].as_array().unwrap().iter().map(|input| tensor(&scope.device(), input)).collect();
        // The first call creates the variables.
        subject.give(&scope, &inputs, &Json::Null).unwrap();
        let variables = subject.named_variables();
        let facts = |(path, variable): &(String, Variable)| (path.clone(), variable.tensor_type().unwrap().shape, variable.trainable());
        let weights = case["weights"].as_array().unwrap();
        let wanted = |weight: &Json| {
            let shape = gradlet_core::Shape::new(&dims(weight)).unwrap();
            (weight["name"].as_str().unwrap().to_string(), shape, weight["trainable"].as_bool().unwrap())
        };
        assert_eq!(variables.iter().map(facts).collect::<Vec<_>>(), weights.iter().map(wanted).collect::<Vec<_>>(), "{name}");
        for ((_, variable), weight) in variables.iter().zip(weights) {
            scope.assign(variable, &tensor(&scope.device(), weight)).unwrap();
        }
        let outputs = subject.give(&scope, &inputs, &case["call"]).unwrap();
        let wanted = case["outputs"].as_array().unwrap();
        assert_eq!(outputs.len(), wanted.len(), "{name}");
        outputs.iter().zip(wanted).enumerate().for_each(|(index, (got, want))| near(name, &format!("output {index}"), got, want));
        for ((path, variable), after) in variables.iter().zip(case["after"].as_array().unwrap()) {
            near(name, path, &scope.read(variable).unwrap(), after);
        }
    }
}

/// Under each policy, outputs and weights have Keras's types, and are as close to those of f32 as Keras's.
#[test]
fn layers_follow_keras_policies() {
    let read = |text: &str| serde_json::from_str::<Json>(text).unwrap()["cases"].as_array().unwrap().clone();
    let cases = read(include_str!("../../fixtures/layers/cases.json"));
    let policies = read(include_str!("../../fixtures/layers/policies.json"));
    assert_eq!(cases.len(), policies.len());
    for (case, under) in cases.iter().zip(&policies) {
        assert_eq!(case["name"], under["name"]);
        under["policies"].as_array().unwrap().iter().for_each(|under| follows(case, under));
    }
}

/// Runs a case under a policy, and compares types and values with Keras's.
fn follows(case: &Json, under: &Json) {
    let policy: DTypePolicy = under["policy"].as_str().unwrap().parse().unwrap();
    let name = format!("{} under {policy}", case["name"]);
    let subject = subject(case["name"].as_str().unwrap());
    let scope = Eager::new(&ops::portable_cpu()).with_dtype_policy(policy);
    let inputs: Vec<Tensor> = case["inputs"].as_array().unwrap().iter().map(|input| tensor(&scope.device(), input)).collect();
    subject.give(&scope, &inputs, &Json::Null).unwrap();
    let variables = subject.variables();
    let dtypes: Vec<&str> = variables.iter().map(|variable| keras_name(variable.tensor_type().unwrap().dtype)).collect();
    assert_eq!(Json::from(dtypes), under["weights"], "{name}");
    for (variable, weight) in variables.iter().zip(case["weights"].as_array().unwrap()) {
        scope.assign(variable, &tensor(&scope.device(), weight).cast(policy.variable_dtype()).unwrap()).unwrap();
    }
    let outputs = subject.give(&scope, &inputs, &case["call"]).unwrap();
    let untrained = |index: &usize| !Variable::trainable(&variables[*index]);
    let moved: Vec<usize> = (0..variables.len()).filter(untrained).collect();
    let got: Vec<Tensor> = outputs.into_iter().chain(moved.iter().map(|&index| scope.read(&variables[index]).unwrap())).collect();
    let all = |json: &Json| json.as_array().unwrap().clone();
    let keras = [all(&under["outputs"]), all(&under["moved"])].concat();
    let exact = all(&case["outputs"]).into_iter().chain(moved.iter().map(|&index| case["after"][index].clone()));
    assert_eq!(got.len(), keras.len(), "{name}");
    let unit = match policy.compute_dtype() {
        DType::F16 => 1.0 / 1024.0,
        DType::Bf16 => 1.0 / 128.0,
        _ => 1e-5,
    };
    for ((got, keras), exact) in got.iter().zip(&keras).zip(exact) {
        assert_eq!((keras_name(got.dtype()), got.dims()), (keras["dtype"].as_str().unwrap(), &dims(keras)[..]), "{name}");
        let exact = numbers(&exact);
        let largest = exact.iter().fold(0.0, |largest: f32, x| largest.max(x.abs()));
        let error = |values: &[f32]| values.iter().zip(&exact).fold(0.0, |largest: f32, (x, exact)| largest.max((x - exact).abs()));
        let (own, theirs) = (error(&got.cast(DType::F32).unwrap().to_vec().unwrap()), error(&numbers(keras)));
        assert!(own <= 2.0 * theirs + unit * (1.0 + largest), "{name}: an error of {own}, and Keras's is {theirs}");
    }
}

fn keras_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F16 => "float16",
        DType::Bf16 => "bfloat16",
        DType::F64 => "float64",
        _ => "float32",
    }
}

/// The errors for wrong inputs name the layer, the expected input and the actual one.
#[test]
fn wrong_inputs_are_named() {
    let scope = Eager::new(&ops::portable_cpu());
    let tensor = |dims: &[u32]| Tensor::full(&scope.device(), 1.0f32, dims).unwrap();
    let images = "images of shape [batch, height, width, channels]";
    let sequences = "sequences of shape [batch, steps, features]";
    let table: [(Box<dyn Layer>, &[u32], &str); 12] = [
        (Box::new(Conv2D::new(4, [3, 3])), &[2, 5, 5], images),
        (Box::new(DepthwiseConv2D::new([3, 3])), &[2, 5], images),
        (Box::new(SeparableConv2D::new(4, [3, 3])), &[2, 5, 5], images),
        (Box::new(Conv2DTranspose::new(4, [3, 3])), &[2, 5, 5], images),
        (Box::new(Conv1D::new(4, 3)), &[2, 5, 5, 1], sequences),
        (Box::new(GlobalMaxPooling2D::default()), &[2, 5], images),
        (Box::new(LSTM::new(4)), &[2, 5], sequences),
        (Box::new(MultiHeadAttention::new(2, 3)), &[2, 5], sequences),
        (Box::new(Conv2D::new(4, [3, 3]).groups(3)), &[2, 5, 5, 3], "3 channels and 4 filters cannot be divided into 3 groups"),
        (Box::new(BatchNormalization::default().axis(4)), &[2, 5, 5, 3], "axis 4"),
        (Box::new(GroupNormalization::new(2)), &[2, 5, 3], "2 groups"),
        (Box::new(MaxPooling2D::new([2, 2])), &[2, 5], "max_pool2d"),
    ];
    for (layer, dims, wanted) in table {
        let error = layer.apply(&scope, &tensor(dims)).unwrap_err().to_string();
        let given = format!("{dims:?}").replace(' ', "");
        let shown = error.replace(' ', "").contains(&given) || wanted.starts_with('3');
        assert!(error.contains(layer.name()) && error.contains(wanted) && shown, "{error}");
    }
    for (layer, built, other) in [
        (Box::new(Dense::new(4)) as Box<dyn Layer>, &[2u32, 3][..], &[2u32, 5][..]),
        (Box::new(Conv2D::new(4, [1, 1])), &[2, 5, 5, 3], &[2, 5, 5, 5]),
        (Box::new(DepthwiseConv2D::new([1, 1])), &[2, 5, 5, 3], &[2, 5, 5, 5]),
        (Box::new(Conv1D::new(4, 1)), &[2, 5, 3], &[2, 5, 5]),
        (Box::new(BatchNormalization::default()), &[2, 3], &[2, 5]),
        (Box::new(GRU::new(4)), &[2, 5, 3], &[2, 5, 5]),
        (Box::new(MultiHeadAttention::new(2, 3)), &[2, 5, 3], &[2, 5, 5]),
    ] {
        layer.apply(&scope, &tensor(built)).unwrap();
        let error = layer.apply(&scope, &tensor(other)).unwrap_err().to_string();
        assert!(error.contains("built for") && error.contains('3') && error.contains('5'), "{error}");
    }
}

/// Trains a model with all layers that have state. The result has the same bits eagerly, compiled, and without a heap.
#[test]
fn training_has_the_same_bits_everywhere() {
    fn model() -> Sequential {
        let convolutions = Sequential::new()
            .with(Conv2D::new(4, [3, 3]).kernel_initializer(Initializer::he_normal()))
            .with(BatchNormalization::default().momentum(0.5))
            .with(Activation::Relu)
            .with(DepthwiseConv2D::new([2, 2]).padding(Padding::Same))
            .with(AveragePooling2D::new([2, 2]));
        let recurrent = Sequential::new().with(Reshape::new(&[4, -1])).with(Dropout::new(0.25)).with(GRU::new(3));
        Sequential::new().with(convolutions).with(recurrent).with(LayerNormalization::default())
    }
    let setting = || {
        let scope = Eager::with_seed(&ops::portable_cpu(), 5);
        let x = Tensor::new(&scope.device(), &scope.next_stream().unwrap().uniform(2 * 6 * 6), &[2, 6, 6, 1]).unwrap();
        let model = std::sync::Arc::new(model());
        model.apply(&scope, &x).unwrap();
        (scope, x, model)
    };
    let mut runs = Vec::new();
    let (scope, x, model) = setting();
    runs.push((0..3).map(|_| model.apply(&scope.with_training(true), &x).unwrap().to_vec::<f32>().unwrap()).collect::<Vec<_>>());
    let function = |model: std::sync::Arc<Sequential>| Function::new(move |scope: &dyn Scope, x: Tensor| model.apply(scope, &x));
    let (scope, x, model) = setting();
    let compiled = function(model);
    let step = || compiled.call(&scope.with_training(true), x.clone()).unwrap().to_vec::<f32>().unwrap();
    runs.push((0..3).map(|_| step()).collect());
    let (scope, x, model) = setting();
    let mut artifact = Artifact::new();
    let concrete = function(model).concrete(&scope.with_training(true), &x).unwrap();
    artifact.signature("train", &concrete, &["x"], &["y"]).unwrap();
    let bytes = artifact.to_bytes().unwrap();
    let program = Program::load(&bytes, ops::KERNELS, &["train"]).unwrap();
    let (signature, mut arena) = (program.signature("train").unwrap(), AlignedBytes::zeroed(program.arena_bytes()));
    let mut session = Session::new(&program, &mut arena).unwrap();
    let mut on_device = Vec::new();
    for _ in 0..3 {
        let elements = x.to_vec::<f32>().unwrap();
        session.input_bytes_mut(signature, 0).unwrap().copy_from_slice(bytemuck::cast_slice(&elements));
        session.run(signature).unwrap();
        on_device.push(bytemuck::cast_slice(session.output_bytes(signature, 0).unwrap()).to_vec());
    }
    runs.push(on_device);
    let (lifted, _) = gradlet_tests::flat::as_function(&bytes, &program, "train", &scope.device()).unwrap();
    runs.push((0..3).map(|_| lifted.run(std::slice::from_ref(&x)).unwrap()[0].to_vec::<f32>().unwrap()).collect());
    assert!(runs[0][0] != runs[0][1] && runs[0][1] != runs[0][2], "each step drops others");
    assert_eq!(runs[0], runs[1]);
    assert_eq!(runs[0], runs[2]);
    assert_eq!(runs[0], runs[3]);
}
