//! Reductions, and other ops along an axis.

use super::{Call, Row, row};
use gradlet_core::{Result, Tensor};

pub static ROWS: &[Row] = &[
    row("reduce_sum", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.sum(axes, call.flag("keepdims")))),
    row("reduce_mean", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.mean(axes, call.flag("keepdims")))),
    row("reduce_max", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.max(axes, call.flag("keepdims")))),
    row("reduce_min", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.min(axes, call.flag("keepdims")))),
    row("reduce_prod", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.prod(axes, call.flag("keepdims")))),
    row("reduce_any", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.any(axes, call.flag("keepdims")))),
    row("reduce_all", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.all(axes, call.flag("keepdims")))),
    row("reduce_variance", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.variance(axes, call.flag("keepdims")))),
    row("reduce_std", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.std(axes, call.flag("keepdims")))),
    row("reduce_l2", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.euclidean_norm(axes, call.flag("keepdims")))),
    row("reduce_logsumexp", &["axis", "keepdims"], |call| call.reduce(|x, axes| x.logsumexp(axes, call.flag("keepdims")))),
    row("argmax", &["axis", "output_type"], |call| call.unary(|x| x.argmax(call.axis(), call.dtype("output_type")?))),
    row("argmin", &["axis", "output_type"], |call| call.unary(|x| x.argmin(call.axis(), call.dtype("output_type")?))),
    row("cumsum", &["axis", "exclusive", "reverse"], |call| call.cumulative(Tensor::cumsum)),
    row("cumprod", &["axis", "exclusive", "reverse"], |call| call.cumulative(Tensor::cumprod)),
    row("top_k", &["k", "sorted=true"], |call| {
        let (values, positions) = call.input("x")?.top_k(call.dims("k")[0])?;
        Ok(vec![values, positions])
    }),
];

impl Call<'_> {
    fn cumulative(&self, op: fn(&Tensor, i32, bool, bool) -> Result<Tensor>) -> Result<Vec<Tensor>> {
        self.unary(|x| op(x, self.axis_or(0), self.flag("exclusive"), self.flag("reverse")))
    }
}
