//! Sessions of TensorFlow 1 with options, as the tutorials write them: growing memory, and a fraction of the memory.

use super::{MEMORY, machine};
use gradlet::compat::v1::{ConfigProto, Graph, Session};
use gradlet::{DType, Error, Result, Scope, Tensor, Variable};

#[test]
fn a_session_whose_gpus_grow() -> Result<()> {
    let (context, gpus) = machine(1);
    let mut config = ConfigProto::default();
    config.gpu_options.allow_growth = true;
    let scope = config.scope(&context)?;
    let graph = Graph::new(&scope);
    let x = graph.placeholder("x", DType::F32, &[2])?;
    let w = Variable::new(&graph, "w", &Tensor::new(&scope.device(), &[3.0f32, 4.0], &[2])?)?;
    let y = graph.read(&w)?.mul(&x)?;
    let session = Session::new(&graph);
    session.run(&graph.global_variables_initializer()?, &[])?;
    // A value that is fed from the host is copied to the GPU.
    let fed = Tensor::new(&gradlet::portable_cpu(), &[1.0f32, 2.0], &[2])?;
    let result = session.run(&y, &[(&x, &fed)])?;
    assert_eq!((result.device()?.name(), result.to_vec::<f32>()?), ("GPU:0", vec![3.0, 8.0]));
    let (_, options) = gpus[0].created().remove(0);
    assert!(options.memory_growth && options.memory_limit.is_none());
    Ok(())
}

#[test]
fn a_session_with_two_fifths_of_the_memory() -> Result<()> {
    let (context, gpus) = machine(2);
    let mut config = ConfigProto::default();
    config.gpu_options.per_process_gpu_memory_fraction = Some(0.4);
    config.gpu_options.visible_device_list = "1".into();
    let scope = config.scope(&context)?;
    assert!(gpus[0].created().is_empty());
    let limit = gpus[1].created()[0].1.memory_limit.unwrap();
    assert_eq!(limit, (MEMORY as f64 * 0.4) as u64);
    let error = Tensor::full(&scope.device(), 1u8, &[MEMORY as u32 / 2]).unwrap_err();
    assert!(matches!(error.root(), Error::OutOfMemory(shortage) if shortage.limit == Some(limit)), "{error}");
    // As in TensorFlow 1, placement is not soft.
    assert!(scope.with_device("GPU:1").is_err() && !context.get_soft_device_placement());
    Ok(())
}

#[test]
fn options_that_make_no_sense_are_errors() {
    for (fraction, list) in [(Some(0.0), ""), (Some(1.5), ""), (Some(f64::NAN), ""), (None, "0,x"), (None, "7")] {
        let mut config = ConfigProto::default();
        config.gpu_options.per_process_gpu_memory_fraction = fraction;
        config.gpu_options.visible_device_list = list.into();
        assert!(config.scope(&machine(1).0).is_err(), "{fraction:?} {list:?}");
    }
    // The devices are in use.
    let (context, _) = machine(1);
    context.scope().unwrap();
    assert!(ConfigProto { intra_op_parallelism_threads: 1, ..ConfigProto::default() }.apply(&context).is_err());
    assert!(ConfigProto::default().apply(&context).is_ok());
}
