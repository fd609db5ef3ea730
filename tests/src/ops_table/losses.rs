//! Losses.

use super::{Call, Row, row};
use gradlet_core::losses::{Loss, MeanSquaredError, Reduction, SparseCategoricalCrossentropy};
use gradlet_core::{Result, Tensor};

pub static ROWS: &[Row] = &[
    row("SparseCategoricalCrossentropy", &["reduction", "from_logits=true"], |call| {
        call.loss(SparseCategoricalCrossentropy { reduction: call.reduction() })
    }),
    row("MeanSquaredError", &["reduction"], |call| call.loss(MeanSquaredError { reduction: call.reduction() })),
];

impl Call<'_> {
    fn loss(&self, loss: impl Loss) -> Result<Vec<Tensor>> {
        Ok(vec![loss.call_weighted(self.input("y_true")?, self.input("y_pred")?, self.optional("sample_weight"))?])
    }

    fn reduction(&self) -> Reduction {
        match self.text("reduction") {
            "none" => Reduction::None,
            "sum" => Reduction::Sum,
            _ => Reduction::SumOverBatchSize,
        }
    }
}
