//! Training steps in replicas: they have the bits of the ordered sum of the replicas' gradients, and nearly the results of the whole batch.

use super::{Bits, SEED, agreed, all_near, bits, cpus, machine, near, strategy, two};
use gradlet::config::{Context, LogicalDeviceConfiguration, PhysicalDevice};
use gradlet::distribute::{MirroredStrategy, PerReplica, ReduceOp};
use gradlet::layers::{Activation, Conv2D, Dense, Flatten, Layer, MaxPool2D, Module, Sequential};
use gradlet::optimizers::{Adam, Optimizer, Sgd};
use gradlet::{Device, Differentiate, Eager, Error, Function, Result, Scope, Shape, Tensor, Variable};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;
use std::sync::Arc;

/// Number of steps.
const STEPS: u64 = 20;
/// Height and width of an image.
const SIDE: u32 = 8;

/// Images with their labels, and the number of rows of the whole batch.
pub type Part = (Tensor, Tensor, f32);

/// Gradients with their variables.
type Gradients = Vec<(Variable, Option<Tensor>)>;

/// Returns a random batch on a CPU that no strategy has.
pub fn batch(seed: u64, rows: u32) -> Result<Part> {
    let (device, mut random) = (gradlet::portable_cpu(), Random::new(seed));
    let pixels: Vec<f32> = (0..rows * SIDE * SIDE).map(|_| random.unit() as f32).collect();
    let labels: Vec<i32> = (0..rows).map(|_| random.below(3) as i32).collect();
    Ok((Tensor::new(&device, &pixels, &[rows, SIDE, SIDE, 1])?, Tensor::new(&device, &labels, &[rows])?, rows as f32))
}

/// Returns the number of rows of the batch of a step. Two and three replicas cannot share 7 rows equally.
fn rows(step: u64) -> u32 {
    [6, 7][step as usize % 2]
}

/// Copies a part to `device`.
fn on(device: &Device, (x, y, rows): &Part) -> Result<Part> {
    Ok((x.to(device)?, y.to(device)?, *rows))
}

/// A small CNN for three classes, and its optimizer.
pub struct Net {
    scope: Eager,
    model: Sequential,
    optimizer: Box<dyn Optimizer>,
}

impl Net {
    /// Creates a CNN with its variables. Their values depend on the seed of the scope only.
    fn new(scope: &Eager, optimizer: Box<dyn Optimizer>) -> Result<Arc<Net>> {
        let convolution = Conv2D::new(4, [3, 3]).activation(Activation::Relu);
        let model = Sequential::new().with(convolution).with(MaxPool2D::new([2, 2])).with(Flatten).with(Dense::new(3));
        model.build(scope, &Shape::new(&[1, SIDE, SIDE, 1])?)?;
        optimizer.build(scope, &model)?;
        Ok(Arc::new(Net { scope: scope.clone(), model, optimizer }))
    }

    /// Returns the loss of a part, and its gradients. The losses of all parts add up to the mean over the whole batch.
    fn gradients(&self, scope: &dyn Scope, (x, labels, rows): &Part) -> Result<(Tensor, Gradients)> {
        let tape = scope.tape();
        let losses = self.model.call(&tape, x)?.sparse_softmax_cross_entropy(labels)?;
        let loss = losses.sum(&[], false)?.div(&Tensor::scalar(&scope.device(), *rows))?;
        let gradients = tape.gradient(&loss, &self.model.trainable_variables())?;
        Ok((loss, gradients))
    }

    /// Does a training step on a part. Returns its loss before the step.
    fn step(&self, scope: &dyn Scope, part: &Part) -> Result<Tensor> {
        let (loss, gradients) = self.gradients(scope, part)?;
        self.optimizer.apply_gradients(scope, &gradients)?;
        Ok(loss)
    }

    /// Returns the step as a function.
    fn traced(self: &Arc<Net>) -> Function<Part, Tensor> {
        let own = self.clone();
        Function::new(move |scope: &dyn Scope, part: Part| own.step(scope, &part)).named("step")
    }

    /// Returns a function of the loss and the gradients of a part.
    fn traced_gradients(self: &Arc<Net>) -> Function<Part, (Tensor, Vec<Tensor>)> {
        let own = self.clone();
        Function::new(move |scope: &dyn Scope, part: Part| {
            let (loss, gradients) = own.gradients(scope, &part)?;
            let gradients = gradients.into_iter().map(|(_, gradient)| gradient.ok_or(Error::Internal));
            Ok((loss, gradients.collect::<Result<Vec<Tensor>>>()?))
        })
    }

    /// Returns the variables of the model and of the optimizer.
    pub fn variables(&self) -> Vec<Variable> {
        [self.model.variables(), self.optimizer.variables()].concat()
    }

    fn values(&self) -> Result<Vec<Tensor>> {
        self.variables().iter().map(|variable| self.scope.read(variable)).collect()
    }

    fn bits(&self) -> Result<Bits> {
        self.values()?.iter().map(bits).collect()
    }
}

