//! The lifetimes of a graph's values in one order, and the locations of their bytes.
//!
//! Values that are views of one another, or that are computed in place, share one storage area. A storage area lives from its first
//! writer to its last reader. Areas that are never live at the same time can share bytes of scratch memory.

use crate::compile::offsets::Offsets;
use crate::compile::plan::{Bodies, Decisions, Division, Location, Step, Target, is_by_element, is_view};
use crate::runtime::program::ALIGN;
use crate::tensor::graph::{Graph, Node, Origin, ValueId};
use alloc::vec::Vec;

/// Storage area: bytes that several values use one after the other.
#[derive(Clone, Debug)]
struct Storage {
    /// The kind of location. An offset in scratch memory is decided last and stored elsewhere.
    location: Location,
    bytes: usize,
    first: usize,
    last: usize,
    /// Position of the last node that reads one of its values, among the values that have been placed.
    last_read: usize,
}

/// The locations of all values.
pub(crate) struct Placement {
    pub(crate) locations: Vec<Location>,
    /// Size of the scratch memory in bytes; `usize::MAX` if it does not fit in a usize.
    pub(crate) scratch: usize,
    /// Pairs (node, offset): each branch or loop whose bodies need scratch memory, and the offset of that memory in bytes.
    pub(crate) workspaces: Vec<(usize, usize)>,
}

/// The lifetimes of a graph's values in one order.
pub(crate) struct Layout<'g> {
    graph: &'g Graph,
    /// True if values that only a group uses are in registers.
    registers: bool,
    pub(crate) steps: Vec<Step>,
    /// Position of the last node that reads each value: see [`last_reads`].
    last_reads: Vec<usize>,
    storages: Vec<Storage>,
    /// Index in `storages` of each value's storage area, or `None` before the value has one.
    storage_of: Vec<Option<usize>>,
    /// Pairs (node, storage area): the areas that the bodies of branches and loops use as scratch memory.
    workspaces: Vec<(usize, usize)>,
}

/// The position of a node in the order.
struct Position<'s> {
    step: &'s Step,
    /// Index of the step, from 1. All values that a step reads or writes are live during the whole step.
    time: usize,
    /// Position of the node in the order.
    node: usize,
    /// Position of the first node after the step.
    end: usize,
}

