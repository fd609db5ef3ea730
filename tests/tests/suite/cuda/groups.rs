//! Elementwise ops that run as one kernel.

use crate::hiding::groups::run;
use gradlet_core::{DType, Eager, Function, Result, Scope, Tensor};
use gradlet_tests::gpu;
use gradlet_tests::gpu::Emulator;

/// Compiled, random ops have the bits that they have one by one. Compared with a CPU's, only functions such as tanh differ.
#[test]
fn groups_have_the_bits_of_single_ops() -> Result<()> {
    let device = gpu::device()?;
    for seed in 0..60 {
        assert!(run(&device, seed, true)? == run(&device, seed, false)?, "seed {seed}");
    }
    Ok(())
}

#[test]
fn a_chain_is_one_kernel() -> Result<()> {
    let emulator = Emulator::new()?;
    let device = emulator.device()?;
    let chain = Function::new(|_: &dyn Scope, x: Tensor| x.exp()?.mul(&x)?.sub(&x)?.cast(DType::I32)?.cast(DType::F32)?.tanh());
    let x = Tensor::full(&device, 0.7f32, &[100, 50])?;
    chain.call(&Eager::new(&device), x.clone())?;
    let (result, counts) = emulator.during(|| chain.call(&Eager::new(&device), x)?.to_vec::<f32>());
    assert_eq!((counts.graph_launches, counts.graph_kernel_nodes, counts.kernel_launches), (1, 1, 0), "{counts:?}");
    assert_eq!(result?, [0.0f32.tanh(); 5000]);
    Ok(())
}
