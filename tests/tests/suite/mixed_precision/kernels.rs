//! A device with kernels of its own for 16-bit floats, such as a GPU, receives the operands of mixed precision in 16 bits.

use gradlet_core::custom_op::{Call, Op};
use gradlet_core::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Padding, Sequential};
use gradlet_core::{DType, DTypePolicy, Device, Differentiate, Eager, Function, Kernel, Result, Scope, Tensor, ops};
use half::f16;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Computes `op` on f16 operands in f32, and counts the call.
fn run(op: &'static Op, count: &AtomicUsize, call: &mut Call<'_, '_>) -> Result<()> {
    call.rows(1, 1);
    let scope = Eager::new(&ops::portable_cpu());
    let mut wide = Vec::new();
    for input in call.inputs {
        assert_eq!(input.dtype(), DType::F16, "{}", op.def.name);
        wide.push(Tensor::new(&scope.device(), input.slice::<f16>(), input.dims())?.cast(DType::F32)?);
    }
    let outputs = scope.emit(op, call.attributes, &wide.iter().collect::<Vec<_>>())?;
    call.output()?.slice_mut::<f16>().copy_from_slice(&outputs[0].cast(DType::F16)?.to_vec::<f16>()?);
    count.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

macro_rules! kernels {
    ($($count:ident $op:ident),*) => {
        $(static $count: AtomicUsize = AtomicUsize::new(0);)*

        /// The kernels of f16, and the numbers of their calls.
        static KERNELS: &[(Kernel, &AtomicUsize)] =
            &[$((Kernel { def: &ops::$op::DEF, dtype: DType::F16, run: |call| run(&ops::$op::OP, &$count, call) }, &$count)),*];
    };
}
kernels!(
    MATMUL matmul, DENSE dense, CONV2D conv2d, FILTER conv2d_filter_grad, INPUT conv2d_input_grad, POOL max_pool2d,
    POOL_GRAD max_pool2d_grad, SUM sum
);

/// Returns the gradients of a small network on `device`, eagerly and compiled.
fn gradients(device: &Device) -> Vec<Vec<f32>> {
    let scope = Eager::with_seed(device, 3);
    let conv = |filters| Conv2D::new(filters, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
    let layers = Sequential::new().with(conv(4)).with(MaxPool2D::new([2, 2])).with(conv(3)).with(Flatten).with(Dense::new(5));
    let model = Arc::new(layers.dtype(DTypePolicy::MixedFloat16));
    let x = Tensor::new(device, &scope.next_stream().unwrap().uniform(2 * 8 * 8), &[2, 8, 8, 1]).unwrap();
    model.apply(&scope, &x).unwrap();
    let called = model.clone();
    let step = move |scope: &dyn Scope, x: Tensor| -> Result<Vec<Tensor>> {
        let tape = scope.tape();
        let y = called.apply(&tape, &x)?;
        let gradients = tape.gradient(&y.mul(&y)?, &called.trainable_variables())?;
        gradients.into_iter().map(|(_, gradient)| gradient.ok_or_else(|| gradlet_core::Error::message("no gradient"))).collect()
    };
    let eager = step(&scope, x.clone()).unwrap();
    let compiled = Function::new(step).call(&scope, x).unwrap();
    eager.iter().chain(&compiled).map(|gradient| gradient.to_vec::<f32>().unwrap()).collect()
}

/// Products, convolutions, pooling, sums and their gradients run on the device's kernels of f16, both eagerly and compiled. Here these
/// kernels round the result of f32, as a device without them does, so all bits are equal.
#[test]
fn a_device_computes_in_its_own_16_bits() {
    let kernels: Vec<&'static Kernel> = ops::KERNELS.iter().copied().chain(KERNELS.iter().map(|(kernel, _)| kernel)).collect();
    let wanted = gradients(&ops::portable_cpu());
    assert_eq!(gradients(&Device::cpu("halves", kernels.leak())), wanted);
    for (kernel, count) in KERNELS {
        assert!(count.load(Ordering::Relaxed) >= 2, "{} ran {} times", kernel.def.name, count.load(Ordering::Relaxed));
    }
}
