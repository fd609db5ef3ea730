//! The scales of a graph's values, which the operators that move elements pass on.

use super::arrays::attributes;
use super::emitter::Converted;
use gradlet_core::function::graph::{Graph, Node, ValueId};
use gradlet_core::ops::quantize;
use gradlet_core::tensor::AffineQuantization;
use gradlet_core::{DType, Quantization};

/// Returns the scales of each value: those of the graph, of conversions from and to floats, and of tensors with the same elements.
pub(super) fn known(graph: &Graph) -> Converted<Vec<Option<AffineQuantization>>> {
    let mut scales: Vec<Option<AffineQuantization>> = graph.values.iter().map(|value| value.quantization.as_deref().cloned()).collect();
    for node in &graph.nodes {
        let converted = match node.op.def.name {
            "quantize" => node.outputs[0],
            "dequantize" => node.inputs[0],
            _ => continue,
        };
        let quantize::Attributes { scale, zero_point, .. } = attributes(node)?;
        scales[converted].get_or_insert_with(|| Quantization { scale, zero_point }.into());
    }
    // Forwards, and then backwards to tensors whose readers have a scale.
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for node in graph.nodes.iter().chain(graph.nodes.iter().rev()) {
            let related = related(graph, node);
            let Some(scale) = related.iter().find_map(|&id| scales[id].clone()) else { continue };
            for id in related {
                if scales[id].is_none() && graph.constant(id).is_none() {
                    scales[id] = Some(scale.clone());
                    changed = true;
                }
            }
        }
    }
    Ok(scales)
}

/// Returns the values of a node that must have the same scales: the result, and the operands with its elements.
fn related(graph: &Graph, node: &Node) -> Vec<ValueId> {
    let operands = match node.op.def.name {
        "concat" => node.inputs.len(),
        "maximum" | "minimum" | "select" => 2,
        "identity"
        | "reshape"
        | "transpose"
        | "broadcast_to"
        | "gather"
        | "gather_nd"
        | "strided_slice"
        | "pad"
        | "max"
        | "min"
        | "max_pool2d"
        | "quantized_avg_pool2d"
        | "quantized_resize_bilinear"
        | "tensor_scatter_update"
        | "top_k" => 1,
        _ => 0,
    };
    let small = |id: &ValueId| matches!(graph.values[*id].tensor_type.dtype, DType::I8 | DType::U8 | DType::I16);
    let results = node.outputs.iter().take(usize::from(operands > 0));
    node.inputs.iter().take(operands).chain(results).copied().filter(small).collect()
}
