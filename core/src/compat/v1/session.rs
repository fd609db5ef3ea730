//! The session: runs the fetched parts of a graph.

use super::fetch::{Fetch, Target};
use super::graph::{Building, Event, Graph, Operation, Placeholder, Region, What};
use crate::base::error::{Error, Result};
use crate::base::shape::Shape;
use crate::base::sync::{Lock, Shared};
use crate::function::Function;
use crate::tensor::Tensor;
use crate::tensor::graph::{Graph as Recorded, ValueId};
use crate::tensor::scope::{Scope, ScopeHandle};
use crate::tensor::variable::Variable;
use crate::trace::replay;
use alloc::format;
use alloc::vec::Vec;

/// Runs parts of a graph. Each part is compiled on its first run.
pub struct Session {
    graph: Graph,
    compiled: Lock<Vec<Shared<Compiled>>>,
    initialized: Lock<Vec<Variable>>,
}

struct Compiled {
    building: Shared<Building>,
    targets: Vec<Target>,
    fed: Vec<ValueId>,
    function: Function<Vec<Tensor>, Vec<Tensor>>,
    /// The variables that must be initialized before the run.
    needs: Vec<Variable>,
    /// The variables that the run sets, which are therefore initialized after it.
    sets: Vec<Variable>,
}

impl Session {
    /// Creates a session of `graph` in which no variable is initialized.
    pub fn new(graph: &Graph) -> Session {
        Session { graph: graph.clone(), compiled: Lock::default(), initialized: Lock::default() }
    }

    /// Returns the values of `fetches`. `feed` holds pairs (tensor, value): the value replaces a placeholder or any other tensor of the
    /// graph.
    ///
    /// Fails if a variable is read before it is initialized, if a needed placeholder is not fed, or if a fed value has the wrong type or
    /// is on another device.
    pub fn run<F: Fetch>(&self, fetches: F, feed: &[(&Tensor, &Tensor)]) -> Result<F::Values> {
        let compiled = self.compiled(&fetches, feed)?;
        let ready = self.initialized.lock();
        if let Some(variable) = compiled.needs.iter().find(|variable| !ready.contains(variable)) {
            let text = "is not initialized: run graph.global_variables_initializer() in this session first";
            return Err(Error::message(format!("variable {:?} {text}", variable.name())));
        }
        drop(ready);
        let fed = feed.iter().map(|(_, value)| (*value).clone()).collect();
        let mut results = compiled.function.call(&self.graph.building.base, fed)?.into_iter();
        self.initialized.lock().extend(compiled.sets.iter().cloned());
        // There is exactly one result for each tensor and variable, so the fallback scalar is never used.
        Ok(fetches.values(&mut || results.next().unwrap_or_else(|| Tensor::scalar(&self.graph.device(), 0.0f32))))
    }

    #[cfg(test)]
    pub(super) fn compiled_programs(&self) -> usize {
        self.compiled.lock().len()
    }

    fn compiled(&self, fetches: &impl Fetch, feed: &[(&Tensor, &Tensor)]) -> Result<Shared<Compiled>> {
        let first = &self.graph.building;
        let mut targets = first.targets(fetches)?;
        let fed = feed.iter().map(|(tensor, value)| self.fed(tensor, value)).collect::<Result<Vec<(ValueId, Shape)>>>()?;
        let mut building = first.clone();
        let mut ids: Vec<ValueId> = fed.iter().map(|(id, _)| *id).collect();
        if let Some(program) = &self.graph.program {
            let [first, own] = program.recordings(&fed)?;
            if !Shared::ptr_eq(&first, &own) {
                targets = targets.iter().map(|target| own.same(&first, target)).collect::<Result<_>>()?;
                ids = ids.iter().map(|&id| own.value(&first, id)).collect::<Result<_>>()?;
                building = own.building.clone();
            }
        }
        for (id, (_, value)) in ids.iter().zip(feed) {
            let (wanted, got) = (building.tracing.with_record(|trace| trace.graph.values[*id].tensor_type), value.tensor_type());
            if wanted != got {
                let more = self.graph.program.as_ref().map_or("", |_| ": feed the placeholders as well, for their sizes");
                return Err(Error::message(format!("{} is {wanted}, but was fed {got}{more}", building.name(*id))));
            }
        }
        let is = |known: &&Shared<Compiled>| Shared::ptr_eq(&known.building, &building) && known.targets == targets && known.fed == ids;
        let known = self.compiled.lock().iter().find(is).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let compiled = Shared::new(compile(building, targets, ids)?);
        self.compiled.lock().push(compiled.clone());
        Ok(compiled)
    }

