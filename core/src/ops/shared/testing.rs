//! Helpers for the tests of kernels and gradients.

extern crate std;

use crate::base::dtype::{Bool, Element};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, NONE, Slice};
use crate::base::shape::{Shape, TensorType};
use crate::base::view::{TensorView, TensorViewMut};
use std::vec::Vec;

/// Type and elements of a tensor, as the input or output of a kernel under test.
#[derive(Clone, Debug)]
pub(in crate::ops) struct Value {
    tensor_type: TensorType,
    words: Vec<u64>,
}

impl Value {
    /// Creates a value from its elements.
    pub(in crate::ops) fn new<T: Element>(elements: &[T], dims: &[u32]) -> Value {
        let mut value = Value::filled(TensorType::new(T::DTYPE, Shape::new(dims).unwrap()), 0);
        value.bytes_mut().copy_from_slice(bytemuck::cast_slice(elements));
        value
    }

    fn filled(tensor_type: TensorType, byte: u8) -> Value {
        let words = tensor_type.bytes().unwrap().div_ceil(8);
        Value { tensor_type, words: std::vec![u64::from_ne_bytes([byte; 8]); words] }
    }

    fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.tensor_type.bytes().unwrap()]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.tensor_type.bytes().unwrap()]
    }

    /// Returns the elements.
    pub(in crate::ops) fn elements<T: Element>(&self) -> Vec<T> {
        assert_eq!(self.tensor_type.dtype, T::DTYPE);
        bytemuck::cast_slice(self.bytes()).to_vec()
    }

    /// Returns the dimensions.
    pub(in crate::ops) fn dims(&self) -> &[u32] {
        self.tensor_type.shape.dims()
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Value) -> bool {
        self.tensor_type == other.tensor_type && self.bytes() == other.bytes()
    }
}

/// Returns pseudo-random numbers from -4 to 4 for a tensor of these dimensions. Each seed gives different numbers.
pub(in crate::ops) fn numbers(dims: &[u32], seed: u32) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        f64::from(state as i32 >> 8) / f64::from(1 << 21)
    };
    std::iter::repeat_with(next).take(Shape::new(dims).unwrap().elements().unwrap()).collect()
}

/// Returns [`numbers`] as an f32 value.
pub(in crate::ops) fn floats(dims: &[u32], seed: u32) -> Value {
    Value::new(&numbers(dims, seed).iter().map(|&x| x as f32).collect::<Vec<_>>(), dims)
}

/// Runs the kernel. Each pair in `shared` names an input and an output that share memory. Returns the result of the run, and the
/// outputs even if the kernel fails. Asserts that runs in slices give the same.
///
/// The outputs are filled with other bytes before the run. A kernel that skips an element is therefore detected.
pub(in crate::ops) fn run(kernel: &Kernel, attributes: &[u32], inputs: &[&Value], shared: &[(u8, u8)]) -> (Result<()>, Vec<Value>) {
    let whole = run_slices(kernel, attributes, inputs, shared, None);
    for budget in [0, 60, 1000] {
        let sliced = run_slices(kernel, attributes, inputs, shared, Some(budget));
        assert_eq!(sliced.0, whole.0, "{} in slices of {budget}", kernel.def.name);
        assert!(sliced == whole || whole.0.is_err(), "{} in slices of {budget}: {sliced:?}, not {whole:?}", kernel.def.name);
    }
    whole
}

/// Runs the kernel as [`run`] does, in slices of `budget` instructions. Every third slice may be empty. Without a budget, the kernel runs
/// in one call.
fn run_slices(
    kernel: &Kernel,
    attributes: &[u32],
    inputs: &[&Value],
    shared: &[(u8, u8)],
    budget: Option<u32>,
) -> (Result<()>, Vec<Value>) {
    let types: Vec<_> = inputs.iter().map(|input| input.tensor_type).collect();
    assert_eq!(types[0].dtype, kernel.dtype);
    let output_types = match kernel.def.output_types(&types, attributes) {
        Ok(types) => types,
        Err(error) => return (Err(error), Vec::new()),
    };
    let mut outputs: Vec<_> = output_types[..usize::from(kernel.def.outputs)].iter().map(|&t| Value::filled(t, 0xa5)).collect();
    for &(input, output) in shared {
        outputs[usize::from(output)].words.copy_from_slice(&inputs[usize::from(input)].words);
    }
    let views: Vec<_> = (0u8..)
        .zip(inputs)
        .map(|(index, input)| {
            let in_place = shared.iter().any(|pair| pair.0 == index);
            TensorView { tensor_type: &input.tensor_type, data: (!in_place).then(|| input.bytes()) }
        })
        .collect();
    let shapes: Vec<_> = outputs.iter().map(|output| output.tensor_type).collect();
    let mut view_muts: Vec<_> =
        outputs.iter_mut().zip(&shapes).map(|(output, tensor_type)| TensorViewMut { tensor_type, data: output.bytes_mut() }).collect();
    let mut slice = budget.map_or(Slice::all(), |budget| Slice { least: 1, ..Slice::of(budget) });
    let mut turns = 1u32..;
    let result = loop {
        let result = (kernel.run)(&mut Call { attributes, inputs: &views, outputs: &mut view_muts, slice: &mut slice });
        let Slice { first, least, next, .. } = slice;
        if result.is_err() || next == NONE {
            break result;
        }
        assert!(next > first || least == 0, "{} computes nothing", kernel.def.name);
        slice = Slice { first: next, least: u32::from(turns.next().unwrap() % 3 > 0), ..Slice::of(budget.unwrap_or(0)) };
    };
    drop(view_muts);
    (result, outputs)
}

