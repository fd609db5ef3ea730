//! Tests of 16-bit floats. An op must have the f32 result, rounded once. The suite must detect an error of one unit in the last place.

use gradlet_core::function::graph::{Graph, Origin};
use gradlet_core::layers::Activation;
use gradlet_core::ops::resize::Resize;
use gradlet_core::{DType, Differentiate, Eager, Scope, Tensor, TensorType, ops};
use gradlet_tests::golden;
use gradlet_tests::golden::case::{Case, Value};
use gradlet_tests::golden::dtypes;
use gradlet_tests::golden::rounded::round;
use gradlet_tests::golden::runtimes::{Outputs, Traced, eager, tensor_bytes};
use std::collections::{BTreeSet, HashMap};

const NARROW: [DType; 2] = [DType::F16, DType::Bf16];

/// Ops of floats that no golden case computes in f32: fused ops, integer divisions, and a gradient of a gradient.
const ELSEWHERE: [&str; 11] = [
    "identity",
    "matmul_sgd",
    "truncatediv",
    "truncatemod",
    "max_pool2d_pick",
    "matmul_adam",
    "conv2d_max_pool2d",
    "conv2d_max_pool2d_filter_grad",
    "conv2d_max_pool2d_input_grad",
    "scatter_add",
    "quantize",
];

/// Rounds an f32 tensor to a 16-bit type, and returns it as f32. The rounding is independent of gradlet's.
fn rounded(x: &Tensor, dtype: DType) -> Tensor {
    let numbers: Vec<f32> = x.to_vec::<f32>().unwrap().into_iter().map(|x| round(dtype, x)).collect();
    Tensor::new(&ops::portable_cpu(), &numbers, x.dims()).unwrap()
}

fn same(got: &Tensor, want: &Tensor) -> bool {
    if !got.dtype().is_float() {
        return got.tensor_type() == want.tensor_type() && tensor_bytes(got).unwrap() == tensor_bytes(want).unwrap();
    }
    let [got, want] = [got, want].map(|x| x.cast(DType::F64).unwrap());
    let pairs = got.to_vec::<f64>().unwrap().into_iter().zip(want.to_vec::<f64>().unwrap());
    got.dims() == want.dims() && pairs.into_iter().all(|(got, want)| got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan())
}

/// Runs the graph's ops one by one in f32. Runs each again on 16-bit floats, where it must have the same result, rounded once. Adds the
/// names of these ops to `tried`.
fn every_op(id: &str, graph: &Graph, inputs: &[Tensor], tried: &mut BTreeSet<&'static str>) {
    let scope = Eager::new(&ops::portable_cpu());
    let mut values = HashMap::new();
    for (number, value) in graph.values.iter().enumerate() {
        let known = match &value.origin {
            Origin::Input(index) => Some(inputs[*index].clone()),
            Origin::Constant(tensor) => Some(tensor.clone()),
            Origin::Variable(index) => graph.captures[*index].source.variable().map(|variable| scope.read(variable).unwrap()),
            Origin::Node => None,
        };
        values.extend(known.map(|tensor| (number, tensor)));
    }
    for node in &graph.nodes {
        let given: Option<Vec<Tensor>> = node.inputs.iter().map(|id| values.get(id).cloned()).collect();
        // The results of a loop are unknown here.
        let Some(given) = given.filter(|_| node.bodies.is_empty()) else { continue };
        let emit = |inputs: &[Tensor]| scope.emit(node.op, &node.attributes, &inputs.iter().collect::<Vec<_>>()).unwrap();
        let first = given.first().map(Tensor::dtype);
        for dtype in NARROW.into_iter().filter(|_| first == Some(DType::F32) && node.op.def.outputs > 0) {
            let wide: Vec<Tensor> = given.iter().map(|x| if x.dtype() == DType::F32 { rounded(x, dtype) } else { x.clone() }).collect();
            let narrow: Vec<Tensor> =
                wide.iter().map(|x| if x.dtype() == DType::F32 { x.cast(dtype).unwrap() } else { x.clone() }).collect();
            for (want, got) in emit(&wide).iter().zip(emit(&narrow)) {
                // The result type of a cast does not depend on its input.
                let converted = want.dtype() == DType::F32 && node.op.def.code != ops::code::cast;
                let want = if converted { rounded(want, dtype) } else { want.clone() };
                assert!(!converted || got.dtype() == dtype, "{id}: {} of {dtype} gives {}", node.op.def.name, got.dtype());
                assert!(same(&got, &want), "{id}: {} of {dtype}: {got:?}, not {want:?}", node.op.def.name);
            }
            tried.insert(node.op.def.name);
        }
        values.extend(node.outputs.iter().copied().zip(emit(&given)));
    }
}

