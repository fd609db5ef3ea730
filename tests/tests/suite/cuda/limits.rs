//! GPUs with little memory: training steps under a limit, refused at each place.

use crate::cnn::{Bits, Cnn, bytes};
use gradlet::cuda::Options;
use gradlet_core::error::OutOfMemory;
use gradlet_core::{Eager, Error, Function, Result, Scope, Tensor};
use gradlet_tests::gpu::Emulator;

/// Size of a block in bytes.
const GRAIN: u64 = 256;

fn shortage(error: &Error) -> &OutOfMemory {
    match error.root() {
        Error::OutOfMemory(shortage) => shortage,
        error => panic!("{error}"),
    }
}

/// Trains one step eagerly or compiled within each limit, from one that is too small for the variables to one that is large enough. Each
/// allocation is therefore refused at least once.
fn within_each_limit(compiled: bool) -> Result<()> {
    let emulator = Emulator::new()?;
    let gpu = emulator.device()?;
    let reference = Cnn::new(&gpu, 1)?;
    let before = reference.state();
    let step = |cnn: &std::sync::Arc<Cnn>| -> Result<Vec<u8>> {
        let (x, labels) = cnn.batch(0)?;
        Ok(bytes(&if compiled { cnn.compiled().call(&cnn.scope, (x, labels))? } else { cnn.step(&cnn.scope, &x, &labels)? }))
    };
    let loss = step(&reference)?;
    let after = reference.state();
    let (mut refused_builds, mut refused_steps, mut limit) = (0, 0, 4 * GRAIN);
    loop {
        let device = emulator.limited(limit)?;
        match Cnn::new(&device, 1) {
            Err(error) => {
                assert!(shortage(&error).limit == Some(limit), "{error}");
                refused_builds += 1;
            }
            Ok(cnn) => match step(&cnn) {
                Err(error) => {
                    assert!(!shortage(&error).holders.is_empty(), "{error}");
                    assert!(unspoilt(&cnn.state(), &before, &after), "a variable is neither old nor new within {limit} bytes");
                    refused_steps += 1;
                }
                Ok(own) => {
                    assert!(own == loss && cnn.state() == after, "within {limit} bytes");
                    break;
                }
            },
        }
        assert_eq!(device.memory_info().current, 0, "memory leaks within {limit} bytes");
        limit += GRAIN;
    }
    assert!(refused_builds > 3 && refused_steps > 5, "{refused_builds} models and {refused_steps} steps were refused");
    assert_eq!(emulator.report(), "");
    Ok(())
}

fn unspoilt(state: &Bits, before: &Bits, after: &Bits) -> bool {
    state.iter().zip(before.iter().zip(after)).all(|(own, (old, new))| own == old || own == new)
}

#[test]
fn an_eager_step_within_each_limit() -> Result<()> {
    within_each_limit(false)
}

#[test]
fn a_compiled_step_within_each_limit() -> Result<()> {
    within_each_limit(true)
}

/// The driver refuses memory while a device grows.
#[test]
fn a_gpu_without_memory_says_who_holds_it() -> Result<()> {
    let emulator = Emulator::with("memory=16777216")?;
    let device = emulator.device()?;
    let held = Tensor::full(&device, 1.0f32, &[1 << 20])?;
    let error = Tensor::full(&device, 1.0f32, &[4 << 20]).unwrap_err();
    let shortage = shortage(&error).clone();
    assert_eq!((shortage.requested, shortage.holders.len()), (16 << 20, 1), "{error}");
    assert_eq!(held.mean(&[], false)?.item::<f32>()?, 1.0);
    assert!(Tensor::full(&device, 1.0f32, &[shortage.largest as u32 / 4]).is_ok(), "{error}");
    Ok(())
}

#[test]
fn a_limit_above_the_memory_is_refused() -> Result<()> {
    let emulator = Emulator::with("memory=16777216")?;
    let error = emulator.limited(64 << 20).unwrap_err().to_string();
    assert!(error.contains("GPU:0") && error.contains("67108864 bytes") && error.contains("CUDA_ERROR_OUT_OF_MEMORY"), "{error}");
    Ok(())
}

#[test]
fn a_limit_is_exact() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.limited(1 << 16)?;
    let blocks: Vec<Tensor> = (0..256).map(|_| Tensor::full(&device, 3u8, &[256])).collect::<Result<_>>()?;
    assert_eq!(device.memory_info().current, 1 << 16);
    let error = Tensor::full(&device, 3u8, &[1]).unwrap_err();
    assert_eq!((shortage(&error).free, shortage(&error).limit), (0, Some(1 << 16)));
    drop(blocks);
    assert_eq!(Tensor::full(&device, 3u8, &[1 << 16])?.dims(), [1 << 16]);
    Ok(())
}

/// A plan that joins neighbours has three values at once. Where memory is too short for it, another plan has one, and the same result.
#[test]
fn neighbours_stay_apart_where_memory_is_short() -> Result<()> {
    let emulator = Emulator::new()?;
    let run = |memory_limit| -> Result<(u64, Vec<u8>)> {
        let device = emulator.gpu()?.create("GPU:0", &Options { memory_limit, ..Options::default() })?;
        let function = Function::new(|_: &dyn Scope, x: Tensor| {
            let rows = |count| x.broadcast_to(&[count, 4096]);
            let (whole, one, other) = (rows(8)?, rows(1)?, rows(1)?);
            whole.mul(&one.sum(&[], false)?.add(&other.sum(&[], false)?)?)?.sum(&[], false)
        });
        let result = function.call(&Eager::new(&device), Tensor::full(&device, 0.1f32, &[])?)?;
        Ok((device.memory_info().peak, bytes(&result)))
    };
    let (peak, result) = run(None)?;
    let limit = peak - 8192;
    let (lowest, own) = run(Some(limit))?;
    assert!(lowest <= limit && own == result, "{lowest} of {limit} bytes");
    assert_eq!(emulator.report(), "");
    Ok(())
}
