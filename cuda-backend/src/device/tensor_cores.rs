//! The check of the kernels on tensor cores, and of cuBLASLt: before their first use on a GPU, they compute products whose results the host
//! knows.

use crate::device::Shared;
use crate::device::launch::Operand;
use crate::gpu::cublaslt::Places;
use crate::gpu::region::Allocation;
use crate::lower::call::KernelCall;
use crate::lower::tensor_core::sample::{Sample, products, samples};
use crate::lower::{Target, TensorCores};
use gradlet_core::Result;

/// Returns the kernels that `target` may use and that compute right results on the GPU of `device`. Warns if some do not.
pub(crate) fn checked(device: &Shared, target: &Target) -> TensorCores {
    let samples = samples(target).unwrap_or_default();
    let wrong =
        samples.iter().find_map(|sample| Some((sample.work.0, fault(device, sample, |work, places| launch(device, &work.1, places))?)));
    let Some((level, why)) = wrong else { return target.tensor_cores };
    let (kernels, left) = match level {
        TensorCores::Warpgroups => ("warpgroups", TensorCores::Warps),
        _ => ("warps", TensorCores::None),
    };
    eprintln!("gradlet: {} does not use the tensor cores by kernels for {kernels}, because one failed: {why}", device.name());
    left
}

/// True if cuBLASLt computes right results on the GPU of `device`. Warns if it does not.
pub(super) fn cublaslt_is_right(device: &Shared) -> bool {
    let samples = products(&device.target()).unwrap_or_default();
    let wrong = samples.iter().find_map(|sample| fault(device, sample, |product, places| device.multiply(product, places)));
    wrong.iter().for_each(|why| eprintln!("gradlet: {} does not use cuBLASLt, because it failed: {why}", device.name()));
    wrong.is_none()
}

/// Puts kernels on the stream of the device.
fn launch(device: &Shared, calls: &[KernelCall], places: &Places) -> Result<()> {
    let mut calls = calls.iter().map(|call| device.ready(call, 0)).collect::<Result<Vec<_>>>()?;
    calls.iter_mut().try_for_each(|call| {
        call.place(|operand| match operand {
            Operand::Input(index) => places.operands.get(index).copied(),
            Operand::Output(_) => Some(places.result),
        })?;
        call.launch(device.stream().enter()?, device.stream().handle())
    })
}

/// Lets `run` compute a sample. Returns what is wrong with it, or `None` if it is right.
fn fault<W>(device: &Shared, sample: &Sample<W>, run: impl FnOnce(&W, &Places) -> Result<()>) -> Option<String> {
    match is_right(device, sample, run) {
        Ok(true) => None,
        Ok(false) => Some("it computed a wrong product".to_string()),
        Err(error) => Some(error.to_string()),
    }
}

fn is_right<W>(device: &Shared, sample: &Sample<W>, run: impl FnOnce(&W, &Places) -> Result<()>) -> Result<bool> {
    let bytes = |elements: &[u16]| elements.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<u8>>();
    let stream = device.stream();
    let place = |elements: &[u16]| Allocation::new(stream.context(), 2 * elements.len() as u64);
    let [a, b, y] = [place(&sample.operands[0])?, place(&sample.operands[1])?, place(&sample.result)?];
    for (operand, elements) in [&a, &b].into_iter().zip(&sample.operands) {
        stream.upload(&bytes(elements), operand.address())?;
    }
    let computed = run(&sample.work, &Places { operands: [a.address(), b.address()], bias: 0, result: y.address() });
    // After a failure too, no work uses the memory when it is freed.
    stream.synchronize()?;
    computed?;
    let mut got = vec![0; 2 * sample.result.len()];
    stream.download(y.address(), &mut got)?;
    Ok(got == bytes(&sample.result))
}