#[test]
fn an_op_is_the_f32_kernel_on_widened_inputs_rounded_once() {
    let mut tried = BTreeSet::new();
    for case in golden::read(&golden::own_folder()).unwrap() {
        let Some(Ok(traced)) = case.body.as_ref().map(|body| Traced::new(&case, body)) else { continue };
        let inputs: Vec<Tensor> = case.inputs.iter().map(|input| input.tensor(&ops::portable_cpu()).unwrap()).collect();
        every_op(&case.id, traced.graph(), &inputs, &mut tried);
    }
    let floats = ops::OPS.iter().filter(|op| ops::portable_cpu().has_kernel(op.def, DType::F32) && op.def.outputs > 0);
    let missing: Vec<&str> = floats.map(|op| op.def.name).filter(|name| !tried.contains(name)).collect();
    assert_eq!(missing, ELSEWHERE);
}

/// Returns the case with this id in bf16, with its outputs.
fn bf16(id: &str) -> (Case, Outputs) {
    let cases = golden::read(&golden::own_folder()).unwrap();
    let case = cases.iter().find(|case| case.id == id).unwrap();
    let variants = dtypes::variants(&ops::portable_cpu(), case).unwrap();
    let narrow = variants.into_iter().find(|variant| variant.id.ends_with("@bf16")).unwrap();
    let outputs = eager(&ops::portable_cpu(), &narrow, narrow.body.as_ref().unwrap()).unwrap();
    (narrow, outputs)
}

/// True if the suite detects an error of `units` units in the last place, in the largest element of the output `output`.
fn refuses((case, outputs): &(Case, Outputs), output: &str, units: i16) -> bool {
    let at = case.wanted.iter().position(|value| value.name == output).unwrap();
    let mut moved = outputs.clone();
    let elements: &mut [u16] = bytemuck::cast_slice_mut(&mut moved[at]);
    let greatest = elements.iter_mut().filter(|bits| **bits & 0x7fff < 0x7f80).max_by_key(|bits| **bits & 0x7fff).unwrap();
    *greatest = greatest.wrapping_add_signed(units);
    !golden::judge(case, &Ok(moved), None).is_empty()
}

#[test]
fn a_unit_in_the_last_place_is_seen() {
    // A single op: no error of a unit is allowed, neither in its result nor in its gradients.
    for id in ["exp/random", "matmul/0"] {
        let narrow = bf16(id);
        assert!(narrow.0.gradients > 0);
        for Value { name, .. } in &narrow.0.wanted {
            assert!(!refuses(&narrow, name, 0), "{id} {name}");
            assert!([-2, -1, 1, 2].iter().all(|units| refuses(&narrow, name, *units)), "{id} {name}");
        }
    }
    // Several ops: no error of a unit is allowed in their results, and only a few units in their gradients.
    let several = bf16("swish/random");
    assert!(!refuses(&several, "output y", 0) && refuses(&several, "output y", 1) && refuses(&several, "output y", -1));
    assert!(!refuses(&several, "gradient x", 0) && refuses(&several, "gradient x", 8) && refuses(&several, "gradient x", -8));
}

/// Returns the value and the gradient of a function of one tensor.
fn with_gradient(x: &Tensor, function: impl Fn(&Tensor) -> gradlet_core::Result<Tensor>) -> [Tensor; 2] {
    let tape = Eager::new(&ops::portable_cpu()).tape();
    let x = tape.watch(x).unwrap();
    let y = function(&x).unwrap();
    let gradient = tape.gradient(&y, &x).unwrap().unwrap();
    [y.stop_gradient().unwrap(), gradient]
}

