//! A singular value decomposition filter keeps its state from one call to the next, like TensorFlow Lite's.

use gradlet::tflite::Model;
use gradlet_core::device::AlignedBytes;
use gradlet_core::{Eager, Program, Scope, Session, Tensor, ops};
use gradlet_tests::golden;
use std::path::Path;

/// Calls the models of a folder with all frames: eagerly, compiled, and on the executor. Asserts that the results are those of TensorFlow.
pub(crate) fn check(folder: &Path) {
    for (name, tolerance) in [("svdf_float", 1e-5), ("svdf_int8", 0.0)] {
        let read = |ending: &str| std::fs::read(folder.join(name).with_extension(ending)).unwrap();
        let (frames, want) = (read("in"), read("out"));
        let open = || Model::open(folder.join(name).with_extension("tflite")).unwrap();
        let scope = Eager::new(&ops::portable_cpu());
        let (eager, traced) = (open(), open());
        let function = traced.function().unwrap();
        let artifact = open().export(1).unwrap();
        let program = Program::load(&artifact, ops::KERNELS, &["infer"]).unwrap();
        let (mut arena, id) = (AlignedBytes::zeroed(program.arena_bytes()), program.signature("infer").unwrap());
        let mut session = Session::new(&program, &mut arena).unwrap();
        let x_type = session.input_type(id, 0).unwrap();
        let mut results: [Vec<u8>; 3] = Default::default();
        for frame in frames.chunks(x_type.bytes().unwrap()) {
            let x = Tensor::from_bytes(&scope.device(), x_type, frame).unwrap();
            results[0].extend(eager.call(&scope, &[&x]).unwrap()[0].bytes().unwrap().iter());
            results[1].extend(function.call(&scope, vec![x]).unwrap()[0].bytes().unwrap().iter());
            session.input_bytes_mut(id, 0).unwrap().copy_from_slice(frame);
            session.run(id).unwrap();
            results[2].extend(session.output_bytes(id, 0).unwrap());
        }
        for (way, got) in ["eager", "compiled", "device"].into_iter().zip(&results) {
            assert_eq!(got.len(), want.len(), "{name}, {way}");
            if tolerance == 0.0 {
                assert_eq!(*got, want, "{name}, {way}");
                continue;
            }
            let numbers = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect::<Vec<f32>>();
            for (got, want) in numbers(got).into_iter().zip(numbers(&want)) {
                assert!((got - want).abs() <= tolerance * want.abs().max(1.0), "{name}, {way}: {got}, not {want}");
            }
        }
    }
}

#[test]
fn its_results_are_those_of_tensorflow() {
    check(&golden::fixtures("svdf"));
}
