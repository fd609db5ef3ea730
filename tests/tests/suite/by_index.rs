//! Signatures and tensors that are named by their indices, as firmware in C does.

use gradlet::device::AlignedBytes;
use gradlet::runtime::{Loading, TensorId};
use gradlet::{DType, Error, Program, Session, ops};
use gradlet_tests::flat::{arena, artifact, program, state, step};

#[test]
fn signatures_load_by_their_bits_as_by_their_names() {
    let bytes = AlignedBytes::from(&artifact(0.01).unwrap()[..]);
    let named = Program::load(&bytes, ops::KERNELS, &["train"]).unwrap();
    let id = named.signature("train").unwrap();
    let program = Program::load_at(&bytes, ops::KERNELS, 1 << id.index()).unwrap();
    assert_eq!((program.arena_bytes(), program.signature("train")), (named.arena_bytes(), Ok(id)));
    assert_eq!(program.signature_at(id.index()), Ok(id));
    for other in (0..40).chain([u32::MAX]).filter(|&other| other != id.index()) {
        assert_eq!(program.signature_at(other), Err(Error::UnknownSignature), "{other}");
    }
    assert_eq!(Program::load_at(&bytes, ops::KERNELS, 1 << 31).map(drop), Err(Error::UnknownSignature));
    assert_eq!(Program::load_at(&bytes, ops::KERNELS, u32::MAX).map(drop), Err(Error::UnknownSignature));
    assert!(matches!(Program::load_at(&bytes, &[], 1 << id.index()).map(drop), Err(Error::MissingKernel { .. })));
    assert_eq!(Program::load_at(&bytes, &[], 0).unwrap().signature_at(id.index()), Err(Error::UnknownSignature));
    let loading = || Loading::new(&bytes, ops::KERNELS).unwrap();
    assert_eq!(loading().finish_at(1 << id.index()).unwrap().signature_at(id.index()), Ok(id));
    assert_eq!(loading().finish_at(1 << 30).map(drop), Err(Error::UnknownSignature));
}

#[test]
fn views_are_the_tensors_with_their_types() {
    let mut memory = arena(program());
    let mut session = Session::new(program(), &mut memory).unwrap();
    step(&mut session, 0).unwrap();
    let train = program().signature("train").unwrap();
    let output = session.view(TensorId::Output(train, 0)).unwrap();
    assert_eq!((*output.tensor_type, output.bytes()), (session.output_type(train, 0).unwrap(), session.output_bytes(train, 0).unwrap()));
    assert_eq!(output.slice::<f32>(), session.output::<f32>(train, 0).unwrap());
    for (index, value) in state(&session).iter().enumerate() {
        assert_eq!(session.view(TensorId::Variable(index)).unwrap().bytes(), value);
        // A variable in flash cannot be written.
        let in_ram = session.variable_mut(index).is_ok();
        assert_eq!(session.view_mut(TensorId::Variable(index)).map(|view| view.data.fill(1)).is_ok(), in_ram);
        assert!(!in_ram || session.variable(index).unwrap().iter().all(|&byte| byte == 1));
    }
    let mut input = session.view_mut(TensorId::Input(train, 0)).unwrap();
    assert_eq!(input.dtype(), DType::F32);
    input.slice_mut::<f32>().fill(2.0);
    assert!(session.input_mut::<f32>(train, 0).unwrap().iter().all(|&value| value == 2.0));

    let missing = |index| Err(Error::NoSuchTensor { index });
    assert_eq!(session.view_mut(TensorId::Output(train, 0)).map(drop), missing(0));
    for id in [TensorId::Input(train, 99), TensorId::Output(train, 99), TensorId::Variable(99)] {
        assert_eq!(session.view(id).map(drop), missing(99), "{id:?}");
        assert_eq!(session.view_mut(id).map(drop), missing(99), "{id:?}");
    }
}
