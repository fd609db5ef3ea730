//! Ops that are one operator together, and activations that become part of the operator before them.

use super::emitter::Emitter;
use crate::formats::tflite::write::{Field, Graph, Operator, Options};
use gradlet_core::function::ConcreteFunction;
use gradlet_core::function::graph::{Graph as Source, Origin, ValueId};
use gradlet_core::{DType, Eager, Function, Result, Scope, Tensor, TensorType};
use std::collections::HashMap;
use std::sync::Arc;

/// An operator for several ops: its name, its options, and the function of gradlet that emits these ops.
type Composite = (&'static str, Option<(u8, u16, bool)>, fn(&Tensor) -> Result<Tensor>);

static COMPOSITES: &[Composite] = &[
    ("RELU6", None, Tensor::relu6),
    ("RELU6", None, |x| x.clip_by_value(0.0, 6.0)),
    ("RELU_N1_TO_1", None, |x| x.clip_by_value(-1.0, 1.0)),
    ("RELU_0_TO_1", None, |x| x.clip_by_value(0.0, 1.0)),
    ("ELU", None, |x| x.elu(1.0)),
    ("GELU", Some((116, 0, false)), |x| x.gelu(false)),
    ("GELU", Some((116, 0, true)), |x| x.gelu(true)),
    ("HARD_SWISH", None, Tensor::hard_silu),
];

/// The way in which a node is emitted.
pub(super) enum Planned {
    /// No operator reads its results.
    Unused,
    /// It has an operator of its own.
    Alone,
    /// It is the last of the ops that an operator computes of a value.
    Composite((&'static str, Options), ValueId),
}

/// The ops of the composite operators, for each type of operand.
#[derive(Default)]
pub(super) struct Composites(HashMap<TensorType, Vec<Arc<ConcreteFunction>>>);

impl Composites {
    /// Decides how each node is emitted, from the last to the first.
    pub(super) fn plan(&mut self, emitter: &Emitter<'_>) -> Vec<Planned> {
        let source = emitter.source;
        let mut needed = vec![false; source.values.len()];
        source.outputs.iter().for_each(|&id| needed[id] = true);
        let mut plan = Vec::new();
        for node in source.nodes.iter().rev() {
            if !node.outputs.is_empty() && node.outputs.iter().all(|&id| !needed[id]) {
                plan.push(Planned::Unused);
                continue;
            }
            match self.find(emitter, node.outputs.first().copied()) {
                Some((composite, x)) => {
                    needed[x] = true;
                    plan.push(Planned::Composite(composite, x));
                }
                None => {
                    node.inputs.iter().for_each(|&id| needed[id] = true);
                    plan.push(Planned::Alone);
                }
            }
        }
        plan.reverse();
        plan
    }

    /// Returns the operator that computes a value, and its operand.
    fn find(&mut self, emitter: &Emitter<'_>, id: Option<ValueId>) -> Option<((&'static str, Options), ValueId)> {
        let id = id?;
        let kind = emitter.kind(id);
        if kind.dtype != DType::F32 {
            return None;
        }
        let functions = self.0.entry(kind).or_insert_with(|| COMPOSITES.iter().filter_map(|composite| traced(*composite, kind)).collect());
        functions.iter().zip(COMPOSITES).find_map(|(function, &(name, options, _))| {
            let template = function.graph();
            let mut operand = None;
            let found = is_same(emitter, id, template, *template.outputs.first()?, &mut operand);
            let options = options.map(|(key, slot, value)| (key, vec![(slot, Field::Bool(value))]));
            operand.filter(|_| found).map(|operand| ((name, options), operand))
        })
    }
}

/// Returns the ops of a composite on a tensor of type `kind`.
fn traced((_, _, function): Composite, kind: TensorType) -> Option<Arc<ConcreteFunction>> {
    let scope = Eager::new(&gradlet_core::ops::portable_cpu());
    Function::new(move |_: &dyn Scope, x: Tensor| function(&x)).concrete(&scope, &Tensor::symbolic(kind)).ok()
}

/// True if the ops that compute `id` are those that compute `like` in `template`. Sets `operand` to the value in place of its input.
fn is_same(emitter: &Emitter<'_>, id: ValueId, template: &Source, like: ValueId, operand: &mut Option<ValueId>) -> bool {
    if emitter.kind(id) != template.values[like].tensor_type {
        return false;
    }
    match &template.values[like].origin {
        Origin::Input(_) => *operand.get_or_insert(id) == id,
        Origin::Constant(constant) => emitter.source.constant(id).is_some_and(|own| own.bytes().ok() == constant.bytes().ok()),
        Origin::Node => {
            let maker = emitter.makers[id].map(|index| &emitter.source.nodes[index]);
            let model = template.nodes.iter().find(|node| node.outputs.contains(&like));
            let (Some(maker), Some(model)) = (maker, model) else { return false };
            maker.op.def.code == model.op.def.code
                && maker.attributes == model.attributes
                && maker.inputs.len() == model.inputs.len()
                && maker.inputs.iter().zip(&model.inputs).all(|(&id, &like)| is_same(emitter, id, template, like, operand))
        }
        Origin::Variable(_) => false,
    }
}

/// Operators that can have an activation, with the slot of their options.
const FUSING: [(&str, u16); 9] = [
    ("CONV_2D", 3),
    ("DEPTHWISE_CONV_2D", 4),
    ("FULLY_CONNECTED", 0),
    ("ADD", 0),
    ("SUB", 0),
    ("MUL", 0),
    ("DIV", 0),
    ("AVERAGE_POOL_2D", 5),
    ("MAX_POOL_2D", 5),
];

/// Returns the number of an activation in the options of an operator.
fn number(activation: &str) -> Option<i8> {
    match activation {
        "RELU" => Some(1),
        "RELU_N1_TO_1" => Some(2),
        "RELU6" => Some(3),
        _ => None,
    }
}

/// Makes each activation of floats a part of the operator before it, if nothing else reads that operator's result.
pub(super) fn fuse(graph: &mut Graph) {
    let mut uses = vec![0; graph.tensors.len()];
    let read = graph.operators.iter().flat_map(|operator| &operator.inputs).chain(&graph.outputs);
    read.filter_map(|&tensor| usize::try_from(tensor).ok()).for_each(|tensor| uses[tensor] += 1);
    // The operator that computes each tensor.
    let mut makers: HashMap<i32, usize> = HashMap::new();
    let mut kept: Vec<Operator> = Vec::new();
    for operator in std::mem::take(&mut graph.operators) {
        if let (Some(activation), &[x], &[y]) = (number(operator.name), &operator.inputs[..], &operator.outputs[..])
            && let Some(&before) = makers.get(&x)
            && uses[x as usize] == 1
        {
            let before = &mut kept[before];
            let slot = FUSING.iter().find(|(name, _)| *name == before.name).map(|(_, slot)| *slot);
            if let (Some(slot), Some((_, fields))) = (slot, &mut before.options)
                && fields.iter().all(|(other, _)| *other != slot)
            {
                fields.push((slot, Field::I8(activation)));
                before.outputs = vec![y];
                continue;
            }
        }
        makers.extend(operator.outputs.iter().map(|&output| (output, kept.len())));
        kept.push(operator);
    }
    graph.operators = kept;
}
