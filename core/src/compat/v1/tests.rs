//! Tests that compare with the behaviour of TensorFlow 1.

extern crate std;
use super::train::{AdamOptimizer, GradientDescentOptimizer, Minimize as _};
use super::{Graph, Operation, Session, gradients};
use crate::autodiff::Differentiate as _;
use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::function::Function;
use crate::nn::layers::{BatchNormalization, Layer as _, Module as _};
use crate::nn::optimizers::Optimizer as _;
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::scope::Scope;
use crate::tensor::variable::Variable;
use crate::trace::control::{WhileOptions, cond, while_loop};
use crate::trace::eager::Eager;
use std::string::ToString;
use std::vec::Vec;

fn eager() -> Eager {
    Eager::new(&ops::portable_cpu())
}

fn scalar(value: f32) -> Tensor {
    Tensor::scalar(&ops::portable_cpu(), value)
}

fn variable(graph: &Graph, name: &str, value: f32) -> Variable {
    Variable::new(graph, name, &scalar(value)).unwrap()
}

fn number(tensor: &Tensor) -> f32 {
    tensor.item().unwrap()
}

#[test]
fn only_what_is_fetched_runs() -> Result<()> {
    let graph = Graph::new(&eager());
    let [a, b] = ["a", "b"].map(|name| graph.placeholder(name, DType::F32, &[] as &[u32]).unwrap());
    let (sum, product) = (a.add(&b)?, a.mul(&b)?);
    let session = Session::new(&graph);
    assert_eq!(number(&session.run(&sum, &[(&a, &scalar(2.0)), (&b, &scalar(3.0))])?), 5.0);
    let (sum_value, rest) = session.run((&sum, [&product, &b]), &[(&a, &scalar(2.0)), (&b, &scalar(3.0))])?;
    assert_eq!((number(&sum_value), number(&rest[0]), number(&rest[1])), (5.0, 6.0, 3.0));
    // Any tensor can be fed; the ops before it are then not needed.
    let more = sum.mul(&a)?;
    assert_eq!(number(&session.run(&more, &[(&sum, &scalar(10.0)), (&a, &scalar(2.0))])?), 20.0);
    let error = session.run(&product, &[(&a, &scalar(2.0))]).unwrap_err().to_string();
    assert_eq!(error, "placeholder \"b\" must be fed a tensor f32[]");
    let wide = Tensor::full(&ops::portable_cpu(), 1.0f32, &[2])?;
    let error = session.run(&product, &[(&a, &wide)]).unwrap_err().to_string();
    assert_eq!(error, "placeholder \"a\" is f32[], but was fed f32[2]");
    let elsewhere = Tensor::scalar(&Device::cpu("other CPU", ops::KERNELS), 1.0f32);
    let error = session.run(&product, &[(&a, &scalar(2.0)), (&b, &elsewhere)]).unwrap_err().to_string();
    assert_eq!(error, "placeholder \"b\" was fed a value on other CPU, but the session runs on portable CPU:0: copy it with `to`");
    assert_eq!(session.compiled_programs(), 3, "compiled once for each set of fetches and feeds");
    Ok(())
}

#[test]
fn open_dimensions_are_refused_without_a_program() {
    let error = Graph::new(&eager()).placeholder("X", DType::F32, &[None, Some(28)]).unwrap_err().to_string();
    assert_eq!(error, "placeholder \"X\" is f32[?,28], but a graph of Graph::new has no open dimensions: use Graph::build");
}

