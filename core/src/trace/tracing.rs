//! Tracing: the scope that only records.

use crate::base::error::{Error, Result};
use crate::base::op::{MAX_INPUTS, OpCode, OpDef};
use crate::base::random::Stream;
use crate::base::shape::TensorType;
use crate::base::sync::{Lock, Shared, Weak};
use crate::ops;
use crate::tensor::device::Device;
use crate::tensor::graph::{Capture, Captured, Control, Graph, Node, Origin, ValueId};
use crate::tensor::scope::{CustomRule, Emitter, Entered, Forward, Gradient, Op, Outputs, Scope, ScopeHandle};
use crate::tensor::structure::Structure;
use crate::tensor::variable::Variable;
use crate::tensor::{self, Tensor};
use crate::trace::control::Body;
use crate::trace::copies;
use crate::trace::node_names::Names;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// Implementation of the scope in which a function's body is traced.
pub(crate) struct Tracing {
    this: Weak<Tracing>,
    parent: ScopeHandle,
    may_create: bool,
    /// True for the body of a branch or loop, which can capture values of the enclosing scopes.
    inner: bool,
    record: Lock<Traced>,
    body: Lock<Option<ScopeHandle>>,
}

/// Record of a trace.
#[derive(Default)]
pub(crate) struct Traced {
    pub(crate) graph: Graph,
    /// Value in the graph that each captured variable has at this point of the trace, in the order of the captures.
    current: Vec<ValueId>,
    /// Captured tensors of the enclosing scopes, with their values in the graph.
    pub(crate) captured: Vec<(Tensor, ValueId)>,
    /// The constants of the graph, by the addresses of their buffers, which the graph keeps alive.
    constants: BTreeMap<usize, Vec<ValueId>>,
    names: Names,
    /// Name of the node that computes each value.
    named: BTreeMap<ValueId, Shared<str>>,
}

impl Traced {
    fn capture(&mut self, variable: &Variable) -> Result<usize> {
        if let Some(index) = self.graph.captures.iter().position(|capture| capture.source.variable() == Some(variable)) {
            if !variable.is_argument() {
                // A variable named in the body is that variable, whatever the arguments are.
                self.graph.captures[index].source = Captured::Variable(variable.clone());
            }
            return Ok(index);
        }
        let index = self.graph.captures.len();
        let initial = self.graph.value(variable.tensor_type()?, Origin::Variable(index));
        self.graph.captures.push(Capture { source: Captured::Variable(variable.clone()), initial, assigned: None });
        self.current.push(initial);
        Ok(index)
    }
}

/// Op of a node whose body has a gradient rule of its own. It never runs, because the compiler inlines the body.
pub(crate) static CALL: Op =
    Op { tf_type: Some("PartitionedCall"), ..Op::new(&CALL_DEF, "call", Gradient::None("the node has the gradient rule")) };
static CALL_DEF: OpDef =
    OpDef { code: OpCode(0), name: "call", inputs: (0, 0), outputs: 0, infer: |_, _, _| Err(Error::Attribute { index: 0 }), in_place: &[] };

impl Tracing {
    /// Creates a trace inside the scope `parent`. `inner` is true for the body of a branch or loop.
    pub(crate) fn new(parent: ScopeHandle, may_create: bool, inner: bool) -> Shared<Tracing> {
        Shared::new_cyclic(|this| Tracing { this: this.clone(), parent, may_create, inner, record: Lock::default(), body: Lock::default() })
    }

    /// Traces `body` with arguments of these types. `first` is true if the body may create variables. Returns the graph and the result
    /// of `body`.
    pub(crate) fn function<A: Structure, R: Structure>(
        scope: &ScopeHandle,
        first: bool,
        arguments: &A,
        body: impl FnOnce(&dyn Scope, A) -> Result<R>,
    ) -> Result<(Graph, R)> {
        let tracing = Tracing::new(scope.clone(), first, false);
        let arguments = tracing.inputs(arguments);
        let results = body(&ScopeHandle::new(tracing.clone()).in_mode(scope.mode()), arguments)?;
        let record = tracing.finish(&results)?;
        Ok((record.graph, results))
    }

    /// Adds an input to the graph for each tensor of the structure, and returns the structure with these inputs in place of its tensors.
    pub(crate) fn inputs<A: Structure>(&self, arguments: &A) -> A {
        let mut types = Vec::new();
        arguments.tensors(&mut |tensor| types.push(tensor.tensor_type()));
        let mut types = types.into_iter();
        arguments.with(&mut || self.input(types.next().unwrap_or(TensorType::EMPTY)))
    }