    /// Returns the value of the graph that `tensor` stands for, and the shape of `value`, which is fed to it.
    fn fed(&self, tensor: &Tensor, value: &Tensor) -> Result<(ValueId, Shape)> {
        let building = &self.graph.building;
        let (id, got) = (building.id(tensor)?, value.tensor_type());
        let found = building.record.lock().placeholders.iter().find(|placeholder| placeholder.id == id).cloned();
        if let Some(Placeholder { name, spec, .. }) = found.filter(|placeholder| !placeholder.spec.accepts(&got)) {
            return Err(Error::message(format!("placeholder {name:?} is {spec}, but was fed {got}")));
        }
        let (device, own) = (value.device()?, self.graph.device());
        if device == own || own.placement().is_some() {
            return Ok((id, got.shape));
        }
        let (other, own, name) = (device.name(), own.name(), building.name(id));
        Err(Error::message(format!("{name} was fed a value on {other}, but the session runs on {own}: copy it with `to`")))
    }
}

fn compile(building: Shared<Building>, targets: Vec<Target>, fed: Vec<ValueId>) -> Result<Compiled> {
    let graph = building.tracing.with_record(|trace| trace.graph.clone());
    let record = building.record.lock();
    let mut part = Part::new(graph, record.events.clone(), record.regions.clone(), fed.clone());
    let placeholders = record.placeholders.clone();
    drop(record);
    let random = building.base.recorder.random_state()?;
    part.prune(&targets, &random);
    let missing = |placeholder: &&Placeholder| part.values[placeholder.id] && !fed.contains(&placeholder.id);
    if let Some(Placeholder { name, spec, .. }) = placeholders.iter().find(missing) {
        return Err(Error::message(format!("placeholder {name:?} must be fed a tensor {spec}")));
    }
    let (needs, sets) = part.variables(&targets, &random);
    let wanted = targets.clone();
    let function = Function::new(move |scope: &dyn Scope, fed: Vec<Tensor>| part.run(&scope.handle(), &fed, &wanted));
    Ok(Compiled { building, targets, fed, function, needs, sets })
}

/// The part of a graph that some targets need.
pub(super) struct Part {
    pub(super) graph: Recorded,
    pub(super) events: Vec<Event>,
    regions: Vec<Region>,
    fed: Vec<ValueId>,
    values: Vec<bool>,
    runs: [Vec<bool>; 2],
}

/// A node or an event, by index.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Node(usize),
    Event(usize),
}

impl Part {
    fn new(graph: Recorded, events: Vec<Event>, regions: Vec<Region>, fed: Vec<ValueId>) -> Part {
        let values = alloc::vec![false; graph.values.len()];
        let runs = [alloc::vec![false; graph.nodes.len()], alloc::vec![false; events.len()]];
        Part { graph, events, regions, fed, values, runs }
    }

    /// Returns the part that value `id` needs, without control dependencies.
    pub(super) fn of(building: &Building, id: ValueId) -> Part {
        let graph = building.tracing.with_record(|trace| trace.graph.clone());
        let events = building.record.lock().events.clone();
        let mut part = Part::new(graph, events, Vec::new(), Vec::new());
        part.values[id] = true;
        part.close();
        part
    }

    /// Returns all steps of the graph, in the order in which they were recorded.
    fn order(&self) -> Vec<Task> {
        let mut events = self.events.iter().enumerate().peekable();
        let mut order = Vec::new();
        for node in 0..=self.graph.nodes.len() {
            while let Some((index, _)) = events.next_if(|(_, event)| event.at <= node) {
                order.push(Task::Event(index));
            }
            order.push(Task::Node(node));
        }
        order.pop();
        order
    }

    /// Returns the selected steps, in the order in which they were recorded.
    pub(super) fn steps(&self) -> Vec<Task> {
        let runs = |step: &Task| match *step {
            Task::Node(index) => self.runs[0][index],
            Task::Event(index) => self.runs[1][index],
        };
        self.order().into_iter().filter(runs).collect()
    }

    fn require(&mut self, operation: &Operation) {
        operation.nodes.iter().for_each(|&index| self.runs[0][index] = true);
        operation.events.iter().for_each(|&index| self.runs[1][index] = true);
    }

