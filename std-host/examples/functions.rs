//! The TensorFlow handbook's small programs with traced functions. They show which code runs during the trace, and which code runs in each
//! call.
//!
//! `cargo run --release -p gradlet --features ndarray --example functions`

use gradlet::function::{Part, Structure};
use gradlet::layers::Module;
use gradlet::{DType, Eager, Function, Print, Result, Scope, Tensor, TensorArray, TensorSpec, Variable};
use std::fmt::Arguments;
use std::sync::Arc;

/// A function that prints text.
pub type Out = Arc<dyn Fn(Arguments<'_>) + Send + Sync>;

/// Returns an eager scope whose device prints to `out`.
fn scope(out: &Out) -> Eager {
    let out = out.clone();
    Eager::new(&gradlet::cpu().printing(move |text| out(text)))
}

/// The argument of `f`: a tensor, or a value of the host.
enum Argument {
    Tensor(Tensor),
    Int(i32),
    Float(f32),
}

impl Structure for Argument {
    fn visit(&self, visit: &mut dyn FnMut(Part<'_>)) {
        match self {
            Argument::Tensor(tensor) => visit(Part::Tensor(tensor)),
            Argument::Int(value) => [0, *value as u64].map(Part::Host).into_iter().for_each(visit),
            Argument::Float(value) => [1, value.to_bits().into()].map(Part::Host).into_iter().for_each(visit),
        }
    }

    fn with(&self, next: &mut dyn FnMut() -> Tensor) -> Argument {
        match self {
            Argument::Tensor(_) => Argument::Tensor(next()),
            Argument::Int(value) => Argument::Int(*value),
            Argument::Float(value) => Argument::Float(*value),
        }
    }
}

/// Returns a function that prints one line when it is traced, and its argument each time it runs.
fn f(out: &Out) -> Function<Argument, ()> {
    let out = out.clone();
    Function::new(move |scope: &dyn Scope, x: Argument| {
        out(format_args!("The function is running in Python\n"));
        match x {
            Argument::Tensor(x) => scope.print("{}", &[&x]),
            Argument::Int(x) => scope.print(&x.to_string(), &[]),
            Argument::Float(x) => scope.print(&x.to_string(), &[]),
        }
    })
}

/// Shows that a function is traced once for each element type and shape of its tensors.
pub fn quiz(out: &Out) -> Result<()> {
    let (scope, f) = (scope(out), f(out));
    let device = scope.device();
    let a = Tensor::scalar(&device, 1i32);
    f.call(&scope, Argument::Tensor(a))?;
    let b = Tensor::scalar(&device, 2i32);
    f.call(&scope, Argument::Tensor(b))?;
    let b_ = ndarray::arr0(2i32);
    f.call(&scope, Argument::Tensor(gradlet::tensor::from_ndarray(&device, &b_)?))?;
    let c = Tensor::scalar(&device, 0.1f32);
    f.call(&scope, Argument::Tensor(c))?;
    let d = Tensor::scalar(&device, 0.2f32);
    f.call(&scope, Argument::Tensor(d))
}

/// Shows that a function is traced once for each value of its host arguments.
pub fn scalar_quiz(out: &Out) -> Result<()> {
    let (scope, f) = (scope(out), f(out));
    for x in [1, 2, 1] {
        f.call(&scope, Argument::Int(x))?;
    }
    for x in [0.1, 0.2, 0.1] {
        f.call(&scope, Argument::Float(x))?;
    }
    Ok(())
}

/// Shows that a function captures a variable by reference: its assignments stay visible after the call.
pub fn captured_variable(out: &Out) -> Result<()> {
    let scope = scope(out);
    let a = Variable::new(&scope, "a", &Tensor::scalar(&scope.device(), 0.0f32))?;
    let g = Function::new(move |scope: &dyn Scope, ()| {
        scope.assign(&a, &scope.read(&a)?.add_scalar(1.0)?)?;
        scope.read(&a)
    });
    for _ in 0..3 {
        out(format_args!("{}\n", g.call(&scope, ())?));
    }
    Ok(())
}

/// Shows that each write to a tensor array returns a new array.
pub fn tensor_array(out: &Out) -> Result<()> {
    let array_write_and_read = Function::new(|scope: &dyn Scope, ()| {
        let constant = |value: f32| Tensor::scalar(&scope.device(), value);
        let arr = TensorArray::new(scope, DType::F32, 3, false);
        let arr = arr.write(0, &constant(0.0))?;
        let arr = arr.write(1, &constant(1.0))?;
        let arr = arr.write(2, &constant(2.0))?;
        Ok((arr.read(0)?, arr.read(1)?, arr.read(2)?))
    });
    let (a, b, c) = array_write_and_read.call(&scope(out), ())?;
    out(format_args!("{a} {b} {c}\n"));
    Ok(())
}

/// A variable, and a function that changes it.
#[derive(Module)]
pub struct DemoModule {
    x: Variable,
}

impl DemoModule {
    /// Creates a module whose variable has the initial value `init_value`.
    pub fn new(scope: &dyn Scope, init_value: f32) -> Result<DemoModule> {
        Ok(DemoModule { x: Variable::new(scope, "x", &Tensor::scalar(&scope.device(), init_value))? })
    }

    /// Returns a function that adds to the variable and prints it. It accepts only f32 scalars.
    pub fn addprint(self: &Arc<DemoModule>) -> Function<Tensor, Tensor> {
        let module = self.clone();
        let addprint = Function::new(move |scope: &dyn Scope, a: Tensor| {
            scope.assign_add(&module.x, &a)?;
            let x = scope.read(&module.x)?;
            scope.print("{}", &[&x])?;
            Ok(x)
        });
        addprint.with_signature(&[TensorSpec::new(DType::F32, &[])])
    }
}

/// Calls the module's function twice.
pub fn demo_module(out: &Out) -> Result<()> {
    let scope = scope(out);
    let demo = Arc::new(DemoModule::new(&scope, 1.0)?);
    let addprint = demo.addprint();
    for _ in 0..2 {
        addprint.call(&scope, Tensor::scalar(&scope.device(), 5.0f32))?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let out: Out = Arc::new(|text| print!("{text}"));
    [quiz, scalar_quiz, captured_variable, tensor_array, demo_module].into_iter().try_for_each(|program| program(&out))
}
