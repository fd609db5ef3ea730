//! Initial values of variables: Keras's initializers.

use crate::base::error::{Error, Result};
use crate::base::random::{Stream, unit};
use crate::base::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::scope::Scope;
use alloc::format;
use alloc::vec::Vec;

/// Initializer: computes the initial value of a variable. A random initializer draws from the scope's random numbers, or
/// from its own generator if it has a seed.
///
/// Fans are defined as in Keras. For a kernel `[…, in, out]`, `fan_in` is the size of the window times `in`, and `fan_out` is the
/// size of the window times `out`.
///
/// ```
/// use gradlet_core::layers::{Dense, Initializer};
/// let layer = Dense::new(10).kernel_initializer(Initializer::he_normal().seed(42)).bias_initializer(Initializer::constant(0.1));
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Initializer {
    kind: Kind,
    seed: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Constant(f32),
    Uniform {
        min: f32,
        max: f32,
    },
    Normal {
        mean: f32,
        stddev: f32,
        truncated: bool,
    },
    /// Random numbers with a mean of 0 and the variance `scale / fan`. `over` chooses the fan: `fan_in`, or the mean of `fan_in`
    /// and `fan_out`.
    Scaled {
        scale: f32,
        over: Fans,
        normal: bool,
    },
    Orthogonal {
        gain: f32,
    },
    Identity {
        gain: f32,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fans {
    In,
    Average,
}

/// Standard deviation of a standard normal distribution that is truncated at two standard deviations.
const TRUNCATED: f32 = 0.879_625_6;

impl Initializer {
    const fn new(kind: Kind) -> Initializer {
        Initializer { kind, seed: None }
    }

    /// Sets a seed for the random numbers. Each variable that this initializer creates then has the same values.
    pub const fn seed(self, seed: u64) -> Initializer {
        Initializer { seed: Some(seed), ..self }
    }

    /// Returns the initializer that fills with 0.
    pub const fn zeros() -> Initializer {
        Initializer::constant(0.0)
    }

    /// Returns the initializer that fills with 1.
    pub const fn ones() -> Initializer {
        Initializer::constant(1.0)
    }

    /// Returns the initializer that fills with `value`.
    pub const fn constant(value: f32) -> Initializer {
        Initializer::new(Kind::Constant(value))
    }

    /// Returns the initializer that draws from the uniform distribution from `min` to below `max`. Keras's defaults are -0.05 and 0.05.
    pub const fn random_uniform(min: f32, max: f32) -> Initializer {
        Initializer::new(Kind::Uniform { min, max })
    }

    /// Returns the initializer that draws from the normal distribution. Keras's defaults are a mean of 0 and a standard deviation of 0.05.
    pub const fn random_normal(mean: f32, stddev: f32) -> Initializer {
        Initializer::new(Kind::Normal { mean, stddev, truncated: false })
    }

    /// Returns the initializer that draws from the truncated normal distribution: values more than two standard deviations from the
    /// mean are drawn again. Keras's defaults are a mean of 0 and a standard deviation of 0.05.
    pub const fn truncated_normal(mean: f32, stddev: f32) -> Initializer {
        Initializer::new(Kind::Normal { mean, stddev, truncated: true })
    }

    const fn scaled(scale: f32, over: Fans, normal: bool) -> Initializer {
        Initializer::new(Kind::Scaled { scale, over, normal })
    }

    /// Returns the initializer that draws from the uniform distribution between ±√(6 / (fan_in + fan_out)).
    pub const fn glorot_uniform() -> Initializer {
        Initializer::scaled(1.0, Fans::Average, false)
    }

    /// Returns the initializer that draws from the truncated normal distribution with a standard deviation of √(2 / (fan_in + fan_out)).
    pub const fn glorot_normal() -> Initializer {
        Initializer::scaled(1.0, Fans::Average, true)
    }

    /// Returns the initializer that draws from the uniform distribution between ±√(6 / fan_in).
    pub const fn he_uniform() -> Initializer {
        Initializer::scaled(2.0, Fans::In, false)
    }

    /// Returns the initializer that draws from the truncated normal distribution with a standard deviation of √(2 / fan_in).
    pub const fn he_normal() -> Initializer {
        Initializer::scaled(2.0, Fans::In, true)
    }

    /// Returns the initializer that draws from the uniform distribution between ±√(3 / fan_in).
    pub const fn lecun_uniform() -> Initializer {
        Initializer::scaled(1.0, Fans::In, false)
    }

    /// Returns the initializer that draws from the truncated normal distribution with a standard deviation of √(1 / fan_in).
    pub const fn lecun_normal() -> Initializer {
        Initializer::scaled(1.0, Fans::In, true)
    }

    /// Returns the initializer for `gain` times a random orthogonal matrix. The matrix has the shape
    /// `[product of all axes but the last, last axis]`. Its columns are orthonormal, or its rows if it has fewer rows than columns.
    /// [`Initializer::call`] fails below rank 2.
    pub const fn orthogonal(gain: f32) -> Initializer {
        Initializer::new(Kind::Orthogonal { gain })
    }

    /// Returns the initializer for `gain` times the identity matrix. [`Initializer::call`] fails if the rank is not 2.
    pub const fn identity(gain: f32) -> Initializer {
        Initializer::new(Kind::Identity { gain })
    }

    /// Computes the initial value of a variable with the dimensions `dims`, on the scope's device. Its element type is the variable dtype
    /// of the scope's policy, which is f32 by default.
    pub fn call(&self, scope: &dyn Scope, dims: &[u32]) -> Result<Tensor> {
        self.values(scope, dims)?.cast(scope.dtype_policy().variable_dtype())
    }

    fn values(&self, scope: &dyn Scope, dims: &[u32]) -> Result<Tensor> {
        let count = Shape::new(dims)?.elements().ok_or(Error::TooLarge)?;
        let stream = || match self.seed {
            Some(key) => Ok(Stream { key, stream: 0 }),
            None => scope.next_stream(),
        };
        let elements = match self.kind {
            Kind::Constant(value) => return Tensor::full(&scope.device(), value, dims),
            Kind::Uniform { min, max } => uniform(stream()?, count, min, max),
            Kind::Normal { mean, stddev, truncated } => normal(stream()?, count, mean, stddev, truncated),
            Kind::Scaled { scale, over, normal: false } => {
                let limit = libm::sqrtf(3.0 * scale / fans(dims, over));
                uniform(stream()?, count, -limit, limit)
            }
            Kind::Scaled { scale, over, normal: true } => {
                normal(stream()?, count, 0.0, libm::sqrtf(scale / fans(dims, over)) / TRUNCATED, true)
            }
            Kind::Orthogonal { gain } => orthogonal(stream()?, dims, gain)?,
            Kind::Identity { gain } => {
                let &[_, columns] = dims else {
                    return Err(Error::message(format!("an identity matrix has two axes, but the dimensions are {dims:?}")));
                };
                let diagonal = |at: usize| if at / columns as usize == at % columns as usize { gain } else { 0.0 };
                (0..count).map(diagonal).collect()
            }
        };
        Tensor::new(&scope.device(), &elements, dims)
    }
}

/// Returns the fan that `over` chooses for a kernel of dimensions `dims`: `fan_in`, or the mean of `fan_in` and `fan_out`. It is at
/// least 1.
fn fans(dims: &[u32], over: Fans) -> f32 {
    let (fan_in, fan_out) = match dims {
        [] => (1, 1),
        &[one] => (u64::from(one), u64::from(one)),
        [window @ .., inward, outward] => {
            let size = window.iter().fold(1u64, |size, &dim| size.saturating_mul(dim.into()));
            (size.saturating_mul((*inward).into()), size.saturating_mul((*outward).into()))
        }
    };
    let fans = match over {
        Fans::In => fan_in as f32,
        Fans::Average => fan_in.saturating_add(fan_out) as f32 / 2.0,
    };
    if fans < 1.0 { 1.0 } else { fans }
}

fn uniform(stream: Stream, count: usize, min: f32, max: f32) -> Vec<f32> {
    let (middle, half) = ((min + max) / 2.0, (max - min) / 2.0);
    stream.uniform(count).iter().map(|x| (2.0 * x - 1.0) * half + middle).collect()
}

/// Returns an infinite sequence of standard normal numbers, by the Box-Muller transform.
fn normals(stream: Stream) -> impl Iterator<Item = f64> {
    (0..).flat_map(move |index| {
        let [a, b, c, d] = stream.block(index).map(|word| f64::from(unit(word)));
        let pair = |a: f64, b: f64| {
            let (radius, angle) = (libm::sqrt(-2.0 * libm::log(1.0 - a)), core::f64::consts::TAU * b);
            [radius * libm::cos(angle), radius * libm::sin(angle)]
        };
        pair(a, b).into_iter().chain(pair(c, d))
    })
}

fn normal(stream: Stream, count: usize, mean: f32, stddev: f32, truncated: bool) -> Vec<f32> {
    let kept = normals(stream).filter(|x| !truncated || (-2.0..=2.0).contains(x));
    kept.take(count).map(|x| mean + stddev * x as f32).collect()
}

/// Returns a random orthogonal matrix times `gain`, from normally distributed vectors and the Gram-Schmidt method. The matrix is
/// the Q of a QR decomposition whose R has a positive diagonal.
fn orthogonal(stream: Stream, dims: &[u32], gain: f32) -> Result<Vec<f32>> {
    let [rows @ .., columns] = dims else { return Err(orthogonal_rank(dims)) };
    if rows.is_empty() {
        return Err(orthogonal_rank(dims));
    }
    let (rows, columns) = (Shape::new(rows)?.elements().ok_or(Error::TooLarge)?, *columns as usize);
    let (length, count) = (rows.max(columns), rows.min(columns));
    let mut numbers = normals(stream);
    let mut basis: Vec<Vec<f64>> = Vec::new();
    while basis.len() < count {
        let mut vector: Vec<f64> = numbers.by_ref().take(length).collect();
        // Twice, because rounding leaves an error after the first pass.
        for other in basis.iter().chain(&basis) {
            let along: f64 = vector.iter().zip(other).map(|(x, y)| x * y).sum();
            vector.iter_mut().zip(other).for_each(|(x, y)| *x -= along * y);
        }
        let norm = libm::sqrt(vector.iter().map(|x| x * x).sum());
        if norm > 1e-6 {
            vector.iter_mut().for_each(|x| *x /= norm);
            basis.push(vector);
        }
    }
    let element = |row: usize, column: usize| if rows >= columns { basis[column][row] } else { basis[row][column] };
    Ok((0..rows * columns).map(|at| gain * element(at / columns, at % columns) as f32).collect())
}

fn orthogonal_rank(dims: &[u32]) -> Error {
    Error::message(format!("an orthogonal matrix has at least two axes, but the dimensions are {dims:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;
    use crate::trace::eager::Eager;

    fn values(initializer: Initializer, dims: &[u32]) -> Vec<f32> {
        initializer.call(&Eager::new(&ops::portable_cpu()), dims).unwrap().to_vec().unwrap()
    }

    /// Returns the mean, the standard deviation and the greatest absolute value of `values`.
    fn spread(values: &[f32]) -> [f32; 3] {
        let count = values.len() as f32;
        let mean = values.iter().sum::<f32>() / count;
        let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f32>() / count;
        [mean, libm::sqrtf(variance), values.iter().fold(0.0, |most, x| x.abs().max(most))]
    }

    /// Checks Keras's formulas for a kernel of 9 taps, 40 inputs and 60 outputs: the standard deviation and the greatest absolute
    /// value.
    #[test]
    fn distributions_are_those_of_keras() {
        let dims = [3, 3, 40, 60];
        let normal = |deviation: f32| (deviation, 2.0 * deviation / TRUNCATED);
        let even = |limit: f32| (limit / libm::sqrtf(3.0), limit);
        let table = [
            (Initializer::random_uniform(-0.05, 0.05), even(0.05)),
            (Initializer::random_normal(0.0, 0.05), (0.05, 0.3)),
            (Initializer::truncated_normal(0.0, 0.05), (0.05 * TRUNCATED, 0.1)),
            (Initializer::glorot_uniform(), even(libm::sqrtf(6.0 / 900.0))),
            (Initializer::glorot_normal(), normal(libm::sqrtf(2.0 / 900.0))),
            (Initializer::he_uniform(), even(libm::sqrtf(6.0 / 360.0))),
            (Initializer::he_normal(), normal(libm::sqrtf(2.0 / 360.0))),
            (Initializer::lecun_uniform(), even(libm::sqrtf(3.0 / 360.0))),
            (Initializer::lecun_normal(), normal(libm::sqrtf(1.0 / 360.0))),
        ];
        for (initializer, (deviation, most)) in table {
            let [mean, got, greatest] = spread(&values(initializer, &dims));
            assert!(mean.abs() < 0.02 * deviation && (got / deviation - 1.0).abs() < 0.02, "{initializer:?}: {mean} {got}");
            assert!(greatest <= most * 1.000_001 && greatest > 0.66 * most, "{initializer:?}: {greatest}");
        }
        assert_eq!(spread(&values(Initializer::random_uniform(2.0, 2.0), &[3])), [2.0, 0.0, 2.0]);
    }

    #[test]
    fn a_seed_of_its_own_gives_the_same_numbers_each_time() {
        let scope = Eager::new(&ops::portable_cpu());
        let draw = |initializer: Initializer| initializer.call(&scope, &[4, 4]).unwrap().to_vec::<f32>().unwrap();
        assert_ne!(draw(Initializer::he_normal()), draw(Initializer::he_normal()));
        assert_eq!(draw(Initializer::he_normal().seed(1)), draw(Initializer::he_normal().seed(1)));
        assert_ne!(draw(Initializer::he_normal().seed(1)), draw(Initializer::he_normal().seed(2)));
    }

    #[test]
    fn orthogonal_matrices_have_orthonormal_rows_or_columns() {
        for (dims, rows, columns) in [(&[5u32, 3][..], 5, 3), (&[3, 7], 3, 7), (&[2, 3, 4], 6, 4), (&[4, 4], 4, 4)] {
            let matrix = values(Initializer::orthogonal(2.0), dims);
            let at = |vector: usize, place: usize| {
                if rows >= columns { matrix[place * columns + vector] } else { matrix[vector * columns + place] }
            };
            for one in 0..rows.min(columns) {
                for other in 0..rows.min(columns) {
                    let product: f32 = (0..rows.max(columns)).map(|place| at(one, place) * at(other, place)).sum();
                    assert!((product - if one == other { 4.0 } else { 0.0 }).abs() < 1e-5, "{dims:?}: {product}");
                }
            }
        }
    }

    #[test]
    fn identities_and_constants() {
        assert_eq!(values(Initializer::identity(3.0), &[2, 3]), [3.0, 0.0, 0.0, 0.0, 3.0, 0.0]);
        assert_eq!(values(Initializer::ones(), &[2]), [1.0; 2]);
        assert_eq!(values(Initializer::zeros(), &[0]), [0.0; 0]);
        let scope = Eager::new(&ops::portable_cpu());
        assert!(Initializer::identity(1.0).call(&scope, &[2]).is_err() && Initializer::orthogonal(1.0).call(&scope, &[2]).is_err());
    }
}
