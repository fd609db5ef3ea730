//! What moves elements and computes nothing.

use super::{Maker, Trial};

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "reshape" => maker.unary(|x| x.reshape(&[1, x.shape().elements().unwrap_or(0), 1])),
        "transpose" => {
            let dims = maker.dims((0, 4), 4);
            let order: Vec<u32> = maker.random.permutation(dims.len()).into_iter().map(|axis| axis as u32).collect();
            let x = maker.tensor(&dims);
            Trial::new(vec![x], move |x| x[0].transpose(&order))
        }
        "broadcast_to" => {
            let dims = maker.dims((0, 4), 4);
            let from = maker.operand(&dims);
            let x = maker.tensor(&from);
            Trial::new(vec![x], move |x| x[0].broadcast_to(&dims))
        }
        _ => return None,
    })
}
