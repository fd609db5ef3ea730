//! The graph: a scope that records ops, of which a session runs parts.

use super::fetch::{Fetch, Fetched, Target};
use super::program::{Program, stand_in};
use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::random::Stream;
use crate::base::shape::{Shape, TensorType};
use crate::base::sync::{Lock, Shared, ThreadSafe};
use crate::function::TensorSpec;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Control, ValueId, has_effect};
use crate::tensor::scope::{CustomRule, Emitter, Forward, Op, Outputs, Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use crate::trace::tracing::Tracing;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

/// A graph under construction. It is a scope over another scope. Sessions compute in that other scope.
#[derive(Clone)]
pub struct Graph {
    pub(super) building: Shared<Building>,
    /// The program that records the graph again for other sizes.
    pub(super) program: Option<Shared<Program>>,
}

/// An operation that a session can run: assignments, and effects such as printing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Operation {
    pub(super) events: Vec<usize>,
    pub(super) nodes: Vec<usize>,
}

/// The state of a graph. The trace records the nodes; `record` holds the reads and assignments of variables.
pub(super) struct Building {
    pub(super) tracing: Shared<Tracing>,
    trace: ScopeHandle,
    pub(super) base: ScopeHandle,
    pub(super) record: Lock<NodeRecord>,
    body: Lock<Option<ScopeHandle>>,
    sizes: Sizes,
}

/// The sizes of open dimensions.
pub(super) enum Sizes {
    /// Dimensions cannot be open.
    Fixed,
    /// The first recording of a program: sizes stand in.
    StandIn,
    /// A later recording of a program.
    Given {
        /// The shapes of the placeholders, in order.
        shapes: Vec<Shape>,
        /// The initial values of the variables.
        initial: Vec<(Variable, Tensor)>,
    },
}

/// A value that the caller feeds.
#[derive(Clone)]
pub(super) struct Placeholder {
    pub(super) name: String,
    pub(super) spec: TensorSpec,
    pub(super) id: ValueId,
}

impl Placeholder {
    pub(super) fn dims(&self) -> &[Option<u32>] {
        self.spec.dims().unwrap_or_default()
    }
}

#[derive(Default)]
pub(super) struct NodeRecord {
    pub(super) events: Vec<Event>,
    pub(super) placeholders: Vec<Placeholder>,
    /// The variables, with their initial values.
    pub(super) variables: Vec<(Variable, Tensor)>,
    pub(super) regions: Vec<Region>,
    /// The assignments that belong to no operation.
    loose: Vec<usize>,
}

/// A read or assignment of variables.
#[derive(Clone)]
pub(super) struct Event {
    /// Number of nodes recorded before it.
    pub(super) at: usize,
    pub(super) what: What,
}

#[derive(Clone)]
pub(super) enum What {
    Read(Variable, ValueId),
    Assign(Variable, ValueId),
    Initialize(Vec<(Variable, Tensor)>),
}

/// The nodes and events that were recorded under a control dependency.
#[derive(Clone)]
pub(super) struct Region {
    pub(super) nodes: Range<usize>,
    pub(super) events: Range<usize>,
    pub(super) after: Operation,
}

impl Graph {
    /// Creates an empty graph over `scope`, for its device. All dimensions of its placeholders are numbers.
    pub fn new(scope: &dyn Scope) -> Graph {
        Graph { building: Building::new(scope.handle(), Sizes::Fixed), program: None }
    }

