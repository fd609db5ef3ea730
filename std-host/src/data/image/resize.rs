//! Resizing of images.

use super::sampling::{Between, Spans, all_between, all_nearest};
use super::{pad_to_bounding_box, rows_axis, sides};
use bytemuck::Pod;
use gradlet_core::autodiff::custom_gradient;
use gradlet_core::custom_op::Backward;
use gradlet_core::ops::resize::Resize;
use gradlet_core::{DType, Error, Result, Shape, Tensor, TensorType};

/// Interpolation method of [`resize`]. Equivalent of `tf.image.ResizeMethod`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResizeMethod {
    /// Linear interpolation between the four surrounding pixels.
    #[default]
    Bilinear,
    /// Value of the nearest pixel. Keeps the element type, which may be any number type.
    Nearest,
    /// Cubic interpolation of the sixteen surrounding pixels, with Keys's kernel.
    Bicubic,
    /// Mean of the source pixels that the output pixel covers.
    Area,
    /// Lanczos kernel of radius 3.
    Lanczos3,
    /// Lanczos kernel of radius 5.
    Lanczos5,
    /// Gaussian kernel of radius 1.5 and standard deviation 0.5.
    Gaussian,
    /// Cubic kernel of Mitchell and Netravali.
    MitchellCubic,
}

/// Options of [`resize`]. A [`ResizeMethod`] converts to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResizeOptions {
    method: ResizeMethod,
    antialias: bool,
    preserve_aspect_ratio: bool,
}

impl ResizeOptions {
    /// Creates options with this method, without antialiasing, and without preserving the aspect ratio.
    pub fn new(method: ResizeMethod) -> ResizeOptions {
        ResizeOptions { method, ..ResizeOptions::default() }
    }

    /// If true, the kernel grows when an image becomes smaller, so that every source pixel contributes. Has no effect on `Nearest` and
    /// `Area`.
    pub fn antialias(self, antialias: bool) -> ResizeOptions {
        ResizeOptions { antialias, ..self }
    }

    /// If true, the size is an upper bound, and the result keeps the aspect ratio of the image.
    pub fn preserve_aspect_ratio(self, preserve_aspect_ratio: bool) -> ResizeOptions {
        ResizeOptions { preserve_aspect_ratio, ..self }
    }
}

impl From<ResizeMethod> for ResizeOptions {
    fn from(method: ResizeMethod) -> ResizeOptions {
        ResizeOptions::new(method)
    }
}

/// Resizes images of any number type to `size` rows and columns. Images are `[h,w,c]` or `[n,h,w,c]`. The result is f32, except for
/// `Nearest`, which keeps the type.
///
/// The centres of pixels are at half-integer positions. Equivalent of `tf.image.resize`. Bilinear and nearest results match TensorFlow's
/// bit for bit. Works in tapes, with gradients, and in traces.
///
/// Fails for other ranks and bool, and if a side is 0.
///
/// ```
/// use gradlet::image::{ResizeMethod, ResizeOptions, resize};
/// use gradlet::Tensor;
/// let x = Tensor::new(&gradlet::cpu(), &[0u8, 4, 8, 12], &[1, 4, 1])?;
/// assert_eq!(resize(&x, [1, 2], ResizeMethod::Bilinear)?.to_vec::<f32>()?, [2.0, 10.0]);
/// assert_eq!(resize(&x, [1, 2], ResizeMethod::Nearest)?.to_vec::<u8>()?, [4, 12]);
/// let smooth = ResizeOptions::new(ResizeMethod::Bilinear).antialias(true);
/// assert_eq!(resize(&x, [1, 1], smooth)?.to_vec::<f32>()?, [6.0]);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn resize(images: &Tensor, size: [u32; 2], options: impl Into<ResizeOptions>) -> Result<Tensor> {
    let options = options.into();
    let from = sides(images)?;
    let to = if options.preserve_aspect_ratio { within(from, size) } else { size };
    if from.contains(&0) || to.contains(&0) || images.dtype() == DType::Bool {
        return Err(Error::message(format!("{} cannot be resized to {to:?}: a side is 0, or the type is bool", images.tensor_type())));
    }
    let axis = rows_axis(images)?;
    let mut dims = images.dims().to_vec();
    let batch = if axis == 0 { images.expand_dims(0)? } else { images.clone() };
    let batch = match batch.dtype() {
        DType::U8 | DType::F32 => batch,
        _ if options.method == ResizeMethod::Nearest => batch,
        _ => batch.cast(DType::F32)?,
    };
    let plan = Plan { from, to, method: options.method, antialias: options.antialias };
    let forward = move |x: &[&Tensor]| Ok(vec![plan.apply(x[0])?]);
    let backward = move |of: &Backward<'_>| Ok([of.if_wanted(0, || plan.gradient(of.dy()?))?].into_iter().collect());
    let resized = custom_gradient(&[&batch], forward, backward)?.pop().ok_or(Error::Arity { got: 0 })?;
    dims[axis..axis + 2].copy_from_slice(&to);
    resized.reshape(&dims)
}

