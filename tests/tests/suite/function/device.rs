//! Exported functions that print.

use crate::function::python::scalar;
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::device::AlignedBytes;
use gradlet_core::{Artifact, Eager, Function, Print, Program, Result, Scope, Session, Tensor, ops};

/// The program `tf_print_in_function`.
pub fn printing(scope: &dyn Scope, x: Tensor) -> Result<Tensor> {
    while_loop(
        scope,
        WhileOptions::default(),
        scalar(0i32),
        |i| i.less(&scalar(3i32)),
        |i| {
            scope.print("step {} {}", &[&i, &x.add(&i)?])?;
            i.add_scalar(1.0)
        },
    )?;
    scope.print("done", &[])?;
    cond(scope, &x.sum(&[], false)?.greater(&scalar(0i32))?, || scope.print("positive", &[]), || Ok(()))?;
    Ok(x)
}

#[test]
fn a_program_that_prints_runs_on_a_device() {
    let scope = Eager::new(&ops::portable_cpu());
    let x = Tensor::new(&scope.device(), &[1i32, 2], &[2]).unwrap();
    let f = Function::new(printing);
    let mut artifact = Artifact::new();
    artifact.signature("f", &f.concrete(&scope, &x).unwrap(), &["x"], &["y"]).unwrap();
    let bytes = artifact.to_bytes().unwrap();
    let program = Program::load(&bytes, ops::KERNELS, &["f"]).unwrap();
    let signature = program.signature("f").unwrap();
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut text = String::new();
    let mut session = Session::new(&program, &mut arena).unwrap();
    session.input_mut::<i32>(signature, 0).unwrap().copy_from_slice(&[1, 2]);
    session.run_printing(signature, &mut |printed| text += &printed.to_string()).unwrap();
    assert_eq!(session.output::<i32>(signature, 0).unwrap(), [1, 2]);
    assert_eq!(text, "step 0 [1 2]\nstep 1 [2 3]\nstep 2 [3 4]\ndone\npositive\n");
}