    /// Creates a graph whose placeholders may have open dimensions (`None`), and returns it with the tensors, variables and operations
    /// that `program` returns. A session can fetch these and feed the tensors among them. The first fetch with a new size calls `program`
    /// again, and compiles what it records.
    ///
    /// `program` runs twice at once, with 2 for an open first dimension and 32 for other open dimensions. Create variables, layers and
    /// optimizers before: `program` captures them. A placeholder that is not fed has the sizes of the first one that is fed, axis by axis.
    ///
    /// ```
    /// use gradlet_core::compat::v1::{Graph, Session};
    /// use gradlet_core::{DType, Eager, Scope, Tensor, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let (graph, (x, total)) = Graph::build(&scope, |graph| {
    ///     let x = graph.placeholder("x", DType::F32, &[None, Some(3)])?;
    ///     let total = x.sum(&[0], false)?;
    ///     Ok((x, total))
    /// })?;
    /// let session = Session::new(&graph);
    /// for rows in [1, 4] {
    ///     let fed = Tensor::full(&scope.device(), 1.0f32, &[rows, 3])?;
    ///     assert_eq!(session.run(&total, &[(&x, &fed)])?.to_vec::<f32>()?, [rows as f32; 3]);
    /// }
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    ///
    /// Fails if `program` fails, and with [`Error::LateVariable`] if it creates variables in its second run.
    pub fn build<T, F>(scope: &dyn Scope, program: F) -> Result<(Graph, T)>
    where
        T: Fetch,
        F: Fn(&Graph) -> Result<T> + ThreadSafe + 'static,
    {
        let building = Building::new(scope.handle(), Sizes::StandIn);
        let graph = Graph { building: building.clone(), program: None };
        let items = program(&graph)?;
        let program = Program::new(building.clone(), building.targets(&items)?, program)?;
        Ok((Graph { building, program: Some(Shared::new(program)) }, items))
    }

    /// Adds a placeholder: a value that the caller feeds to each run that needs it. A dimension of `None` is open: see [`Graph::build`].
    ///
    /// Fails if a dimension is open in a graph that was created with [`Graph::new`].
    pub fn placeholder<D: Into<Option<u32>> + Copy>(&self, name: &str, dtype: DType, dims: &[D]) -> Result<Tensor> {
        let building = &self.building;
        let dims: Vec<Option<u32>> = dims.iter().map(|&dim| dim.into()).collect();
        let spec = TensorSpec::new(dtype, &dims);
        let index = building.record.lock().placeholders.len();
        let shape = match &building.sizes {
            Sizes::Fixed if dims.contains(&None) => {
                let text = "a graph of Graph::new has no open dimensions: use Graph::build";
                return Err(Error::message(format!("placeholder {name:?} is {spec}, but {text}")));
            }
            Sizes::Given { shapes, .. } => shapes.get(index).copied().filter(|shape| spec.accepts(&TensorType::new(dtype, *shape))),
            _ => Some(Shape::new(&dims.iter().enumerate().map(|(axis, dim)| dim.unwrap_or(stand_in(axis))).collect::<Vec<u32>>())?),
        };
        let other = || Error::message(format!("placeholder {name:?} was not {spec} when the program was recorded first"));
        let tensor = building.tracing.input(TensorType::new(dtype, shape.ok_or_else(other)?));
        let id = building.id(&tensor)?;
        building.record.lock().placeholders.push(Placeholder { name: name.into(), spec, id });
        Ok(tensor)
    }

    /// Returns an operation that makes the assignments and effects of `build`, such as an optimizer's step or a metric's update.
    pub fn operation(&self, build: impl FnOnce(&dyn Scope) -> Result<()>) -> Result<Operation> {
        let (nodes, events) = self.building.ends();
        let loose = self.building.record.lock().loose.len();
        build(&self.handle())?;
        let made = self.building.nodes(nodes, has_effect);
        let mut record = self.building.record.lock();
        record.loose.truncate(loose);
        let assigns = (events..record.events.len()).filter(|&index| matches!(record.events[index].what, What::Assign(..)));
        Ok(Operation { events: assigns.collect(), nodes: made })
    }

    /// Returns the assignments that belong to no operation. Layers make them while they compute, for example for the moving averages of a
    /// normalization. TensorFlow collects them as `UPDATE_OPS`.
    pub fn update_ops(&self) -> Operation {
        Operation { events: self.building.record.lock().loose.clone(), nodes: Vec::new() }
    }

    /// Returns an operation that sets `variable` to `value`. Fails if their types differ.
    pub fn assign_op(&self, variable: &Variable, value: &Tensor) -> Result<Operation> {
        self.operation(|scope| scope.assign(variable, value))
    }

    /// Returns an operation that adds `value` to `variable`. Fails like [`Scope::assign_add`].
    pub fn assign_add_op(&self, variable: &Variable, value: &Tensor) -> Result<Operation> {
        self.operation(|scope| scope.assign_add(variable, value))
    }

    /// Returns an operation that subtracts `value` from `variable`. Fails like [`Scope::assign_sub`].
    pub fn assign_sub_op(&self, variable: &Variable, value: &Tensor) -> Result<Operation> {
        self.operation(|scope| scope.assign_sub(variable, value))
    }

