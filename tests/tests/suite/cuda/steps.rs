//! The cost of a training step in launches, copies and allocations; and nothing that a device leaves behind.

use crate::cnn::{Cnn, bytes};
use gradlet::cuda::Options;
use gradlet_core::layers::{Layer, SimpleRNN};
use gradlet_core::{Eager, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::gpu::Emulator;
use std::sync::Arc;

#[test]
fn a_compiled_step_is_one_graph_and_its_loss_needs_no_download() -> Result<()> {
    let emulator = Emulator::new()?;
    let (own, other) = (Cnn::new(&emulator.device()?, 1)?, Cnn::new(&ops::portable_cpu(), 1)?);
    let (train, wanted) = (own.compiled(), other.compiled());
    for index in 0..5 {
        let batch = own.batch(index)?;
        let (loss, counts) = emulator.during(|| -> Result<f32> { train.call(&own.scope, batch)?.item::<f32>() });
        let loss = loss?;
        if index > 0 {
            assert_eq!((counts.graph_launches, counts.kernel_launches), (1, 0), "step {index}: {counts:?}");
            assert_eq!((counts.downloads, counts.uploads, counts.synchronizations), (0, 0, 2), "step {index}: {counts:?}");
            assert_eq!((counts.allocations, counts.device_copies, counts.fills), (0, 0, 0), "step {index}: {counts:?}");
        }
        let expected = wanted.call(&other.scope, other.batch(index)?)?.item::<f32>()?;
        assert!((loss - expected).abs() <= 1e-5 * expected.abs(), "step {index}: {loss}, on the CPU {expected}");
    }
    Ok(())
}

/// A GPU's trace has the steps of a recurrent layer one by one, so that one graph computes them. Without that, and for a long sequence, the
/// host decides about each step of a loop.
#[test]
fn a_recurrent_layer_is_one_graph() -> Result<()> {
    for (steps, unroll, whole) in [(5, None, true), (5, Some(false), false), (128, None, true), (129, None, false), (129, Some(true), true)]
    {
        let emulator = Emulator::new()?;
        let scope = Eager::new(&emulator.device()?);
        let layer = SimpleRNN::new(2);
        let layer = if let Some(unroll) = unroll { layer.unroll(unroll) } else { layer };
        let x = Tensor::full(&scope.device(), 0.5f32, &[1, steps, 3])?;
        layer.build(&scope, x.shape())?;
        let wanted = bytes(&layer.call(&scope, &x)?);
        let layer = Arc::new(layer);
        let function = Function::new(move |scope: &dyn Scope, x: Tensor| layer.call(scope, &x));
        function.call(&scope, x.clone())?;
        let (y, counts) = emulator.during(|| function.call(&scope, x));
        assert_eq!(bytes(&y?), wanted, "{steps} steps, {unroll:?}");
        assert_eq!(counts.graph_launches == 1, whole, "{steps} steps, {unroll:?}: {counts:?}");
    }
    Ok(())
}

#[test]
fn a_batch_is_one_upload_for_each_tensor() -> Result<()> {
    let emulator = Emulator::new()?;
    let cnn = Cnn::new(&emulator.device()?, 1)?;
    let (batch, counts) = emulator.during(|| cnn.batch(0));
    assert_eq!((counts.uploads, counts.kernel_launches, counts.synchronizations), (2, 0, 0), "{counts:?}");
    let (x, _) = batch?;
    assert_eq!(bytes(&x), bytes(&Cnn::new(&ops::portable_cpu(), 1)?.batch(0)?.0));
    Ok(())
}

/// Steps that share no memory may run in any order, and the emulator runs the last one first. An argument may be the value of a variable
/// that the function changes, or the same tensor as another argument.
#[test]
fn an_argument_keeps_its_value_while_its_variable_changes() -> Result<()> {
    let emulator = Emulator::new()?;
    let scope = Eager::new(&emulator.device()?);
    let variable = Variable::new(&scope, "v", &Tensor::new(&scope.device(), &[1f32, 2.0, 3.0, 4.0], &[4])?)?;
    let own = variable.clone();
    let step = Function::new(move |scope: &dyn Scope, (x, z): (Tensor, Tensor)| {
        let sums = x.cumsum(0, false, false)?.add(&z.cumsum(0, false, true)?)?;
        scope.assign_add(&own, &Tensor::full(&scope.device(), 10f32, &[4])?)?;
        let after = scope.read(&own)?.cumsum(0, true, false)?;
        Ok((sums, after))
    });
    for round in 0..4 {
        let (x, offset) = (scope.read(&variable)?, round as f32 * 10.0);
        let (sums, after) = step.call(&scope, (x.clone(), x.clone()))?;
        let expected = [1f32, 3.0, 6.0, 10.0].into_iter().zip([10f32, 9.0, 7.0, 4.0]).map(|(one, other)| one + other + 5.0 * offset);
        assert_eq!(sums.to_vec::<f32>()?, expected.collect::<Vec<_>>(), "round {round}");
        let sum = |index: usize| (1..=index).map(|value| value as f32 + offset + 10.0).sum::<f32>();
        assert_eq!(after.to_vec::<f32>()?, (0..4).map(sum).collect::<Vec<_>>(), "round {round}");
        assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0].map(|value| value + offset), "round {round}");
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// Uploads larger than the staging memory, small ones in between, and fills of every size of an element.
#[test]
fn copies_of_every_size_arrive_whole() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let mut tensors = Vec::new();
    for round in 0..40u32 {
        let count = [1, 7, 300_000, 12, 70_000, 1_000_003][round as usize % 6];
        let numbers: Vec<u8> = (0..count).map(|index| (index as u32).wrapping_mul(round * 2 + 1) as u8).collect();
        tensors.push((Tensor::new(&device, &numbers, &[count as u32])?, numbers));
    }
    for (tensor, numbers) in &tensors {
        assert!(bytes(tensor) == *numbers, "{} bytes", numbers.len());
    }
    assert_eq!(Tensor::full(&device, 7u8, &[5])?.to_vec::<u8>()?, [7; 5]);
    assert_eq!(Tensor::full(&device, 1.5f32, &[5])?.to_vec::<f32>()?, [1.5; 5]);
    assert_eq!(Tensor::full(&device, -2i64, &[5])?.to_vec::<i64>()?, [-2; 5]);
    assert_eq!(Tensor::full(&device, 2.5f64, &[5])?.to_vec::<f64>()?, [2.5; 5]);
    Ok(())
}

