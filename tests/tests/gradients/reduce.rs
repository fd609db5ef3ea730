//! Reductions, and what runs along an axis.

use super::{Maker, Trial};
use gradlet_core::Tensor;

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "sum" => maker.reduction(Tensor::sum),
        "mean" => maker.reduction(Tensor::mean),
        _ => return None,
    })
}
