//! Tests of profiler traces: the recorded data of compiled and eager runs, and its times.

#[allow(dead_code)]
#[path = "../../examples/cnn.rs"]
mod cnn;
#[allow(dead_code)]
#[path = "../../examples/trace.rs"]
mod program;

use gradlet::control::{WhileOptions, cond, while_loop};
use gradlet::datasets::Digits;
use gradlet::io::proto;
use gradlet::layers::{Dense, Layer, Module};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::profiler::{Line, Options, Span, Stat, graph_def, trace_on};
use gradlet::{Differentiate, Eager, Function, Result, Scope, Tensor, summary};
use prost::Message;
use std::path::Path;
use std::time::Instant;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");
const BOTH: Options = Options { graph: true, profiler: true };

fn names(line: &Line) -> Vec<&str> {
    line.spans.iter().map(|span| span.name.as_str()).collect()
}

fn number(span: &Span, name: &str) -> Option<i64> {
    span.stats.iter().find_map(|(stat, value)| match value {
        Stat::Number(number) if *stat == name => Some(*number),
        _ => None,
    })
}

fn end(span: &Span) -> u64 {
    span.start_ps + span.duration_ps
}

/// Returns the spans that contain no other span.
fn leaves(spans: &[Span]) -> impl Iterator<Item = &Span> {
    spans
        .iter()
        .enumerate()
        .filter(|(index, span)| spans.get(index + 1).is_none_or(|next| next.start_ps >= end(span)))
        .map(|(_, span)| span)
}

fn training_step() -> Function<(Tensor, Tensor), Tensor> {
    let (model, optimizer) = (cnn::Cnn::default(), Adam::new(0.001));
    Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let loss = SparseCategoricalCrossentropy::default().call(&y, &model.apply(&tape, &x)?)?;
        let grads = tape.gradient(&loss, &model.trainable_variables())?;
        optimizer.apply_gradients(scope, &grads)?;
        Ok(loss)
    })
    .named("train_one_step")
}

/// In a compiled step of the handbook's network, the times of ops and named gaps add up to the time of the step.
#[test]
fn ops_and_gaps_are_the_step() {
    let digits = Digits::load(Path::new(DATA), "train").unwrap();
    let device = gradlet::cpu();
    let (x, y) = digits.batch(&device, &(0..50).collect::<Vec<_>>(), &[28, 28, 1]).unwrap();
    let step = training_step();
    step.call(&Eager::new(&device), (x.clone(), y.clone())).unwrap();

    let trace = trace_on(&device, BOTH);
    let scope = Eager::new(trace.device());
    let own: Vec<f64> = (0..5)
        .map(|_| {
            let arguments = (x.clone(), y.clone());
            let start = Instant::now();
            step.call(&scope, arguments).unwrap();
            start.elapsed().as_secs_f64() * 1e12
        })
        .collect();
    let timeline = trace.timeline().unwrap();
    let spans = &timeline.planes[0].lines[0].spans;
    let steps: Vec<&Span> = spans.iter().filter(|span| span.name == "train_one_step").collect();
    assert_eq!(steps.iter().map(|step| number(step, "step_num")).collect::<Vec<_>>(), (0..5).map(Some).collect::<Vec<_>>());
    let mut shares = Vec::new();
    for (step, own) in steps.iter().zip(own) {
        let within = leaves(spans).filter(|span| span.start_ps >= step.start_ps && end(span) <= end(step));
        let sum: u64 = within.map(|span| span.duration_ps).sum();
        assert!(sum <= step.duration_ps);
        shares.push(sum as f64 / own);
    }
    shares.sort_by(f64::total_cmp);
    println!("ops and gaps are these parts of the steps: {shares:.4?}");
    assert!((shares[2] - 1.0).abs() < 0.05, "ops and gaps are {shares:?} of the steps");
    // The ops take most of the time, and have the bytes that they read and wrote.
    let convolution = spans.iter().find(|span| span.name == "cnn/conv2d/Conv2D:Conv2D").unwrap();
    assert_eq!(number(convolution, "bytes_written"), Some(50 * 28 * 28 * 32 * 4));
    assert_eq!(number(convolution, "bytes_read"), Some((50 * 28 * 28 + 5 * 5 * 32 + 32) * 4));
    // A fused op has the name of the op that it replaces.
    assert!(spans.iter().any(|span| span.name == "adam/ResourceApplyAdam_4:MatMulAdam"));
    let gaps = ["find the trace", "take variables", "put variables back"];
    assert!(gaps.iter().all(|gap| spans.iter().filter(|span| span.name == *gap).count() == 5));
}

