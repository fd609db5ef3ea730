//! The lifetimes of a graph's values in one order, and where their bytes lie.
//!
//! Values that are views of one another, or computed in place, share a storage. A storage lives from its first writer to its
//! last reader; storages that are never alive together share bytes of scratch memory.

use crate::graph::{Graph, Node, Origin, ValueId};
use crate::plan::{Location, Target, is_view};
use crate::program::ALIGN;
use alloc::vec::Vec;

/// Bytes that several values share, one after the other.
#[derive(Clone, Debug)]
struct Storage {
    place: Place,
    bytes: u32,
    first: usize,
    last: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    Constant,
    Input(usize),
    Scratch,
    Result(usize),
    Variable(usize),
}

/// The lifetimes of a graph's values in one order.
pub(crate) struct Layout<'g> {
    graph: &'g Graph,
    order: Vec<usize>,
    storages: Vec<Storage>,
    /// The storage of each value, once it has one.
    storage_of: Vec<Option<usize>>,
}

impl<'g> Layout<'g> {
    /// Lays out `graph`, whose nodes run in `order`; `direct` are the variables that values are written into.
    pub(crate) fn new(graph: &'g Graph, direct: &[Option<usize>], order: Vec<usize>, target: Target) -> Layout<'g> {
        let mut layout = Layout { graph, order, storages: Vec::new(), storage_of: alloc::vec![None; graph.values.len()] };
        for id in 0..graph.values.len() {
            let place = match graph.values[id].origin {
                Origin::Constant(_) => Place::Constant,
                Origin::Variable(index) => Place::Variable(index),
                Origin::Input(index) if target == Target::Host => Place::Input(index),
                Origin::Input(_) => Place::Scratch,
                Origin::Node => continue,
            };
            layout.open(id, place, 0);
        }
        let last_reads = layout.last_reads();
        for position in 0..layout.order.len() {
            let node = &graph.nodes[layout.order[position]];
            for &id in &node.inputs {
                layout.touch(id, position + 1);
            }
            for (output, &id) in node.outputs.iter().enumerate() {
                if let Some(variable) = direct[id] {
                    layout.open(id, Place::Variable(variable), position + 1);
                } else if let Some(shared) = layout.shared_with(node, output, position, &last_reads) {
                    layout.storage_of[id] = Some(shared);
                } else {
                    layout.open(id, Place::Scratch, position + 1);
                }
                layout.touch(id, position + 1);
            }
        }
        let end = layout.order.len() + 1;
        graph.results().for_each(|id| layout.touch(id, end));
        if target == Target::Host {
            layout.move_results();
        }
        layout
    }

    /// Gives each result that would end up in scratch a buffer that the caller can keep.
    fn move_results(&mut self) {
        let mut results = 0;
        for storage in self.graph.outputs.iter().filter_map(|&id| self.storage_of[id]) {
            if self.storages[storage].place == Place::Scratch {
                self.storages[storage].place = Place::Result(results);
                results += 1;
            }
        }
    }

    /// A new storage for value `id`, written at time `first`. Time 0 is before the first node.
    fn open(&mut self, id: ValueId, place: Place, first: usize) {
        let bytes = self.graph.values[id].tensor_type.bytes().unwrap_or(0);
        self.storage_of[id] = Some(self.storages.len());
        self.storages.push(Storage { place, bytes, first, last: first });
    }

    fn touch(&mut self, id: ValueId, time: usize) {
        if let Some(storage) = self.storage_of[id] {
            self.storages[storage].last = self.storages[storage].last.max(time);
        }
    }

    /// The position at which each value is read last, views of it included.
    fn last_reads(&self) -> Vec<usize> {
        let mut last = alloc::vec![0; self.graph.values.len()];
        for id in self.graph.results() {
            last[id] = usize::MAX;
        }
        for (position, &index) in self.order.iter().enumerate().rev() {
            let node = &self.graph.nodes[index];
            for &id in &node.inputs {
                let through = if is_view(self.graph, node) { last[node.outputs[0]] } else { 0 };
                last[id] = last[id].max(position).max(through);
            }
        }
        last
    }

    /// The storage of an input that output `output` of `node` may take over: it is a view of it, or the op works in place
    /// and nobody reads the input later.
    fn shared_with(&self, node: &Node, output: usize, position: usize, last_reads: &[usize]) -> Option<usize> {
        if is_view(self.graph, node) {
            return self.storage_of[node.inputs[0]];
        }
        let id = node.outputs[output];
        let bytes = self.graph.values[id].tensor_type.bytes();
        let allowed = |input: usize| node.op.def.in_place.contains(&(input as u8, output as u8));
        let taken = |storage: usize| node.outputs[..output].iter().any(|&other| self.storage_of[other] == Some(storage));
        let free = |storage: usize| {
            let holds = |id: ValueId| self.storage_of[id] == Some(storage);
            let read_later = (0..self.graph.values.len()).any(|id| holds(id) && last_reads[id] > position);
            let others_allowed = node.inputs.iter().enumerate().all(|(input, &id)| !holds(id) || allowed(input));
            self.storages[storage].place == Place::Scratch && !read_later && others_allowed && !taken(storage)
        };
        let candidates = node.inputs.iter().enumerate().filter(|&(input, _)| allowed(input));
        let same_size = candidates.filter(|&(_, &id)| self.graph.values[id].tensor_type.bytes() == bytes);
        same_size.filter_map(|(_, &id)| self.storage_of[id]).find(|&storage| free(storage))
    }

    /// Gives every scratch storage its offset: the largest first, each at the lowest place where it overlaps no other
    /// that lives at the same time. The order, the locations, and the bytes needed.
    pub(crate) fn finish(self) -> (Vec<usize>, Vec<Location>, u32) {
        let mut by_size: Vec<usize> = (0..self.storages.len()).filter(|&index| self.storages[index].place == Place::Scratch).collect();
        by_size
            .sort_by_key(|&index| core::cmp::Reverse((self.storages[index].bytes, self.storages[index].last - self.storages[index].first)));
        let mut offsets: Vec<u32> = alloc::vec![0; self.storages.len()];
        let mut placed: Vec<usize> = Vec::new();
        let mut scratch = 0;
        for index in by_size {
            let storage = &self.storages[index];
            let size = storage.bytes.next_multiple_of(ALIGN as u32);
            let alive = |&&other: &&usize| self.storages[other].first <= storage.last && storage.first <= self.storages[other].last;
            let mut neighbours: Vec<(u32, u32)> =
                placed.iter().filter(alive).map(|&other| (offsets[other], self.storages[other].bytes)).collect();
            neighbours.sort_unstable();
            let mut offset = 0;
            for (start, bytes) in neighbours {
                if offset + size <= start {
                    break;
                }
                offset = offset.max((start + bytes).next_multiple_of(ALIGN as u32));
            }
            offsets[index] = offset;
            scratch = scratch.max(offset + storage.bytes);
            placed.push(index);
        }
        let locate = |storage: &Option<usize>| match storage.map(|index| (index, self.storages[index].place)) {
            Some((_, Place::Constant)) | None => Location::Constant,
            Some((index, Place::Scratch)) => Location::Scratch(offsets[index]),
            Some((_, Place::Input(index))) => Location::Input(index),
            Some((_, Place::Result(index))) => Location::Result(index),
            Some((_, Place::Variable(variable))) => Location::Variable(variable),
        };
        let locations = self.storage_of.iter().map(locate).collect();
        (self.order, locations, scratch)
    }
}
