//! Random programs with branches, loops, an array and variables. They run eagerly, traced, on a device, and with all control flow unrolled.

use crate::control::eager;
use gradlet_core::control::{WhileOptions, cond, while_loop};
use gradlet_core::device::AlignedBytes;
use gradlet_core::{Artifact, DType, Differentiate, Eager, Function, Program, Result, Scope, Session, Tensor, TensorArray, Variable, ops};
use gradlet_tests::flat::as_function;
use proptest::prelude::*;
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

const REGISTERS: usize = 3;
const PLACES: u32 = 4;

#[derive(Clone, Debug)]
enum Statement {
    /// Sets a register to the result of an op on two registers.
    Compute(u8, usize, usize, usize),
    If(usize, Vec<Statement>, Vec<Statement>),
    For(u32, Vec<Statement>),
    /// Repeats a block while the sum of a register is negative, at most three times.
    While(usize, Vec<Statement>),
    Write(Place, usize),
    Read(Place, usize),
    Assign(usize),
    Recall(usize),
}

/// An index in the array.
#[derive(Clone, Copy, Debug)]
enum Place {
    Fixed(u32),
    /// The counter of the innermost loop.
    Counted,
}

fn statement() -> impl Strategy<Value = Statement> {
    let register = || 0..REGISTERS;
    let place = || prop_oneof![(0..PLACES).prop_map(Place::Fixed), Just(Place::Counted)];
    let simple = prop_oneof![
        4 => (0u8..4, register(), register(), register()).prop_map(|(op, to, a, b)| Statement::Compute(op, to, a, b)),
        1 => (place(), register()).prop_map(|(place, from)| Statement::Write(place, from)),
        1 => (place(), register()).prop_map(|(place, to)| Statement::Read(place, to)),
        1 => register().prop_map(Statement::Assign),
        1 => register().prop_map(Statement::Recall),
    ];
    simple.prop_recursive(3, 16, 4, move |inner| {
        let block = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            (register(), block(), block()).prop_map(|(by, then, otherwise)| Statement::If(by, then, otherwise)),
            (0u32..4, block()).prop_map(|(count, body)| Statement::For(count, body)),
            (register(), block()).prop_map(|(by, body)| Statement::While(by, body)),
        ]
    })
}

type State = (Vec<Tensor>, TensorArray);

/// Source of the decisions in branches and loops.
#[derive(Clone)]
enum Mode {
    Control,
    /// Rust's own control flow. The decisions are recorded.
    Record(Arc<Mutex<Vec<bool>>>),
    /// The recorded decisions.
    Replay(Vec<bool>),
}

struct Run<'a> {
    scope: &'a dyn Scope,
    mode: &'a Mode,
    next: RefCell<usize>,
    factor: Tensor,
    memory: &'a Variable,
}

impl Run<'_> {
    fn decide(&self, by: &Tensor) -> Result<bool> {
        match self.mode {
            Mode::Control => unreachable!(),
            Mode::Record(made) => {
                let decision = by.item::<gradlet_core::tensor::Bool>()?.get();
                made.lock().unwrap().push(decision);
                Ok(decision)
            }
            Mode::Replay(made) => {
                let mut next = self.next.borrow_mut();
                *next += 1;
                Ok(made[*next - 1])
            }
        }
    }

    fn number(&self, number: u32) -> Tensor {
        Tensor::scalar(&self.scope.device(), number as i32)
    }

    fn block(&self, block: &[Statement], state: State, counter: &Tensor) -> Result<State> {
        block.iter().try_fold(state, |state, statement| self.statement(statement, state, counter))
    }

    fn compute(&self, op: u8, a: &Tensor, b: &Tensor) -> Result<Tensor> {
        match op {
            0 => a.mul(&self.factor)?.add(b)?.tanh(),
            1 => a.mul(b),
            2 => a.sub(b)?.sin(),
            _ => a.mul_scalar(0.5)?.add(&b.mul(&self.factor)?)?.sigmoid()?.sub(&a.mul_scalar(0.75)?),
        }
    }

    fn negative(&self, register: &Tensor) -> Result<Tensor> {
        register.sum(&[], false)?.less(&register.like(0.0)?)
    }

    fn statement(&self, statement: &Statement, (mut registers, mut array): State, counter: &Tensor) -> Result<State> {
        let at = |place: &Place| match place {
            Place::Fixed(index) => self.number(*index),
            Place::Counted => counter.clone(),
        };
        match statement {
            Statement::Compute(op, to, a, b) => registers[*to] = self.compute(*op, &registers[*a], &registers[*b])?,
            Statement::Write(place, from) => array = array.write(&at(place), &registers[*from])?,
            Statement::Read(place, to) => registers[*to] = array.read(&at(place))?,
            Statement::Assign(from) => self.scope.assign(self.memory, &registers[*from])?,
            Statement::Recall(to) => registers[*to] = self.scope.read(self.memory)?.add(&registers[*to])?.tanh()?,
            Statement::If(by, then, otherwise) => {
                let by = self.negative(&registers[*by])?;
                let run = |block: &[Statement]| self.block(block, (registers.clone(), array.clone()), counter);
                return match self.mode {
                    Mode::Control => cond(self.scope, &by, || run(then), || run(otherwise)),
                    _ => run(if self.decide(&by)? { then } else { otherwise }),
                };
            }
            Statement::For(count, body) => {
                let end = self.number(*count);
                return self.repeat(*count, (registers, array), body, |counter, _| counter.less(&end));
            }
            Statement::While(by, body) => {
                return self.repeat(3, (registers, array), body, |_, (registers, _)| self.negative(&registers[*by]));
            }
        }
        Ok((registers, array))
    }

    fn repeat(&self, most: u32, state: State, body: &[Statement], holds: impl Fn(&Tensor, &State) -> Result<Tensor>) -> Result<State> {
        let first = self.number(0);
        if let Mode::Control = self.mode {
            let options = WhileOptions { max_iterations: Some(most) };
            let step = |(counter, state): (Tensor, State)| Ok((counter.add_scalar(1.0)?, self.block(body, state, &counter)?));
            let (_, state) = while_loop(self.scope, options, (first, state), |(counter, state)| holds(counter, state), step)?;
            return Ok(state);
        }
        let (mut state, mut counter) = (state, first);
        for _ in 0..most {
            if !self.decide(&holds(&counter, &state)?)? {
                break;
            }
            state = self.block(body, state, &counter)?;
            counter = counter.add_scalar(1.0)?;
        }
        Ok(state)
    }
}

