//! Products of matrices.

use super::node::{Activation, Emit, Imported, Node, one};
use crate::formats::tflite::{BatchMatMulOptions, FullyConnectedOptions};

/// Imports a dense layer. Its weights are `[n,k]`. Without `keep_num_dims`, the result is a matrix.
pub(super) fn fully_connected<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<FullyConnectedOptions<'_>>()?;
    let activation = Activation::new(options.fused_activation_function())?;
    let keep = options.keep_num_dims();
    if options.weights_format() != 0 {
        return Err("its weights are shuffled".into());
    }
    one(move |inputs| {
        let (x, kernel, bias) = (inputs.get(0)?, inputs.transposed(1, &[1, 0])?, inputs.optional(2)?);
        let columns = kernel.dims().first().map_or(1, |&columns| columns);
        let x = match (keep, x.dims()) {
            (true, _) | (_, &[_, _]) => x,
            _ => x.reshape_open(&[-1, columns.into()])?,
        };
        // A matrix whose rows are longer than the kernel's has several rows in each of them.
        let x = if !keep && x.shape().back(0) != Some(columns) { x.reshape_open(&[-1, columns.into()])? } else { x };
        activation.apply(x.dense(&kernel, bias.as_ref())?)
    })
}

pub(super) fn batch_matmul<'m>(node: &Node<'m>) -> Imported<Emit<'m>> {
    let options = node.options::<BatchMatMulOptions<'_>>()?;
    let (adj_x, adj_y) = (options.adj_x(), options.adj_y());
    one(move |inputs| inputs.get(0)?.matmul_with(&inputs.get(1)?, adj_x, adj_y))
}