/// On a GPU that shares its memory with the CPU, a batch is written where the kernels read it.
#[test]
fn an_integrated_gpu_needs_no_copies() -> Result<()> {
    let emulator = Emulator::with("integrated=1 capability=87")?;
    assert!(emulator.gpu()?.is_integrated());
    let cnn = Cnn::new(&emulator.device()?, 1)?;
    let train = cnn.compiled();
    train.call(&cnn.scope, cnn.batch(0)?)?;
    let (loss, counts) = emulator.during(|| train.call(&cnn.scope, cnn.batch(1)?)?.item::<f32>());
    assert!(loss?.is_finite());
    assert_eq!((counts.uploads, counts.downloads, counts.graph_launches), (0, 0, 1), "{counts:?}");
    Ok(())
}

/// A program can choose where the memory is.
#[test]
fn the_place_of_the_memory_can_be_chosen() -> Result<()> {
    for (integrated, mapped) in [("0", true), ("1", false)] {
        let emulator = Emulator::with(&format!("integrated={integrated}"))?;
        let device = emulator.gpu()?.create("GPU:0", &Options { mapped: Some(mapped), ..Options::default() })?;
        let (sum, counts) = emulator.during(|| -> Result<f32> {
            let x = Tensor::new(&device, &[1.0f32, 2.0], &[2])?;
            x.add(&x)?.sum(&[], false)?.item::<f32>()
        });
        assert_eq!((sum?, counts.uploads, counts.downloads), (6.0, u64::from(!mapped), u64::from(!mapped)), "{counts:?}");
    }
    Ok(())
}

/// The last device of a GPU gives everything back.
#[test]
fn a_device_leaves_nothing_behind() -> Result<()> {
    let emulator = Emulator::new()?;
    emulator.control("reset-counts");
    for _ in 0..3 {
        let cnn = Cnn::new(&emulator.device()?, 1)?;
        cnn.compiled().call(&cnn.scope, cnn.batch(0)?)?;
    }
    let counts = emulator.counts();
    assert!(counts.allocations == counts.frees && counts.allocations > 0, "{counts:?}");
    Ok(())
}