#[test]
fn nodes_of_a_step_are_named_as_tensorflow_names_them() {
    let scope = Eager::new(&gradlet::cpu());
    let (x, y) = (Tensor::full(&scope.device(), 0.0f32, &[2, 28, 28, 1]).unwrap(), Tensor::new(&scope.device(), &[1i32, 2], &[2]).unwrap());
    let concrete = training_step().concrete(&scope, &(x, y)).unwrap();
    let graph = graph_def(concrete.traced(), "CPU:0");
    let mut names: Vec<&str> = graph.node.iter().map(|node| node.name.as_str()).collect();
    let wanted = [
        "x",
        "x_1",
        "cnn/conv2d/kernel",
        "cnn/conv2d/Conv2D",
        "cnn/conv2d/Conv2D/ReadVariableOp",
        "cnn/conv2d_1/Conv2D",
        "cnn/max_pooling2d/MaxPool",
        "cnn/dense_1/_FusedMatMul",
        "gradient_tape/cnn/conv2d_1/Conv2D/Conv2DBackpropFilter",
        "gradient_tape/cnn/dense/_FusedMatMul/MatMul",
        "adam/ResourceApplyAdam",
        "adam/AssignVariableOp",
        "Identity",
    ];
    for name in wanted {
        assert!(names.contains(&name), "no {name} in {names:#?}");
    }
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    // Every input is a node, and every node has its output shapes.
    for node in &graph.node {
        assert!(node.attr.contains_key("_output_shapes"), "{}", node.name);
        for input in &node.input {
            let name = input.split(':').next().unwrap();
            assert!(names.binary_search(&name).is_ok(), "{} reads {input}", node.name);
        }
    }
}

#[test]
fn branches_and_loops_show_what_they_ran() {
    let trace = trace_on(&gradlet::cpu(), BOTH);
    let scope = Eager::new(trace.device());
    let function = Function::new(|scope: &dyn Scope, x: Tensor| {
        let _part = scope.name_scope("part");
        let x = while_loop(scope, WhileOptions::default(), x, |x: &Tensor| x.less(&x.like(10.0)?), |x: Tensor| x.add(&x))?;
        cond(scope, &x.greater(&x.like(12.0)?)?, || x.neg(), || x.sqrt())
    })
    .named("f");
    let y = function.call(&scope, Tensor::scalar(&scope.device(), 3.0f32)).unwrap();
    assert_eq!(y.item::<f32>(), Ok(12f32.sqrt()));
    let timeline = trace.timeline().unwrap();
    let line = &timeline.planes[0].lines[0];
    let count = |name: &str| names(line).iter().filter(|other| **other == name).count();
    assert_eq!((count("part/While/body/AddV2:AddV2"), count("part/While/cond/Less:Less")), (2, 3), "{:#?}", names(line));
    assert_eq!((count("part/If/else/Sqrt:Sqrt"), count("part/If/then/Neg:Neg")), (1, 0));
    let around = line.spans.iter().find(|span| span.name == "part/While:While").unwrap();
    let within = line.spans.iter().find(|span| span.name == "part/While/body/AddV2:AddV2").unwrap();
    assert!(within.start_ps >= around.start_ps && end(within) <= end(around));
    // In the graph, the nodes of a body are in the name scope of the branch or loop.
    let concrete = function.concrete(&scope, &Tensor::scalar(&scope.device(), 3.0f32)).unwrap();
    let graph = graph_def(concrete.traced(), "CPU:0");
    let node = |name: &str| graph.node.iter().find(|node| node.name == name).unwrap_or_else(|| panic!("no {name}"));
    assert_eq!((node("part/If").op.as_str(), node("part/While").op.as_str()), ("If", "While"));
    assert!(node("part/If").input.contains(&"part/If/then/Neg".into()));
    assert_eq!(node("part/If/then/Neg").input, ["part/While"]);
    node("part/While/cond/Less");
}

