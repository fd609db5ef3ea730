//! Tests of the importer: operators that the golden models do not have, and models that cannot be imported.

mod convert;
mod drafts;
mod operators;
mod streaming;
mod trainable;
mod training;

use super::Model;
use crate::formats::tflite::write::{Described, Field, Graph, Operator, Options};
use drafts::{model, operator};
use gradlet_core::ops::portable_cpu;
use gradlet_core::tensor::Element;
use gradlet_core::{DType, Eager, Tensor};
use std::path::{Path, PathBuf};

fn sample(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/models").join(name)
}

fn new<T: Element>(elements: &[T], dims: &[u32]) -> Tensor {
    Tensor::new(&portable_cpu(), elements, dims).unwrap()
}

/// Operand of an operator in a test.
enum Operand<'t> {
    Input(&'t Tensor),
    Constant(&'t Tensor),
    Missing,
}
use Operand::{Constant, Input, Missing};

/// Returns a model with one operator.
fn single(name: &'static str, operands: &[Operand<'_>], options: Options, outputs: &[DType], quantization: Option<(f32, i64)>) -> Vec<u8> {
    let mut graph = Graph::default();
    let quantized = |described: Described, tensor: &Tensor| match quantization {
        Some((scale, zero_point)) if matches!(tensor.dtype(), DType::I8 | DType::I16 | DType::U8) => described.quantized(scale, zero_point),
        _ => described,
    };
    let mut inputs = Vec::new();
    for operand in operands {
        let index = graph.tensors.len() as i32;
        match operand {
            Input(tensor) => {
                graph.inputs.push(index);
                graph.tensors.push(quantized(Described::like(tensor), tensor));
            }
            Constant(tensor) => graph.tensors.push(quantized(Described::constant(tensor), tensor)),
            Missing => {
                inputs.push(-1);
                continue;
            }
        }
        inputs.push(index);
    }
    for &dtype in outputs {
        graph.outputs.push(graph.tensors.len() as i32);
        let described = Described::of(dtype);
        let like =
            Tensor::from_bytes(&portable_cpu(), gradlet_core::TensorType::new(dtype, gradlet_core::Shape::SCALAR), &vec![0; dtype.size()]);
        graph.tensors.push(quantized(described, &like.unwrap()));
    }
    graph.operators.push(operator(name, inputs, graph.outputs.clone(), options));
    model(&[graph])
}

/// Computes an operator eagerly and compiled, which give the same bits. Returns the outputs.
fn compute(name: &'static str, operands: &[Operand<'_>], options: Options, outputs: &[DType]) -> Vec<Tensor> {
    compute_quantized(name, operands, options, outputs, None)
}