#[derive(Clone)]
struct Case {
    program: Vec<Statement>,
    /// A factor in the program, with respect to which the gradient is taken.
    factor: Variable,
    /// The variable that the program assigns and reads.
    memory: Variable,
    orders: usize,
}

impl Case {
    fn new(scope: &Eager, program: Vec<Statement>, orders: usize) -> Case {
        let variable = |value: f32, variable: Variable| {
            variable.create(scope, &Tensor::full(&scope.device(), value, &[2]).unwrap()).unwrap();
            variable
        };
        Case { program, factor: variable(0.9, Variable::deferred("factor")), memory: variable(0.25, Variable::untrained("memory")), orders }
    }

    /// Returns the registers, the array and the memory at the end of the program, then the gradients of their sum, up to order `orders`.
    fn run(&self, mode: &Mode, scope: &dyn Scope, inputs: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let outer = scope.tape();
        let watched = inputs.iter().map(|input| outer.watch(input)).collect::<Result<Vec<_>>>()?;
        let (mut results, first) = self.first(mode, &outer, &watched)?;
        results.extend(first.iter().cloned());
        if self.orders > 1 {
            let mut sum = outer.read(&self.factor)?.sum(&[], false)?;
            for gradient in &first {
                sum = sum.add(&gradient.square()?.sum(&[], false)?)?;
            }
            results.extend(zeros_where_none(outer.gradient(&sum, watched.as_slice())?, &watched)?);
        }
        Ok(results)
    }

    fn first(&self, mode: &Mode, scope: &dyn Scope, inputs: &[Tensor]) -> Result<(Vec<Tensor>, Vec<Tensor>)> {
        let tape = scope.tape();
        let watched = inputs.iter().map(|input| tape.watch(input)).collect::<Result<Vec<_>>>()?;
        let factor = tape.watch(&tape.read(&self.factor)?)?;
        let run = Run { scope: &tape, mode, next: RefCell::new(0), factor: factor.clone(), memory: &self.memory };
        let array = TensorArray::new(&tape, DType::F32, PLACES, false).clear_after_read(false).with_element_shape(&[2])?;
        let (registers, array) = run.block(&self.program, (watched.clone(), array), &run.number(0))?;
        let mut results = registers;
        results.push(array.stack()?);
        let mut sum = results[0].like(0.0)?;
        for (weight, result) in (1..).zip(&results) {
            sum = sum.add(&result.mul(result)?.sum(&[], false)?.mul_scalar(f64::from(weight))?)?;
        }
        results.push(tape.read(&self.memory)?);
        let sources = [watched, vec![factor]].concat();
        let found = zeros_where_none(tape.gradient(&sum, sources.as_slice())?, &sources)?;
        Ok((results, found))
    }
}

fn zeros_where_none(found: Vec<Option<Tensor>>, sources: &[Tensor]) -> Result<Vec<Tensor>> {
    found.into_iter().zip(sources).map(|(found, source)| found.map_or_else(|| source.zeros_like(), Ok)).collect()
}

fn floats(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|tensor| tensor.to_vec().unwrap()).collect()
}

