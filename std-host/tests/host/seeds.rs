//! Tests that the TensorFlow handbook's programs on graphs print its output.

#![allow(dead_code)]

#[path = "../../examples/cnn_function.rs"]
mod cnn_function;
#[path = "../../examples/functions.rs"]
mod functions;
#[path = "../../examples/session.rs"]
mod session;

use functions::{DemoModule, Out};
use gradlet::artifact::Loaded;
use gradlet::datasets::{Digits, digits};
use gradlet::{Artifact, Eager, Scope, Tensor};
use std::path::Path;
use std::sync::{Arc, Mutex};

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/mnist10k");

/// Returns the text that a program prints.
fn printed(run: impl FnOnce(&Out) -> gradlet::Result<()>) -> String {
    let text = Arc::new(Mutex::new(String::new()));
    let sink = text.clone();
    let out: Out = Arc::new(move |part| *sink.lock().unwrap() += &part.to_string());
    run(&out).unwrap();
    let text = text.lock().unwrap();
    text.clone()
}

#[test]
fn quiz() {
    let wanted = "The function is running in Python\n1\n2\n2\nThe function is running in Python\n0.1\n0.2\n";
    assert_eq!(printed(functions::quiz), wanted);
}

#[test]
fn scalar_quiz() {
    let wanted = "The function is running in Python\n1\nThe function is running in Python\n2\n1\n\
                  The function is running in Python\n0.1\nThe function is running in Python\n0.2\n0.1\n";
    assert_eq!(printed(functions::scalar_quiz), wanted);
}

#[test]
fn captured_variable() {
    let wanted = "tf.Tensor(1.0, shape=(), dtype=float32)\n\
                  tf.Tensor(2.0, shape=(), dtype=float32)\n\
                  tf.Tensor(3.0, shape=(), dtype=float32)\n";
    assert_eq!(printed(functions::captured_variable), wanted);
}

#[test]
fn tensor_array() {
    let wanted = "tf.Tensor(0.0, shape=(), dtype=float32) tf.Tensor(1.0, shape=(), dtype=float32) \
                  tf.Tensor(2.0, shape=(), dtype=float32)\n";
    assert_eq!(printed(functions::tensor_array), wanted);
}

#[test]
fn demo_module() {
    assert_eq!(printed(functions::demo_module), "6\n11\n");
}

/// Exports the module's function to a file and loads it, as with `tf.saved_model`.
#[test]
fn demo_module_is_exported() {
    let scope = Eager::new(&gradlet::cpu());
    let demo = Arc::new(DemoModule::new(&scope, 1.0).unwrap());
    let five = Tensor::scalar(&scope.device(), 5.0f32);
    let mut artifact = Artifact::new();
    artifact.signature("addprint", &demo.addprint().concrete(&scope, &five).unwrap(), &["a"], &["x"]).unwrap();
    let named = gradlet::layers::Module::named_variables(&*demo);
    artifact.variables(named.into_iter().map(|(name, variable)| (format!("demo_module/{name}"), variable)).collect());
    let (text, bytes) = (Arc::new(Mutex::new(String::new())), artifact.to_bytes().unwrap());
    let sink = text.clone();
    let loaded = Loaded::new(&bytes, None).unwrap().printing(move |part| *sink.lock().unwrap() += &part.to_string());
    let addprint = loaded.signature("addprint").unwrap();
    assert_eq!(addprint.call(std::slice::from_ref(&five)).unwrap()[0].item::<f32>().unwrap(), 6.0);
    assert_eq!(*text.lock().unwrap(), "6\n");
    assert_eq!(loaded.variable("demo_module/x").unwrap().item::<f32>().unwrap(), 6.0);
    let wrong = addprint.call(&[Tensor::scalar(&scope.device(), 5i32)]).unwrap_err().to_string();
    assert_eq!(wrong, "input 0 of \"addprint\" is f32[], got i32[]");
}

/// Both ways of training print the same losses, and their times.
#[test]
fn cnn_with_and_without_function() {
    let digits = Digits::load(Path::new(DATA), "train").unwrap();
    let text = printed(|out| cnn_function::run(&digits, 3, out));
    let lines: Vec<&str> = text.lines().collect();
    let [first, one, second, two, third, three, with, without] = lines.as_slice() else { panic!("{text}") };
    assert!(first.starts_with("loss 2.") && [first, second, third] == [one, two, three], "{text}");
    assert!(with.starts_with("3 batches with Function: ") && without.starts_with("3 batches without: "), "{text}");
}

#[test]
fn session() {
    let (train, test) = digits::load(Path::new(DATA)).unwrap();
    let mut out = Vec::new();
    session::run((&train, &test.first(500)), 1, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let number = |line: &str, name: &str| -> f64 { line.strip_prefix(name).unwrap().parse().unwrap() };
    assert_eq!(lines.len(), 161);
    assert!(number(lines[0], "batch 0: loss ") > 2.0 && number(lines[159], "batch 159: loss ") < 1.0, "{text}");
    assert!(number(lines[160], "test accuracy: ") > 0.8, "{}", lines[160]);
}
