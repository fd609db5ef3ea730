//! Accuracies: how often a prediction is right.

use super::MeanOf;

/// Keras's `Accuracy`: how often `y_pred` equals `y_true`.
pub type Accuracy = MeanOf<measures::Equal>;

/// Keras's `BinaryAccuracy`: how often `y_pred` is above the threshold, 0.5 unless given, where `y_true` is 1, and not above
/// where it is 0.
pub type BinaryAccuracy = MeanOf<measures::BinaryHit>;

/// Keras's `CategoricalAccuracy`: how often the largest of `y_pred[…, classes]` (the first, of equal ones) is where the largest
/// of `y_true[…, classes]` is.
pub type CategoricalAccuracy = MeanOf<measures::Hit>;

/// Keras's `SparseCategoricalAccuracy`: how often the largest of `y_pred[…, classes]` (the first, of equal ones) is at the
/// label `y_true[…]`.
///
/// ```
/// use gradlet_core::metrics::{Metric, SparseCategoricalAccuracy};
/// use gradlet_core::{Eager, Scope, Tensor, ops};
/// let scope = Eager::new(&ops::portable_cpu());
/// let accuracy = SparseCategoricalAccuracy::default();
/// let y_pred = Tensor::new(&scope.device(), &[0.1f32, 0.9, 0.8, 0.2], &[2, 2])?;
/// accuracy.update_state(&scope, &Tensor::new(&scope.device(), &[1i32, 1], &[2])?, &y_pred)?;
/// assert_eq!(accuracy.result(&scope)?.item::<f32>()?, 0.5);
/// # Ok::<(), gradlet_core::Error>(())
/// ```
pub type SparseCategoricalAccuracy = MeanOf<measures::SparseHit>;

/// Keras's `TopKCategoricalAccuracy`: how often fewer than k, 5 unless given, of `y_pred[…, classes]` are larger than that at
/// the largest of `y_true[…, classes]`. Never, where one of them is not finite.
pub type TopKCategoricalAccuracy = MeanOf<measures::TopKHit>;

/// Keras's `SparseTopKCategoricalAccuracy`: as [`TopKCategoricalAccuracy`] with labels `y_true[…]`. A label that is no class is
/// never hit.
pub type SparseTopKCategoricalAccuracy = MeanOf<measures::SparseTopKHit>;

impl BinaryAccuracy {
    /// What a prediction must be above to stand for 1.
    pub fn threshold(threshold: f64) -> BinaryAccuracy {
        MeanOf::new(measures::BinaryHit { threshold })
    }
}

impl TopKCategoricalAccuracy {
    /// How far down the order of the predictions counts.
    pub fn k(k: u32) -> TopKCategoricalAccuracy {
        MeanOf::new(measures::TopKHit { k })
    }
}

impl SparseTopKCategoricalAccuracy {
    /// How far down the order of the predictions counts.
    pub fn k(k: u32) -> SparseTopKCategoricalAccuracy {
        MeanOf::new(measures::SparseTopKHit { k })
    }
}

pub(super) mod measures {
    //! 1 where a prediction is right, else 0.

    use super::super::Measure;
    use crate::base::dtype::DType;
    use crate::base::error::{Error, Result};
    use crate::nn::losses::{alike, same_rank};
    use crate::tensor::Tensor;
    use alloc::vec::Vec;

    /// Whether both are equal.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Equal;

    impl Measure for Equal {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            let (y_true, y_pred) = same_rank(y_true, y_pred)?;
            y_true.cast(y_pred.dtype())?.equal(&y_pred)?.cast(DType::F32)
        }
    }

    /// Whether the prediction is above a threshold just where the label is 1.
    #[derive(Clone, Copy, Debug)]
    pub struct BinaryHit {
        pub(super) threshold: f64,
    }

    impl Default for BinaryHit {
        fn default() -> BinaryHit {
            BinaryHit { threshold: 0.5 }
        }
    }

    impl Measure for BinaryHit {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            let (y_true, y_pred) = alike(y_true, y_pred)?;
            let above = y_pred.greater(&y_pred.like(self.threshold)?)?.cast(y_pred.dtype())?;
            y_true.equal(&above)?.cast(DType::F32)
        }
    }

    /// Whether the largest prediction is where the largest label is.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Hit;

    impl Measure for Hit {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            y_true.argmax(-1, DType::I32)?.equal(&y_pred.argmax(-1, DType::I32)?)?.cast(DType::F32)
        }
    }

    /// Whether the largest prediction is at the label.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct SparseHit;

    impl Measure for SparseHit {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            let best = y_pred.argmax(-1, DType::I32)?.cast(y_true.dtype())?;
            let hits = best.equal(&labels(y_true, y_pred)?)?.cast(DType::F32)?;
            match hits.dims() {
                [rest @ .., 1] if !rest.is_empty() => hits.reshape(rest),
                _ => Ok(hits),
            }
        }
    }

    /// Labels without a last axis of size 1 where the predictions have their classes.
    fn labels(y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        match y_true.dims() {
            [rest @ .., 1] if y_true.dims().len() == y_pred.dims().len() => y_true.reshape(rest),
            _ => Ok(y_true.clone()),
        }
    }

    /// Whether the prediction at the largest label is among the first.
    #[derive(Clone, Copy, Debug)]
    pub struct TopKHit {
        pub(super) k: u32,
    }

    impl Default for TopKHit {
        fn default() -> TopKHit {
            TopKHit { k: 5 }
        }
    }

    impl Measure for TopKHit {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            in_top_k(&y_true.argmax(-1, DType::I32)?, y_pred, self.k)
        }
    }

    /// Whether the prediction at the label is among the first.
    #[derive(Clone, Copy, Debug)]
    pub struct SparseTopKHit {
        pub(super) k: u32,
    }

    impl Default for SparseTopKHit {
        fn default() -> SparseTopKHit {
            SparseTopKHit { k: 5 }
        }
    }

    impl Measure for SparseTopKHit {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            in_top_k(&labels(y_true, y_pred)?.cast(DType::I32)?, y_pred, self.k)
        }
    }

    /// Whether fewer than `k` predictions are larger than that at the label, as `tf.math.in_top_k`.
    fn in_top_k(labels: &Tensor, y_pred: &Tensor, k: u32) -> Result<Tensor> {
        let classes = y_pred.shape().back(0).ok_or(Error::Rank { input: 0 })?;
        let classes: Vec<i32> = (0..classes as i32).collect();
        let classes = Tensor::new(&y_pred.device()?, &classes, &[classes.len() as u32])?;
        let at = labels.reshape(&[labels.dims(), &[1]].concat())?.equal(&classes)?;
        let own = at.select(y_pred, &y_pred.like(0.0)?)?.sum(&[-1], true)?;
        let larger = y_pred.greater(&own)?.cast(DType::I32)?.sum(&[-1], false)?;
        let known = at.any(&[-1], false)?.logical_and(&y_pred.is_finite()?.all(&[-1], false)?)?;
        larger.less(&larger.like(k.into())?)?.logical_and(&known)?.cast(DType::F32)
    }
}