fn bits(values: &[Vec<f32>]) -> Vec<Vec<u32>> {
    values.iter().map(|values| values.iter().map(|value| value.to_bits()).collect()).collect()
}

/// Compares gradients, whose sums may be computed in another order. The tolerance is relative to the largest element.
#[track_caller]
fn near(got: &[Vec<f32>], wanted: &[Vec<f32>], what: &str) {
    let largest = wanted.iter().flatten().fold(1.0f32, |largest, value| largest.max(value.abs()));
    for (got, wanted) in got.iter().zip(wanted) {
        for (got, wanted) in got.iter().zip(wanted) {
            assert!((got - wanted).abs() <= 1e-4 * largest, "{what}: {got} instead of {wanted}");
        }
    }
}

fn check(program: Vec<Statement>, numbers: Vec<f32>, orders: usize) -> Result<()> {
    let values = REGISTERS + 2;
    let scope = eager();
    let device = scope.device();
    let inputs: Vec<Tensor> = numbers.chunks(2).map(|pair| Tensor::new(&device, pair, &[2])).collect::<Result<_>>()?;
    let eagerly = |mode: &Mode| Case::new(&scope, program.clone(), orders).run(mode, &scope, inputs.clone()).map(|found| floats(&found));
    let made = Arc::new(Mutex::new(Vec::new()));
    let wanted = eagerly(&Mode::Record(made.clone()))?;
    let controlled = eagerly(&Mode::Control)?;
    assert_eq!(bits(&controlled), bits(&wanted), "eagerly");

    let decisions = made.lock().unwrap().clone();
    for mode in [Mode::Replay(decisions), Mode::Control] {
        let what = if let Mode::Control = mode { "traced" } else { "unrolled" };
        let case = Case::new(&scope, program.clone(), orders);
        let inner = case.clone();
        let function = Function::new(move |scope: &dyn Scope, inputs: Vec<Tensor>| inner.run(&mode, scope, inputs));
        let concrete = function.concrete(&scope, &inputs)?;
        let artifact = {
            let name = |prefix: &str, count: usize| (0..count).map(|index| format!("{prefix}{index}")).collect::<Vec<_>>();
            let (ins, outs) = (name("x", inputs.len()), name("y", wanted.len()));
            let names = |names: &'_ [String]| names.iter().map(|name| name.clone().leak() as &str).collect::<Vec<&str>>();
            let mut artifact = Artifact::new();
            artifact.signature("run", &concrete, &names(&ins), &names(&outs))?;
            artifact.to_bytes()?
        };
        let got = floats(&function.call(&scope, inputs.clone())?);
        assert_eq!(bits(&got[..values]), bits(&wanted[..values]), "{what}");
        near(&got, &wanted, what);

        let loaded = Program::load(&artifact, ops::KERNELS, &["run"])?;
        let mut arena = AlignedBytes::zeroed(loaded.arena_bytes());
        let mut session = Session::new(&loaded, &mut arena)?;
        let id = loaded.signature("run")?;
        for (index, input) in inputs.iter().enumerate() {
            session.input_mut(id, index)?.copy_from_slice(&input.to_vec::<f32>()?);
        }
        session.run(id)?;
        for (index, got) in got.iter().enumerate() {
            let on_device = session.output::<f32>(id, index)?.to_vec();
            assert_eq!(bits(&[on_device]), bits(std::slice::from_ref(got)), "{what}, on a device, output {index}");
        }
        let (lifted, _) = as_function(&artifact, &loaded, "run", &device)?;
        assert_eq!(bits(&floats(&lifted.run(&inputs)?)), bits(&got), "{what}, as a function again");
    }
    Ok(())
}

fn program() -> impl Strategy<Value = (Vec<Statement>, Vec<f32>)> {
    (prop::collection::vec(statement(), 1..6), prop::collection::vec(-1.0f32..1.0, 2 * REGISTERS))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_ways_agree((program, numbers) in program()) {
        check(program, numbers, 1).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn second_gradients_agree((program, numbers) in program()) {
        check(program, numbers, 2).unwrap();
    }
}

/// Programs that once failed in the random test.
#[test]
fn programs_that_failed_once() -> Result<()> {
    use Statement::{Assign, For, If, Read, Recall};
    // The gradient loop of the first loop reads the old value of the variable. The second loop overwrites it.
    check(vec![For(1, vec![Recall(0)]), For(1, vec![Assign(1)])], vec![0.5; 2 * REGISTERS], 2)?;
    // The branch has the same value twice: as the register that it overwrites, and as the memory.
    let branch = If(0, vec![], vec![Read(Place::Fixed(0), 1), Recall(0)]);
    check(vec![For(1, vec![Assign(1), branch])], vec![0.86, 0.0, 0.0, -0.41, 0.0, 0.0], 2)
}
