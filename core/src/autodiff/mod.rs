//! Gradients: a tape records the ops of a scope and walks its record backward.
//!
//! Every gradient rule emits forward ops into the tape's parent scope. Over `Eager`, the gradients are computed. Over a trace, they
//! become nodes of the same graph. Over another tape, they are recorded, which allows higher derivatives.

mod control_flow;
pub(crate) mod sources;
mod tapes;

pub use crate::tensor::scope::custom_gradient;
pub use sources::{Source, Sources};
pub use tapes::{Differentiate, TapeOptions};

use crate::autodiff::control_flow::Rewind;
use crate::base::error::{Error, Result};
use crate::base::op::MAX_INPUTS;
use crate::base::random::Stream;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, Weak};
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::Control;
use crate::tensor::scope::{Backward, CustomRule, Emitter, Entered, Forward, Gradient, Op, Outputs, Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use crate::trace::replay::interpret;
use alloc::format;
use alloc::vec::Vec;

/// Scope that computes and records, like TensorFlow's `GradientTape`.
///
/// Trainable variables are watched when they are read through the tape. Tensors are watched with [`Tape::watch`].
///
/// ```
/// use gradlet_core::{Differentiate, Eager, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let x = Tensor::scalar(&ops::portable_cpu(), 3.0f32);
/// let tape = scope.tape();
/// let x = tape.watch(&x)?;
/// let y = x.mul(&x)?;
/// assert_eq!(tape.gradient(&y, &x)?.unwrap().item::<f32>()?, 6.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
#[doc(alias = "GradientTape", alias = "tf.GradientTape")]
pub struct Tape(Shared<Recording>);

struct Recording {
    this: Weak<Recording>,
    parent: ScopeHandle,
    options: TapeOptions,
    tracks: Lock<Tracks>,
    body: Lock<Option<ScopeHandle>>,
}

#[derive(Default)]
struct Tracks {
    stopped: bool,
    spent: bool,
    values: u32,
    nodes: Vec<Node>,
    reads: Vec<Read>,
    watched: Vec<Variable>,
}

/// Gradient rule of a node.
enum Rule {
    Op(&'static Op),
    Custom(Shared<dyn CustomRule>),
    Control(Rewind),
}

struct Node {
    rule: Rule,
    attributes: Vec<u32>,
    /// Inputs in the parent scope, with their numbers if the tape tracks them.
    inputs: Vec<(Option<u32>, Tensor)>,
    outputs: Vec<(u32, Tensor)>,
}

struct Read {
    variable: Variable,
    id: u32,
    value: Tensor,
}

impl Tape {
    fn new(parent: ScopeHandle, options: TapeOptions) -> Tape {
        Tape(Shared::new_cyclic(|this| Recording { this: this.clone(), parent, options, tracks: Lock::default(), body: Lock::default() }))
    }

    /// Returns `x` as a value with respect to which gradients can be taken. Use the returned handle, not `x`.
    pub fn watch(&self, x: &Tensor) -> Result<Tensor> {
        let mut tracks = self.0.tracks.lock();
        if tracks.spent {
            return Err(Error::SpentTape);
        }
        match self.0.under(x) {
            (Some(_), _) => Ok(x.clone()),
            (None, under) => Ok(self.0.wrap(tracks.next(), under)),
        }
    }

    /// Returns the gradient of `target` with respect to `sources`: a tensor, a variable, or a slice of either.
    ///
    /// The gradient is `None` for a source on which the target does not depend. Fails with [`Error::SpentTape`] if a gradient was
    /// taken before and the tape is not persistent. Also fails if the target is not of a float type.
    pub fn gradient<S: Sources + ?Sized>(&self, target: &Tensor, sources: &S) -> Result<S::Gradients> {
        self.gradient_of(&[(target, None)], sources)
    }

    /// Returns the gradient of the sum of `targets`, each multiplied by its output gradient. An output gradient of `None` means ones.
    pub fn gradient_of<S: Sources + ?Sized>(&self, targets: &[(&Tensor, Option<&Tensor>)], sources: &S) -> Result<S::Gradients> {
        let mut seeds = Vec::new();
        for (target, seed) in targets {
            if let Some(seed) = self.0.seed(target, *seed)? {
                seeds.push(seed);
            }
        }
        let found = self.gradients(alloc::vec![seeds], &sources.list())?.pop();
        sources.pack(found.unwrap_or_default())
    }

    /// Returns the gradient of each source, for each set in `all`. A set consists of pairs (number of a target, its initial
    /// gradient).
    fn gradients(&self, all: Vec<Vec<(u32, Tensor)>>, sources: &[Source<'_>]) -> Result<Vec<Vec<Option<Tensor>>>> {
        let nodes = self.0.stop()?;
        let wanted: Vec<Vec<u32>> = sources.iter().map(|source| self.0.ids(source)).collect();
        let found = all.into_iter().map(|seeds| {
            let mut gradients = Gradients(Vec::new());
            seeds.into_iter().try_for_each(|(id, seed)| gradients.add(id, seed))?;
            self.0.walk_back(&nodes, &wanted, &mut gradients)?;
            gradients.sums(&wanted)
        });
        let found = found.collect();
        if self.0.options.persistent {
            let mut tracks = self.0.tracks.lock();
            let later = core::mem::replace(&mut tracks.nodes, nodes);
            tracks.nodes.extend(later);
        }
        found
    }
}

fn ones(device: &Device, tensor_type: TensorType) -> Result<Tensor> {
    Tensor::full(device, 1.0f32, tensor_type.shape.dims())?.cast(tensor_type.dtype)
}

/// Gradients found so far, indexed by the number of the value.
struct Gradients(Vec<Option<Tensor>>);

impl Gradients {
    fn get(&self, id: u32) -> Option<&Tensor> {
        self.0.get(id as usize)?.as_ref()
    }

    /// Returns the sum of the gradients of each group of values, or `None` for a group without gradients.
    fn sums(&self, groups: &[Vec<u32>]) -> Result<Vec<Option<Tensor>>> {
        let mut results = Vec::new();
        for ids in groups {
            let mut sum: Option<Tensor> = None;
            for gradient in ids.iter().filter_map(|&id| self.get(id)) {
                sum = Some(match sum {
                    Some(sum) => sum.add(gradient)?,
                    None => gradient.clone(),
                });
            }
            results.push(sum);
        }
        Ok(results)
    }

    fn add(&mut self, id: u32, gradient: Tensor) -> Result<()> {
        let index = id as usize;
        if self.0.len() <= index {
            self.0.resize(index + 1, None);
        }
        let sum = match self.0[index].take() {
            Some(sum) => sum.add(&gradient)?,
            None => gradient,
        };
        self.0[index] = Some(sum);
        Ok(())
    }
}

impl Rule {
    /// Returns the gradients of the inputs, as ops in `scope`, or `None` if no gradient flows.
    fn gradients(&self, scope: &ScopeHandle, of: &Backward<'_>) -> Result<Option<Vec<Option<Tensor>>>> {
        let (found, name) = match self {
            Rule::Control(control) => return control.gradients(scope, of).map(Some),
            Rule::Custom(rule) => (rule.gradients(of), "a custom function"),
            Rule::Op(op) => match &op.grad {
                Gradient::Rule(rule) => (rule(of), op.def.name),
                Gradient::None(_) => return Ok(None),
                Gradient::Missing(reason) => return Err(Error::message(format!("{} has no gradient: {reason}", op.def.name))),
            },
        };
        found.map(|found| Some(found.into_iter().collect())).map_err(|error| error.context(format!("the gradient of {name}")))
    }
}

impl Tracks {
    fn next(&mut self) -> u32 {
        self.values += 1;
        self.values - 1
    }
}

impl Recording {
    fn address(&self) -> *const () {
        core::ptr::from_ref(self).cast()
    }

    /// Returns the number of `tensor` (`None` if the tape does not track it), and the same value in the parent scope.
    fn under(&self, tensor: &Tensor) -> (Option<u32>, Tensor) {
        match tensor.in_scope(self.address()) {
            Some((id, Some(under))) => (Some(id), under.clone()),
            _ => (None, tensor.clone()),
        }
    }

    fn wrap(&self, id: u32, under: Tensor) -> Tensor {
        Tensor::recorded(under.tensor_type(), self.this.clone(), id, Some(under))
    }

    /// Returns the number of a target and its initial gradient, which is ones if `seed` is `None`. Returns `None` if the tape does
    /// not track the target.
    fn seed(&self, target: &Tensor, seed: Option<&Tensor>) -> Result<Option<(u32, Tensor)>> {
        let wanted = target.tensor_type();
        if !wanted.dtype.is_float() {
            return Err(Error::message(format!("the target of a gradient must be a float tensor, not {wanted}")));
        }
        let seed = match seed {
            Some(seed) if seed.tensor_type() == wanted => seed.clone(),
            Some(seed) => return Err(Error::message(format!("the output gradient of a {wanted} target cannot be {}", seed.tensor_type()))),
            None => ones(&target.device()?, wanted)?,
        };
        Ok(target.in_scope(self.address()).map(|(id, _)| (id, seed)))
    }

    /// Takes the nodes recorded so far out of the tape and returns them. A tape that is not persistent stops recording.
    fn stop(&self) -> Result<Vec<Node>> {
        let mut tracks = self.tracks.lock();
        if tracks.spent {
            return Err(Error::SpentTape);
        }
        tracks.spent = !self.options.persistent;
        tracks.stopped |= tracks.spent;
        Ok(core::mem::take(&mut tracks.nodes))
    }

    /// Returns the numbers under which the tape tracks a source. There are several if a variable was assigned between reads.
    fn ids(&self, source: &Source<'_>) -> Vec<u32> {
        match source {
            Source::Tensor(tensor) => tensor.in_scope(self.address()).map(|(id, _)| id).into_iter().collect(),
            Source::Variable(variable) => {
                let tracks = self.tracks.lock();
                tracks.reads.iter().filter(|read| read.variable == **variable).map(|read| read.id).collect()
            }
        }
    }

    fn walk_back(&self, nodes: &[Node], wanted: &[Vec<u32>], gradients: &mut Gradients) -> Result<()> {
        let values = self.tracks.lock().values as usize;
        let mut needed = alloc::vec![false; values];
        wanted.iter().flatten().for_each(|&id| needed[id as usize] = true);
        let tracked_and_needed = |input: &(Option<u32>, Tensor), needed: &[bool]| input.0.is_some_and(|id| needed[id as usize]);
        for node in nodes {
            if node.inputs.iter().any(|input| tracked_and_needed(input, &needed)) {
                node.outputs.iter().for_each(|&(id, _)| needed[id as usize] = true);
            }
        }
        let own = self.this.upgrade().filter(|_| self.options.persistent).map(|this| ScopeHandle::new(this));
        let scope = own.unwrap_or(self.parent.clone()).handle();
        let _named = scope.name_scope("gradient_tape");
        for node in nodes.iter().rev() {
            let upstream: Vec<Option<Tensor>> = node.outputs.iter().map(|&(id, _)| gradients.get(id).cloned()).collect();
            let wanted: Vec<bool> = node.inputs.iter().map(|input| tracked_and_needed(input, &needed)).collect();
            if upstream.iter().all(Option::is_none) || !wanted.contains(&true) {
                continue;
            }
            let name = node.outputs.first().and_then(|(_, under)| under.scope().ok()??.recorder.name_of(under));
            let _named = name.map(|name| scope.name_scope(&name));
            let inputs: Vec<Tensor> = node.inputs.iter().map(|(id, under)| self.seen(*id, under)).collect();
            let outputs: Vec<Tensor> = node.outputs.iter().map(|(id, under)| self.seen(Some(*id), under)).collect();
            let backward =
                Backward { attributes: &node.attributes, inputs: &inputs, outputs: &outputs, upstream: &upstream, wanted: &wanted };
            let Some(found) = node.rule.gradients(&scope, &backward)? else { continue };
            for ((input, gradient), wanted) in node.inputs.iter().zip(found).zip(wanted) {
                if let (Some(id), Some(gradient), true) = (input.0, gradient, wanted) {
                    gradients.add(id, gradient)?;
                }
            }
        }
        Ok(())
    }

    /// Records that `outputs` were computed from `inputs`, and returns the outputs as values of the tape. If the recording has
    /// stopped or the tape tracks none of the inputs, records nothing and returns `outputs` unchanged.
    fn record<T>(&self, rule: impl FnOnce() -> Rule, attributes: &[u32], inputs: &[(Option<u32>, Tensor)], outputs: T) -> T
    where
        T: IntoIterator<Item = Tensor> + FromIterator<Tensor>,
    {
        let mut tracks = self.tracks.lock();
        if tracks.stopped || inputs.iter().all(|(id, _)| id.is_none()) {
            return outputs;
        }
        let outputs: Vec<(u32, Tensor)> = outputs.into_iter().map(|under| (tracks.next(), under)).collect();
        let wrapped = outputs.iter().map(|(id, under)| self.wrap(*id, under.clone())).collect();
        tracks.nodes.push(Node { rule: rule(), attributes: attributes.to_vec(), inputs: inputs.to_vec(), outputs });
        wrapped
    }

    /// Returns a recorded value for gradient rules: a value of the tape if the tape is persistent, otherwise the value in the parent.
    fn seen(&self, id: Option<u32>, under: &Tensor) -> Tensor {
        match id {
            Some(id) if self.options.persistent => self.wrap(id, under.clone()),
            _ => under.clone(),
        }
    }
}

impl Emitter for Recording {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let inputs: heapless::Vec<(Option<u32>, Tensor), MAX_INPUTS> = inputs.iter().map(|tensor| self.under(tensor)).collect();
        let unders: heapless::Vec<&Tensor, MAX_INPUTS> = inputs.iter().map(|(_, under)| under).collect();
        let outputs = self.parent.recorder.emit(op, attributes, &unders)?;
        drop(unders);
        Ok(self.record(|| Rule::Op(op), attributes, &inputs, outputs))
    }

    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let scope = ScopeHandle::new(self.this.upgrade().ok_or(Error::Internal)?);
        if !self.traces() {
            return interpret(control, Some(&scope), inputs);
        }
        let inputs: Vec<(Option<u32>, Tensor)> = inputs.iter().map(|tensor| self.under(tensor)).collect();
        let unders: Vec<Tensor> = inputs.iter().map(|(_, under)| under.clone()).collect();
        let wanted = !self.tracks.lock().stopped && inputs.iter().any(|(id, _)| id.is_some());
        let bounded = control.attributes.first().is_some_and(|&most| most < u32::MAX);
        let results = control.bodies.last().map_or(0, |body| body.outputs.len());
        let outputs = if wanted && bounded && control_flow::is_loop(control) {
            let (control, inputs) = control_flow::keeping(&self.parent, control, &unders)?;
            self.parent.recorder.control(&control, &inputs)?
        } else {
            self.parent.recorder.control(control, &unders)?
        };
        let mut outputs = self.record(|| Rule::Control(Rewind::new(control)), &[], &inputs, outputs);
        outputs.truncate(results);
        Ok(outputs)
    }

    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>> {
        Some(&self.body)
    }

    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        let inputs: Vec<(Option<u32>, Tensor)> = inputs.iter().map(|tensor| self.under(tensor)).collect();
        let unders: Vec<&Tensor> = inputs.iter().map(|(_, under)| under).collect();
        let outputs = self.parent.recorder.custom(&unders, forward, rule)?;
        Ok(self.record(|| Rule::Custom(rule.clone()), &[], &inputs, outputs))
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        let value = self.parent.recorder.read(variable)?;
        let mut tracks = self.tracks.lock();
        let watches = self.options.watch_accessed_variables && variable.trainable();
        if tracks.stopped || !watches && !tracks.watched.contains(variable) {
            return Ok(value);
        }
        // The value is the same unless the variable was assigned since, in any scope.
        let known = tracks.reads.iter().find(|read| read.variable == *variable && read.value.is_same(&value)).map(|read| read.id);
        let id = known.unwrap_or_else(|| {
            let id = tracks.next();
            tracks.reads.push(Read { variable: variable.clone(), id, value: value.clone() });
            id
        });
        Ok(self.wrap(id, value))
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.parent.recorder.assign(variable, &self.under(value).1)
    }

    fn device(&self) -> &Device {
        self.parent.recorder.device()
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        Some(&self.parent)
    }

    fn recording(&self) -> bool {
        !self.tracks.lock().stopped
    }

    fn may_create(&self) -> bool {
        self.parent.recorder.may_create()
    }

    fn random_state(&self) -> Result<Variable> {
        self.parent.recorder.random_state()
    }

    fn next_stream(&self) -> Result<Stream> {
        self.parent.recorder.next_stream()
    }

    fn name_of(&self, tensor: &Tensor) -> Option<Shared<str>> {
        let (_, under) = self.under(tensor);
        under.scope().ok()??.recorder.name_of(&under)
    }

    fn enter(&self, layer: &Entered<'_>) {
        self.parent.recorder.enter(layer);
    }

    fn leave(&self, output: Option<TensorType>) {
        self.parent.recorder.leave(output);
    }
}
