//! Concrete functions compared with TensorFlow's: inputs, outputs, captures and ops.

use crate::function::log::read;
use crate::function::python::{scalar, vector};
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::function::ConcreteFunction;
use gradlet_core::function::graph::Graph;
use gradlet_core::{Differentiate, Eager, Function, Print, Result, Scope, Shape, Tensor, TensorSpec, TensorType, Variable, ops};
use gradlet_tests::golden::parsed_json::dtype;
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Returns gradlet's ops that correspond to an op of TensorFlow. The list is empty for an op that only passes values on.
fn ours(op: &str) -> &'static [&'static str] {
    match op {
        "Mul" | "Square" => &["mul"],
        "AddV2" | "AssignAddVariableOp" => &["add"],
        "Sub" | "AssignSubVariableOp" => &["sub"],
        // gradlet broadcasts a scalar, so that no tile is needed.
        "RealDiv" => &["div"],
        "Tile" => &["broadcast_to"],
        "Sum" => &["sum"],
        "Mean" => &["mean"],
        "Neg" => &["neg"],
        "MatMul" => &["matmul"],
        "Relu" => &["relu"],
        "Greater" | "Less" => &["less"],
        "StatelessIf" | "If" => &["cond"],
        "StatelessWhile" | "While" => &["while_loop"],
        "PrintV2" => &["print"],
        _ => &[],
    }
}

fn names(graph: &Graph, found: &mut BTreeSet<&'static str>) {
    for node in &graph.nodes {
        // Views, and the ops that create scalars, are not compared.
        if !matches!(node.op.def.name, "reshape" | "cast" | "identity") {
            found.insert(node.op.def.name);
        }
        node.bodies.iter().for_each(|body| names(body, found));
    }
}

/// Returns the spec of each input, and a type of that spec in which every unknown dimension is 5.
fn specs(case: &Json) -> Vec<(TensorSpec, TensorType)> {
    let inputs = case["inputs"].as_array().unwrap().iter().filter(|input| input[1] != "resource");
    let spec = |input: &Json| {
        let dims: Vec<Option<u32>> = input[2].as_array().unwrap().iter().map(|dim| dim.as_u64().map(|dim| dim as u32)).collect();
        let dtype = dtype(input[1].as_str().unwrap()).unwrap();
        let name = input[0].as_str().unwrap().trim_end_matches(":0");
        let concrete: Vec<u32> = dims.iter().map(|dim| dim.unwrap_or(5)).collect();
        (TensorSpec::new(dtype, &dims).named(name), TensorType::new(dtype, Shape::new(&concrete).unwrap()))
    };
    inputs.map(spec).collect()
}

type Body = Box<dyn Fn(&dyn Scope, Vec<Tensor>) -> Result<Tensor> + Send + Sync>;

/// Returns the program with this name, which uses the variables `w` and `b`.
fn program(id: &str, w: &Variable, b: &Variable) -> Body {
    let (w, b) = (w.clone(), b.clone());
    match id {
        "square_sum" => Box::new(|_, x| x[0].mul(&x[0])?.sum(&[], false)),
        "dense" => Box::new(move |scope, x| x[0].matmul(&scope.read(&w)?)?.add(&scope.read(&b)?)?.relu()),
        "branch" => Box::new(|scope, x| {
            let positive = x[0].greater(&x[0].like(0.0)?)?;
            cond(scope, &positive, || x[0].mul_scalar(2.0), || x[0].sub(&x[0].like(1.0)?))
        }),
        "loop" => Box::new(|scope, n| {
            let state = (scalar(0i32), scalar(0i32));
            let next = |(i, s): (Tensor, Tensor)| Ok((i.add_scalar(1.0)?, s.add(&i)?));
            Ok(while_loop(scope, WhileOptions::default(), state, |(i, _)| i.less(&n[0]), next)?.1)
        }),
        "counter" => Box::new(move |scope, _| {
            scope.assign_add(&b, &vector(&[1.0f32, 2.0]))?;
            scope.read(&b)
        }),
        "printing" => Box::new(|scope, x| {
            scope.print("x is {}", &[&x[0]])?;
            x[0].add_scalar(1.0)
        }),
        "sgd_step" => Box::new(move |scope, x| {
            let tape = scope.tape();
            let error = x[0].matmul(&tape.read(&w)?)?.add(&tape.read(&b)?)?.sub(&x[1])?;
            let loss = error.square()?.mean(&[], false)?;
            for (variable, gradient) in tape.gradient(&loss, &vec![w.clone(), b.clone()])? {
                scope.assign_sub(&variable, &gradient.unwrap().mul_scalar(0.1)?)?;
            }
            Ok(loss)
        }),
        "same_op_names" => Box::new(|_, x| x[0].add(&x[0])?.add(&x[0].add_scalar(1.0)?)),
        "scoped" => Box::new(|_, x| x[0].relu()?.relu()),
        other => panic!("no program {other}"),
    }
}

