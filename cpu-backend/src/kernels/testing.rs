//! Comparison of fast kernels with the portable ones.

use gradlet_core::custom_op::{Call, Kernel, Slice};
use gradlet_core::device::AlignedBytes;
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Shape, TensorType};

/// Returns the number of cases of a long test: a quarter where QEMU may run it, which takes 50 times as long.
pub(super) const fn cases(most: u64) -> u64 {
    if cfg!(target_arch = "aarch64") { most / 4 } else { most }
}

/// Pseudorandom numbers from a seed.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number from `low` to `high`.
    pub(super) fn between(&mut self, low: u32, high: u32) -> u32 {
        low + (self.next() >> 33) as u32 % (high - low + 1)
    }

    /// Returns a tensor of floats of this type and shape: numbers from -4 to 4. About `odd` of 40 are 0, infinite or NaN.
    pub(super) fn numbers(&mut self, dtype: DType, dims: &[u32], odd: u32) -> Value {
        let mut value = Value::zeros(dtype, dims);
        let mut number = || match self.between(0, 39) < odd {
            true => [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN][self.between(0, 4) as usize],
            false => (self.next() >> 40) as f64 / f64::from(1u32 << 21) - 4.0,
        };
        match dtype {
            DType::F64 => bytemuck::cast_slice_mut(&mut value.bytes).iter_mut().for_each(|x: &mut f64| *x = number()),
            _ => value.floats_mut().iter_mut().for_each(|x| *x = number() as f32),
        }
        value
    }

    /// Returns a tensor of booleans of this shape.
    pub(super) fn booleans(&mut self, dims: &[u32]) -> Value {
        let mut value = Value::zeros(DType::Bool, dims);
        value.bytes.iter_mut().for_each(|byte| *byte = (self.next() >> 40) as u8 % 2);
        value
    }

    /// Returns a tensor of this shape with numbers from -1 to 1.
    pub(super) fn tensor(&mut self, dims: &[u32]) -> Value {
        let mut value = Value::zeros(DType::F32, dims);
        value.floats_mut().iter_mut().for_each(|x| *x = (self.next() >> 40) as f32 / (1u32 << 23) as f32 - 1.0);
        value
    }
}

/// A tensor with its memory.
#[derive(Clone)]
pub(super) struct Value {
    tensor_type: TensorType,
    bytes: AlignedBytes,
}