impl<'g> Layout<'g> {
    /// Computes the lifetimes of the values of `graph`, whose nodes run in `steps`.
    pub(crate) fn new(graph: &'g Graph, decided: &Decisions, steps: Vec<Step>, target: Target) -> Layout<'g> {
        let mut layout = Layout {
            graph,
            registers: matches!(target, Target::Host(fusion) if fusion.registers),
            steps: Vec::new(),
            last_reads: last_reads(graph, &steps),
            storages: Vec::new(),
            storage_of: alloc::vec![None; graph.values.len()],
            workspaces: Vec::new(),
        };
        for id in 0..graph.values.len() {
            let place = match graph.values[id].origin {
                Origin::Constant(_) => Location::Constant,
                Origin::Variable(index) => Location::Variable(index),
                Origin::Input(index) if target != Target::Device => Location::Input(index),
                Origin::Input(_) => Location::SCRATCH,
                Origin::Node => continue,
            };
            layout.open(id, place, 0);
        }
        let mut before = 0;
        for (step, time) in steps.iter().zip(1..) {
            let end = before + step.nodes.len();
            for (&index, node) in step.nodes.iter().zip(before..) {
                layout.place_node(index, &Position { step, time, node, end }, decided);
            }
            before = end;
        }
        let end = steps.len() + 1;
        graph.results().for_each(|id| layout.touch(id, end));
        if decided.gives {
            layout.move_results();
        }
        layout.steps = steps;
        layout
    }

    /// Assigns a storage area to each output of a node.
    fn place_node(&mut self, index: usize, at: &Position<'_>, decided: &Decisions) {
        let node = &self.graph.nodes[index];
        let bodies = decided.bodies[index].as_ref();
        for &id in &node.inputs {
            self.touch(id, at.time);
        }
        for (output, &id) in node.outputs.iter().enumerate() {
            let (apart, last_read) = (self.is_apart(node, at), self.last_reads[id]);
            let internal = at.step.nodes.len() > 1 && last_read < at.end && (!apart || last_read > at.node);
            if let Some(variable) = decided.direct[id] {
                self.open(id, Location::Variable(variable), at.time);
            } else if let Some(input) = bodies.and_then(|bodies| bodies.updated(output)) {
                self.storage_of[id] = self.storage_of[node.inputs[input]];
            } else if internal && self.registers && !is_view(self.graph, node) {
                self.open(id, Location::Register, at.time);
            } else if let Some(shared) = self.shared_with(node, output, internal, at).filter(|_| !apart) {
                self.storage_of[id] = Some(shared);
            } else if internal && at.step.division != Division::NONE {
                self.open(id, Location::BLOCK, at.time);
                let size = self.graph.values[id].tensor_type.dtype.size();
                let blocks = self.storages.last_mut().into_iter();
                blocks.for_each(|storage| storage.bytes = at.step.division.threads * at.step.division.block * size);
            } else {
                self.open(id, Location::SCRATCH, at.time);
            }
            self.touch(id, at.time);
        }
        if let Some(bytes) = bodies.map(Bodies::workspace).filter(|&bytes| bytes > 0) {
            self.workspaces.push((index, self.storages.len()));
            self.storages.push(Storage { location: Location::SCRATCH, bytes, first: at.time, last: at.time, last_read: 0 });
        }
    }

    /// True if the results of `node` must have storage areas of their own, because other threads of its group may still read: those of a
    /// group with a product, and that of a reduction.
    fn is_apart(&self, node: &Node, at: &Position<'_>) -> bool {
        let computes = |node: &Node| !is_by_element(node) && !is_view(self.graph, node);
        let product = at.step.nodes.first().is_some_and(|&first| computes(&self.graph.nodes[first]));
        at.step.nodes.len() > 1 && !is_view(self.graph, node) && (product || computes(node))
    }

    /// Creates a storage area for value `id`, first written at time `first`. Time 0 is before the first step.
    fn open(&mut self, id: ValueId, location: Location, first: usize) {
        let bytes = self.graph.values[id].tensor_type.bytes().unwrap_or(0);
        self.storage_of[id] = Some(self.storages.len());
        self.storages.push(Storage { location, bytes, first, last: first, last_read: 0 });
    }

    fn touch(&mut self, id: ValueId, time: usize) {
        if let Some(storage) = self.storage_of[id].map(|index| &mut self.storages[index]) {
            storage.last = storage.last.max(time);
            storage.last_read = storage.last_read.max(self.last_reads[id]);
        }
    }

    /// Moves each result that would be in scratch memory to a buffer that the caller can keep.
    fn move_results(&mut self) {
        let mut results = 0;
        for storage in self.graph.outputs.iter().filter_map(|&id| self.storage_of[id]) {
            if self.storages[storage].location == Location::SCRATCH {
                self.storages[storage].location = Location::Result(results);
                results += 1;
            }
        }
    }

    /// Returns the storage area that output `output` of `node` can share, or `None` if there is none. A view shares the area of its
    /// input. An op that works in place takes over an input's area if no later node reads the input. In a group, an output may also take
    /// over an area that an earlier node of the group was the last to read.
    fn shared_with(&self, node: &Node, output: usize, internal: bool, at: &Position<'_>) -> Option<usize> {
        if is_view(self.graph, node) {
            return self.storage_of[node.inputs[0]];
        }
        let id = node.outputs[output];
        let tensor_type = |id: ValueId| self.graph.values[id].tensor_type;
        let allowed = |input: usize| node.op.def.in_place.contains(&(input as u8, output as u8));
        let taken = |storage: usize| node.outputs[..output].iter().any(|&other| self.storage_of[other] == Some(storage));
        let free = |storage: usize| {
            let holds = |id: ValueId| self.storage_of[id] == Some(storage);
            let others_allowed = node.inputs.iter().enumerate().all(|(input, &id)| !holds(id) || allowed(input));
            let Storage { location, last_read, .. } = self.storages[storage];
            let place = location == Location::SCRATCH || internal && location == Location::BLOCK;
            place && last_read <= at.node && others_allowed && !taken(storage)
        };
        let own = node.inputs.iter().enumerate().filter(|&(input, _)| allowed(input)).map(|(_, &id)| id);
        let earlier = at.step.nodes.iter().take(at.step.nodes.len() - (at.end - at.node));
        let theirs = earlier.flat_map(|&index| self.graph.nodes[index].inputs.iter().copied());
        let alone = at.step.nodes.len() == 1;
        let alike = |&other: &ValueId| {
            let (own, other) = (tensor_type(id), tensor_type(other));
            own.bytes() == other.bytes() && (alone || own.shape.elements() == other.shape.elements())
        };
        own.chain(theirs).filter(alike).filter_map(|id| self.storage_of[id]).find(|&storage| free(storage))
    }

    /// Returns the index of the step with several nodes during which the most bytes of scratch memory are live. Returns `None` if every
    /// step has one node.
    pub(crate) fn largest_group(&self) -> Option<usize> {
        let alive = |time: usize| {
            let alive =
                self.storages.iter().filter(|storage| storage.location.in_scratch() && storage.first <= time && time <= storage.last);
            alive.map(|storage| storage.bytes as u128).sum::<u128>()
        };
        (0..self.steps.len()).filter(|&step| self.steps[step].nodes.len() > 1).max_by_key(|&step| alive(step + 1))
    }

    /// Assigns an offset to every storage area in scratch memory, beginning with the largest. Each gets the lowest offset at which it
    /// overlaps no other area that is live at the same time.
    pub(crate) fn place(&self) -> Placement {
        let mut by_size: Vec<usize> = (0..self.storages.len()).filter(|&index| self.storages[index].location.in_scratch()).collect();
        by_size
            .sort_by_key(|&index| core::cmp::Reverse((self.storages[index].bytes, self.storages[index].last - self.storages[index].first)));
        let mut offsets: Vec<u128> = alloc::vec![0; self.storages.len()];
        let mut placed = Offsets::new(self.steps.len() + 2);
        let mut scratch = 0;
        for index in by_size {
            let Storage { bytes, first, last, .. } = self.storages[index];
            offsets[index] = placed.fit((bytes as u128).next_multiple_of(ALIGN as u128), first, last);
            scratch = scratch.max(offsets[index] + bytes as u128);
        }
        let saturated = |offset: u128| usize::try_from(offset).unwrap_or(usize::MAX);
        let locate = |storage: &Option<usize>| match storage.map(|index| (index, self.storages[index].location)) {
            Some((index, Location::Scratch(_))) => Location::Scratch(saturated(offsets[index])),
            Some((index, Location::Block(_))) => Location::Block(saturated(offsets[index])),
            Some((_, location)) => location,
            None => Location::Constant,
        };
        let locations = self.storage_of.iter().map(locate).collect();
        let workspaces = self.workspaces.iter().map(|&(node, storage)| (node, saturated(offsets[storage]))).collect();
        Placement { locations, scratch: saturated(scratch), workspaces }
    }
}

/// Returns, for each value, the position in the order of the last node that reads it, including reads through views. The position is
/// `usize::MAX` for a result.
fn last_reads(graph: &Graph, steps: &[Step]) -> Vec<usize> {
    let mut last = alloc::vec![0; graph.values.len()];
    for id in graph.results() {
        last[id] = usize::MAX;
    }
    let order: Vec<usize> = steps.iter().flat_map(|step| step.nodes.iter().copied()).collect();
    for (position, &index) in order.iter().enumerate().rev() {
        let node = &graph.nodes[index];
        for &id in &node.inputs {
            let through = if is_view(graph, node) { last[node.outputs[0]] } else { 0 };
            last[id] = last[id].max(position).max(through);
        }
    }
    last
}
