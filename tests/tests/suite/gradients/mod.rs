//! Compares the gradient of every op with central differences in f64, on random shapes.

mod array;
mod elementwise;
mod kinks;
mod nn;
mod reduce;

use gradlet_core::custom_op::{Gradient, Op};
use gradlet_core::device::Device;
use gradlet_core::{Differentiate, Eager, Result, Scope, Tensor, ops};
use gradlet_tests::gpu;
use gradlet_tests::hiding::Hiding;
use gradlet_tests::random::Random;
use proptest::prelude::any;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

/// Number of random trials of each op.
const SHAPES: u32 = 24;

type Compute = Box<dyn Fn(&dyn Scope, &[Tensor]) -> Result<Tensor>>;

/// A test case: a use of an op on some inputs, with the step and the tolerance of the central differences.
struct Trial {
    inputs: Vec<Tensor>,
    /// Indices of the inputs with respect to which gradients are taken.
    sources: Vec<usize>,
    compute: Compute,
    step: f64,
    tolerance: f64,
}

impl Trial {
    fn new(inputs: Vec<Tensor>, compute: impl Fn(&[Tensor]) -> Result<Tensor> + 'static) -> Trial {
        let sources = (0..inputs.len()).filter(|&index| inputs[index].dtype().is_float()).collect();
        Trial { inputs, sources, compute: Box::new(move |_, x| compute(x)), step: 1e-5, tolerance: 1e-6 }
    }

    /// Creates a trial of the first output of `op`, for an op without a tensor method.
    fn of(op: &'static Op, attributes: Vec<u32>, inputs: Vec<Tensor>) -> Trial {
        let compute = move |scope: &dyn Scope, x: &[Tensor]| Ok(scope.emit(op, &attributes, &x.iter().collect::<Vec<_>>())?.remove(0));
        Trial { compute: Box::new(compute), ..Trial::new(inputs, |x| Ok(x[0].clone())) }
    }
}

/// Generator of random trials.
struct Maker {
    random: Random,
    device: Device,
}

impl Maker {
    fn dims(&mut self, rank: (u32, u32), largest: u32) -> Vec<u32> {
        (0..self.random.range(rank.0, rank.1)).map(|_| self.random.range(1, largest)).collect()
    }

    fn tensor_of(&mut self, dims: &[u32], mut element: impl FnMut(&mut Random) -> f64) -> Tensor {
        let elements: Vec<f64> = (0..dims.iter().product()).map(|_| element(&mut self.random)).collect();
        Tensor::new(&self.device, &elements, dims).unwrap()
    }

    fn tensor(&mut self, dims: &[u32]) -> Tensor {
        self.tensor_of(dims, Random::unit)
    }

    /// Returns a tensor with positive and negative elements that are not close to 0.
    fn away_from_zero(&mut self, dims: &[u32]) -> Tensor {
        self.tensor_of(dims, |random| (0.5 + random.unit().abs()) * if random.coin() { 1.0 } else { -1.0 })
    }

    /// Returns a tensor whose elements differ by at least 0.1.
    fn distinct(&mut self, dims: &[u32]) -> Tensor {
        let mut order = self.random.permutation(dims.iter().product::<u32>() as usize).into_iter();
        self.tensor_of(dims, |_| order.next().map_or(0.0, |position| position as f64 * 0.1))
    }

    /// Returns random dimensions of an operand that broadcasts to `dims`.
    fn operand(&mut self, dims: &[u32]) -> Vec<u32> {
        let leave_out = self.random.below(dims.len() + 1) * usize::from(self.random.below(3) == 0);
        dims[leave_out..].iter().map(|&dim| if self.random.below(4) == 0 { 1 } else { dim }).collect()
    }

    /// Returns random dimensions of two operands that broadcast to a common shape.
    fn operands(&mut self) -> [Vec<u32>; 2] {
        let dims = self.dims((0, 4), 4);
        [self.operand(&dims), self.operand(&dims)]
    }

    fn labels(&mut self, dims: &[u32], classes: u32) -> Tensor {
        let labels: Vec<i32> = (0..dims.iter().product()).map(|_| self.random.below(classes as usize) as i32).collect();
        Tensor::new(&self.device, &labels, dims).unwrap()
    }

