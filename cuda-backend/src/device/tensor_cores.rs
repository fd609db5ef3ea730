//! The check of the kernels on tensor cores: before their first use on a GPU, some of them compute products whose results the host knows.

use crate::device::Shared;
use crate::device::launch::Operand;
use crate::gpu::region::Allocation;
use crate::lower::tensor_core::sample::{Sample, samples};
use crate::lower::{Target, TensorCores};
use gradlet_core::Result;

/// Returns the kernels that `target` may use and that compute right results on the GPU of `device`. Warns if some do not.
pub(crate) fn checked(device: &Shared, target: &Target) -> TensorCores {
    let wrong = |sample: &Sample| match is_right(device, sample) {
        Ok(true) => None,
        Ok(false) => Some((sample.level, "it computed a wrong product".to_string())),
        Err(error) => Some((sample.level, error.to_string())),
    };
    let samples = samples(target).unwrap_or_default();
    let Some((level, why)) = samples.iter().find_map(wrong) else { return target.tensor_cores };
    let (kernels, left) = match level {
        TensorCores::Warpgroups => ("warpgroups", TensorCores::Warps),
        _ => ("warps", TensorCores::None),
    };
    eprintln!("gradlet: {} does not use the tensor cores by kernels for {kernels}, because one failed: {why}", device.name());
    left
}

/// True if the kernel of a sample computes its result.
fn is_right(device: &Shared, sample: &Sample) -> Result<bool> {
    // If the driver refuses a kernel, no work is under way that uses the memory.
    let mut calls = sample.calls.iter().map(|call| device.ready(call, 0)).collect::<Result<Vec<_>>>()?;
    let bytes = |elements: &[u16]| elements.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<u8>>();
    let stream = device.stream();
    let place = |elements: &[u16]| Allocation::new(stream.context(), 2 * elements.len() as u64);
    let [a, b, y] = [place(&sample.operands[0])?, place(&sample.operands[1])?, place(&sample.result)?];
    for (operand, elements) in [&a, &b].into_iter().zip(&sample.operands) {
        stream.upload(&bytes(elements), operand.address())?;
    }
    for call in &mut calls {
        call.place(|operand| match operand {
            Operand::Input(index) => [&a, &b].get(index).map(|operand| operand.address()),
            Operand::Output(_) => Some(y.address()),
        })?;
        call.launch(stream.enter()?, stream.handle())?;
    }
    let mut got = vec![0; 2 * sample.result.len()];
    stream.download(y.address(), &mut got)?;
    Ok(got == bytes(&sample.result))
}
