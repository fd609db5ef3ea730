//! Ops that move elements: shapes, slices, gather and scatter.

pub mod broadcast_to;
pub mod concat;
pub mod gather;
pub mod gather_grad;
pub mod gather_nd;
pub mod pad;
pub mod reshape;
pub mod scatter_add;
pub mod scatter_nd;
pub mod strided_slice;
pub mod tensor_scatter_update;
pub mod transpose;