    /// Adds an input of this type to the graph and returns it.
    pub(crate) fn input(&self, tensor_type: TensorType) -> Tensor {
        let graph = &mut self.record.lock().graph;
        let id = graph.value(tensor_type, Origin::Input(graph.inputs.len()));
        graph.inputs.push(id);
        self.tensor(tensor_type, id)
    }

    /// Calls `work` with the record so far.
    pub(crate) fn with_record<R>(&self, work: impl FnOnce(&mut Traced) -> R) -> R {
        work(&mut self.record.lock())
    }

    /// Ends the trace, and returns its record with the tensors of `results` as the outputs of the graph.
    pub(crate) fn finish(&self, results: &impl Structure) -> Result<Traced> {
        let mut record = core::mem::take(&mut *self.record.lock());
        let mut outputs = Vec::new();
        results.tensors(&mut |tensor| outputs.push(self.id(tensor, &mut record)));
        record.graph.outputs = outputs.into_iter().collect::<Result<_>>()?;
        Ok(record)
    }

    /// Returns value `id` of the graph as a tensor.
    pub(crate) fn tensor(&self, tensor_type: TensorType, id: ValueId) -> Tensor {
        Tensor::recorded(tensor_type, self.this.clone(), id as u32, None)
    }

    /// Returns the number of `tensor` in the graph, whose value gets the scales of the tensor.
    pub(crate) fn id(&self, tensor: &Tensor, record: &mut Traced) -> Result<ValueId> {
        let id = self.unscaled_id(tensor, record)?;
        if let (Some(quantization), Some(value)) = (tensor.shared_quantization(), record.graph.values.get_mut(id)) {
            value.quantization = Some(quantization.clone());
        }
        Ok(id)
    }

    /// Returns the number of `tensor` in the graph. A computed tensor becomes a constant. In the body of a branch or loop, a tensor of
    /// an enclosing scope becomes a captured value.
    fn unscaled_id(&self, tensor: &Tensor, record: &mut Traced) -> Result<ValueId> {
        if let Some((id, _)) = tensor.in_scope(core::ptr::from_ref(self).cast()) {
            return Ok(id as ValueId);
        }
        let graph = &mut record.graph;
        let Some(buffer) = tensor.known()? else {
            let known = record.captured.iter().find(|(other, _)| other.is_same(tensor)).map(|(_, id)| *id);
            // Only a body can capture, and only from enclosing scopes that still record.
            tensor.scope()?.filter(|_| self.inner).ok_or_else(|| tensor.misused(Error::UnrelatedScopes))?;
            return Ok(known.unwrap_or_else(|| {
                let id = graph.value(tensor.tensor_type(), Origin::Node);
                record.captured.push((tensor.clone(), id));
                id
            }));
        };
        let same = record.constants.entry(core::ptr::from_ref(&**buffer).addr()).or_default();
        let known = same.iter().find(|&&id| graph.values[id].tensor_type == tensor.tensor_type());
        Ok(known.copied().unwrap_or_else(|| {
            let constant = Tensor::shared(tensor.tensor_type(), buffer.clone());
            same.push(graph.value(tensor.tensor_type(), Origin::Constant(constant)));
            graph.values.len() - 1
        }))
    }

    /// Records a node and returns its outputs.
    fn node<T: FromIterator<Tensor>>(&self, node: Node, inputs: &[&Tensor], types: &[TensorType]) -> Result<T> {
        let mut record = self.record.lock();
        let inputs = inputs.iter().map(|tensor| self.id(tensor, &mut record)).collect::<Result<Vec<_>>>()?;
        let graph = &mut record.graph;
        let outputs: Vec<ValueId> = types.iter().map(|&tensor_type| graph.value(tensor_type, Origin::Node)).collect();
        let tensors = outputs.iter().zip(types).map(|(&id, &tensor_type)| self.tensor(tensor_type, id)).collect();
        let name = record.names.node(node.op);
        record.named.extend(outputs.iter().map(|&id| (id, name.clone())));
        let device = self.device().placement().and_then(|placement| placement.now().named);
        record.graph.nodes.push(Node { inputs, outputs, name: Some(name), device, ..node });
        Ok(tensors)
    }
}