fn concrete(case: &Json) -> std::sync::Arc<ConcreteFunction> {
    let scope = Eager::new(&ops::portable_cpu());
    let variable = |name: &str, dims: &[u32]| Variable::new(&scope, name, &Tensor::full(&scope.device(), 1.0f32, dims).unwrap()).unwrap();
    let (w, b) = (variable("w", &[3, 2]), variable("b", &[2]));
    let id = case["id"].as_str().unwrap();
    let (specs, types): (Vec<TensorSpec>, Vec<TensorType>) = specs(case).into_iter().unzip();
    let function = Function::new(program(id, &w, &b)).named(id).with_signature(&specs);
    let arguments: Vec<Tensor> = types.iter().map(|&tensor_type| Tensor::zeros(&scope.device(), tensor_type).unwrap()).collect();
    function.concrete(&scope, &arguments).unwrap()
}

#[test]
fn concrete_functions_are_tensorflows() {
    let cases = read("graphs.json");
    for case in cases.as_array().unwrap() {
        let (id, function) = (&case["id"], concrete(case));
        let wanted: Vec<String> = specs(case).iter().map(|(spec, _)| spec.to_string()).collect();
        assert_eq!(function.signature().iter().map(TensorSpec::to_string).collect::<Vec<_>>(), wanted, "{id}");
        let outputs = case["outputs"].as_array().unwrap();
        assert_eq!(outputs.len(), function.outputs().len(), "{id}");
        for (output, wanted) in function.outputs().iter().zip(outputs) {
            assert_eq!(output.dtype, dtype(wanted[1].as_str().unwrap()).unwrap(), "{id}");
            let dims: Vec<Option<u64>> = wanted[2].as_array().unwrap().iter().map(Json::as_u64).collect();
            let fits = output.shape.dims().iter().zip(&dims).all(|(&got, dim)| dim.is_none_or(|dim| dim == u64::from(got)));
            assert!(fits && dims.len() == output.shape.rank(), "{id}: {output} is {dims:?} there");
        }
        let variables: Vec<String> = function.variables().iter().map(|v| format!("{}:0", v.name())).collect();
        assert_eq!(Json::from(variables), case["variables"], "{id}");
        assert_eq!(case["captured"].as_u64(), Some(function.variables().len() as u64), "{id}");
        ops_agree(case, function.traced());
    }
}

/// Checks that a graph has the same computing ops as TensorFlow's. The ops of a gradient may be sums and products in another order.
fn ops_agree(case: &Json, graph: &Graph) {
    let (mut got, mut wanted) = (BTreeSet::new(), BTreeSet::new());
    names(graph, &mut got);
    let nodes = case["nodes"].as_array().unwrap().iter().map(|node| &node["op"]);
    let inner =
        case["library_functions"].as_object().unwrap().values().flat_map(|nodes| nodes.as_array().unwrap().iter().map(|node| &node[1]));
    wanted.extend(nodes.chain(inner).flat_map(|op| ours(op.as_str().unwrap())).copied());
    if case["id"] == "loop" {
        // TensorFlow's graph first computes the length of a range.
        wanted.remove("sub");
    }
    if case["id"] == "sgd_step" {
        let scale = |set: &mut BTreeSet<&str>| set.retain(|name| !matches!(*name, "div" | "broadcast_to" | "neg"));
        scale(&mut got);
        scale(&mut wanted);
    }
    assert_eq!(got, wanted, "{}", case["id"]);
}

#[test]
fn branches_and_loops_are_listed_as_trees() {
    let cases = read("graphs.json");
    let listing = |id: &str| {
        let case = cases.as_array().unwrap().iter().find(|case| case["id"] == id).unwrap();
        concrete(case).to_string()
    };
    let branch = "branch(x %0: i32[])
  %1 = less(0, %0): bool[]
  %2 = cond(%1, %0): i32[]
    then:
      %3 = mul(%0, 2): i32[]
      give %3
    else:
      %4 = sub(%0, 1): i32[]
      give %4
  give %2
";
    assert_eq!(listing("branch"), branch);
    let looped = "loop(n %0: i32[])
  %1, %2 = while_loop(0, 0, %0): i32[], i32[]
    while (%3, %4):
      %5 = less(%3, %0): bool[]
      give %5
    do (%6, %7):
      %8 = add(%6, 1): i32[]
      %9 = add(%7, %6): i32[]
      give %8, %9
  give %2
";
    assert_eq!(listing("loop"), looped);
    assert!(listing("counter").contains("b := %0"), "{}", listing("counter"));
    assert!(listing("printing").contains("print(\"x is {}\\n\", %0)"), "{}", listing("printing"));
}