    /// Combines the tensors, variables and operations in `things` into one operation.
    pub fn group(&self, things: impl Fetch) -> Result<Operation> {
        let (mut all, mut failed) = (Operation::default(), Ok(()));
        things.visit(&mut |one| match self.building.done_by(one) {
            Ok(operation) => {
                all.events.extend(operation.events);
                all.nodes.extend(operation.nodes);
            }
            Err(error) => failed = Err(error),
        });
        failed.map(|()| all)
    }

    /// Calls `build`, and makes the ops that it creates run only after `first`: TensorFlow's `control_dependencies`.
    ///
    /// ```
    /// use gradlet_core::compat::v1::{Graph, Session};
    /// use gradlet_core::{Eager, Scope, Tensor, Variable, ops};
    /// let scope = Eager::new(&ops::portable_cpu());
    /// let (graph, one) = (Graph::new(&scope), Tensor::scalar(&scope.device(), 1i32));
    /// let count = Variable::new(&graph, "count", &one)?;
    /// let add = graph.assign_add_op(&count, &one)?;
    /// let next = graph.control_dependencies(&add, |graph| graph.read(&count))?;
    /// let session = Session::new(&graph);
    /// session.run(&graph.global_variables_initializer()?, &[])?;
    /// assert_eq!(session.run(&next, &[])?.item::<i32>()?, 2);
    /// assert_eq!(session.run(&next, &[])?.item::<i32>()?, 3);
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn control_dependencies<R>(&self, first: impl Fetch, build: impl FnOnce(&dyn Scope) -> Result<R>) -> Result<R> {
        let after = self.group(first)?;
        let (nodes, events) = self.building.ends();
        let built = build(&self.handle())?;
        let (last_node, last_event) = self.building.ends();
        self.building.record.lock().regions.push(Region { nodes: nodes..last_node, events: events..last_event, after });
        Ok(built)
    }

    /// Returns an operation that sets all variables that the graph uses so far to their initial values. Variables that the graph uses
    /// later are not included.
    pub fn global_variables_initializer(&self) -> Result<Operation> {
        self.variables_initializer(&self.global_variables())
    }

    /// Returns an operation that sets these variables to their initial values.
    pub fn variables_initializer(&self, variables: &[Variable]) -> Result<Operation> {
        variables.iter().try_for_each(|variable| self.building.know(variable))?;
        let mut record = self.building.record.lock();
        let values = record.variables.iter().filter(|(variable, _)| variables.contains(variable)).cloned().collect();
        let at = self.building.tracing.with_record(|trace| trace.graph.nodes.len());
        record.events.push(Event { at, what: What::Initialize(values) });
        Ok(Operation { events: alloc::vec![record.events.len() - 1], nodes: Vec::new() })
    }

    /// Returns the variables that the graph uses so far.
    pub fn global_variables(&self) -> Vec<Variable> {
        self.building.record.lock().variables.iter().map(|(variable, _)| variable.clone()).collect()
    }

    /// Returns the trainable variables among those that the graph uses so far.
    pub fn trainable_variables(&self) -> Vec<Variable> {
        self.global_variables().into_iter().filter(Variable::trainable).collect()
    }
}

impl Building {
    pub(super) fn new(base: ScopeHandle, sizes: Sizes) -> Shared<Building> {
        let tracing = Tracing::new(base.clone(), !matches!(sizes, Sizes::Given { .. }), false);
        let trace = ScopeHandle::new(tracing.clone());
        Shared::new(Building { tracing, trace, base, record: Lock::default(), body: Lock::default(), sizes })
    }

    /// Returns the fetched items by index.
    pub(super) fn targets(&self, fetches: &impl Fetch) -> Result<Vec<Target>> {
        let mut targets = Vec::new();
        fetches.visit(&mut |one| {
            targets.push(match one {
                Fetched::Tensor(tensor) => self.id(tensor).map(Target::Value),
                Fetched::Variable(variable) => Ok(Target::Variable(variable.clone())),
                Fetched::Operation(operation) => Ok(Target::Operation(operation.clone())),
            });
        });
        targets.into_iter().collect()
    }

    /// Returns the number of nodes and the number of events so far.
    fn ends(&self) -> (usize, usize) {
        (self.tracing.with_record(|trace| trace.graph.nodes.len()), self.record.lock().events.len())
    }