impl Emitter for Tracing {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        let types: heapless::Vec<TensorType, MAX_INPUTS> = inputs.iter().map(|tensor| tensor.tensor_type()).collect();
        let types = op.def.output_types(&types, attributes).map_err(|error| tensor::explain(op, inputs, error))?;
        let types = types.get(..op.def.outputs.into()).unwrap_or(&[]);
        self.node(Node::new(op, attributes.to_vec(), Vec::new(), Vec::new()), inputs, types)
    }

    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let types = control.output_types(&inputs.iter().map(Tensor::tensor_type).collect::<Vec<_>>())?;
        let Control { op, attributes, bodies } = control.clone();
        self.node(Node { bodies, ..Node::new(op, attributes, Vec::new(), Vec::new()) }, &inputs.iter().collect::<Vec<_>>(), &types)
    }

    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        let scope = ScopeHandle::new(self.this.upgrade().ok_or(Error::Internal)?);
        let own: Vec<Tensor> = inputs.iter().map(|&tensor| tensor.clone()).collect();
        let (body, _) = Body::trace(&scope, &own, |inputs: Vec<Tensor>| forward(&inputs.iter().collect::<Vec<_>>()))?;
        let (graph, others, assigned) = body.close(&scope, own.len())?;
        let types: Vec<TensorType> = graph.outputs.iter().map(|&id| graph.values[id].tensor_type).collect();
        let attributes = alloc::vec![own.len() as u32];
        let node = Node { bodies: alloc::vec![graph], rule: Some(rule.clone()), ..Node::new(&CALL, attributes, Vec::new(), Vec::new()) };
        let inputs: Vec<&Tensor> = own.iter().chain(&others).collect();
        let mut outputs: Vec<Tensor> = self.node(node, &inputs, &types)?;
        let values = outputs.split_off(outputs.len() - assigned.len());
        assigned.iter().zip(values).try_for_each(|(variable, value)| self.assign(variable, &value))?;
        Ok(outputs)
    }

    fn traces(&self) -> bool {
        true
    }

    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>> {
        Some(&self.body)
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        let variable = &copies::own(self.role(), variable);
        if variable.is_mirrored() {
            return copies::read(variable, |copy| self.read(copy));
        }
        let mut record = self.record.lock();
        let index = record.capture(variable)?;
        let id = record.current[index];
        Ok(self.tensor(variable.tensor_type()?, id))
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        let variable = &copies::own(self.role(), variable);
        if variable.is_mirrored() {
            return copies::assign(variable, value, |copy, value| self.assign(copy, value));
        }
        variable.accepts(value.tensor_type())?;
        // No gradient flows through an assignment. Tapes around a body do not see the assignments in it.
        let stopped = if self.inner { self.emit(&ops::identity::STOP, &[], &[value])?.pop() } else { None };
        let value = stopped.as_ref().unwrap_or(value);
        let mut record = self.record.lock();
        let index = record.capture(variable)?;
        let id = self.id(value, &mut record)?;
        record.current[index] = id;
        record.graph.captures[index].assigned = Some(id);
        Ok(())
    }

    fn device(&self) -> &Device {
        self.parent.recorder.device()
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        Some(&self.parent)
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        self.may_create
    }

    fn random_state(&self) -> Result<Variable> {
        self.parent.recorder.random_state()
    }

    fn next_stream(&self) -> Result<Stream> {
        self.parent.recorder.next_stream()
    }

    fn enter(&self, layer: &Entered<'_>) {
        self.record.lock().names.enter_layer(layer.name, layer.id);
    }

    fn leave(&self, _: Option<TensorType>) {
        self.leave_scope();
    }

    fn enter_scope(&self, name: &str) {
        self.record.lock().names.enter(name);
    }

    fn leave_scope(&self) {
        self.record.lock().names.leave();
    }

    fn name_of(&self, tensor: &Tensor) -> Option<Shared<str>> {
        let (id, _) = tensor.in_scope(core::ptr::from_ref(self).cast())?;
        self.record.lock().named.get(&(id as ValueId)).cloned()
    }

    fn producer(&self, tensor: &Tensor) -> Option<(&'static Op, Vec<u32>, Vec<Tensor>)> {
        let (id, _) = tensor.in_scope(core::ptr::from_ref(self).cast())?;
        let graph = &self.record.lock().graph;
        let node = graph.nodes.iter().rev().find(|node| node.outputs.contains(&(id as ValueId)))?;
        let inputs = node.inputs.iter().map(|&input| self.tensor(graph.values[input].tensor_type, input));
        Some((node.op, node.attributes.clone(), inputs.collect()))
    }
}

/// Runs `body` in a trace that is discarded, with a tensor of type `input`. Variables are created and the types of the results are
/// determined, but nothing is computed or assigned.
pub fn dry_run<R>(scope: &dyn Scope, input: TensorType, body: impl FnOnce(&dyn Scope, &Tensor) -> Result<R>) -> Result<R> {
    let parent = scope.handle();
    let (first, mode) = (parent.recorder.may_create(), parent.mode());
    let tracing = Tracing::new(parent, first, false);
    let input = tracing.input(input);
    body(&ScopeHandle::new(tracing).in_mode(mode), &input)
}
