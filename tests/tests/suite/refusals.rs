//! Runs every kernel on hostile data. A kernel must refuse some of the data if its op declares that it may, and none of it otherwise.
//!
//! A plan runs the ops that may refuse their data before it writes any variable. If an op refused its data without this declaration, a
//! failed step could leave some variables updated.

use gradlet_core::custom_op::{Call, OpDef, Slice};
use gradlet_core::device::AlignedBytes;
use gradlet_core::function::graph::Graph;
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Eager, Function, Kernel, Print, Result, Scope, Shape, Summarize, Tensor, TensorType, ops};
use gradlet_tests::golden;
use gradlet_tests::golden::runtimes::Traced;
use std::collections::BTreeSet;

/// A use of an op: its definition, attribute words and input types.
type Use = (&'static OpDef, Vec<u32>, Vec<TensorType>);

/// Number of uses of an op on which each of its kernels runs. They are the uses with the fewest elements.
const USES: usize = 12;

/// Adds the uses of ops in a graph, and in its nodes' bodies, to `uses`.
fn note(graph: &Graph, uses: &mut Vec<Use>) {
    for node in &graph.nodes {
        node.bodies.iter().for_each(|body| note(body, uses));
        let types = node.inputs.iter().map(|&id| graph.values[id].tensor_type).collect();
        uses.push((node.op.def, node.attributes.clone(), types));
    }
}

fn words<const N: usize>(numbers: [i32; N]) -> [u32; N] {
    numbers.map(|number| number as u32)
}

/// Returns the uses of ops in the golden cases, forward and backward, and further uses that no golden case has.
fn uses() -> Vec<Use> {
    let mut uses = Vec::new();
    for case in golden::case_folders().iter().flat_map(|folder| golden::read(folder).unwrap()) {
        let Some(Ok(traced)) = case.body.as_ref().map(|body| Traced::new(&case, body)) else { continue };
        traced.graphs().into_iter().for_each(|graph| note(graph, &mut uses));
    }
    let effects = Function::new(|scope: &dyn Scope, x: Tensor| {
        scope.print("{}", &[&x])?;
        scope.scalar("x", &x, 0i64)?;
        x.equal(&x)?.assert("a number")?;
        x.check_numerics("x")?;
        Tensor::random_uniform(scope, &[3])
    });
    let scope = Eager::new(&ops::portable_cpu());
    note(effects.concrete(&scope, &Tensor::scalar(&scope.device(), 1.0f32)).unwrap().traced(), &mut uses);
    let of = |dtype: DType, dims: &[u32]| TensorType::new(dtype, Shape::new(dims).unwrap());
    let [w, x, dy, rate] = [&[2, 3][..], &[4, 2], &[4, 3], &[]].map(|dims| of(DType::F32, dims));
    // The op in the gradient of max pooling's gradient.
    let pools: Vec<Use> = uses.iter().filter(|(def, ..)| std::ptr::eq(*def, &ops::max_pool2d::DEF)).cloned().collect();
    uses.extend(pools.into_iter().map(|(_, attributes, types)| (&ops::max_pool2d_pick::DEF, attributes, vec![types[0]; 2])));
    let adam = [0.9f32, 0.999, 1e-7, 0.1, 0.001].map(f32::to_bits).to_vec();
    let (plain, [x4, filter, pooled, bias]) =
        ([1, 1, 1, 1, 0, 0, 0, 0, 0], [&[1, 5, 4, 2][..], &[2, 1, 2, 3], &[1, 2, 2, 3], &[3]].map(|dims| of(DType::F32, dims)));
    let winners = of(DType::U8, &[1, 2, 2, 3]);
    let pixels = of(DType::I8, &[1, 5, 4, 2]);
    uses.extend([
        (&ops::conv2d_max_pool2d::DEF, [&plain[..], &[2, 2, 1]].concat(), vec![x4, filter, bias]),
        (&ops::conv2d_max_pool2d_filter_grad::DEF, [&plain[..], &[2, 1, 2, 2]].concat(), vec![x4, pooled, winners]),
        (&ops::conv2d_max_pool2d_input_grad::DEF, [&plain[..], &[5, 4, 2, 2]].concat(), vec![filter, pooled, winners]),
        (
            &ops::packed_conv2d::DEF,
            [&plain[..], &words([0, -128, 127, 2, 1])].concat(),
            vec![pixels, of(DType::I8, &[3, 8]), of(DType::I32, &[3, 4])],
        ),
        (&ops::packed_depthwise_conv2d::DEF, [&plain[..], &words([0, -128, 127, 3, 3])].concat(), vec![pixels, of(DType::I32, &[2, 7])]),
        (&ops::packed_dense::DEF, words([3, 1, -128, 127]).to_vec(), vec![pixels, of(DType::I32, &[1, 2]), of(DType::I32, &[1, 16])]),
        (
            &ops::quantized_svdf_step::DEF,
            words([9, -4, 1 << 30, 1, 1 << 30, -9]).to_vec(),
            vec![of(DType::I8, &[1, 3]), of(DType::I8, &[4, 3]), of(DType::I16, &[4, 2]), of(DType::I32, &[2]), of(DType::I16, &[1, 4, 2])],
        ),
        (&ops::cond::DEF, vec![1, 2], vec![TensorType::BOOL]),
        (&ops::cond::DEF, vec![1, 2, 3], vec![TensorType::I32]),
        (&ops::while_loop::DEF, vec![1, 2, 9], vec![TensorType::BOOL]),
        (&ops::matmul_sgd::DEF, vec![], vec![w, x, dy, rate]),
        (&ops::matmul_adam::DEF, adam, vec![w, w, w, x, dy, rate, of(DType::I64, &[])]),
    ]);
    uses
}

/// Returns the uses of a kernel's op on which the kernel runs, at most [`USES`]. In each, the kernel's element type replaces the element
/// type of input 0, in all inputs that have it.
fn uses_of(kernel: &Kernel, uses: &[Use]) -> Vec<(Vec<u32>, Vec<TensorType>)> {
    let own = uses.iter().filter(|(def, ..)| std::ptr::eq(*def, kernel.def));
    let typed = own.filter_map(|(def, attributes, types)| {
        let first = types.first()?.dtype;
        let dtype = |of: DType| if of == first { kernel.dtype } else { of };
        let types: Vec<TensorType> = types.iter().map(|of| TensorType::new(dtype(of.dtype), of.shape)).collect();
        let outputs = def.output_types(&types, attributes).ok()?;
        let elements = |of: &TensorType| of.shape.elements().filter(|&elements| elements > 0);
        let counts: Option<Vec<usize>> = types.iter().chain(&outputs[..def.outputs.into()]).map(elements).collect();
        Some((counts?.iter().sum::<usize>(), attributes.clone(), types))
    });
    let mut found: Vec<_> = typed.collect();
    found.sort_by_key(|(count, ..)| *count);
    let mut seen = BTreeSet::new();
    found.retain(|(_, attributes, types)| seen.insert(format!("{attributes:?} {types:?}")));
    found.into_iter().take(USES).map(|(_, attributes, types)| (attributes, types)).collect()
}

/// Returns the bytes of 1, and of elements that an op may refuse.
fn hostile(dtype: DType) -> Vec<Vec<u8>> {
    let floats = [1.0, f64::NAN, 0.0, -0.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, 3e38, 1e-45];
    let integers = [1, -1, 0, i64::MAX, i64::MIN, i64::from(i32::MAX), i64::from(i32::MIN), 1 << 20, 2];
    match dtype {
        DType::F32 => floats.map(|x| (x as f32).to_le_bytes().to_vec()).to_vec(),
        DType::F64 => floats.map(|x| x.to_le_bytes().to_vec()).to_vec(),
        DType::F16 => floats.map(|x| half::f16::from_f64(x).to_le_bytes().to_vec()).to_vec(),
        DType::Bf16 => floats.map(|x| half::bf16::from_f64(x).to_le_bytes().to_vec()).to_vec(),
        DType::Bool => [1, 0, 255].map(|x: u8| vec![x]).to_vec(),
        DType::I8 | DType::U8 => [1, 255, 0, 127, 128, 2].map(|x: u8| vec![x]).to_vec(),
        DType::I16 => integers.map(|x| (x as i16).to_le_bytes().to_vec()).to_vec(),
        DType::I32 => integers.map(|x| (x.clamp(i32::MIN.into(), i32::MAX.into()) as i32).to_le_bytes().to_vec()).to_vec(),
        DType::I64 => integers.map(|x| x.to_le_bytes().to_vec()).to_vec(),
    }
}

/// Returns the bytes of a tensor. `choose` returns the index of each element's value in [`hostile`], modulo the number of values.
fn filled(of: &TensorType, choose: impl Fn(usize) -> usize) -> AlignedBytes {
    let values = hostile(of.dtype);
    let mut bytes = AlignedBytes::zeroed(of.bytes().unwrap());
    for (index, element) in bytes.chunks_exact_mut(of.dtype.size()).enumerate() {
        element.copy_from_slice(&values[choose(index) % values.len()]);
    }
    bytes
}

fn run(kernel: &Kernel, attributes: &[u32], types: &[TensorType], data: &[AlignedBytes]) -> Result<()> {
    let outputs = kernel.def.output_types(types, attributes)?;
    // An op without outputs receives an output of two words.
    let words = TensorType::new(DType::I32, Shape::new(&[2])?);
    let outputs = if kernel.def.outputs == 0 { &[words][..] } else { &outputs[..kernel.def.outputs.into()] };
    let mut results: Vec<AlignedBytes> = outputs.iter().map(|of| AlignedBytes::zeroed(of.bytes().unwrap())).collect();
    let inputs: Vec<_> = types.iter().zip(data).map(|(tensor_type, data)| TensorView { tensor_type, data: Some(data) }).collect();
    let mut outputs: Vec<_> = results.iter_mut().zip(outputs).map(|(data, tensor_type)| TensorViewMut { tensor_type, data }).collect();
    (kernel.run)(&mut Call { attributes, inputs: &inputs, outputs: &mut outputs, slice: &mut Slice::all() })
}

/// True if the kernel refuses some data of these types. The data has the same value everywhere, or one value in one input and ones in the
/// others, or a mixture of all values.
fn refuses(kernel: &Kernel, attributes: &[u32], types: &[TensorType]) -> bool {
    let refused = |choose: &dyn Fn(usize, usize) -> usize| {
        let data: Vec<_> = types.iter().enumerate().map(|(input, of)| filled(of, |index| choose(input, index))).collect();
        run(kernel, attributes, types, &data).is_err()
    };
    (0..9).any(|value| {
        let among_ones = |hostile: usize| refused(&|input, _| if input == hostile { value } else { 0 });
        refused(&|_, _| value) || (0..types.len()).any(among_ones) || refused(&|input, index| value + 5 * input + 7 * index + index / 3)
    })
}

#[test]
fn kernels_refuse_data_exactly_where_their_ops_say_so() {
    let (uses, device) = (uses(), gradlet::cpu());
    let mut wrong = BTreeSet::new();
    for kernel in device.kernels() {
        let (name, dtype) = (kernel.def.name, kernel.dtype);
        // The op of replicas is not in the catalogue.
        let Some(op) = ops::OPS.iter().find(|op| std::ptr::eq(op.def, kernel.def)) else { continue };
        let tried = uses_of(kernel, &uses);
        let refuses = tried.iter().any(|(attributes, types)| refuses(kernel, attributes, types));
        match (tried.is_empty(), refuses, op.may_refuse(dtype)) {
            (true, ..) => wrong.insert(format!("{name} on {dtype}: no golden case uses it in a way that can be tried")),
            (_, true, false) => wrong.insert(format!("{name} on {dtype} refuses data, and its OP does not say so")),
            (_, false, true) => wrong.insert(format!("{name} on {dtype} refuses no data, and its OP says that it may")),
            _ => false,
        };
    }
    assert!(wrong.is_empty(), "\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
}