    /// Selects the steps that `targets` need.
    fn prune(&mut self, targets: &[Target], random: &Variable) {
        for target in targets {
            match target {
                Target::Value(id) => self.values[*id] = true,
                Target::Operation(operation) => self.require(operation),
                Target::Variable(_) => (),
            }
        }
        self.close();
        // A part that draws random numbers also advances the random state, so that the next run draws different ones.
        let draws = |(index, event): (usize, &Event)| matches!(&event.what, What::Read(read, _) if read == random) && self.runs[1][index];
        if self.events.iter().enumerate().any(draws) {
            for (event, runs) in self.events.iter().zip(&mut self.runs[1]) {
                *runs |= matches!(&event.what, What::Assign(variable, _) if variable == random);
            }
            self.close();
        }
    }

    /// Selects the steps that the selected steps need, too. One scan from the last step to the first is enough, because every step is
    /// recorded after the steps that it needs.
    fn close(&mut self) {
        for step in self.order().into_iter().rev() {
            let wanted = |id: &ValueId, part: &Part| part.values[*id] && !part.fed.contains(id);
            let region = match step {
                Task::Node(index) => {
                    let node = &self.graph.nodes[index];
                    if !self.runs[0][index] && !node.outputs.iter().any(|id| wanted(id, self)) {
                        continue;
                    }
                    self.runs[0][index] = true;
                    node.inputs.iter().for_each(|&id| self.values[id] = true);
                    self.regions.iter().filter(|region| region.nodes.contains(&index)).map(|region| region.after.clone()).collect()
                }
                Task::Event(index) => {
                    match &self.events[index].what {
                        What::Read(_, id) => self.runs[1][index] |= wanted(id, self),
                        What::Assign(_, id) if self.runs[1][index] => self.values[*id] = true,
                        _ => (),
                    }
                    if !self.runs[1][index] {
                        continue;
                    }
                    self.regions
                        .iter()
                        .filter(|region| region.events.contains(&index))
                        .map(|region| region.after.clone())
                        .collect::<Vec<_>>()
                }
            };
            region.iter().for_each(|operation| self.require(operation));
        }
    }

    /// Returns the variables that are read before the part sets them, and the variables that it sets.
    fn variables(&self, targets: &[Target], random: &Variable) -> (Vec<Variable>, Vec<Variable>) {
        let (mut needs, mut sets) = (Vec::new(), Vec::<Variable>::new());
        for step in self.steps() {
            let Task::Event(index) = step else { continue };
            match &self.events[index].what {
                What::Read(variable, _) if !sets.contains(variable) => needs.push(variable.clone()),
                What::Read(..) => (),
                What::Assign(variable, _) => sets.push(variable.clone()),
                What::Initialize(values) => sets.extend(values.iter().map(|(variable, _)| variable.clone())),
            }
        }
        for target in targets {
            match target {
                Target::Variable(variable) if !sets.contains(variable) => needs.push(variable.clone()),
                _ => (),
            }
        }
        needs.retain(|variable| variable != random);
        (needs, sets)
    }

    /// Runs the part's steps in `scope` and returns the values of the targets.
    fn run(&self, scope: &ScopeHandle, fed: &[Tensor], targets: &[Target]) -> Result<Vec<Tensor>> {
        let mut values: Vec<Option<Tensor>> = (0..self.graph.values.len()).map(|id| self.graph.constant(id).cloned()).collect();
        self.fed.iter().zip(fed).for_each(|(&id, tensor)| values[id] = Some(tensor.clone()));
        let get = |values: &[Option<Tensor>], id: ValueId| values[id].clone().ok_or(Error::Traced);
        for step in self.steps() {
            match step {
                Task::Node(index) => {
                    let node = &self.graph.nodes[index];
                    let inputs = node.inputs.iter().map(|&id| get(&values, id)).collect::<Result<Vec<_>>>()?;
                    for (&id, output) in node.outputs.iter().zip(replay::emit(node, Some(scope), &inputs)?) {
                        if !self.fed.contains(&id) {
                            values[id] = Some(output);
                        }
                    }
                }
                Task::Event(index) => match &self.events[index].what {
                    What::Read(variable, id) => values[*id] = Some(scope.read(variable)?),
                    What::Assign(variable, id) => scope.assign(variable, &get(&values, *id)?)?,
                    What::Initialize(all) => all.iter().try_for_each(|(variable, value)| scope.assign(variable, value))?,
                },
            }
        }
        let mut results = Vec::new();
        for target in targets {
            match target {
                Target::Value(id) => results.push(get(&values, *id)?),
                Target::Variable(variable) => results.push(scope.read(variable)?),
                Target::Operation(_) => (),
            }
        }
        Ok(results)
    }
}
