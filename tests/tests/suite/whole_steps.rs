//! Steps on a device are whole and finite, or they change nothing, or the session says that it is unfinished.

use gradlet_core::artifact::describe::Description;
use gradlet_core::runtime::Slots;
use gradlet_core::runtime::checkpoint::Contents;
use gradlet_core::{Artifact, Eager, Error, Function, Result, Scope, Session, Tensor, Variable, ops};
use gradlet_tests::flash::Flash;
use gradlet_tests::flat::{arena, load, program, state, step};

/// Runs the training step on hostile pixels.
fn hostile_step(session: &mut Session<'_, '_>, pixel: f32, label: i32) -> Result<()> {
    let train = session.program().signature("train")?;
    let pixels = session.input_mut::<f32>(train, 0)?;
    pixels.fill(0.5);
    pixels[2] = pixel;
    session.input_mut::<i32>(train, 1)?.fill(label);
    session.run(train)
}

#[test]
fn a_refused_step_changes_nothing() {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    step(&mut session, 0).unwrap();
    let before = state(&session);
    for (pixel, label) in [(f32::NAN, 1), (f32::INFINITY, 1), (f32::NEG_INFINITY, 0), (0.5, 2), (0.5, -1)] {
        let error = hostile_step(&mut session, pixel, label).unwrap_err();
        match label {
            0 | 1 => assert!(matches!(error, Error::NotFinite { position: 2, .. }), "{error}"),
            _ => assert!(matches!(error, Error::IndexOutOfRange { .. }), "{error}"),
        }
        assert!(state(&session) == before);
    }
    // The inputs and the variables are finite, and the loss is not.
    let kernel = session.variable_mut(0).unwrap();
    let huge = [f32::MAX; 4].map(f32::to_le_bytes).concat();
    let good = kernel.to_vec();
    kernel.chunks_exact_mut(16).for_each(|four| four.copy_from_slice(&huge));
    let changed = state(&session);
    let error = hostile_step(&mut session, 0.5, 0).unwrap_err();
    assert!(matches!(error, Error::NotFinite { position: 0, .. }), "{error}");
    assert!(state(&session) == changed);
    session.variable_mut(0).unwrap().copy_from_slice(&good);
    step(&mut session, 1).unwrap();
    session.save(&mut Vec::new(), Contents::Full).unwrap();
}

/// Returns an artifact with the signatures `grow`, which multiplies two variables by x, and `read`.
fn growing(finite_steps: bool) -> Vec<u8> {
    growing_with(finite_steps, false)
}

fn growing_with(finite_steps: bool, keep_copy: bool) -> Vec<u8> {
    let scope = Eager::new(&ops::portable_cpu());
    let one = Tensor::full(&scope.device(), 1.0f32, &[20]).unwrap();
    let [first, second] = ["first", "second"].map(|name| Variable::new(&scope, name, &one).unwrap());
    let read = first.clone();
    let grow = Function::new(move |scope: &dyn Scope, x: Tensor| {
        scope.assign(&first, &scope.read(&first)?.mul(&x)?)?;
        scope.assign(&second, &scope.read(&second)?.mul(&x)?.mul(&x)?)?;
        x.neg()
    });
    let read = Function::new(move |scope: &dyn Scope, ()| scope.read(&read));
    let mut artifact = Artifact::new();
    artifact.finite_steps(finite_steps).keep_copy(keep_copy);
    artifact.signature("grow", &grow.concrete(&scope, &one).unwrap(), &["x"], &["y"]).unwrap();
    artifact.signature("read", &read.concrete(&scope, &()).unwrap(), &[], &["first"]).unwrap();
    artifact.to_bytes().unwrap().to_vec()
}

#[test]
fn only_steps_are_checked_and_an_option_leaves_the_checks_out() {
    let checks = |bytes: &[u8], signature: usize| {
        let description = Description::read(bytes).unwrap();
        let walked = description.signatures[signature].walk();
        walked.iter().filter(|(_, instruction)| instruction.op == "check_numerics").count()
    };
    assert_eq!([0, 1].map(|signature| checks(&growing(true), signature)), [2, 0]);
    assert_eq!([0, 1].map(|signature| checks(&growing(false), signature)), [0, 0]);
}