/// A program trains with one batch size and is used with others. Each size has the bits of an eager loop.
#[test]
fn a_program_takes_any_batch_size() -> Result<()> {
    let scope = eager();
    let start = Tensor::new(&scope.device(), &[0.5f32, -0.25], &[2, 1])?;
    let batch = |rows: u32| {
        let numbers: Vec<f32> = (0..2 * rows).map(|index| index as f32 / 7.0 - 0.3).collect();
        let x = Tensor::new(&scope.device(), &numbers, &[rows, 2]).unwrap();
        let y = x.sum(&[1], true).unwrap();
        (x, y)
    };
    let loss = |scope: &dyn Scope, w: &Variable, x: &Tensor, y: &Tensor| {
        let logits = x.matmul(&scope.read(w)?)?;
        let norm = logits.reshape(&[logits.shape().dims()[0]])?.square()?.mean(&[], false)?;
        logits.sub(y)?.square()?.mean(&[], false)?.add(&norm)
    };
    let w = Variable::new(&scope, "w", &start)?;
    let optimizer = AdamOptimizer::new(0.1);
    let mut wanted = Vec::new();
    for rows in [5, 1, 2, 5] {
        let (x, y) = batch(rows);
        let tape = scope.tape();
        let value = loss(&tape, &w, &x, &y)?;
        wanted.push(number(&value));
        let variables: &[Variable] = core::slice::from_ref(&w);
        optimizer.apply_gradients(&scope, &tape.gradient(&value, variables)?)?;
    }
    wanted.extend(scope.read(&w)?.to_vec::<f32>()?);

    let (w, optimizer) = (Variable::new(&scope, "w", &start)?, AdamOptimizer::new(0.1));
    let own = w.clone();
    let (graph, (fed, value, train_op, init)) = Graph::build(&scope, move |graph| {
        let x = graph.placeholder("x", DType::F32, &[None, Some(2)])?;
        let y = graph.placeholder("y", DType::F32, &[None, Some(1)])?;
        let value = loss(graph, &own, &x, &y)?;
        let train_op = optimizer.minimize(graph, &value)?;
        Ok(([x, y], value, train_op, graph.global_variables_initializer()?))
    })?;
    let session = Session::new(&graph);
    session.run(&init, &[])?;
    let mut got = Vec::new();
    for rows in [5, 1, 2, 5] {
        let (x, y) = batch(rows);
        got.push(number(&session.run((&train_op, &value), &[(&fed[0], &x), (&fed[1], &y)])?.1));
    }
    got.extend(session.run(&w, &[])?.to_vec::<f32>()?);
    assert_eq!(got, wanted);
    assert_eq!(session.compiled_programs(), 5, "one of the initializer, one for each size, one of the variable");
    // The initial value is the first one, in a recording that is made after training, too.
    let (x, y) = batch(9);
    session.run((&value, &init), &[(&fed[0], &x), (&fed[1], &y)])?;
    assert_eq!(session.run(&w, &[])?.to_vec::<f32>()?, [0.5, -0.25]);
    Ok(())
}

#[test]
fn what_a_program_cannot_do() -> Result<()> {
    let scope = eager();
    let (graph, (x, y, ten)) = Graph::build(&scope, |graph| {
        let x = graph.placeholder("x", DType::F32, &[None::<u32>])?;
        let unused = graph.placeholder("unused", DType::F32, &[None::<u32>])?;
        let y = x.add(&scalar(1.0))?;
        y.add(&unused)?;
        let ten = y.slice(&[0], &[1])?.mul(&scalar(10.0))?;
        Ok((x, y, ten))
    })?;
    let session = Session::new(&graph);
    let of = |size: u32| Tensor::full(&scope.device(), 1.0f32, &[size]).unwrap();
    // A placeholder that is not fed takes the size of the one that is.
    assert_eq!(session.run(&y, &[(&x, &of(5))])?.to_vec::<f32>()?, [2.0; 5]);
    let error = session.run(&y, &[(&x, &scalar(1.0))]).unwrap_err().to_string();
    assert_eq!(error, "placeholder \"x\" is f32[?], but was fed f32[]");
    // Feeding another tensor of the program needs the placeholder's size.
    assert_eq!(session.run(&ten, &[(&x, &of(3)), (&y, &of(3))])?.to_vec::<f32>()?, [10.0]);
    let error = session.run(&ten, &[(&y, &of(3))]).unwrap_err().to_string();
    assert_eq!(error, "a tensor is f32[2], but was fed f32[3]: feed the placeholders as well, for their sizes");
    let later = y.neg()?;
    let error = session.run(&later, &[(&x, &of(3))]).unwrap_err().to_string();
    assert!(error.contains("only tensors and operations that the program of Graph::build returned"), "{error}");
    let error = session.run(&ten, &[(&x, &of(0))]).unwrap_err().to_string();
    assert!(error.starts_with("the program was recorded again for x [0], unused [0]: "), "{error}");

    let creates = Graph::build(&scope, |graph| {
        let x = graph.placeholder("x", DType::F32, &[None::<u32>])?;
        x.mul(&graph.read(&Variable::new(graph, "w", &scalar(1.0))?)?)
    });
    let error = creates.err().unwrap().to_string();
    assert!(error.contains("variable \"w\": variables can be created only while"), "{error}");
    Ok(())
}

