//! Accuracies: the share of predictions that are right.

use super::MeanOf;

/// Keras's `Accuracy`: the share of elements for which `y_pred` equals `y_true`.
pub type Accuracy = MeanOf<measures::Equal>;

/// Keras's `BinaryAccuracy`: the share of elements whose prediction matches the label. A prediction above the threshold (default
/// 0.5) counts as 1, any other as 0.
pub type BinaryAccuracy = MeanOf<measures::BinaryHit>;

/// Keras's `CategoricalAccuracy`: the share of samples for which `y_pred[…, classes]` and `y_true[…, classes]` are largest at the
/// same index. Among equal elements, the first counts as the largest.
pub type CategoricalAccuracy = MeanOf<measures::Hit>;

/// Keras's `SparseCategoricalAccuracy`: the share of samples for which `y_pred[…, classes]` is largest at the index `y_true[…]`.
/// Among equal elements, the first counts as the largest.
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

/// Keras's `TopKCategoricalAccuracy`: the share of samples whose true class is among the `k` largest predictions (default 5). The
/// true class is the index of the largest element of `y_true[…, classes]`. It is among the `k` largest if fewer than `k` elements
/// of `y_pred[…, classes]` are larger than its own prediction. A sample with a prediction that is not finite never counts.
pub type TopKCategoricalAccuracy = MeanOf<measures::TopKHit>;

/// Keras's `SparseTopKCategoricalAccuracy`: the same as [`TopKCategoricalAccuracy`], with labels `y_true[…]`. A sample whose label
/// is not a class index never counts.
pub type SparseTopKCategoricalAccuracy = MeanOf<measures::SparseTopKHit>;

impl BinaryAccuracy {
    /// Creates the metric with this threshold. A prediction above it counts as 1.
    pub fn threshold(threshold: f64) -> BinaryAccuracy {
        MeanOf::new(measures::BinaryHit { threshold })
    }
}

impl TopKCategoricalAccuracy {
    /// Creates the metric with this `k`: the true class must be among the `k` largest predictions.
    pub fn k(k: u32) -> TopKCategoricalAccuracy {
        MeanOf::new(measures::TopKHit { k })
    }
}

impl SparseTopKCategoricalAccuracy {
    /// Creates the metric with this `k`: the true class must be among the `k` largest predictions.
    pub fn k(k: u32) -> SparseTopKCategoricalAccuracy {
        MeanOf::new(measures::SparseTopKHit { k })
    }
}

pub(super) mod measures {
    //! Measures that are 1 where a prediction is right, and 0 elsewhere.

    use super::super::Measure;
    use crate::base::dtype::DType;
    use crate::base::error::{Error, Result};
    use crate::nn::losses::{alike, same_rank};
    use crate::tensor::Tensor;
    use alloc::vec::Vec;

    /// Measure that is 1 where the prediction equals the label.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Equal;

    impl Measure for Equal {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            let (y_true, y_pred) = same_rank(y_true, y_pred)?;
            y_true.cast(y_pred.dtype())?.equal(&y_pred)?.cast(DType::F32)
        }
    }

    /// Measure that is 1 where the prediction is above a threshold and the label is 1, or is not above it and the label is 0.
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

    /// Measure that is 1 for each sample whose largest prediction has the same class index as its largest label.
    #[derive(Clone, Copy, Debug, Default)]
    pub struct Hit;

    impl Measure for Hit {
        fn values(&self, y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
            y_true.argmax(-1, DType::I32)?.equal(&y_pred.argmax(-1, DType::I32)?)?.cast(DType::F32)
        }
    }

    /// Measure that is 1 for each sample whose label is the class index of the largest prediction.
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

    /// Returns the labels, without a last axis of size 1 that takes the place of the axis of classes in `y_pred`.
    fn labels(y_true: &Tensor, y_pred: &Tensor) -> Result<Tensor> {
        match y_true.dims() {
            [rest @ .., 1] if y_true.dims().len() == y_pred.dims().len() => y_true.reshape(rest),
            _ => Ok(y_true.clone()),
        }
    }

    /// Measure that is 1 where the class of the largest label is among the `k` largest predictions.
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

    /// Measure that is 1 where the label is among the `k` largest predictions.
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

    /// Returns 1 for each sample of which fewer than `k` predictions are larger than the prediction for its label, and 0 for any
    /// other, as in `tf.math.in_top_k`. Samples with an unknown label or a prediction that is not finite get 0.
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