#[test]
fn an_inference_that_fails_changes_nothing() {
    let scope = Eager::new(&ops::portable_cpu());
    let (one, at) = (Tensor::full(&scope.device(), 1.0f32, &[4]).unwrap(), Tensor::full(&scope.device(), 0i32, &[1]).unwrap());
    let variable = Variable::new(&scope, "w", &one).unwrap();
    let set = Function::new(move |scope: &dyn Scope, x: Tensor| scope.assign(&variable, &x));
    // `top_k` has two outputs, which are no variables.
    let pick = Function::new(|_: &dyn Scope, (x, at): (Tensor, Tensor)| x.top_k(2)?.0.gather(&at, 0));
    for keep_copy in [false, true] {
        let mut artifact = Artifact::new();
        artifact.keep_copy(keep_copy);
        artifact.signature("set", &set.concrete(&scope, &one).unwrap(), &["x"], &[]).unwrap();
        artifact.signature("pick", &pick.concrete(&scope, &(one.clone(), at.clone())).unwrap(), &["x", "at"], &["y"]).unwrap();
        let program = load(&artifact.to_bytes().unwrap(), &["set", "pick"]).unwrap();
        let pick = program.signature("pick").unwrap();
        let mut arena = arena(&program);
        let mut session = Session::new(&program, &mut arena).unwrap();
        for (index, works) in [(9, false), (1, true)] {
            session.set_input(pick, 0, &[4.0f32, 1.0, 2.0, 3.0]).unwrap();
            session.set_input(pick, 1, &[index]).unwrap();
            assert_eq!(session.run(pick).is_ok(), works);
        }
        assert_eq!(session.output::<f32>(pick, 0).unwrap(), [3.0]);
    }
}

#[test]
fn an_update_that_is_not_finite_leaves_the_session_unfinished() {
    for value in [3e38f32, f32::MAX, -3e38] {
        let program = load(&growing(true), &["grow", "read"]).unwrap();
        let [grow, read] = ["grow", "read"].map(|name| program.signature(name).unwrap());
        let mut arena = arena(&program);
        let mut session = Session::new(&program, &mut arena).unwrap();
        let mut good = Vec::new();
        session.save(&mut good, Contents::Full).unwrap();

        session.input_mut::<f32>(grow, 0).unwrap().fill(1.0);
        session.input_mut::<f32>(grow, 0).unwrap()[17] = value;
        assert!(matches!(session.run(grow), Err(Error::NotFinite { position: 17, .. })));
        assert_eq!(session.run(grow), Err(Error::Unfinished));
        assert_eq!(session.run(read), Err(Error::Unfinished));
        assert_eq!(session.save(&mut Vec::new(), Contents::Changed), Err(Error::Unfinished));
        let mut slots = Slots::new(Flash::<1, 4, 4096>::new(2, 1), 0..8192, 2).unwrap();
        assert_eq!(slots.save(&session, Contents::Changed), Err(Error::Unfinished));
        assert!(slots.into_inner().log.is_empty());
        assert_eq!(Session::resume(&program, &mut arena).map(drop), Err(Error::Unfinished));

        let mut session = Session::new(&program, &mut arena).unwrap();
        session.input_mut::<f32>(grow, 0).unwrap().fill(value);
        assert!(session.run(grow).is_err());
        session.restore(&mut &good[..]).unwrap();
        assert_eq!(session.run(read), Ok(()));
        assert_eq!(Session::resume(&program, &mut arena).map(drop), Ok(()));
    }
}

/// Without the checks, all values are allowed.
#[test]
fn an_unchecked_artifact_takes_every_value() {
    let program = load(&growing(false), &["grow", "read"]).unwrap();
    let grow = program.signature("grow").unwrap();
    let mut arena = arena(&program);
    let mut session = Session::new(&program, &mut arena).unwrap();
    session.set_input(grow, 0, &[f32::NAN; 20]).unwrap();
    assert_eq!(session.run(grow), Ok(()));
    assert_eq!(session.save(&mut Vec::new(), Contents::Full), Ok(()));
}