#[test]
fn the_gradient_of_softsign_does_not_cancel() {
    let x = Tensor::new(&ops::portable_cpu(), &[0.0f32, -1.0, 300.0, -1e6], &[4]).unwrap();
    let wanted = |x: f64| 1.0 / ((1.0 + x.abs()) * (1.0 + x.abs()));
    for (dtype, near) in [(DType::F32, 1e-6), (DType::Bf16, 0.02), (DType::F16, 0.002)] {
        let given = x.cast(dtype).unwrap();
        let [_, gradient] = with_gradient(&given, Tensor::softsign);
        let [given, gradient] = [given, gradient].map(|x| x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap());
        for (x, gradient) in given.into_iter().zip(gradient).filter(|(x, _)| dtype != DType::F16 || x.abs() < 1000.0) {
            assert!((gradient / wanted(x) - 1.0).abs() < near, "{dtype}: {gradient} at {x}, not {}", wanted(x));
        }
    }
}

#[test]
fn bilinear_resizing_of_16_bits_is_rounded_once() {
    let numbers: Vec<f32> = (0..24).map(|number| (number as f32 * 0.7).sin()).collect();
    let x = Tensor::new(&ops::portable_cpu(), &numbers, &[1, 4, 3, 2]).unwrap();
    for dtype in NARROW {
        let wide = rounded(&x, dtype);
        let resize = |x: &Tensor| x.resize([7, 5], Resize::Bilinear);
        let pairs = with_gradient(&wide, resize).into_iter().zip(with_gradient(&wide.cast(dtype).unwrap(), resize));
        pairs.for_each(|(want, got)| assert!(same(&got, &rounded(&want, dtype)) && got.dtype() == dtype, "{dtype}: {got:?}"));
    }
}

#[test]
fn fused_batch_norm_of_16_bits_is_rounded_once() {
    let numbers: Vec<f32> = (0..60).map(|number| 5.0 + (number as f32 * 1.3).sin()).collect();
    let [x, scale, offset] = [(&numbers[..], &[2, 5, 3, 2][..]), (&[1.5, 0.5], &[2]), (&[0.25, -3.0], &[2])]
        .map(|(numbers, dims)| Tensor::new(&ops::portable_cpu(), numbers, dims).unwrap());
    for dtype in NARROW {
        let wide = [&x, &scale, &offset].map(|x| rounded(x, dtype));
        let narrow = wide.each_ref().map(|x| x.cast(dtype).unwrap());
        let [want, got] = [wide, narrow].map(|[x, scale, offset]| x.fused_batch_norm(&scale, &offset, 0.001).unwrap());
        let pairs = want.iter().zip(&got);
        pairs.for_each(|(want, got)| assert!(same(got, &rounded(want, dtype)) && got.dtype() == dtype, "{dtype}: {got:?}"));
    }
}

/// Compares with Keras 3.15's sparsemax, computed by hand. Keras sums all cumulative sums of the support.
#[test]
fn sparsemax_is_keras_s() {
    let x = Tensor::new(&ops::portable_cpu(), &[1.0f32, 0.75, -1.0, 0.5, 2.0, -1.0], &[2, 3]).unwrap();
    let [y, gradient] = with_gradient(&x, |x| "sparsemax".parse::<Activation>()?.call(x));
    // The support of the first row is 1 and 0.75; the threshold is (1 + 1.75 - 1) / 2.
    assert_eq!(y.to_vec::<f32>().unwrap(), [0.125, 0.0, 0.0, 0.0, 1.0, 0.0]);
    // y is x0 - (x0 + (x0 + x1) - 1) / 2, and x1 - (x1 - 1) / 1.
    assert_eq!(gradient.to_vec::<f32>().unwrap(), [0.0, -0.5, 0.0, 0.0, 0.0, 0.0]);
    let none = Tensor::zeros(&ops::portable_cpu(), TensorType::new(DType::F32, gradlet_core::Shape::SCALAR)).unwrap();
    assert!(none.sparsemax().is_err());
}