/// Runs the kernel with separate outputs, and in place in every way that its op allows, as a whole and in slices. Asserts that all runs
/// give the same bits, and returns the outputs.
pub(in crate::ops) fn run_every_way(kernel: &Kernel, attributes: &[u32], inputs: &[&Value]) -> Vec<Value> {
    let (result, want) = run(kernel, attributes, inputs, &[]);
    result.unwrap();
    let pairs = kernel.def.in_place;
    for chosen in 0..1u32 << pairs.len() {
        let shared: Vec<_> = (0..).zip(pairs).filter(|(bit, _)| chosen >> bit & 1 == 1).map(|(_, &pair)| pair).collect();
        let fits = |&(input, output): &(u8, u8)| inputs[usize::from(input)].bytes().len() == want[usize::from(output)].bytes().len();
        let once = |&(input, output): &(u8, u8)| {
            let same = |other: &&(u8, u8)| other.1 == output && inputs[usize::from(other.0)] != inputs[usize::from(input)];
            !shared.iter().any(|other| same(&other))
        };
        if shared.iter().all(|pair| fits(pair) && once(pair)) {
            let (result, got) = run(kernel, attributes, inputs, &shared);
            result.unwrap();
            assert_eq!(got, want, "{} in place {shared:?}", kernel.def.name);
        }
    }
    want
}

/// Pairs of shapes that can be broadcast together.
pub(in crate::ops) const SHAPES: [(&[u32], &[u32]); 8] = [
    (&[3, 4], &[3, 4]),
    (&[3, 4], &[4]),
    (&[4], &[3, 4]),
    (&[3, 1], &[3, 4]),
    (&[2, 1, 2], &[3, 1]),
    (&[], &[2]),
    (&[19], &[]),
    (&[0, 3], &[3]),
];

/// Asserts that `got` equals `want` up to rounding. NaN equals NaN, and zeros must have the same sign. `what` names the case in the
/// message.
fn assert_near(got: f32, want: f32, what: &str) {
    let near = (got - want).abs() <= want.abs() * 1e-6 && got.is_sign_negative() == want.is_sign_negative();
    assert!(near || got == want && want != 0.0 || got.is_nan() && want.is_nan(), "{what} is {got}, not {want}");
}

/// Checks an f32 kernel with one input, in place and with a separate output. Each entry of `table` is an argument and the expected result.
pub(in crate::ops) fn check_unary(kernel: &Kernel, table: &[(f32, f32)]) {
    let x: Vec<f32> = table.iter().map(|row| row.0).collect();
    let y = run_every_way(kernel, &[], &[&Value::new(&x, &[x.len() as u32])])[0].elements::<f32>();
    table.iter().zip(y).for_each(|(&(x, want), y)| assert_near(y, want, &std::format!("{} of {x}", kernel.def.name)));
}

/// Checks an f32 kernel with two inputs, in place and with a separate output. Each entry of `table` is the two arguments and the
/// expected result.
pub(in crate::ops) fn check_binary(kernel: &Kernel, table: &[(f32, f32, f32)]) {
    let column = |pick: fn(&(f32, f32, f32)) -> f32| Value::new(&table.iter().map(pick).collect::<Vec<_>>(), &[table.len() as u32]);
    let y = run_every_way(kernel, &[], &[&column(|row| row.0), &column(|row| row.1)])[0].elements::<f32>();
    table.iter().zip(y).for_each(|(&(a, b, want), y)| assert_near(y, want, &std::format!("{} of {a} and {b}", kernel.def.name)));
}

/// Checks an f32 comparison kernel against the function `naive`, for all pairs of some special numbers.
pub(in crate::ops) fn check_comparison(kernel: &Kernel, naive: fn(f32, f32) -> bool) {
    let odd = [f32::NAN, f32::NEG_INFINITY, -1.0, -0.0, 0.0, 2.0, f32::INFINITY];
    let (result, y) = run(kernel, &[], &[&Value::new(&odd, &[7, 1]), &Value::new(&odd, &[7])], &[]);
    assert_eq!(result, Ok(()));
    let want: Vec<Bool> = odd.iter().flat_map(|&a| odd.map(|b| naive(a, b).into())).collect();
    assert_eq!(y[0].elements::<Bool>(), want);
}

/// Asserts that an integer division fails if it would divide by a 0, and only then.
pub(in crate::ops) fn check_division(kernel: &Kernel) {
    let divide = |a: &Value, b: &Value| run(kernel, &[], &[a, b], &[]).0;
    let (a, none) = (Value::new(&[5, 6], &[2, 1]), Value::new::<i32>(&[], &[0, 1]));
    assert_eq!(divide(&a, &Value::new(&[1, 2, 0], &[3])), Err(Error::DivisionByZero { node: 0, position: 2 }));
    assert_eq!(divide(&none, &Value::new(&[0], &[])), Ok(()));
}