/// The arena as it would be found after a reset of the device during a run, a restore, and a loss of power.
#[test]
fn a_reset_in_the_middle_is_known() {
    let mut arena = arena(program());
    assert_eq!(Session::resume(program(), &mut arena).map(drop), Err(Error::Unfinished), "memory that holds no session");
    arena.fill(0x5a);
    assert_eq!(Session::resume(program(), &mut arena).map(drop), Err(Error::Unfinished));
    let mut session = Session::new(program(), &mut arena).unwrap();
    step(&mut session, 0).unwrap();
    let end = program().arena_bytes();
    assert_eq!(arena[end - 4..end], *b"DONE");
    let mut session = Session::resume(program(), &mut arena).unwrap();
    step(&mut session, 1).unwrap();
    arena[end - 4..end].copy_from_slice(b"OPEN");
    assert_eq!(Session::resume(program(), &mut arena).map(drop), Err(Error::Unfinished));
}

#[test]
fn values_that_are_not_finite_are_not_saved() {
    let mut memory = arena(program());
    let mut session = Session::new(program(), &mut memory).unwrap();
    step(&mut session, 0).unwrap();
    let kernel = session.variable_mut(0).unwrap();
    let good = kernel.to_vec();
    kernel[4..8].copy_from_slice(&f32::NAN.to_le_bytes());
    let error = Err(Error::VariableNotFinite { variable: 0 });
    let mut written = Vec::new();
    assert_eq!(session.save(&mut written, Contents::Changed), error);
    assert!(written.is_empty());
    let mut slots = Slots::new(Flash::<1, 4, 4096>::new(2, 1), 0..8192, 2).unwrap();
    assert_eq!(slots.save(&session, Contents::Full).map(drop), error);
    session.variable_mut(0).unwrap().copy_from_slice(&good);
    assert_eq!(slots.save(&session, Contents::Full), Ok(1));
}

#[test]
fn the_second_copy_takes_the_old_values_back() {
    let program = load(&growing_with(true, true), &["grow", "read"]).unwrap();
    let plain = load(&growing_with(true, false), &["grow", "read"]).unwrap();
    let [kept, bytes] = [&program, &plain].map(|program| program.arena_bytes());
    assert_eq!(kept - bytes, 2 * 80, "two variables of 20 elements");
    let description = Description::read(&growing_with(true, true)).unwrap();
    assert_eq!((description.version, description.signatures[0].copy_bytes), ((1, 1), 160));
    assert_eq!(Description::read(&growing_with(true, false)).unwrap().version, (1, 0));
    assert_eq!(
        load(&growing_with(true, true), &["read"]).unwrap().arena_bytes(),
        load(&growing_with(true, false), &["read"]).unwrap().arena_bytes()
    );

    let grow = program.signature("grow").unwrap();
    let mut arena = arena(&program);
    let mut session = Session::new(&program, &mut arena).unwrap();
    session.set_input(grow, 0, &[2.0f32; 20]).unwrap();
    session.run(grow).unwrap();
    let before = state(&session);
    session.set_input(grow, 0, &[3e38f32; 20]).unwrap();
    assert!(matches!(session.run(grow), Err(Error::NotFinite { position: 0, .. })));
    assert!(state(&session) == before);
    session.set_input(grow, 0, &[2.0f32; 20]).unwrap();
    assert_eq!(session.run(grow), Ok(()));
}

#[test]
fn inputs_and_variables_are_set_with_checks() {
    let mut arena = arena(program());
    let mut session = Session::new(program(), &mut arena).unwrap();
    let train = program().signature("train").unwrap();
    assert_eq!(session.set_input(train, 0, &[0.5f32; 4]), Ok(()));
    let error = session.set_input(train, 0, &[0.5f32; 3]).unwrap_err();
    assert_eq!((error.code(), error.to_string().as_str()), (37, "the tensor at index 0 takes 4 elements, but got 3"));
    assert_eq!(session.set_input(train, 0, &[1i32; 4]), Err(Error::TensorType { index: 0 }));
    assert_eq!(session.set_input(train, 2, &[1i32]), Err(Error::NoSuchTensor { index: 2 }));
    let length = session.variable(0).unwrap().len() / 4;
    assert_eq!(session.set_variable(0, &vec![0.25f32; length]), Ok(()));
    assert!(session.variable(0).unwrap().chunks_exact(4).all(|bytes| bytes == 0.25f32.to_le_bytes()));
    assert_eq!(session.set_variable(0, &[0.25f32]), Err(Error::Length { index: 0, want: length as u32, got: 1 }));
    assert_eq!(session.set_variable(0, &[1i64]), Err(Error::TensorType { index: 0 }));
    assert_eq!(session.set_variable(99, &[1i64]), Err(Error::NoSuchTensor { index: 99 }));
}
