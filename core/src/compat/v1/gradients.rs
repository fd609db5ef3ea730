//! Gradients in a graph that was recorded before.

use super::graph::{Building, Graph, What};
use super::session::{Part, Task};
use crate::autodiff::sources::{Source, Sources};
use crate::autodiff::{Differentiate as _, Tape};
use crate::base::error::Result;
use crate::base::random::Stream;
use crate::base::sync::{Lock, Shared};
use crate::ops;
use crate::tensor::Tensor;
use crate::tensor::device::Device;
use crate::tensor::graph::{Control, Origin, ValueId};
use crate::tensor::scope::{CustomRule, Emitter, Forward, Op, Outputs, Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use crate::trace::replay;
use alloc::vec::Vec;

/// Returns the gradient of `target`, a tensor of `graph`, with respect to `sources`: tensors of the graph, or variables. The gradient is
/// `None` if the target does not depend on a source. Corresponds to TensorFlow's `tf.gradients` with one target.
///
/// ```
/// use gradlet_core::compat::v1::{Graph, Session, gradients};
/// use gradlet_core::{DType, Eager, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let graph = Graph::new(&scope);
/// let x = graph.placeholder("x", DType::F32, &[] as &[u32])?;
/// let y = x.mul(&x)?;
/// let dy_dx = gradients(&graph, &y, &x)?.unwrap();
/// let three = Tensor::scalar(&ops::portable_cpu(), 3.0f32);
/// assert_eq!(Session::new(&graph).run(&dy_dx, &[(&x, &three)])?.item::<f32>()?, 6.0);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub fn gradients<S: Sources + ?Sized>(graph: &Graph, target: &Tensor, sources: &S) -> Result<S::Gradients> {
    let building = &graph.building;
    let target = building.id(target)?;
    let list = sources.list();
    let id = |source: &Source<'_>| match source {
        Source::Tensor(tensor) => building.id(tensor).map(Some),
        Source::Variable(_) => Ok(None),
    };
    let ids = list.iter().map(id).collect::<Result<Vec<Option<ValueId>>>>()?;
    let part = Part::of(building, target);
    let echo = Shared::new(Echo { graph: graph.handle(), known: Lock::default(), body: Lock::default() });
    let recorder: Shared<dyn Emitter> = echo.clone();
    let tape = ScopeHandle::new(recorder).tape();
    let tracked = Again { building, part: &part, echo: &echo, tape: &tape }.record(&list, &ids)?;
    let value = |id: ValueId| tracked[id].clone().unwrap_or_else(|| building.value(&part.graph, id));
    let handles: Vec<Option<Tensor>> = ids.iter().map(|id| id.map(value)).collect();
    let sources_of_tape = list.iter().zip(&handles).map(|(source, handle)| handle.as_ref().map_or(*source, Source::Tensor));
    sources.pack(tape.gradient(&value(target), &*sources_of_tape.collect::<Vec<_>>())?)
}

/// Replays a part of a graph on a tape, which records it.
struct Again<'a> {
    building: &'a Building,
    part: &'a Part,
    echo: &'a Echo,
    tape: &'a Tape,
}

impl Again<'_> {
    /// Returns, for each value of the graph, the tape's tensor if the value depends on one of the sources, otherwise `None`.
    fn record(&self, sources: &[Source<'_>], ids: &[Option<ValueId>]) -> Result<Vec<Option<Tensor>>> {
        let graph = &self.part.graph;
        let is_source = |id: ValueId| ids.contains(&Some(id));
        let of_graph = |id: ValueId| self.building.value(graph, id);
        let mut tracked: Vec<Option<Tensor>> = alloc::vec![None; graph.values.len()];
        for id in (0..graph.values.len()).filter(|&id| is_source(id) && !matches!(graph.values[id].origin, Origin::Node)) {
            tracked[id] = Some(self.tape.watch(&of_graph(id))?);
        }
        for step in self.part.steps() {
            match step {
                Task::Event(index) => {
                    let What::Read(variable, id) = &self.part.events[index].what else { continue };
                    let wanted = sources.iter().any(|source| matches!(source, Source::Variable(other) if *other == variable));
                    if wanted && tracked[*id].is_none() {
                        self.echo.expect(alloc::vec![of_graph(*id)]);
                        tracked[*id] = Some(self.tape.read(variable)?);
                    }
                }
                Task::Node(index) => {
                    let node = &graph.nodes[index];
                    if node.inputs.iter().all(|&id| tracked[id].is_none()) {
                        continue;
                    }
                    let inputs: Vec<Tensor> = node.inputs.iter().map(|&id| tracked[id].clone().unwrap_or_else(|| of_graph(id))).collect();
                    // The tape's loop keeps its states for the gradient, so it differs from the loop in the graph and is recorded again.
                    if node.op.def.code != ops::code::while_loop {
                        self.echo.expect(node.outputs.iter().map(|&id| of_graph(id)).collect());
                    }
                    let outputs = replay::emit(node, Some(&self.tape.handle()), &inputs)?;
                    node.outputs.iter().zip(outputs).for_each(|(&id, output)| tracked[id] = Some(output));
                }
            }
            self.echo.known.lock().take();
        }
        Ok(tracked)
    }
}

/// A scope over a graph that returns known values instead of recording their ops again.
struct Echo {
    graph: ScopeHandle,
    known: Lock<Option<Vec<Tensor>>>,
    body: Lock<Option<ScopeHandle>>,
}

impl Echo {
    fn expect(&self, outputs: Vec<Tensor>) {
        *self.known.lock() = Some(outputs);
    }

    fn known(&self) -> Option<Vec<Tensor>> {
        self.known.lock().take()
    }
}

impl Emitter for Echo {
    fn emit(&self, op: &'static Op, attributes: &[u32], inputs: &[&Tensor]) -> Result<Outputs> {
        match self.known() {
            Some(outputs) => Ok(outputs.into_iter().collect()),
            None => self.graph.recorder.emit(op, attributes, inputs),
        }
    }

    fn control(&self, control: &Control, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        match self.known() {
            Some(outputs) => Ok(outputs),
            None => self.graph.recorder.control(control, inputs),
        }
    }

    fn custom(&self, inputs: &[&Tensor], forward: &Forward<'_>, rule: &Shared<dyn CustomRule>) -> Result<Vec<Tensor>> {
        match self.known() {
            Some(outputs) => Ok(outputs),
            None => self.graph.recorder.custom(inputs, forward, rule),
        }
    }

    fn body(&self) -> Option<&Lock<Option<ScopeHandle>>> {
        Some(&self.body)
    }

    fn read(&self, variable: &Variable) -> Result<Tensor> {
        match self.known().and_then(|mut known| known.pop()) {
            Some(value) => Ok(value),
            None => self.graph.recorder.read(variable),
        }
    }

    fn assign(&self, variable: &Variable, value: &Tensor) -> Result<()> {
        self.graph.recorder.assign(variable, value)
    }

    fn device(&self) -> &Device {
        self.graph.recorder.device()
    }

    fn parent(&self) -> Option<&ScopeHandle> {
        Some(&self.graph)
    }

    fn recording(&self) -> bool {
        true
    }

    fn may_create(&self) -> bool {
        self.graph.recorder.may_create()
    }

    fn random_state(&self) -> Result<Variable> {
        self.graph.recorder.random_state()
    }

    fn next_stream(&self) -> Result<Stream> {
        self.graph.recorder.next_stream()
    }
}
