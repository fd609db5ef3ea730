//! Weights of the source pixels of each pixel of a resized image.

use super::resize::ResizeMethod;
use std::f64::consts::PI;

/// Source pixels of each pixel of a row or column: a start position and consecutive weights.
pub(super) struct Spans {
    starts: Vec<usize>,
    /// Offset of the first weight of each span, followed by the total number of weights.
    bounds: Vec<usize>,
    weights: Vec<f32>,
}

impl Spans {
    /// Computes the spans that resize `from` pixels to `to` pixels.
    pub fn new(method: ResizeMethod, antialias: bool, from: u32, to: u32) -> Spans {
        let mut spans = Spans { starts: Vec::with_capacity(to as usize), bounds: vec![0], weights: Vec::new() };
        let scale = from as f32 / to as f32;
        for at in 0..to {
            match (method, antialias) {
                (ResizeMethod::Nearest, _) => spans.push(nearest(at, scale, from), [1.0]),
                (ResizeMethod::Area, _) => spans.area(at, scale, from),
                (ResizeMethod::Bilinear, false) => {
                    let Between { lower, upper, part } = between(at, scale, from);
                    if upper == lower { spans.push(lower, [1.0]) } else { spans.push(lower, [1.0 - part, part]) }
                }
                (ResizeMethod::Bicubic, false) => spans.bicubic(at, scale, from),
                _ => spans.kernel(&Kernel::of(method), antialias, at, from, to),
            }
        }
        spans
    }

    fn push(&mut self, start: usize, weights: impl IntoIterator<Item = f32>) {
        self.starts.push(start);
        self.weights.extend(weights);
        self.bounds.push(self.weights.len());
    }

    /// Appends a span like [`Spans::push`], with the weights divided by their sum.
    fn push_normal(&mut self, start: usize, weights: impl Iterator<Item = f32> + Clone) {
        let sum: f32 = weights.clone().sum();
        let factor = if sum.abs() >= 1000.0 * f32::MIN_POSITIVE { 1.0 / sum } else { 1.0 };
        self.push(start, weights.map(|weight| weight * factor));
    }

    /// Appends the span of the source pixels between the edges of output pixel `at`. The weight of each is the length between these edges
    /// that it covers, divided by `scale`.
    fn area(&mut self, at: u32, scale: f32, from: u32) {
        let (begin, end) = (at as f32 * scale, (at + 1) as f32 * scale);
        let first = (begin.floor() as usize).min(from as usize - 1);
        let last = (end.ceil() as usize).clamp(first + 1, from as usize);
        let factor = 1.0 / scale;
        let covered = (first..last).map(|pixel| ((pixel as f32 + 1.0).min(end) - (pixel as f32).max(begin)) * factor);
        self.push(first, covered);
    }

    /// Appends the span of output pixel `at` for Keys's cubic kernel with a = -1/2. As in TensorFlow, the position is rounded to 1/1024 of
    /// a pixel, and pixels outside the image are left out.
    fn bicubic(&mut self, at: u32, scale: f32, from: u32) {
        const STEPS: f32 = 1024.0;
        let position = (at as f32 + 0.5) * scale - 0.5;
        let below = position.floor();
        let part = ((position - below) * STEPS).round_ties_even() / STEPS;
        let near = |x: f32| (1.5 * x - 2.5) * x * x + 1.0;
        let far = |x: f32| ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0;
        let weights = [far(part + 1.0), near(part), near(1.0 - part), far(2.0 - part)];
        let first = below as i64 - 1;
        let inside = |&(pixel, _): &(i64, f32)| (0..i64::from(from)).contains(&pixel);
        let taken = (first..).zip(weights).filter(inside).map(|(_, weight)| weight);
        self.push_normal(first.max(0) as usize, taken);
    }

