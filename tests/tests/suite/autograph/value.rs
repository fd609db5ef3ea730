//! Runs programs on numbers and on tensors, and compares the results.

use gradlet_core::{Device, Eager, Function, Result, Scope, Tensor, ops};
use serde_json::Value as Json;
use std::sync::OnceLock;

/// An element type of the programs' numbers and tensors.
pub trait Number: Copy + Into<f64> {
    fn read(json: &Json) -> Self;
    fn tensor(device: &Device, json: &Json) -> Tensor;
    fn item(tensor: &Tensor) -> Result<f64>;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn read(json: &Json) -> $ty {
                json.as_f64().unwrap() as $ty
            }
            fn tensor(device: &Device, json: &Json) -> Tensor {
                match json.as_array() {
                    None => Tensor::scalar(device, <$ty as Number>::read(json)),
                    Some(row) => {
                        let row: Vec<$ty> = row.iter().map(<$ty as Number>::read).collect();
                        Tensor::new(device, &row, &[row.len() as u32]).unwrap()
                    }
                }
            }
            fn item(tensor: &Tensor) -> Result<f64> {
                Ok(tensor.item::<$ty>()?.into())
            }
        }

        impl Argument for $ty {
            fn read(json: &Json) -> $ty {
                Number::read(json)
            }
        }
    )*};
}
numbers!(f32, i32);

/// An argument of a program on numbers: a number, or a list of numbers.
pub trait Argument {
    fn read(json: &Json) -> Self;
}

impl<T: Number> Argument for Vec<T> {
    fn read(json: &Json) -> Vec<T> {
        json.as_array().unwrap().iter().map(T::read).collect()
    }
}

/// Functions that programs on numbers call.
pub mod on_numbers {
    use super::{Number, Result};
    use std::iter::StepBy;
    use std::ops::Range;

    pub fn like<T: Number>(_: &T, value: i32) -> Result<T> {
        Ok(T::read(&value.into()))
    }

    pub fn below(end: &i32) -> Result<Range<i32>> {
        Ok(0..*end)
    }

    pub fn between(start: i32, end: &i32) -> Result<Range<i32>> {
        Ok(start..*end)
    }

    pub fn by(end: &i32, step: &i32) -> Result<StepBy<Range<i32>>> {
        Ok((0..*end).step_by(*step as usize))
    }

    pub fn half(value: &i32) -> Result<i32> {
        Ok(value / 2)
    }

    pub fn abs(value: &f32) -> Result<f32> {
        Ok(value.abs())
    }

    pub fn first(row: &[f32]) -> Result<f32> {
        Ok(row[0])
    }
}

/// Functions that programs on tensors call.
pub mod on_tensors {
    use super::{Result, Tensor};
    use gradlet_core::autograph::{Range, range};

    pub fn like(tensor: &Tensor, value: i32) -> Result<Tensor> {
        tensor.like(value.into())
    }

    pub fn below(end: &Tensor) -> Result<Range> {
        range(end)
    }

    pub fn between(start: i32, end: &Tensor) -> Result<Range> {
        range((start, end))
    }

    pub fn by(end: &Tensor, step: &Tensor) -> Result<Range> {
        range((0, end, step))
    }

    pub fn half(value: &Tensor) -> Result<Tensor> {
        value.floordiv(&value.like(2.0)?)
    }

    pub fn abs(value: &Tensor) -> Result<Tensor> {
        value.abs()
    }

    pub fn first(row: &Tensor) -> Result<Tensor> {
        row.index(0)
    }
}

fn fixture() -> &'static Json {
    static FIXTURE: OnceLock<Json> = OnceLock::new();
    FIXTURE.get_or_init(|| serde_json::from_str(include_str!("../../../fixtures/autograph/programs.json")).unwrap())
}

/// Returns the names of the programs in the fixture.
pub fn names() -> Vec<String> {
    fixture().as_object().unwrap().keys().cloned().collect()
}

/// A program that runs on arguments in JSON.
pub type OnNumbers = fn(&[Json]) -> Result<f64>;

/// Runs the program `name` as plain Rust, with the attribute on numbers, with the attribute on tensors, and in a trace. All
/// results must equal TensorFlow's.
pub fn check<T: Number>(name: &str, rust: OnNumbers, plain: OnNumbers, tensors: fn(Vec<Tensor>) -> Result<Tensor>) {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let traced = Function::new(move |_: &dyn Scope, arguments: Vec<Tensor>| tensors(arguments));
    let calls = fixture()[name].as_array().unwrap_or_else(|| panic!("{name} is not in the fixture"));
    for call in calls {
        let (arguments, wanted) = (call["arguments"].as_array().unwrap(), call["result"].as_f64().unwrap());
        let close = |got: f64| (got - wanted).abs() <= 2e-6 * wanted.abs().max(1.0);
        let expected = rust(arguments).unwrap();
        assert!(close(expected), "{name}({arguments:?}) is {expected} in Rust, {wanted} in TensorFlow");
        assert_eq!(plain(arguments).unwrap(), expected, "{name}({arguments:?}) on numbers");
        let on_tensors: Vec<Tensor> = arguments.iter().map(|argument| T::tensor(&device, argument)).collect();
        let got = tensors(on_tensors.clone()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let got = T::item(&got).unwrap();
        assert!(close(got), "{name}({arguments:?}) is {got} on tensors, {wanted} in TensorFlow");
        let again = traced.call(&scope, on_tensors).unwrap_or_else(|error| panic!("{name}, traced: {error}"));
        assert_eq!(T::item(&again).unwrap(), got, "{name}({arguments:?}) in a trace");
    }
    assert_eq!(traced.traces(), 1, "{name}");
}