    /// Returns random axes of a tensor of this rank. Negative axes count from the end.
    fn axes(&mut self, rank: usize) -> Vec<i32> {
        let count = self.random.below(rank + 1);
        let order = self.random.permutation(rank);
        order[..count].iter().map(|&axis| axis as i32 - if self.random.coin() { rank as i32 } else { 0 }).collect()
    }

    fn binary(&mut self, compute: fn(&Tensor, &Tensor) -> Result<Tensor>) -> Trial {
        let [a, b] = self.operands();
        let inputs = vec![self.tensor(&a), self.away_from_zero(&b)];
        Trial::new(inputs, move |x| compute(&x[0], &x[1]))
    }

    fn unary(&mut self, compute: impl Fn(&Tensor) -> Result<Tensor> + 'static) -> Trial {
        let dims = self.dims((0, 4), 4);
        let x = self.away_from_zero(&dims);
        Trial::new(vec![x], move |x| compute(&x[0]))
    }

    fn reduction(&mut self, compute: fn(&Tensor, &[i32], bool) -> Result<Tensor>) -> Trial {
        let dims = self.dims((0, 4), 4);
        let (axes, keepdims, x) = (self.axes(dims.len()), self.random.coin(), self.tensor(&dims));
        Trial::new(vec![x], move |x| compute(&x[0], &axes, keepdims))
    }

    fn along_axis(&mut self, compute: fn(&Tensor, i32) -> Result<Tensor>) -> Trial {
        let dims = self.dims((1, 3), 5);
        let axis = self.random.below(dims.len()) as i32 - if self.random.coin() { dims.len() as i32 } else { 0 };
        let x = self.tensor(&dims);
        Trial::new(vec![x], move |x| compute(&x[0], axis))
    }

    /// Returns a random trial of op `name`, or `None` if the tests have no trial of this op.
    fn trial(&mut self, name: &str) -> Option<Trial> {
        [elementwise::trial, reduce::trial, array::trial, nn::trial].into_iter().find_map(|trial| trial(self, name))
    }
}

/// Returns the sum of `y · cotangent` over all elements, in f64.
fn weighted(y: &Tensor, cotangent: &[f64]) -> f64 {
    y.to_vec::<f64>().unwrap().iter().zip(cotangent).map(|(y, c)| y * c).sum()
}

/// Checks the gradients of a trial. The error describes the largest difference beyond the tolerance.
fn check(trial: &Trial, random: &mut Random) -> Result<(), String> {
    let text = |error: gradlet_core::Error| error.to_string();
    let device = trial.inputs[0].device().map_err(text)?;
    let scope = Eager::new(&device);
    let y = (trial.compute)(&scope, &trial.inputs).map_err(text)?;
    let cotangent: Vec<f64> = (0..y.shape().elements().unwrap_or(0)).map(|_| random.unit()).collect();
    let seed = Tensor::new(&device, &cotangent, y.dims()).map_err(text)?;
    let gradients = gradients(trial, &scope, &trial.inputs, &seed).map_err(text)?;
    for (&source, gradient) in trial.sources.iter().zip(gradients) {
        let x = trial.inputs[source].to_vec::<f64>().map_err(text)?;
        let gradient = match gradient {
            Some(gradient) if gradient.dims() != trial.inputs[source].dims() => return Err(format!("input {source}: {gradient:?}")),
            Some(gradient) => gradient.to_vec::<f64>().map_err(text)?,
            None => vec![0.0; x.len()],
        };
        for (index, &got) in gradient.iter().enumerate() {
            let moved = |by: f64| {
                let mut inputs = trial.inputs.clone();
                let mut elements = x.clone();
                elements[index] += by;
                inputs[source] = Tensor::new(&device, &elements, trial.inputs[source].dims())?;
                Ok(weighted(&(trial.compute)(&scope, &inputs)?, &cotangent))
            };
            let want = (moved(trial.step).map_err(text)? - moved(-trial.step).map_err(text)?) / (2.0 * trial.step);
            let near = (got - want).abs() <= trial.tolerance * (1.0 + want.abs());
            if !near {
                return Err(format!("input {source}, element {index}: {got} instead of {want}"));
            }
        }
    }
    Ok(())
}