#[test]
fn variables_must_be_initialized_in_their_session() -> Result<()> {
    let graph = Graph::new(&eager());
    let w = variable(&graph, "w", 3.0);
    let double = graph.read(&w)?.mul(&scalar(2.0))?;
    let set = graph.assign_op(&w, &scalar(7.0))?;
    let session = Session::new(&graph);
    let error = session.run(&double, &[]).unwrap_err().to_string();
    assert_eq!(error, "variable \"w\" is not initialized: run graph.global_variables_initializer() in this session first");
    let init = graph.global_variables_initializer()?;
    session.run(&init, &[])?;
    assert_eq!(number(&session.run(&double, &[])?), 6.0);
    session.run(&set, &[])?;
    assert_eq!(number(&session.run(&w, &[])?), 7.0);
    session.run(&init, &[])?;
    assert_eq!(number(&session.run(&w, &[])?), 3.0);
    // An assignment initializes a variable too.
    let other = Session::new(&graph);
    assert!(other.run(&w, &[]).is_err());
    other.run(&set, &[])?;
    assert_eq!(number(&other.run(&double, &[])?), 14.0);
    Ok(())
}

#[test]
fn assignments_run_in_order_and_only_if_fetched() -> Result<()> {
    let graph = Graph::new(&eager());
    let v = variable(&graph, "v", 1.0);
    let before = graph.read(&v)?;
    let [first, second] = [1.0, 10.0].map(|value| graph.assign_add_op(&v, &scalar(value)).unwrap());
    let after = graph.control_dependencies((&first, &second), |graph| graph.read(&v)?.mul(&scalar(2.0)))?;
    let session = Session::new(&graph);
    session.run(&graph.global_variables_initializer()?, &[])?;
    assert_eq!(number(&session.run(&before, &[])?), 1.0);
    let (before_value, after_value) = session.run((&before, &after), &[])?;
    assert_eq!((number(&before_value), number(&after_value)), (1.0, 24.0));
    session.run((&first, &second), &[])?;
    assert_eq!(number(&session.run(&v, &[])?), 23.0);
    let none: Operation = graph.group(&before)?;
    session.run(&none, &[])?;
    let grouped = graph.group([&first, &second])?;
    session.run(&grouped, &[])?;
    assert_eq!(number(&session.run(&v, &[])?), 34.0);
    Ok(())
}

#[test]
fn gradients_use_what_is_there() -> Result<()> {
    let graph = Graph::new(&eager());
    let x = graph.placeholder("x", DType::F32, &[] as &[u32])?;
    let w = variable(&graph, "w", 4.0);
    let square = x.mul(&x)?;
    let y = square.mul(&graph.read(&w)?)?.exp()?.log()?; // w x²
    let nodes = |graph: &Graph| graph.building.tracing.with_record(|trace| trace.graph.nodes.len());
    let before = nodes(&graph);
    let by_w = gradients(&graph, &y, &w)?.unwrap();
    let [by_x, by_square, none] = gradients(&graph, &y, &[x.clone(), square, scalar(1.0)][..])?.try_into().unwrap();
    assert!(none.is_none());
    let forward =
        graph.building.tracing.with_record(|trace| trace.graph.nodes[before..].iter().filter(|node| node.op.def.name == "exp").count());
    assert_eq!(forward, 0, "nothing is computed again");
    let by_x = by_x.unwrap();
    let twice = gradients(&graph, &by_x, &x)?.unwrap();
    let session = Session::new(&graph);
    session.run(&graph.global_variables_initializer()?, &[])?;
    let values = session.run([&by_w, &by_x, &by_square.unwrap(), &twice], &[(&x, &scalar(0.5))])?;
    for (value, wanted) in values.iter().map(number).zip([0.25, 4.0, 4.0, 8.0]) {
        assert!((value - wanted).abs() < 1e-5, "{value} {wanted}");
    }
    Ok(())
}

/// A session's training steps have the same bits as an eager loop with a tape.
#[test]
fn minimize_is_a_training_step() -> Result<()> {
    let scope = eager();
    let x = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0], &[4])?;
    let y = x.mul(&scalar(3.0))?.add(&scalar(1.0))?;
    let loss = |scope: &dyn Scope, w: &Variable, x: &Tensor, y: &Tensor| x.mul(&scope.read(w)?)?.sub(y)?.square()?.mean(&[], false);
    let w = Variable::new(&scope, "w", &scalar(0.0))?;
    let optimizer = AdamOptimizer::new(0.1);
    let mut wanted = Vec::new();
    for _ in 0..5 {
        let tape = scope.tape();
        let value = loss(&tape, &w, &x, &y)?;
        wanted.push(number(&value));
        let variables: &[Variable] = core::slice::from_ref(&w);
        optimizer.apply_gradients(&scope, &tape.gradient(&value, variables)?)?;
    }
    wanted.push(number(&scope.read(&w)?));

    let graph = Graph::new(&scope);
    let [fed_x, fed_y] = ["x", "y"].map(|name| graph.placeholder(name, DType::F32, &[4u32]).unwrap());
    let w = variable(&graph, "w", 0.0);
    let value = loss(&graph, &w, &fed_x, &fed_y)?;
    let train_op = AdamOptimizer::new(0.1).minimize(&graph, &value)?;
    let session = Session::new(&graph);
    session.run(&graph.global_variables_initializer()?, &[])?;
    let mut got = Vec::new();
    for _ in 0..5 {
        let ((), value) = session.run((&train_op, &value), &[(&fed_x, &x), (&fed_y, &y)])?;
        got.push(number(&value));
    }
    got.push(number(&session.run(&w, &[])?));
    assert_eq!(got, wanted);
    Ok(())
}