/// Resizes images to fit in `size` without changing the aspect ratio, and pads them with zeros on both sides to that size. Equivalent of
/// `tf.image.resize_with_pad`. Fails in the same cases as [`resize`].
pub fn resize_with_pad(images: &Tensor, size: [u32; 2], options: impl Into<ResizeOptions>) -> Result<Tensor> {
    let from = sides(images)?.map(|side| side as f32);
    let to = size.map(|side| side as f32);
    let ratio = (from[1] / to[1]).max(from[0] / to[0]);
    let fitting = from.map(|side| side / ratio);
    let resized =
        resize(images, fitting.map(|side| side.floor() as u32), ResizeOptions { preserve_aspect_ratio: false, ..options.into() })?;
    let offset = [0, 1].map(|axis| ((to[axis] - fitting[axis]) / 2.0).floor().max(0.0) as u32);
    pad_to_bounding_box(&resized, offset, size)
}

/// Returns the largest size within `size` that has the aspect ratio of `from`.
fn within(from: [u32; 2], size: [u32; 2]) -> [u32; 2] {
    let scale = (size[0] as f32 / from[0] as f32).min(size[1] as f32 / from[1] as f32);
    from.map(|side| (scale * side as f32).round_ties_even() as u32)
}

/// Parameters for resizing images `[n,h,w,c]` to `[n,height,width,c]`.
#[derive(Clone, Copy)]
struct Plan {
    from: [u32; 2],
    to: [u32; 2],
    method: ResizeMethod,
    antialias: bool,
}

impl Plan {
    fn apply(&self, images: &Tensor) -> Result<Tensor> {
        let simple = matches!(self.method, ResizeMethod::Bilinear | ResizeMethod::Nearest) && !self.antialias;
        match images.bytes() {
            Ok(bytes) if self.method == ResizeMethod::Nearest => self.pick(images, &bytes),
            Ok(bytes) if images.dtype() == DType::U8 => self.blend::<u8>(images, &bytes),
            Ok(bytes) => self.blend::<f32>(images, bytemuck::cast_slice(&bytes)),
            // The images have no bytes, because they are part of a trace.
            Err(_) if self.method == ResizeMethod::Nearest => images.resize(self.to, Resize::Nearest),
            Err(_) if simple => images.cast(DType::F32)?.resize(self.to, Resize::Bilinear),
            Err(_) => self.weigh(&images.cast(DType::F32)?, false),
        }
    }

    fn gradient(&self, dy: &Tensor) -> Result<Tensor> {
        self.weigh(dy, true)
    }

    fn spans(&self, axis: usize) -> Spans {
        Spans::new(self.method, self.antialias, self.from[axis], self.to[axis])
    }

    /// Resizes with matrix products, which have gradients: first along the rows axis, then along the columns axis. If `transpose` is true,
    /// applies the transposed operation, which computes the gradient.
    fn weigh(&self, images: &Tensor, transpose: bool) -> Result<Tensor> {
        let &[n, h, w, c] = images.dims() else { return Err(Error::Rank { input: 0 }) };
        let matrix = |axis: usize| {
            let dims = [self.to[axis], self.from[axis]];
            Tensor::new(&images.device()?, &self.spans(axis).matrix(dims[1] as usize), &dims)?.cast(images.dtype())
        };
        let [height, width] = if transpose { self.from } else { self.to };
        let rows = matrix(0)?.matmul_with(&images.transpose(&[1, 0, 2, 3])?.reshape(&[h, n * w * c])?, transpose, false)?;
        let columns = rows.reshape(&[height, n, w, c])?.transpose(&[2, 1, 0, 3])?.reshape(&[w, n * height * c])?;
        matrix(1)?.matmul_with(&columns, transpose, false)?.reshape(&[width, n, height, c])?.transpose(&[1, 2, 0, 3])
    }

