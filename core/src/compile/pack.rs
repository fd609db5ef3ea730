//! Packs the constant filters of quantised ops for the kernels that a microcontroller computes fastest. The results keep their bits. A node
//! whose packed form would have other bits, or for which there is none, stays.

use crate::base::dtype::DType;
use crate::base::error::Result;
use crate::base::op::OpCode;
use crate::ops;
use crate::ops::packing::{Constants, Packed};
use crate::ops::{packed_conv2d, packed_dense, packed_depthwise_conv2d};
use crate::tensor::device::Device;
use crate::tensor::graph::{Graph, Node, Origin};
use crate::tensor::scope::Op;
use alloc::vec::Vec;

/// The function that packs an op.
type Pack = fn(&Constants<'_>) -> Option<Packed>;

/// The ops that can be packed, each with its packed ops. The first one that suits a node is taken.
static RULES: [(OpCode, &Op, Pack); 5] = [
    (ops::code::quantized_conv2d, &packed_dense::OP, packed_dense::pack_pixels),
    (ops::code::quantized_conv2d, &packed_conv2d::OP, packed_conv2d::pack),
    (ops::code::quantized_depthwise_conv2d, &packed_conv2d::OP, packed_conv2d::pack_depthwise),
    (ops::code::quantized_depthwise_conv2d, &packed_depthwise_conv2d::OP, packed_depthwise_conv2d::pack),
    (ops::code::quantized_dense, &packed_dense::OP, packed_dense::pack),
];

/// Packs the nodes of a graph and of its bodies. The new constants are on `device`, a CPU, as those of the graph are.
pub(crate) fn pack(device: &Device, graph: &mut Graph) -> Result<()> {
    for index in 0..graph.nodes.len() {
        graph.nodes[index].bodies.iter_mut().try_for_each(|body| pack(device, body))?;
        for (code, op, pack) in &RULES {
            if graph.nodes[index].op.def.code == *code
                && let Some(node) = packed(device, graph, index, op, *pack)?
            {
                graph.nodes[index] = node;
                break;
            }
        }
    }
    Ok(())
}

/// Returns the packed form of a node, or `None` if it has none.
fn packed(device: &Device, graph: &mut Graph, index: usize, op: &'static Op, pack: Pack) -> Result<Option<Node>> {
    let node = &graph.nodes[index];
    let (&[x, filter, bias, multipliers], &[y]) = (node.inputs.as_slice(), node.outputs.as_slice()) else { return Ok(None) };
    let (Some(filter), Some(bias), Some(multipliers)) = (graph.constant(filter), graph.constant(bias), graph.constant(multipliers)) else {
        return Ok(None);
    };
    let x_type = graph.values[x].tensor_type;
    if x_type.dtype != DType::I8 {
        return Ok(None);
    }
    let (filter_dims, multipliers) = (filter.shape(), multipliers.to_vec::<i32>()?);
    let (filter, bias) = (filter.to_vec::<i8>()?, bias.to_vec::<i32>()?);
    let constants = Constants {
        attributes: &node.attributes,
        dims: [x_type.shape.dims(), filter_dims.dims()],
        filter: &filter,
        bias: &bias,
        multipliers: bytemuck::try_cast_slice(&multipliers).unwrap_or_default(),
        device,
    };
    let Some(Packed { attributes, constants }) = pack(&constants) else { return Ok(None) };
    let name = node.name.clone();
    let types: Vec<_> = core::iter::once(x_type).chain(constants.iter().map(|constant| constant.tensor_type())).collect();
    let Ok(results) = op.def.output_types(&types, &attributes) else { return Ok(None) };
    let mut inputs = alloc::vec![x];
    inputs.extend(constants.into_iter().zip(&types[1..]).map(|(constant, of)| graph.value(*of, Origin::Constant(constant))));
    let workspace = results.iter().take(op.def.outputs.into()).skip(1).map(|of| graph.value(*of, Origin::Node)).collect::<Vec<_>>();
    let outputs = core::iter::once(y).chain(workspace).collect();
    Ok(Some(Node { name, ..Node::new(op, attributes, inputs, outputs) }))
}
