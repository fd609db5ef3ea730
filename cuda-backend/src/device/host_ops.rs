//! Ops that the host computes for a GPU: branches, loops and messages, quantised ops, reductions of 16-bit integers, collective operations,
//! and the errors of refused data.

use crate::device::{Part, Shared};
use crate::lower;
use gradlet_core::custom_op::{Call, Kernel, OpCode, OpDef, Slice};
use gradlet_core::device::{AlignedBytes, Launch, Placed};
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Error, Result, ops};
use std::sync::Arc;

/// Function that combines the part of a device with those of other devices, in the GPUs' memory. Returns false if the operands must be
/// copied to the host.
pub type Combine = fn(Part) -> Result<bool>;

/// Ops on quantised tensors, for which the GPU has no kernels.
const QUANTIZED: [OpCode; 22] = [
    ops::code::quantize,
    ops::code::dequantize,
    ops::code::requantize,
    ops::code::lookup,
    ops::code::quantized_dense,
    ops::code::quantized_conv2d,
    ops::code::quantized_depthwise_conv2d,
    ops::code::quantized_add,
    ops::code::quantized_mul,
    ops::code::quantized_avg_pool2d,
    ops::code::quantized_mean,
    ops::code::quantized_softmax,
    ops::code::quantized_sigmoid,
    ops::code::quantized_lstm_step,
    ops::code::packed_conv2d,
    ops::code::packed_depthwise_conv2d,
    ops::code::packed_dense,
    ops::code::quantized_matmul,
    ops::code::quantized_squared_difference,
    ops::code::quantized_resize_bilinear,
    ops::code::quantized_l2_normalize,
    ops::code::quantized_svdf_step,
];

/// True if the host computes an op of which the GPU has the operands: it has no kernel for quantised tensors, nor for some integers of 16
/// bits.
pub(crate) fn is_on_host(op: &OpDef, dtype: DType) -> bool {
    op.outputs > 0 && (QUANTIZED.contains(&op.code) || !lower::is_for_gpu(op, dtype))
}

/// The kernels that run on the host.
pub(crate) struct HostOps {
    /// The portable kernels of branches, loops, ops without outputs and those of [`is_on_host`], then the others.
    kernels: Vec<&'static Kernel>,
    /// The kernels of collective operations, whose operands are copied to the host and back unless they are combined on the GPUs.
    moved: &'static [Kernel],
    combine: Option<Combine>,
}

impl HostOps {
    pub(crate) fn new(moved: &'static [Kernel], combine: Option<Combine>) -> HostOps {
        let control = [ops::code::cond, ops::code::while_loop];
        let has = |kernel: &&&Kernel| kernel.def.outputs == 0 || control.contains(&kernel.def.code) || is_on_host(kernel.def, kernel.dtype);
        let own = ops::KERNELS.iter().filter(has);
        HostOps { kernels: own.copied().chain(moved).collect(), moved, combine }
    }

    pub(crate) fn kernels(&self) -> &[&'static Kernel] {
        &self.kernels
    }

    pub(crate) fn has(&self, op: &OpDef, dtype: DType) -> bool {
        find(self.kernels.iter().copied(), op, dtype).is_ok()
    }

    /// True if `op` is a collective operation.
    pub(crate) fn moves(&self, op: &OpDef) -> bool {
        self.moved.iter().any(|kernel| kernel.def.code == op.code)
    }

    /// Runs an op without outputs on operands of the host.
    pub(crate) fn effect(&self, op: &OpDef, call: &mut Call<'_, '_>) -> Result<()> {
        let dtype = call.inputs.first().map_or(DType::U8, |input| input.tensor_type.dtype);
        (find(self.kernels.iter().copied(), op, dtype)?.run)(call)
    }

    /// Runs an op, or a collective op once for each of several launches that do not depend on each other. Unless the GPUs combine their
    /// operands, the op runs on copies of them, and the outputs are copied back.
    pub(crate) fn run(&self, device: &Arc<Shared>, launches: &[Launch<'_>]) -> Result<()> {
        let combine = self.combine.filter(|_| launches.iter().all(|launch| self.moves(launch.op)));
        if let Some(combine) = combine
            && combine(Part::new(device, launches)?)?
        {
            return Ok(());
        }
        for launch in launches {
            let outputs = self.computed(device, launch)?;
            for (output, placed) in outputs.iter().zip(launch.outputs).filter(|(output, _)| !output.is_empty()) {
                device.upload(output, placed.address)?;
            }
        }
        Ok(())
    }

    /// Returns the error of an op that has refused its data: that of the portable kernel on the same data.
    pub(crate) fn refusal(&self, device: &Shared, launch: &Launch<'_>) -> Error {
        let disagree = || Error::message(format!("{} refused its data on {}, but not on a CPU", launch.op.name, device.name()));
        self.computed(device, launch).err().unwrap_or_else(disagree)
    }

    /// Computes an op with a portable kernel, on copies of its inputs.
    fn computed(&self, device: &Shared, launch: &Launch<'_>) -> Result<Vec<AlignedBytes>> {
        let dtype = launch.inputs.first().or(launch.outputs.first()).map_or(DType::U8, |placed| placed.tensor_type.dtype);
        let kernel = find(self.moved, launch.op, dtype).or_else(|_| find(ops::KERNELS.iter().copied(), launch.op, dtype))?;
        let zeros = |placed: &Placed<'_>| AlignedBytes::staged(placed.tensor_type.bytes().unwrap_or(0));
        let mut read = Vec::new();
        for placed in launch.inputs {
            let mut bytes = zeros(placed)?;
            if !bytes.is_empty() {
                device.download(placed.address, &mut bytes)?;
            }
            read.push(bytes);
        }
        let mut results: Vec<AlignedBytes> = launch.outputs.iter().map(zeros).collect::<Result<_>>()?;
        let views =
            launch.inputs.iter().zip(&read).map(|(placed, bytes)| TensorView { tensor_type: placed.tensor_type, data: Some(bytes) });
        let views: Vec<TensorView<'_>> = views.collect();
        let slots = launch.outputs.iter().zip(&mut results).map(|(placed, data)| TensorViewMut { tensor_type: placed.tensor_type, data });
        let mut slots: Vec<TensorViewMut<'_>> = slots.collect();
        (kernel.run)(&mut Call { attributes: launch.attributes, inputs: &views, outputs: &mut slots, slice: &mut Slice::all() })?;
        drop(slots);
        Ok(results)
    }
}

fn find(kernels: impl IntoIterator<Item = &'static Kernel>, op: &OpDef, dtype: DType) -> Result<&'static Kernel> {
    let found = kernels.into_iter().find(|kernel| kernel.def.code == op.code && kernel.dtype == dtype);
    found.ok_or(Error::NoKernel { op: op.name, dtype })
}