    /// Returns the indices of the nodes, from `first` on, for which `is` is true.
    fn nodes(&self, first: usize, is: impl Fn(&crate::tensor::graph::Node) -> bool) -> Vec<usize> {
        self.tracing.with_record(|trace| (first..trace.graph.nodes.len()).filter(|&index| is(&trace.graph.nodes[index])).collect())
    }

    /// Returns the index of the value that `tensor` stands for in this graph. A computed tensor becomes a constant of the graph.
    pub(super) fn id(&self, tensor: &Tensor) -> Result<ValueId> {
        let found = self.tracing.with_record(|trace| self.tracing.id(tensor, trace));
        found.map_err(|error| error.context(format!("{} is not a tensor of this graph", tensor.tensor_type())))
    }

    /// Returns the name of value `id` for error messages.
    pub(super) fn name(&self, id: ValueId) -> String {
        let record = self.record.lock();
        let placeholder = record.placeholders.iter().find(|placeholder| placeholder.id == id);
        placeholder.map_or_else(|| "a tensor".into(), |placeholder| format!("placeholder {:?}", placeholder.name))
    }

    /// Returns value `id` of the graph as a tensor.
    pub(super) fn value(&self, graph: &crate::tensor::graph::Graph, id: ValueId) -> Tensor {
        graph.constant(id).cloned().unwrap_or_else(|| self.tracing.tensor(graph.values[id].tensor_type, id))
    }

    /// Returns the operation that must run to produce a fetched value.
    fn done_by(&self, fetched: Fetched<'_>) -> Result<Operation> {
        match fetched {
            Fetched::Operation(operation) => Ok(operation.clone()),
            Fetched::Variable(_) => Ok(Operation::default()),
            Fetched::Tensor(tensor) => {
                let id = self.id(tensor)?;
                let nodes = self.nodes(0, |node| node.outputs.contains(&id));
                let record = self.record.lock();
                let reads = |event: &Event| matches!(event.what, What::Read(_, read) if read == id);
                let events = record.events.iter().position(reads);
                Ok(Operation { events: events.into_iter().collect(), nodes })
            }
        }
    }

    /// Stores the initial value of a variable, if the graph does not have it yet.
    fn know(&self, variable: &Variable) -> Result<()> {
        let initial = match &self.sizes {
            Sizes::Given { initial, .. } => initial.iter().find(|(other, _)| other == variable).map(|(_, value)| value.clone()),
            _ => None,
        };
        let value = initial.map_or_else(|| variable.value(), Ok)?;
        let known = |record: &NodeRecord| record.variables.iter().any(|(other, _)| other == variable);
        if *variable == self.base.recorder.random_state()? {
            return Ok(());
        }
        let mut record = self.record.lock();
        if !known(&record) {
            record.variables.push((variable.clone(), value));
        }
        Ok(())
    }
}

impl Scope for Graph {
    fn handle(&self) -> ScopeHandle {
        let recorder: Shared<dyn Emitter> = self.building.clone();
        ScopeHandle::new(recorder).in_mode(self.building.base.mode()).current()
    }
}

impl Emitter for Building {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        self.trace.recorder.emit(op, attributes, inputs)
    }

    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        self.trace.recorder.control(control, inputs)
    }

    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        self.trace.recorder.custom(inputs, forward, rule)
    }

    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>> {
        Some(&self.body)
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        self.know(variable)?;
        let tensor = self.tracing.input(variable.tensor_type()?);
        let (id, at) = (self.id(&tensor)?, self.ends().0);
        self.record.lock().events.push(Event { at, what: What::Read(variable.clone(), id) });
        Ok(tensor)
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        variable.accepts(value.tensor_type())?;
        self.know(variable)?;
        let (id, at) = (self.id(value)?, self.ends().0);
        let mut record = self.record.lock();
        let index = record.events.len();
        record.loose.push(index);
        record.events.push(Event { at, what: What::Assign(variable.clone(), id) });
        Ok(())
    }

    fn device(&self) -> &Device {
        self.base.recorder.device()
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        Some(&self.trace)
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        self.trace.recorder.may_create()
    }

    fn random_state(&self) -> Result<Variable> {
        self.base.recorder.random_state()
    }

    fn next_stream(&self) -> Result<Stream> {
        self.base.recorder.next_stream()
    }
}