#[test]
fn eager_code_is_kept_under_the_names_of_its_layers() {
    // The model is built before the trace starts.
    let plain = Eager::new(&gradlet::cpu());
    let (dense, optimizer) = (Dense::new(3), Adam::new(0.1));
    let x = Tensor::full(&plain.device(), 1.0f32, &[2, 4]).unwrap();
    dense.apply(&plain, &x).unwrap();
    let trace = trace_on(&gradlet::cpu(), BOTH);
    let scope = Eager::new(trace.device());
    for number in 0..2 {
        let _step = trace.step("train", number);
        let tape = scope.tape();
        let loss = dense.apply(&tape, &x).unwrap().mean(&[], false).unwrap();
        let grads = tape.gradient(&loss, &dense.trainable_variables()).unwrap();
        optimizer.apply_gradients(&scope, &grads).unwrap();
    }
    let timeline = trace.timeline().unwrap();
    let line = &timeline.planes[0].lines[0];
    let all = names(line);
    for name in [
        "train",
        "dense",
        "dense/_FusedMatMul:_FusedMatMul",
        "gradient_tape/MatMul:MatMul",
        "adam",
        "adam/ResourceApplyAdam:ResourceApplyAdam",
    ] {
        assert!(all.contains(&name), "no {name} in {all:#?}");
    }
    assert_eq!(line.spans.iter().filter_map(|span| number(span, "step_num")).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn the_example_writes_what_tensorboard_reads() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let digits = Digits::load(Path::new(DATA), "train")?;
    let profile = program::run(&digits, folder.path(), 3).unwrap();
    let space = proto::XSpace::decode(std::fs::read(&profile).unwrap().as_slice()).unwrap();
    assert_eq!(space.planes[0].name, "/host:CPU");
    let run = summary::Run::read(folder.path())?;
    assert_eq!(run.series("loss").unwrap().points.len(), 3);
    let series = run.series("model_trace").unwrap();
    assert_eq!(series.plugin(), "graph_run_metadata");
    let metadata = series.points[0].tensor()?;
    let metadata = proto::RunMetadata::decode(metadata.strings().unwrap().values()[0].clone()).unwrap();
    let graph = metadata.function_graphs[0].pre_optimization_graph.as_ref().unwrap();
    let stats = &metadata.step_stats.as_ref().unwrap().dev_stats[0].node_stats;
    assert!(stats.iter().any(|stats| stats.node_name.starts_with("gradient_tape/mlp/dense")));
    for stats in stats {
        assert!(graph.node.iter().any(|node| node.name == stats.node_name), "{} is no node", stats.node_name);
    }
    Ok(())
}

#[test]
fn a_trace_is_exported_once() {
    let folder = tempfile::tempdir().unwrap();
    let writer = summary::create_file_writer(folder.path()).unwrap();
    let trace = trace_on(&gradlet::cpu(), Options::default());
    assert_eq!(trace.export("first", 0, &writer).unwrap(), None);
    let text = trace.export("second", 0, &writer).unwrap_err().to_string();
    assert_eq!(text, "must enable trace before export: this one was exported or turned off; start a new one with trace_on");
    let trace = trace_on(&gradlet::cpu(), BOTH);
    trace.off();
    assert!(trace.export("third", 0, &writer).is_err());
}

/// A later trace also records a function and a tensor that were created during an earlier one.
#[test]
fn what_a_trace_made_is_seen_by_the_next_one() -> Result<()> {
    let square = Function::new(|_: &dyn Scope, x: Tensor| x.mul(&x)).named("square");
    let first = trace_on(&gradlet::cpu(), BOTH);
    let x = square.call(&Eager::new(first.device()), Tensor::full(first.device(), 2.0f32, &[2])?)?;
    drop(first);
    x.neg()?;
    let second = trace_on(&gradlet::cpu(), BOTH);
    let scope = Eager::new(second.device());
    square.call(&scope, scope.emit(&gradlet::ops::neg::OP, &[], &[&x])?.remove(0))?;
    let timeline = second.timeline()?;
    let spans: Vec<&str> = timeline.planes[0].lines.iter().flat_map(names).collect();
    assert!(spans.iter().any(|name| name.contains("Neg")) && spans.iter().any(|name| name.contains("Mul")), "{spans:?}");
    Ok(())
}

#[test]
fn what_could_not_be_exported_can_be_again() -> Result<()> {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace_on(&gradlet::cpu(), BOTH);
    Tensor::scalar(trace.device(), 2.0f32).sqrt()?;
    let writer = gradlet::summary::create_file_writer(folder.path())?;
    writer.close()?;
    assert!(trace.export("model_trace", 0, &writer).is_err());
    let writers = [0, 1].map(|_| gradlet::summary::create_file_writer(folder.path()).unwrap());
    let path = trace.export("model_trace", 0, &writers[0])?.unwrap();
    // Another trace in the same second has its own folder.
    let other = trace_on(&gradlet::cpu(), BOTH).export("other", 0, &writers[1])?.unwrap();
    assert!(path != other && path.exists() && other.exists());
    Ok(())
}