#[test]
fn branches_loops_and_their_gradients() -> Result<()> {
    let graph = Graph::new(&eager());
    let x = graph.placeholder("x", DType::F32, &[] as &[u32])?;
    let w = variable(&graph, "w", 2.0);
    let small = x.less(&scalar(1.0))?;
    let chosen = cond(&graph, &small, || graph.read(&w)?.mul(&x), || x.square())?;
    let most = WhileOptions { max_iterations: Some(3) };
    let y = while_loop(&graph, most, chosen, |y| y.less(&scalar(1e6)), |y| y.mul(&x))?;
    let train_op = GradientDescentOptimizer::new(1.0).minimize(&graph, &y)?;
    let by_x = gradients(&graph, &y, &x)?.unwrap();
    let session = Session::new(&graph);
    session.run(&graph.global_variables_initializer()?, &[])?;
    let run = |value: f32| session.run((&y, &by_x), &[(&x, &scalar(value))]).map(|(y, by_x)| (number(&y), number(&by_x)));
    assert_eq!(run(2.0)?, (32.0, 80.0)); // x⁵
    assert_eq!(run(0.5)?, (0.125, 1.0)); // w x⁴
    session.run(&train_op, &[(&x, &scalar(0.5))])?;
    assert_eq!(number(&session.run(&w, &[])?), 2.0 - 0.0625);
    Ok(())
}

/// A function called in a graph becomes part of it, with its reads and assignments.
#[test]
fn functions_layers_and_their_updates() -> Result<()> {
    let scope = eager();
    let graph = Graph::new(&scope);
    let x = graph.placeholder("x", DType::F32, &[4u32, 1])?;
    let total = variable(&graph, "total", 0.0);
    let own = total.clone();
    let add = Function::new(move |scope: &dyn Scope, x: Tensor| {
        scope.assign_add(&own, &x.sum(&[], false)?)?;
        scope.read(&own)
    });
    let mut sum = None;
    let add_op = graph.operation(|scope| {
        sum = Some(add.call(scope, x.clone())?);
        Ok(())
    })?;
    let layer = BatchNormalization::default();
    let y = layer.apply(&graph.with_training(true), &x)?;
    let updates = graph.update_ops();
    let session = Session::new(&graph);
    session.run(&graph.global_variables_initializer()?, &[])?;
    let fed = Tensor::new(&scope.device(), &[1.0f32, 2.0, 3.0, 4.0], &[4, 1])?;
    session.run((&add_op, &sum.unwrap()), &[(&x, &fed)])?;
    assert_eq!(number(&session.run(&total, &[])?), 10.0);
    let moving = layer.named_variables().into_iter().find(|(name, _)| name == "moving_mean").unwrap().1;
    session.run(&y, &[(&x, &fed)])?;
    assert_eq!(session.run(&moving, &[])?.to_vec::<f32>()?, [0.0]);
    session.run((&y, &updates), &[(&x, &fed)])?;
    assert!((session.run(&moving, &[])?.to_vec::<f32>()?[0] - 0.025).abs() < 1e-6);
    Ok(())
}

#[test]
fn random_numbers_are_new_in_each_run() -> Result<()> {
    let scope = eager();
    let graph = Graph::new(&scope);
    let layer = crate::nn::layers::Dropout::new(0.5);
    let ones = Tensor::full(&scope.device(), 1.0f32, &[64])?;
    let dropped = layer.apply(&graph.with_training(true), &ones)?;
    let session = Session::new(&graph);
    let [one, other] = [(); 2].map(|()| session.run(&dropped, &[]).unwrap().to_vec::<f32>().unwrap());
    assert_ne!(one, other);
    Ok(())
}