fn compute_quantized(
    name: &'static str,
    operands: &[Operand<'_>],
    options: Options,
    outputs: &[DType],
    quantization: Option<(f32, i64)>,
) -> Vec<Tensor> {
    let inputs: Vec<&Tensor> =
        operands.iter().filter_map(|operand| if let Input(tensor) = operand { Some(*tensor) } else { None }).collect();
    call(&single(name, operands, options, outputs, quantization), &inputs)
}

/// Calls a model eagerly and compiled, which give the same bits. Returns the outputs.
fn call(bytes: &[u8], inputs: &[&Tensor]) -> Vec<Tensor> {
    let model = Model::from_bytes(bytes).unwrap();
    let scope = Eager::new(&portable_cpu());
    let outputs = model.call(&scope, inputs).unwrap();
    let compiled = model.function().unwrap().call(&scope, inputs.iter().map(|&input| input.clone()).collect()).unwrap();
    for (one, other) in outputs.iter().zip(&compiled) {
        assert_eq!((one.tensor_type(), &*one.bytes().unwrap()), (other.tensor_type(), &*other.bytes().unwrap()));
    }
    outputs
}

#[test]
fn everything_that_is_not_supported_is_listed() {
    let x = new(&[1.0f32, 2.0], &[2]);
    let mut graph = Graph {
        tensors: vec![Described::like(&x), Described::like(&x), Described::like(&x), Described::like(&x)],
        operators: vec![
            operator("UNIQUE", vec![0], vec![1], None),
            operator("ABS", vec![3], vec![2], None),
            operator("ADD", vec![0, 0], vec![3], Some((11, vec![(0, Field::I8(5))]))),
        ],
        inputs: vec![0],
        outputs: vec![3],
        ..Graph::default()
    };
    let model = Model::from_bytes(model(std::slice::from_ref(&graph))).unwrap();
    let lines: Vec<String> = model.unsupported().iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "subgraph 0: operator 0 (UNIQUE): it is not supported",
            "subgraph 0: operator 1 (ABS): its input 0, tensor 3, has no value",
            "subgraph 0: operator 2 (ADD): its activation is SIGN_BIT",
        ]
    );
    let error = model.call(&Eager::new(&portable_cpu()), &[&x]).unwrap_err().to_string();
    assert!(error.starts_with("3 operators of the model are not supported:\n  subgraph 0: operator 0"), "{error}");
    assert_eq!(model.function().err().unwrap().to_string(), error);

    graph.operators = vec![operator("ABS", vec![0], vec![3], None)];
    let model = Model::from_bytes(drafts::model(&[graph])).unwrap();
    let wrong = model.call(&Eager::new(&portable_cpu()), &[&new(&[1i32], &[1])]).unwrap_err().to_string();
    assert_eq!(wrong, "input 0 must be f32[2], not i32[1]");
}

#[test]
fn a_subgraph_that_calls_itself_is_refused() {
    let x = new(&[1.0f32], &[1]);
    let calls = |first: i32, second: i32| Graph {
        tensors: vec![Described::of(DType::Bool), Described::like(&x), Described::like(&x)],
        operators: vec![operator("IF", vec![0, 1], vec![2], Some((92, vec![(0, Field::I32(first)), (1, Field::I32(second))])))],
        inputs: vec![0, 1],
        outputs: vec![2],
        ..Graph::default()
    };
    let reasons = |graphs: &[Graph]| -> Vec<String> {
        Model::from_bytes(model(graphs)).unwrap().unsupported().into_iter().map(|one| one.reason).collect()
    };
    assert_eq!(reasons(&[calls(0, 0)]), ["its subgraph calls itself"]);
    assert_eq!(reasons(&[calls(1, 1), calls(0, 1)]), ["its subgraph calls itself"]);
    assert_eq!(reasons(&[calls(7, 0)]), ["it calls subgraph 7, but there are 1"]);
    let chain: Vec<Graph> =
        (0..200).map(|at| calls(at + 1, at + 1)).chain([Graph { operators: Vec::new(), outputs: vec![1], ..calls(0, 0) }]).collect();
    let reasons = reasons(&chain);
    assert!(reasons[0].contains("more than 32"), "{reasons:?}");
}

/// A damaged model is refused, or planned without a panic.
#[test]
fn damaged_models_are_planned_or_refused() {
    let mut random = 7u64;
    let mut next = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % below
    };
    let names = ["op_zoo_float32.tflite", "lstm_while_float32.tflite", "conv_variants_int8.tflite", "trainer_ondevice.tflite"];
    let samples = names.map(|name| std::fs::read(sample(name)).unwrap());
    let (mut planned, mut refused) = (0, 0);
    for round in 0..2_000 {
        let mut bytes = samples[round % samples.len()].clone();
        for _ in 0..1 + next(8) {
            let at = next(bytes.len());
            bytes[at] = if next(2) == 0 { 0xff } else { next(256) as u8 };
        }
        match Model::from_bytes(bytes) {
            Ok(model) if model.unsupported().is_empty() => planned += 1,
            _ => refused += 1,
        }
    }
    assert!(planned > 50 && refused > 50, "{planned} {refused}");
}