    fn output(&self, images: &Tensor, dtype: DType) -> Result<TensorType> {
        let &[n, _, _, c] = images.dims() else { return Err(Error::Rank { input: 0 }) };
        Ok(TensorType::new(dtype, Shape::new(&[n, self.to[0], self.to[1], c])?))
    }

    /// Resizes by copying the nearest source pixel to each pixel of the result.
    fn pick(&self, images: &Tensor, bytes: &[u8]) -> Result<Tensor> {
        let tensor_type = self.output(images, images.dtype())?;
        let pixel = images.dims()[3] as usize * images.dtype().size();
        let [rows, columns] = [0, 1].map(|axis| all_nearest(self.from[axis], self.to[axis]));
        let row_bytes = self.from[1] as usize * pixel;
        Tensor::written(&images.device()?, tensor_type, |picked| {
            let mut slots = picked.chunks_exact_mut(pixel.max(1));
            for image in bytes.chunks_exact((self.from[0] as usize * row_bytes).max(1)) {
                for &row in &rows {
                    let row = &image[row * row_bytes..][..row_bytes];
                    let pixels = columns.iter().map(|&column| &row[column * pixel..][..pixel]);
                    pixels.zip(slots.by_ref()).for_each(|(pixel, slot)| slot.copy_from_slice(pixel));
                }
            }
            Ok(())
        })
    }

    fn blend<T: Sample>(&self, images: &Tensor, samples: &[T]) -> Result<Tensor> {
        let tensor_type = self.output(images, DType::F32)?;
        let channels = images.dims()[3] as usize;
        let width = self.from[1] as usize;
        let simple = self.method == ResizeMethod::Bilinear && !self.antialias;
        let blend_one: Box<Blend<T>> = if simple {
            let [rows, columns] = [0, 1].map(|axis| all_between(self.from[axis], self.to[axis]));
            Box::new(move |from, to| bilinear(from, to, width * channels, &rows, &columns))
        } else {
            let (rows, columns) = (self.spans(0), self.spans(1));
            Box::new(move |from, to| weighted(from, to, [width, channels], &rows, &columns))
        };
        Tensor::written(&images.device()?, tensor_type, |bytes| {
            let [from, to] = [self.from, self.to].map(|sides| (sides[0] as usize * sides[1] as usize * channels).max(1));
            let pairs = samples.chunks_exact(from).zip(bytemuck::cast_slice_mut(bytes).chunks_exact_mut(to));
            pairs.for_each(|(from, to)| blend_one(from, to));
            Ok(())
        })
    }
}

/// Function that computes a resized image from an image.
type Blend<T> = dyn Fn(&[T], &mut [f32]);

/// Element type of the source pixels.
trait Sample: Pod {
    fn float(self) -> f32;

    /// Returns a row as floats: the row itself, or its conversion in `wide`.
    fn floats<'a>(row: &'a [Self], wide: &'a mut Vec<f32>) -> &'a [f32] {
        wide.clear();
        wide.extend(row.iter().map(|sample| sample.float()));
        wide
    }
}

impl Sample for u8 {
    #[inline(always)]
    fn float(self) -> f32 {
        self.into()
    }
}

impl Sample for f32 {
    #[inline(always)]
    fn float(self) -> f32 {
        self
    }

    fn floats<'a>(row: &'a [f32], _: &'a mut Vec<f32>) -> &'a [f32] {
        row
    }
}

/// Interpolates along columns first and then along rows, to round as TensorFlow does. Interpolated rows are kept for the next output rows
/// that need them.
fn bilinear<T: Sample>(from: &[T], to: &mut [f32], stride: usize, rows: &[Between], columns: &[Between]) {
    let width = to.len() / rows.len();
    let mut wide = Vec::with_capacity(stride);
    let mut made = [(usize::MAX, vec![0f32; width]), (usize::MAX, vec![0f32; width])];
    for (out, &Between { lower, upper, part }) in to.chunks_exact_mut(width).zip(rows) {
        if made[0].0 != lower {
            made.swap(0, 1);
        }
        for (slot, row) in made.iter_mut().zip([lower, upper]) {
            if slot.0 != row {
                along(T::floats(&from[row * stride..][..stride], &mut wide), &mut slot.1, columns);
                slot.0 = row;
            }
        }
        for ((out, &a), &b) in out.iter_mut().zip(&made[0].1).zip(&made[1].1) {
            *out = a + (b - a) * part;
        }
    }
}

