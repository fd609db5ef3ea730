//! The choice of an int8 form for each node: one op with the activation after it, a part of a table, or none.

use super::forms::{self, Form};
use crate::base::dtype::DType;
use crate::base::quantization::Quantization;
use crate::compile::freeze::makers;
use crate::ops::code;
use crate::tensor::graph::{Graph, Node, ValueId};
use alloc::vec::Vec;

/// Range of real numbers that an activation leaves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clip {
    least: f32,
    greatest: f32,
}

impl Clip {
    const NONE: Clip = Clip { least: f32::NEG_INFINITY, greatest: f32::INFINITY };

    /// Returns the smallest and the greatest integer that the activation leaves, or `None` if it leaves all.
    pub(super) fn integers(self, quantization: Quantization) -> Option<(i32, i32)> {
        let nearest = |real: f32| quantization.nearest(real).clamp(i8::MIN.into(), i8::MAX.into());
        (self != Clip::NONE).then(|| (nearest(self.least), nearest(self.greatest)))
    }
}

/// A node that computes in int8, with the activation after it.
#[derive(Clone, Copy)]
pub(super) struct Site {
    /// The activation.
    pub(super) clip: Clip,
    /// The value that both compute together.
    pub(super) result: ValueId,
    pub(super) form: Form,
}

/// The fate of a node.
#[derive(Clone, Copy)]
pub(super) enum Fate {
    /// It computes in int8.
    Int8(Site),
    /// It is a part of another node, or of a table.
    Part,
    /// It stays as it is.
    Stays,
}

/// The fates of the nodes of a graph.
pub(super) struct Plan {
    /// The fate of each node.
    pub(super) fates: Vec<Fate>,
    /// For each value, the value of which it is a function, element by element. It is the value itself if that is not so.
    pub(super) roots: Vec<ValueId>,
    /// The node that computes each value.
    pub(super) makers: Vec<Option<usize>>,
}

impl Plan {
    pub(super) fn new(graph: &Graph) -> Plan {
        let (uses, makers) = (graph.uses(), makers(graph));
        let mut plan = Plan { fates: alloc::vec![Fate::Stays; graph.nodes.len()], roots: (0..graph.values.len()).collect(), makers };
        let mut absorbed = alloc::vec![false; graph.nodes.len()];
        for (index, node) in graph.nodes.iter().enumerate() {
            if absorbed[index] {
                plan.fates[index] = Fate::Part;
            } else if let Some(root) = plan.root(graph, node) {
                plan.roots[node.outputs[0]] = root;
                plan.fates[index] = Fate::Part;
            } else if let Some(form) = forms::of(graph, index) {
                let mut site = Site { clip: Clip::NONE, result: node.outputs[0], form };
                if forms::has_range(node) {
                    while let Some((next, clip)) = plan.activation(graph, &uses, site) {
                        absorbed[next] = true;
                        (site.clip, site.result) = (clip, graph.nodes[next].outputs[0]);
                    }
                }
                plan.fates[index] = Fate::Int8(site);
            }
        }
        plan
    }

    /// Returns the value of which the output of `node` is a function, element by element, if there is one such value.
    fn root(&self, graph: &Graph, node: &Node) -> Option<ValueId> {
        let &[output] = node.outputs.as_slice() else { return None };
        let made = &graph.values[output].tensor_type;
        if !node.op.elementwise || !matches!(made.dtype, DType::F32 | DType::Bool) {
            return None;
        }
        let mut found = None;
        for &id in &node.inputs {
            match graph.constant(id) {
                Some(constant) if constant.shape().elements() == Some(1) => (),
                Some(_) => return None,
                None if found.is_none_or(|root| root == self.roots[id]) => found = Some(self.roots[id]),
                None => return None,
            }
        }
        let root = &graph.values[found?].tensor_type;
        (matches!(root.dtype, DType::F32 | DType::I8 | DType::U8) && root.shape == made.shape).then_some(found).flatten()
    }

    /// Returns the node that limits the result of `site`, and the range that is left, if it is the only reader.
    fn activation(&self, graph: &Graph, uses: &[usize], site: Site) -> Option<(usize, Clip)> {
        let is_reader = |node: &Node| node.inputs.contains(&site.result);
        let next = graph.nodes.iter().position(is_reader).filter(|_| uses[site.result] == 1)?;
        let node = &graph.nodes[next];
        let limit = || {
            let constant = node.inputs.iter().find_map(|&id| graph.constant(id))?;
            constant.to_vec::<f32>().ok().filter(|limit| limit.len() == 1).map(|limit| limit[0])
        };
        let Clip { least, greatest } = site.clip;
        let clip = match node.op.def.code {
            code::relu => Clip { least: if least > 0.0 { least } else { 0.0 }, greatest },
            code::maximum => limit().map(|limit| Clip { least: if least > limit { least } else { limit }, greatest })?,
            code::minimum => limit().map(|limit| Clip { least, greatest: if greatest < limit { greatest } else { limit } })?,
            _ => return None,
        };
        let same = graph.values[node.outputs[0]].tensor_type == graph.values[site.result].tensor_type;
        (same && clip.least <= clip.greatest).then_some((next, clip))
    }
}