fn gradients(trial: &Trial, scope: &dyn Scope, inputs: &[Tensor], seed: &Tensor) -> Result<Vec<Option<Tensor>>> {
    let tape = scope.tape();
    let mut inputs = inputs.to_vec();
    for &source in &trial.sources {
        inputs[source] = tape.watch(&inputs[source])?;
    }
    let y = (trial.compute)(&tape, &inputs)?;
    let sources: Vec<Tensor> = trial.sources.iter().map(|&source| inputs[source].clone()).collect();
    tape.gradient_of(&[(&y, Some(seed))], sources.as_slice())
}

/// Runs `check` with `shapes` random makers. Returns the failure with the smallest seed, or `None` if nothing fails. The makers are the
/// same in every run, so that a build does not fail by chance.
fn for_all(device: &Device, shapes: u32, op: &Op, check: impl Fn(&mut Maker) -> Result<(), String>) -> Option<String> {
    let config = Config { cases: shapes, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let held = runner.run(&any::<u64>(), |seed| {
        let mut maker = Maker { random: Random::new(seed ^ u64::from(op.def.code.0) << 32), device: device.clone() };
        check(&mut maker).map_err(TestCaseError::fail)
    });
    held.err().map(|error| format!("{}: {error}", op.def.name))
}

fn differentiable() -> impl Iterator<Item = &'static Op> {
    ops::OPS.iter().copied().filter(|op| matches!(op.grad, Gradient::Rule(_)))
}

/// Checks the gradients of every op on `device`, with `shapes` random trials.
fn check_all(device: &Device, shapes: u32) {
    let tried = |op: &'static Op| {
        for_all(device, shapes, op, |maker| {
            let trial = maker.trial(op.def.name).ok_or("the op has a gradient, but no trial")?;
            check(&trial, &mut maker.random).map_err(|error| format!("of {:?}: {error}", trial.inputs))
        })
    };
    let wrong: Vec<String> = differentiable().filter_map(tried).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Every op with a gradient has trials, and all of them pass.
#[test]
fn gradients_are_central_differences() {
    check_all(&ops::portable_cpu(), SHAPES);
}

#[test]
fn gradients_on_a_device_that_hides_its_memory_are_central_differences() {
    let hiding = Hiding::new();
    check_all(&hiding.device, SHAPES / 6);
    assert_eq!(hiding.live(), 0);
}

#[test]
fn gradients_on_a_gpu_are_central_differences() {
    check_all(&gpu::device().unwrap(), SHAPES / 6);
}

/// Checks gradients of gradients. The function under test is the derivative of the square of the op's output along random directions.
#[test]
fn second_gradients_are_central_differences() {
    let tried = |op: &'static Op| {
        for_all(&ops::portable_cpu(), SHAPES / 4, op, |maker| {
            let Some(first) = maker.trial(op.def.name) else { return Ok(()) };
            let Trial { inputs, sources, step, tolerance, .. } = &first;
            let seed = maker.tensor((first.compute)(&Eager::new(&maker.device), inputs).unwrap().dims());
            let directions: Vec<Tensor> = sources.iter().map(|&source| maker.tensor(inputs[source].dims())).collect();
            let (inputs, sources, step, tolerance) = (inputs.clone(), sources.clone(), *step, *tolerance);
            let second = Trial { inputs, sources: sources.clone(), compute: along(first, seed, directions), step, tolerance };
            check(&second, &mut maker.random).map_err(|error| format!("of {:?}: {error}", second.inputs))
        })
    };
    let wrong: Vec<String> = differentiable().filter_map(tried).collect();
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns a function of the trial's inputs. It squares the op's output, computes the gradient with respect to each source, multiplies each
/// gradient by a direction, and returns the sum of all products. The square makes the upstream gradient depend on the inputs, as in a chain
/// of ops.
fn along(trial: Trial, seed: Tensor, directions: Vec<Tensor>) -> Compute {
    let Trial { compute, .. } = trial;
    let square = move |scope: &dyn Scope, x: &[Tensor]| compute(scope, x).and_then(|y| y.mul(&y));
    let trial = Trial { compute: Box::new(square), ..trial };
    Box::new(move |scope, inputs| {
        let mut sum = Tensor::scalar(&scope.device(), 0.0f64);
        for (gradient, direction) in gradients(&trial, scope, inputs, &seed)?.iter().zip(&directions) {
            if let Some(gradient) = gradient {
                sum = sum.add(&gradient.mul(direction)?.sum(&[], false)?)?;
            }
        }
        Ok(sum)
    })
}