/// A CNN with a copy in each replica.
pub struct Replicated {
    pub strategy: MirroredStrategy,
    pub net: Arc<Net>,
    step: Function<Part, Tensor>,
}

impl Replicated {
    /// Creates a CNN in the scope of a strategy.
    pub fn new(strategy: &MirroredStrategy, optimizer: Box<dyn Optimizer>) -> Result<Replicated> {
        let net = Net::new(&strategy.scope(), optimizer)?;
        Ok(Replicated { strategy: strategy.clone(), step: net.traced(), net })
    }

    /// Does a traced step in all replicas, each on its part of a batch. Returns the loss of the whole batch.
    pub fn train(&self, batch: &Part) -> Result<Tensor> {
        self.strategy.reduce(ReduceOp::Sum, &self.run(&self.strategy.split(batch)?)?, None)
    }

    /// Does a traced step on the parts of a batch. Returns the loss of each part.
    pub fn run(&self, parts: &PerReplica<Part>) -> Result<PerReplica<Tensor>> {
        self.strategy.run(|replica| self.step.call(replica, parts.values()[replica.replica_id()].clone()))
    }

    /// Does the same step as [`Replicated::train`], eagerly.
    pub fn train_eagerly(&self, batch: &Part) -> Result<Tensor> {
        let parts = self.strategy.split(batch)?;
        let losses = self.strategy.run(|replica| self.net.step(replica, &parts.values()[replica.replica_id()]))?;
        self.strategy.reduce(ReduceOp::Sum, &losses, None)
    }

    /// Checks that all copies of the variables are equal. Returns their bits.
    pub fn bits(&self) -> Result<Bits> {
        agreed(&self.strategy, &self.net.variables())
    }
}

/// Creates a CNN on a device of a context, used by itself.
fn alone(context: &Context, device: &str, optimizer: Box<dyn Optimizer>) -> Result<Arc<Net>> {
    Net::new(&Eager::with_seed(&context.device(device)?, SEED), optimizer)
}

/// Does a step with the sum of the gradients of all parts, in their order. Returns the sum of the losses.
fn ordered_step(net: &Net, gradients: &Function<Part, (Tensor, Vec<Tensor>)>, parts: &[Part]) -> Result<Tensor> {
    let (scope, device) = (&net.scope, net.scope.device());
    let (mut loss, mut sums) = gradients.call(scope, on(&device, &parts[0])?)?;
    for part in &parts[1..] {
        let (other, own) = gradients.call(scope, on(&device, part)?)?;
        loss = loss.add(&other)?;
        sums = sums.iter().zip(&own).map(|(sum, own)| sum.add(own)).collect::<Result<_>>()?;
    }
    let summed: Gradients = net.model.trainable_variables().into_iter().zip(sums.into_iter().map(Some)).collect();
    net.optimizer.apply_gradients(scope, &summed)?;
    Ok(loss)
}

/// Trains replicas on all devices of a context by SGD: see [`steps_are_ordered`].
fn sums_are_ordered(context: &Context) -> Result<()> {
    steps_are_ordered(context, &strategy(context)?, || Box::new(Sgd::new(0.1)))
}

/// Trains the replicas of a strategy of a context, and one device on the ordered sum of the parts' gradients. Compares the bits.
pub fn steps_are_ordered(context: &Context, strategy: &MirroredStrategy, new: fn() -> Box<dyn Optimizer>) -> Result<()> {
    let replicas = Replicated::new(strategy, new())?;
    let (first, count) = (replicas.strategy.devices()[0].name(), replicas.strategy.num_replicas_in_sync());
    let net = alone(context, first, new())?;
    let gradients = net.traced_gradients();
    assert_eq!(replicas.bits()?, net.bits()?, "{count} replicas, before the first step");
    for step in 0..STEPS {
        let batch = batch(step, rows(step))?;
        let parts = replicas.strategy.split(&batch)?;
        let (loss, wanted) = (replicas.train(&batch)?, ordered_step(&net, &gradients, parts.values())?);
        assert_eq!(bits(&loss)?, bits(&wanted)?, "{count} replicas, the loss of step {step}");
        assert_eq!(replicas.bits()?, net.bits()?, "{count} replicas, step {step}");
    }
    Ok(())
}

#[test]
fn replicas_have_the_bits_of_the_ordered_sum_of_their_gradients() -> Result<()> {
    for (portable, count) in [(true, 2), (true, 3), (false, 2), (false, 3)] {
        sums_are_ordered(&cpus(portable, count)?)?;
    }
    Ok(())
}

/// Two logical devices of one GPU, and three GPUs.
#[test]
fn replicas_on_gpus_have_the_bits_of_the_ordered_sum_of_their_gradients() -> Result<()> {
    let (divided, several) = (Emulator::new()?, Emulator::with("devices=3")?);
    let context = divided.context()?;
    let limits = [LogicalDeviceConfiguration::new().memory_limit(8); 2];
    context.set_logical_device_configuration(&PhysicalDevice::new("GPU", 0), &limits)?;
    sums_are_ordered(&context)?;
    sums_are_ordered(&several.context()?)
}

