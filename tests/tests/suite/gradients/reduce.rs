//! Gradient tests of reductions, and of other ops along an axis.

use super::{Maker, Trial};
use gradlet_core::{Result, Tensor};

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "sum" => maker.reduction(Tensor::sum),
        "mean" => maker.reduction(Tensor::mean),
        "max" => maker.picking(Tensor::max),
        "min" => maker.picking(Tensor::min),
        "prod" => {
            let dims = maker.dims((0, 3), 2);
            let (axes, keepdims, x) = (maker.axes(dims.len()), maker.random.coin(), maker.away_from_zero(&dims));
            Trial::new(vec![x], move |x| x[0].prod(&axes, keepdims))
        }
        "cumsum" => maker.cumulative(Tensor::cumsum),
        "cumprod" => maker.cumulative(Tensor::cumprod),
        "top_k" => {
            let dims = maker.dims((1, 3), 5);
            let (k, x) = (maker.random.range(1, dims[dims.len() - 1]), maker.distinct(&dims));
            Trial::new(vec![x], move |x| Ok(x[0].top_k(k)?.0))
        }
        _ => return None,
    })
}

impl Maker {
    fn picking(&mut self, compute: fn(&Tensor, &[i32], bool) -> Result<Tensor>) -> Trial {
        let dims = self.dims((0, 4), 4);
        let (axes, keepdims, x) = (self.axes(dims.len()), self.random.coin(), self.distinct(&dims));
        Trial::new(vec![x], move |x| compute(&x[0], &axes, keepdims))
    }

    fn cumulative(&mut self, compute: fn(&Tensor, i32, bool, bool) -> Result<Tensor>) -> Trial {
        let dims = self.dims((1, 3), 4);
        let axis = self.random.below(dims.len()) as i32;
        let (exclusive, reverse, x) = (self.random.coin(), self.random.coin(), self.away_from_zero(&dims));
        Trial::new(vec![x], move |x| compute(&x[0], axis, exclusive, reverse))
    }
}
