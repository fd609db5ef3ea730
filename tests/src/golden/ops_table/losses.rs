//! Ops of losses.

use super::{Call, Row, row};
use crate::golden::fixtures::number;
use gradlet_core::losses::*;
use gradlet_core::{Result, Tensor};

pub static ROWS: &[Row] = &[
    row("BinaryCrossentropy", &["reduction", "from_logits", "label_smoothing", "axis"], |call| {
        let loss = BinaryCrossentropy::default().from_logits(call.flag("from_logits"));
        call.loss(loss.label_smoothing(call.number_or("label_smoothing", 0.0)).axis(call.axis()))
    }),
    row(
        "BinaryFocalCrossentropy",
        &["reduction", "apply_class_balancing", "alpha", "gamma", "from_logits", "label_smoothing", "axis"],
        |call| {
            let loss = BinaryFocalCrossentropy::default().from_logits(call.flag("from_logits")).axis(call.axis());
            let loss = loss.apply_class_balancing(call.flag("apply_class_balancing")).alpha(call.number_or("alpha", 0.25));
            call.loss(loss.gamma(call.number_or("gamma", 2.0)).label_smoothing(call.number_or("label_smoothing", 0.0)))
        },
    ),
    row("CategoricalCrossentropy", &["reduction", "from_logits", "label_smoothing", "axis"], |call| {
        let loss = CategoricalCrossentropy::default().from_logits(call.flag("from_logits"));
        call.loss(loss.label_smoothing(call.number_or("label_smoothing", 0.0)).axis(call.axis()))
    }),
    row("SparseCategoricalCrossentropy", &["reduction", "from_logits", "ignore_class", "axis=-1"], |call| {
        let loss = SparseCategoricalCrossentropy::default().from_logits(call.flag("from_logits"));
        match number(&call.attributes["ignore_class"]) {
            Some(class) => call.loss(loss.ignore_class(class as i64)),
            None => call.loss(loss),
        }
    }),
    row("KLDivergence", &["reduction"], |call| call.loss(KLDivergence)),
    row("Poisson", &["reduction"], |call| call.loss(Poisson)),
    row("MeanSquaredError", &["reduction"], |call| call.loss(MeanSquaredError)),
    row("MeanAbsoluteError", &["reduction"], |call| call.loss(MeanAbsoluteError)),
    row("MeanAbsolutePercentageError", &["reduction"], |call| call.loss(MeanAbsolutePercentageError)),
    row("MeanSquaredLogarithmicError", &["reduction"], |call| call.loss(MeanSquaredLogarithmicError)),
    row("CosineSimilarity", &["reduction", "axis"], |call| call.loss(CosineSimilarity::default().axis(call.axis()))),
    row("Huber", &["reduction", "delta"], |call| call.loss(Huber::default().delta(call.number_or("delta", 1.0)))),
    row("LogCosh", &["reduction"], |call| call.loss(LogCosh)),
    row("Hinge", &["reduction"], |call| call.loss(Hinge)),
    row("SquaredHinge", &["reduction"], |call| call.loss(SquaredHinge)),
    row("CategoricalHinge", &["reduction"], |call| call.loss(CategoricalHinge)),
];

impl Call<'_> {
    fn number_or(&self, name: &str, default: f64) -> f64 {
        number(&self.attributes[name]).unwrap_or(default)
    }

    fn loss(&self, loss: impl Loss) -> Result<Vec<Tensor>> {
        let reduction = match self.attributes.get("reduction").map(|reduction| reduction.as_str().unwrap_or("none")) {
            Some("none") => Reduction::None,
            Some("sum") => Reduction::Sum,
            Some("mean") => Reduction::Mean,
            Some("mean_with_sample_weight") => Reduction::MeanWithSampleWeight,
            _ => Reduction::SumOverBatchSize,
        };
        let (y_true, y_pred) = (self.input("y_true")?, self.input("y_pred")?);
        Ok(vec![loss.with_reduction(reduction).call_weighted(y_true, y_pred, self.optional("sample_weight"))?])
    }
}