/// Checks a boolean kernel against the function `naive`, for all pairs of booleans.
pub(in crate::ops) fn check_logical(kernel: &Kernel, naive: fn(bool, bool) -> bool) {
    let all = [Bool(0), Bool(1), Bool(9)];
    let y = &run_every_way(kernel, &[], &[&Value::new(&all, &[3, 1]), &Value::new(&all, &[3])])[0];
    let want: Vec<u8> = all.iter().flat_map(|a| all.map(|b| naive(a.get(), b.get()).into())).collect();
    assert_eq!(y.elements::<Bool>().iter().map(|y| y.0).collect::<Vec<u8>>(), want);
}

/// Returns the index of each element of a tensor of `dims`, in row-major order.
pub(in crate::ops) fn indices(dims: &[u32]) -> Vec<Vec<u32>> {
    dims.iter().fold(std::vec![Vec::new()], |indices, &dim| {
        let longer = |index: Vec<u32>| (0..dim).map(move |last| index.iter().copied().chain([last]).collect());
        indices.into_iter().flat_map(longer).collect()
    })
}

/// Returns the position in row-major order of the element at `index`, in a tensor of `dims`.
pub(in crate::ops) fn position(dims: &[u32], index: &[u32]) -> usize {
    dims.iter().zip(index).fold(0, |position, (&dim, &index)| position * dim as usize + index as usize)
}

/// Returns every list of at most `rank` dimensions, each taken from `choices`.
pub(in crate::ops) fn shapes(rank: usize, choices: &[u32]) -> Vec<Vec<u32>> {
    let mut all = std::vec![Vec::new()];
    let mut last = all.clone();
    for _ in 0..rank {
        let longer = |dims: &Vec<u32>| choices.iter().map(|&dim| dims.iter().copied().chain([dim]).collect()).collect::<Vec<_>>();
        last = last.iter().flat_map(longer).collect();
        all.extend(last.clone());
    }
    all
}

/// Checks the gradient rule of `op` against central differences, for every f64 input.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn check_gradient(op: &'static crate::tensor::scope::Op, attributes: &[u32], inputs: &[crate::tensor::Tensor]) {
    use crate::base::dtype::DType;
    use crate::tensor::Tensor;
    use crate::tensor::scope::{Backward, Gradient};
    let device = device();
    let Gradient::Rule(rule) = op.grad else { panic!("{} has no gradient", op.def.name) };
    let references = |inputs: &[Tensor]| {
        let inputs: Vec<_> = inputs.iter().collect();
        Tensor::emit1(op, attributes, &inputs).unwrap()
    };
    let output = references(inputs);
    let upstream = numbers(output.dims(), 77);
    let wanted: Vec<_> = inputs.iter().map(|input| input.dtype() == DType::F64).collect();
    let gradients = rule(&Backward {
        attributes,
        inputs,
        outputs: core::slice::from_ref(&output),
        upstream: &[Some(Tensor::new(device, &upstream, output.dims()).unwrap())],
        wanted: &wanted,
    });
    let gradients = gradients.unwrap();
    assert_eq!(gradients.len(), inputs.len());
    for (index, input) in inputs.iter().enumerate().filter(|&(index, _)| wanted[index]) {
        let Some(gradient) = &gradients[index] else { continue };
        assert_eq!(gradient.tensor_type(), input.tensor_type(), "{} input {index}", op.def.name);
        let elements = input.to_vec::<f64>().unwrap();
        for (at, got) in gradient.to_vec::<f64>().unwrap().into_iter().enumerate() {
            let target = |step: f64| {
                let mut moved = elements.clone();
                moved[at] += step;
                let mut inputs = inputs.to_vec();
                inputs[index] = Tensor::new(device, &moved, input.dims()).unwrap();
                references(&inputs).to_vec::<f64>().unwrap().iter().zip(&upstream).map(|(y, dy)| y * dy).sum::<f64>()
            };
            let want = (target(1e-5) - target(-1e-5)) / 2e-5;
            assert!((got - want).abs() <= 1e-6 * (1.0 + want.abs()), "{} input {index} at {at}: {got}, not {want}", op.def.name);
        }
    }
}

/// Returns the device that all tests share. Tensors of two devices cannot be inputs of the same op.
#[cfg(feature = "alloc")]
pub(in crate::ops) fn device() -> &'static crate::tensor::device::Device {
    static DEVICE: std::sync::OnceLock<crate::tensor::device::Device> = std::sync::OnceLock::new();
    DEVICE.get_or_init(crate::ops::portable_cpu)
}

/// Creates a tensor of [`numbers`].
#[cfg(feature = "alloc")]
pub(in crate::ops) fn tensor(dims: &[u32], seed: u32) -> crate::tensor::Tensor {
    crate::tensor::Tensor::new(device(), &numbers(dims, seed), dims).unwrap()
}