fn along(row: &[f32], out: &mut [f32], columns: &[Between]) {
    match out.len() / columns.len() {
        1 => along_of::<1>(row, out, columns),
        3 => along_of::<3>(row, out, columns),
        4 => along_of::<4>(row, out, columns),
        channels => {
            for (out, &Between { lower, upper, part }) in out.chunks_exact_mut(channels).zip(columns) {
                let (a, b) = (&row[lower * channels..][..channels], &row[upper * channels..][..channels]);
                out.iter_mut().zip(a.iter().zip(b)).for_each(|(out, (a, b))| *out = a + (b - a) * part);
            }
        }
    }
}

fn along_of<const CHANNELS: usize>(row: &[f32], out: &mut [f32], columns: &[Between]) {
    let pixels = row.as_chunks::<CHANNELS>().0;
    for (out, &Between { lower, upper, part }) in out.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(columns) {
        let (a, b) = (&pixels[lower], &pixels[upper]);
        *out = std::array::from_fn(|channel| a[channel] + (b[channel] - a[channel]) * part);
    }
}

/// Sums whole weighted rows first, then weights along the columns.
fn weighted<T: Sample>(from: &[T], to: &mut [f32], [from_width, channels]: [usize; 2], rows: &Spans, columns: &Spans) {
    let stride = from_width * channels;
    let mut sum = vec![0f32; stride];
    for (at, out) in to.chunks_exact_mut(columns.len() * channels).enumerate() {
        let (start, weights) = rows.get(at);
        sum.fill(0.0);
        for (row, &weight) in from[start * stride..].chunks_exact(stride).zip(weights) {
            sum.iter_mut().zip(row).for_each(|(sum, sample)| *sum += sample.float() * weight);
        }
        for (at, out) in out.chunks_exact_mut(channels).enumerate() {
            let (start, weights) = columns.get(at);
            out.fill(0.0);
            for (pixel, &weight) in sum[start * channels..].chunks_exact(channels).zip(weights) {
                out.iter_mut().zip(pixel).for_each(|(out, &sample)| *out += sample * weight);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradlet_core::{Differentiate, Eager, Function, Scope};

    const METHODS: [ResizeMethod; 8] = [
        ResizeMethod::Bilinear,
        ResizeMethod::Nearest,
        ResizeMethod::Bicubic,
        ResizeMethod::Area,
        ResizeMethod::Lanczos3,
        ResizeMethod::Lanczos5,
        ResizeMethod::Gaussian,
        ResizeMethod::MitchellCubic,
    ];

    fn images(dims: &[u32]) -> Tensor {
        let values: Vec<f32> = (0..dims.iter().product()).map(|x: u32| (x * x % 17) as f32).collect();
        Tensor::new(&crate::compute::devices::cpu(), &values, dims).unwrap()
    }

    fn close(a: &Tensor, b: &Tensor) -> bool {
        let (a, b) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4)
    }

    /// A trace returns the same result as eager execution.
    #[test]
    fn traces() {
        let scope = Eager::new(&crate::compute::devices::cpu());
        let x = images(&[2, 5, 4, 3]);
        for method in METHODS {
            for options in [ResizeOptions::new(method), ResizeOptions::new(method).antialias(true)] {
                let function = Function::new(move |_: &dyn Scope, x: Tensor| resize(&x, [3, 7], options));
                assert!(close(&function.call(&scope, x.clone()).unwrap(), &resize(&x, [3, 7], options).unwrap()), "{options:?}");
            }
        }
    }

    /// Resizing is linear, so the gradient is exactly the change of the loss for a unit change of each pixel.
    #[test]
    fn gradients() {
        let weights = images(&[4, 5, 2]);
        let loss = |x: &Tensor, options| resize(x, [4, 5], options)?.mul(&weights)?.sum(&[], false);
        for method in METHODS {
            let options = ResizeOptions::new(method).antialias(method == ResizeMethod::Bicubic);
            let tape = Eager::new(&crate::compute::devices::cpu()).tape();
            let x = tape.watch(&images(&[6, 3, 2])).unwrap();
            let gradient = tape.gradient(&loss(&x, options).unwrap(), &x).unwrap().unwrap();
            let change = |pixel: usize| {
                let mut one = vec![0f32; 36];
                one[pixel] = 1.0;
                loss(&Tensor::new(&crate::compute::devices::cpu(), &one, &[6, 3, 2]).unwrap(), options).unwrap().item::<f32>().unwrap()
            };
            let want = Tensor::new(&crate::compute::devices::cpu(), &(0..36).map(change).collect::<Vec<_>>(), &[6, 3, 2]).unwrap();
            assert!(close(&gradient, &want), "{method:?}");
        }
    }
}
