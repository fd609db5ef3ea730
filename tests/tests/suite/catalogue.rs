//! Checks of the properties that every op in the catalogue must have.

use gradlet::artifact::firmware::Cpu;
use gradlet_core::custom_op::Gradient;
use gradlet_core::{Kernel, ops};
use gradlet_tests::golden;
use gradlet_tests::golden::runtimes::Traced;
use std::collections::HashSet;

/// Ops without a golden case and without a gradient, with the tests that cover them.
const TESTED_OTHERWISE: &[(&str, &str)] = &[
    ("cond", "its results are those of its branches: see tests/control and tests/function"),
    ("while_loop", "its results are those of its body: see tests/control and tests/function"),
    ("assert", "it computes nothing: see core/src/ops/effects/assert.rs and autograph"),
    ("check_numerics", "it computes nothing: see core/src/ops/effects/check_numerics.rs and whole_steps.rs"),
    ("print", "it computes nothing: see core/src/ops/effects/print.rs and function"),
    ("summary", "it computes nothing: see core/src/ops/effects/summary.rs and std-host/src/tensorboard/summary"),
    ("matmul_sgd", "the optimiser makes it of matmul and sgd_step, of which it has the bits: see training.rs"),
    ("matmul_adam", "the optimiser makes it of matmul and adam_step, of which it has the bits: see training.rs"),
    ("conv2d_max_pool2d", "the planner makes it of conv2d, relu and max_pool2d, of which it has the bits: see pools.rs"),
    ("conv2d_max_pool2d_filter_grad", "the planner makes it of the gradients of single ops, of which it has the bits: see pools.rs"),
    ("conv2d_max_pool2d_input_grad", "the planner makes it of the gradients of single ops, of which it has the bits: see pools.rs"),
    ("packed_conv2d", "the compiler makes it of quantized_conv2d, of which it has the bits: see the models on the device"),
    (
        "packed_depthwise_conv2d",
        "the compiler makes it of quantized_depthwise_conv2d, of which it has the bits: see the models on the device",
    ),
    ("packed_dense", "the compiler makes it of quantized_dense, of which it has the bits: see the models on the device"),
    ("quantized_svdf_step", "its state lasts from one call to the next: see svdf.rs"),
    ("random_uniform", "its numbers are the stream's, which has known answers: see core/src/base/random.rs and scopes.rs"),
];

fn assert_distinct<T: std::hash::Hash + Eq + std::fmt::Debug>(items: impl Iterator<Item = T>) {
    let mut seen = HashSet::new();
    for item in items {
        let text = format!("{item:?}");
        assert!(seen.insert(item), "twice: {text}");
    }
}

#[test]
fn codes_and_names_are_unique() {
    assert_distinct(ops::OPS.iter().map(|op| op.def.code));
    assert_distinct(ops::OPS.iter().map(|op| op.def.name));
    assert_distinct(ops::KERNELS.iter().map(|kernel| (kernel.def.code, kernel.dtype)));
}

#[test]
fn every_kernel_is_of_an_op_and_every_op_has_kernels() {
    let of = |kernel: &Kernel, op: &gradlet_core::custom_op::Op| std::ptr::eq(kernel.def, op.def);
    for kernel in ops::KERNELS {
        let op = ops::OPS.iter().find(|op| of(kernel, op));
        assert!(op.is_some(), "the kernel for {} on {} has a DEF of its own", kernel.def.name, kernel.dtype);
    }
    for op in ops::OPS {
        assert!(ops::KERNELS.iter().any(|kernel| of(kernel, op)), "{} has no kernel", op.def.name);
    }
}

#[test]
fn no_gradient_has_a_reason() {
    for op in ops::OPS {
        if let Gradient::None(reason) | Gradient::Missing(reason) = op.grad {
            assert!(reason.len() > 10, "{} has no gradient and no reason: {reason:?}", op.def.name);
        }
    }
}

/// Every op without a gradient must be in a golden case. The gradient test covers the others, and fails if one is missing.
#[test]
fn every_op_is_tested() {
    let cases: Vec<_> = golden::case_folders().iter().flat_map(|folder| golden::read(folder).unwrap()).collect();
    let known = cases.iter().filter_map(|case| Some((case, case.body.as_ref()?)));
    let traced = known.filter_map(|(case, body)| Traced::new(case, body).ok());
    let golden: HashSet<&str> = traced.flat_map(|traced| traced.ops().map(|(name, _)| name).collect::<Vec<_>>()).collect();
    for op in ops::OPS.iter().filter(|op| !matches!(op.grad, Gradient::Rule(_))) {
        let otherwise = TESTED_OTHERWISE.iter().any(|(name, reason)| *name == op.def.name && !reason.is_empty());
        assert!(golden.contains(op.def.name) || otherwise, "no golden case computes {}", op.def.name);
    }
}

/// Lists of kernels for a Cortex-M55 name all kernels of `gradlet-helium`, and no others of it.
#[test]
fn a_cortex_m55_has_the_kernels_for_helium() {
    let key = |kernel: &&Kernel| (kernel.def.name, kernel.dtype);
    let helium: HashSet<_> = gradlet_helium::KERNELS.iter().map(key).collect();
    let named = ops::KERNELS.iter().map(key).filter(|&(op, dtype)| Cpu::CortexM55.kernel(op, dtype).starts_with("&gradlet_helium::"));
    assert_eq!(named.collect::<HashSet<_>>(), helium);
    assert!(ops::KERNELS.iter().all(|kernel| Cpu::Any.kernel(kernel.def.name, kernel.dtype).starts_with("&gradlet_core::")));
}