impl Value {
    pub(super) fn zeros(dtype: DType, dims: &[u32]) -> Value {
        let tensor_type = TensorType::new(dtype, Shape::new(dims).unwrap());
        Value { tensor_type, bytes: AlignedBytes::zeroed(tensor_type.bytes().unwrap()) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    pub(super) fn floats_mut(&mut self) -> &mut [f32] {
        bytemuck::cast_slice_mut(&mut self.bytes)
    }

    pub(super) fn floats(&self) -> &[f32] {
        bytemuck::cast_slice(&self.bytes)
    }

    /// Returns the tensor of floats with elements of f64.
    pub(super) fn to_f64(&self) -> Value {
        let mut wide = Value::zeros(DType::F64, self.dims());
        bytemuck::cast_slice_mut(&mut wide.bytes).copy_from_slice(&self.wide());
        wide
    }

    /// Returns the elements, which are f32, f64, i8 or booleans.
    fn wide(&self) -> Vec<f64> {
        match self.tensor_type.dtype {
            DType::Bool => self.bytes.iter().map(|&byte| f64::from(byte)).collect(),
            DType::F64 => bytemuck::cast_slice(&self.bytes).to_vec(),
            DType::I8 => self.bytes.iter().map(|&byte| f64::from(byte as i8)).collect(),
            _ => self.floats().iter().map(|&x| f64::from(x)).collect(),
        }
    }

    pub(super) fn dims(&self) -> &[u32] {
        self.tensor_type.shape.dims()
    }
}

/// Runs `kernel` and returns its outputs. The inputs and outputs at `shared` share their bytes. Returns `None` if the op rejects
/// the inputs.
fn run(kernel: &Kernel, attributes: &[u32], inputs: &[&Value], shared: &[(u8, u8)]) -> Option<Vec<Value>> {
    let types: Vec<TensorType> = inputs.iter().map(|value| value.tensor_type).collect();
    let output_types = kernel.def.output_types(&types, attributes).ok()?;
    let output_types = &output_types[..usize::from(kernel.def.outputs)];
    let mut outputs: Vec<Value> = output_types.iter().map(|of| Value::zeros(of.dtype, of.shape.dims())).collect();
    outputs.iter_mut().for_each(|output| output.bytes.fill(0xff));
    for &(input, output) in shared {
        outputs[usize::from(output)].bytes.copy_from_slice(&inputs[usize::from(input)].bytes);
    }
    let in_place = |index: usize| shared.iter().any(|&(input, _)| usize::from(input) == index);
    let view = |(index, value)| {
        let value: &&Value = value;
        TensorView { tensor_type: &value.tensor_type, data: (!in_place(index)).then_some(&*value.bytes) }
    };
    let views: Vec<TensorView<'_>> = inputs.iter().enumerate().map(view).collect();
    let mut view_muts: Vec<TensorViewMut<'_>> =
        outputs.iter_mut().zip(output_types).map(|(value, tensor_type)| TensorViewMut { tensor_type, data: &mut value.bytes }).collect();
    (kernel.run)(&mut Call { attributes, inputs: &views, outputs: &mut view_muts, slice: &mut Slice::all() }).unwrap();
    drop(view_muts);
    Some(outputs)
}

/// Returns output 0 of `kernel`, for inputs that its op accepts.
pub(super) fn result(kernel: &Kernel, attributes: &[u32], inputs: &[&Value]) -> Value {
    run(kernel, attributes, inputs, &[]).unwrap().swap_remove(0)
}

/// Compares the `fast` kernel with the `portable` one, with separate outputs and in place. Panics if they differ by more than
/// rounding. Returns false if the op rejects the inputs.
pub(super) fn same(fast: &Kernel, portable: &Kernel, attributes: &[u32], inputs: &[&Value]) -> bool {
    let Some(want) = run(portable, attributes, inputs, &[]) else { return false };
    let dims: Vec<&[u32]> = inputs.iter().map(|input| input.dims()).collect();
    for chosen in 0..1u32 << fast.def.in_place.len() {
        let pairs = (0..).zip(fast.def.in_place).filter(|(bit, _)| chosen >> bit & 1 == 1);
        let shared: Vec<(u8, u8)> = pairs.map(|(_, &pair)| pair).collect();
        let value = |&(input, _): &(u8, u8)| -> *const Value { inputs[usize::from(input)] };
        let twice = |pair: &(u8, u8)| shared.iter().any(|other| other.1 == pair.1 && value(other) != value(pair));
        let unlike = |&(input, output): &(u8, u8)| inputs[usize::from(input)].tensor_type != want[usize::from(output)].tensor_type;
        if shared.iter().any(|pair| twice(pair) || unlike(pair)) {
            continue;
        }
        let got = run(fast, attributes, inputs, &shared).unwrap();
        for (got, want) in got.iter().zip(&want) {
            let close = |(got, want): (&f64, &f64)| {
                (got - want).abs() <= 1e-4 * want.abs().max(1.0) || got == want || (got.is_nan() && want.is_nan())
            };
            let (got, want) = (got.wide(), want.wide());
            if let Some(at) = got.iter().zip(&want).position(|pair| !close(pair)) {
                let (got, want) = (got[at], want[at]);
                panic!("{} {attributes:?} of {dims:?}, {shared:?} in place: element {at} is {got}, not {want}", fast.def.name);
            }
        }
    }
    true
}