    fn kernel(&mut self, kernel: &Kernel, antialias: bool, at: u32, from: u32, to: u32) {
        let inverse = 1.0 / (to as f32 / from as f32);
        let wide = if antialias { inverse.max(1.0) } else { 1.0 };
        let position = (at as f32 + 0.5) * inverse;
        let reach = kernel.radius * wide;
        let most = i64::from(from) - 1;
        let first = ((position - reach - 0.5).ceil() as i64).clamp(0, most);
        let last = ((position + reach - 0.5).floor() as i64).clamp(0, most);
        let weight = |pixel: i64| (kernel.weight)(((pixel as f32 + 0.5 - position) / wide).abs());
        self.push_normal(first as usize, (first..=last).map(weight));
    }

    /// Returns the number of pixels of the result.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Returns the first source pixel of output pixel `at`, and the weights of that source pixel and the following ones.
    pub fn get(&self, at: usize) -> (usize, &[f32]) {
        (self.starts[at], &self.weights[self.bounds[at]..self.bounds[at + 1]])
    }

    /// Returns the weights as a matrix `[to, from]`.
    pub fn matrix(&self, from: usize) -> Vec<f32> {
        let mut matrix = vec![0.0; self.len() * from];
        for (at, row) in matrix.chunks_exact_mut(from).enumerate() {
            let (start, weights) = self.get(at);
            row[start..start + weights.len()].copy_from_slice(weights);
        }
        matrix
    }
}

/// Pixels on both sides of a position, and the distance of the position from the lower one.
#[derive(Clone, Copy)]
pub(super) struct Between {
    pub lower: usize,
    pub upper: usize,
    pub part: f32,
}

/// Returns the positions of the centres of `to` pixels among `from` pixels.
pub(super) fn all_between(from: u32, to: u32) -> Vec<Between> {
    (0..to).map(|at| between(at, from as f32 / to as f32, from)).collect()
}

/// Returns, for each of `to` pixels, the index of the one of `from` pixels that contains its centre.
pub(super) fn all_nearest(from: u32, to: u32) -> Vec<usize> {
    (0..to).map(|at| nearest(at, from as f32 / to as f32, from)).collect()
}

fn between(at: u32, scale: f32, from: u32) -> Between {
    let position = (at as f32 + 0.5) * scale - 0.5;
    let below = position.floor();
    let upper = (position.ceil().max(0.0) as usize).min(from as usize - 1);
    Between { lower: (below.max(0.0) as usize).min(from as usize - 1), upper, part: position - below }
}

fn nearest(at: u32, scale: f32, from: u32) -> usize {
    (((at as f32 + 0.5) * scale).floor() as usize).min(from as usize - 1)
}

/// Weight of a source pixel as a function of its distance.
struct Kernel {
    radius: f32,
    weight: fn(f32) -> f32,
}

impl Kernel {
    fn of(method: ResizeMethod) -> Kernel {
        match method {
            ResizeMethod::Lanczos3 => Kernel { radius: 3.0, weight: lanczos::<3> },
            ResizeMethod::Lanczos5 => Kernel { radius: 5.0, weight: lanczos::<5> },
            ResizeMethod::Gaussian => Kernel { radius: 1.5, weight: |x| if x >= 1.5 { 0.0 } else { (-2.0 * x * x).exp() } },
            ResizeMethod::MitchellCubic => Kernel { radius: 2.0, weight: mitchell },
            ResizeMethod::Bicubic => Kernel { radius: 2.0, weight: keys },
            _ => Kernel { radius: 1.0, weight: |x| (1.0 - x).max(0.0) },
        }
    }
}

fn lanczos<const RADIUS: u8>(x: f32) -> f32 {
    let (x, radius) = (f64::from(x), f64::from(RADIUS));
    if x > radius {
        0.0
    } else if x <= 1e-3 {
        1.0
    } else {
        (radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x)) as f32
    }
}

fn mitchell(x: f32) -> f32 {
    if x >= 2.0 {
        0.0
    } else if x >= 1.0 {
        ((-7.0 / 18.0 * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0
    } else {
        (7.0 / 6.0 * x - 2.0) * x * x + 8.0 / 9.0
    }
}

fn keys(x: f32) -> f32 {
    if x >= 2.0 {
        0.0
    } else if x >= 1.0 {
        ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    } else {
        (1.5 * x - 2.5) * x * x + 1.0
    }
}
