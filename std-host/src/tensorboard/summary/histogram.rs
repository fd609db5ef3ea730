//! Histograms of the elements of a tensor.

use gradlet_core::{DType, Error, Result, Tensor};

/// Default number of buckets, as in TensorFlow.
pub(super) const BUCKETS: u32 = 30;
/// Maximum number of buckets. More buckets enlarge the file without showing more detail.
const MOST: u32 = 1 << 20;

/// Computes the histogram of the elements of `values` as TensorBoard stores it: f64 `[buckets, 3]` with the left edge, right edge
/// and count of each bucket.
///
/// The buckets have equal widths and extend from the smallest to the largest element. If all elements are equal, the last bucket
/// counts them. If there are no elements, all values are 0.
pub(super) fn histogram(values: &Tensor, buckets: u32) -> Result<Tensor> {
    if buckets > MOST {
        return Err(Error::message(format!("a histogram can have at most {MOST} buckets, not {buckets}")));
    }
    let rows = match values.cast(DType::F64)?.to_vec::<f64>()?.as_slice() {
        [] => vec![[0.0; 3]; buckets as usize],
        _ if buckets == 0 => Vec::new(),
        values => rows(values, buckets as usize),
    };
    Tensor::new(&crate::compute::devices::cpu(), rows.as_flattened(), &[buckets, 3])
}

fn rows(values: &[f64], buckets: usize) -> Vec<[f64; 3]> {
    // If any element is NaN, the minimum and maximum are NaN, as in TensorFlow.
    let pick =
        |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(|a, b| if a.is_nan() || b.is_nan() { f64::NAN } else { pick(a, b) });
    let (least, greatest) = (pick(f64::min).unwrap_or(0.0), pick(f64::max).unwrap_or(0.0));
    let range = greatest - least;
    if range == 0.0 {
        let mut rows = vec![[least, greatest, 0.0]; buckets];
        rows[buckets - 1][2] = values.len() as f64;
        return rows;
    }
    let step = range / buckets as f64;
    let edge = |index: usize| if index == buckets { greatest } else { least + step * index as f64 };
    let mut rows: Vec<[f64; 3]> = (0..buckets).map(|index| [edge(index), edge(index + 1), 0.0]).collect();
    rows[0][0] = least;
    for value in values {
        let bucket = ((value - least) / step).floor();
        // As in TensorFlow, finite elements are counted even if the edges are not finite.
        if !bucket.is_nan() {
            rows[(bucket as usize).min(buckets - 1)][2] += 1.0;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[f32], buckets: u32) -> Vec<f64> {
        let values = Tensor::new(&crate::compute::devices::cpu(), values, &[values.len() as u32]).unwrap();
        histogram(&values, buckets).unwrap().to_vec().unwrap()
    }

    #[test]
    fn every_element_is_counted_once() {
        assert_eq!(of(&[0.0, 1.0, 2.0, 4.0], 2), [0.0, 2.0, 2.0, 2.0, 4.0, 2.0]);
        assert_eq!(of(&[3.0, 3.0], 2), [3.0, 3.0, 0.0, 3.0, 3.0, 2.0]);
        assert_eq!(of(&[], 1), [0.0, 0.0, 0.0]);
        assert_eq!(of(&[1.0], 0), [0.0; 0]);
    }

    #[test]
    fn numbers_that_are_not_finite_are_not_counted() {
        assert!(of(&[1.0, f32::NAN], 1)[..2].iter().all(|edge| edge.is_nan()));
        assert_eq!(of(&[1.0, 2.0, f32::INFINITY], 2), [1.0, f64::INFINITY, 2.0, f64::INFINITY, f64::INFINITY, 0.0]);
    }
}