/// Checks that replicas train like one device that gets every batch whole.
fn trains_like_the_whole_batch(new: fn() -> Box<dyn Optimizer>, tolerance: f32) -> Result<()> {
    for (portable, count) in [(true, 2), (true, 3), (false, 2), (false, 3)] {
        let context = cpus(portable, count)?;
        let (replicas, net) = (Replicated::new(&strategy(&context)?, new())?, alone(&context, "CPU:0", new())?);
        let (whole, device) = (net.traced(), net.scope.device());
        for step in 0..STEPS {
            let batch = batch(step, rows(step))?;
            near(&replicas.train(&batch)?, &whole.call(&net.scope, on(&device, &batch)?)?, tolerance)?;
            replicas.bits()?;
            all_near(&replicas.net.values()?, &net.values()?, tolerance)?;
        }
    }
    Ok(())
}

#[test]
fn replicas_train_with_sgd_as_on_the_whole_batch() -> Result<()> {
    trains_like_the_whole_batch(|| Box::new(Sgd::new(0.1)), 1e-5)
}

#[test]
fn replicas_train_with_momentum_as_on_the_whole_batch() -> Result<()> {
    trains_like_the_whole_batch(|| Box::new(Sgd::new(0.02).momentum(0.9).nesterov(true)), 1e-5)
}

/// Adam divides each gradient by its own size, so it also magnifies the rounding of small gradients.
#[test]
fn replicas_train_with_adam_as_on_the_whole_batch() -> Result<()> {
    trains_like_the_whole_batch(|| Box::new(Adam::new(0.001)), 1e-4)
}

/// The norm is that of the summed gradient, not that of each replica's part.
#[test]
fn gradients_are_clipped_after_their_sum() -> Result<()> {
    trains_like_the_whole_batch(|| Box::new(Sgd::new(0.1).global_clipnorm(0.05)), 1e-5)
}

#[test]
fn moving_averages_of_the_variables_agree() -> Result<()> {
    trains_like_the_whole_batch(|| Box::new(Sgd::new(0.1).use_ema(true).ema_momentum(0.9)), 1e-5)
}

#[test]
fn eager_replicas_have_the_bits_of_traced_ones() -> Result<()> {
    let new = || Replicated::new(&two()?, Box::new(Sgd::new(0.1)));
    let (eager, traced) = (new()?, new()?);
    for step in 0..5 {
        let batch = batch(step, rows(step))?;
        assert_eq!(bits(&eager.train_eagerly(&batch)?)?, bits(&traced.train(&batch)?)?, "the loss of step {step}");
        assert_eq!(eager.bits()?, traced.bits()?, "step {step}");
    }
    Ok(())
}

#[test]
fn hidden_gpus_have_the_bits_of_portable_cpus() -> Result<()> {
    for count in [2, 3] {
        let (context, gpus) = machine(count);
        let hidden = Replicated::new(&strategy(&context)?, Box::new(Adam::new(0.01)))?;
        let portable = Replicated::new(&strategy(&cpus(true, count)?)?, Box::new(Adam::new(0.01)))?;
        let names: Vec<&str> = hidden.strategy.devices().iter().map(Device::name).collect();
        assert_eq!(names, &["GPU:0", "GPU:1", "GPU:2"][..count]);
        for step in 0..STEPS {
            let batch = batch(step, rows(step))?;
            let before: Vec<u64> = gpus.iter().map(|gpu| gpu.created()[0].0.counts().launches).collect();
            let (loss, wanted) = (hidden.train(&batch)?, portable.train(&batch)?);
            assert_eq!(bits(&loss)?, bits(&wanted)?, "{count} replicas, the loss of step {step}");
            assert_eq!(hidden.bits()?, portable.bits()?, "{count} replicas, step {step}");
            let after = gpus.iter().map(|gpu| gpu.created()[0].0.counts().launches);
            assert!(after.zip(before).all(|(after, before)| after > before), "a GPU did nothing in step {step}");
        }
    }
    Ok(())
}

/// The strategy of a program may use any of its devices, in any order.
#[test]
fn the_first_named_device_has_the_first_part() -> Result<()> {
    let strategy = MirroredStrategy::with_seed(&cpus(true, 3)?, &["CPU:2", "CPU:0"], SEED)?;
    let replicas = Replicated::new(&strategy, Box::new(Sgd::new(0.1)))?;
    let (x, ..) = batch(0, 7)?;
    let parts = strategy.split(&x)?;
    let names: Vec<&str> = strategy.devices().iter().map(Device::name).collect();
    assert_eq!(names, ["CPU:2", "CPU:0"]);
    assert!(parts.values().iter().zip(strategy.devices()).all(|(part, device)| part.device().is_ok_and(|own| own == *device)));
    assert_eq!(parts.values().iter().map(|part| part.dims()[0]).collect::<Vec<_>>(), [4, 3]);
    replicas.train(&batch(0, 7)?)?;
    let other = Replicated::new(&two()?, Box::new(Sgd::new(0.1)))?;
    other.train(&batch(0, 7)?)?;
    assert_eq!(replicas.bits()?, other.bits()?);
    Ok(())
}
