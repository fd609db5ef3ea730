//! Convolutions and poolings on devices that are not strict. With small integers, each order of the sums gives the same results.

use super::products::{Fast, integers};
use gradlet_core::custom_op::Op;
use gradlet_core::{DType, Result, Shape, Tensor, TensorType, ops};
use gradlet_tests::random::Random;

/// The attributes of a convolution: strides, dilations, the kind of padding and the explicit padding.
type Geometry = [u32; 9];

/// A convolution of images to a result. The ops are the convolution, the gradient of the images and the gradient of the filter.
struct Convolution {
    ops: [&'static Op; 3],
    images: [u32; 4],
    filter: [u32; 4],
    geometry: Geometry,
}

impl Convolution {
    /// Returns the dimensions of the result, or `None` if the window is larger than the padded image.
    fn result(&self) -> Option<Vec<u32>> {
        let types = [self.images, self.filter].map(|dims| Some(TensorType::new(DType::F32, Shape::new(&dims).ok()?)));
        let types = types.into_iter().collect::<Option<Vec<TensorType>>>()?;
        let outputs = self.ops[0].def.output_types(&types, &self.geometry).ok()?;
        Some(outputs[0].shape.dims().to_vec())
    }

    /// Compares the convolution and its gradients with those of the CPU. Returns false if there is no such convolution.
    fn check(&self, gpu: &Fast, random: &mut Random) -> Result<bool> {
        let Some(result) = self.result() else { return Ok(false) };
        let Convolution { ops, images, filter, geometry } = self;
        let [x, weights, dy] = [integers(random, images)?, integers(random, filter)?, integers(random, &result)?];
        let bias = integers(random, &result[3..])?;
        let same = |op: usize, words: &[u32], inputs: &[&Tensor]| -> Result<()> {
            let [wanted, own] = gpu.both(ops[op], words, inputs)?;
            assert!(wanted == own, "{} of {images:?} with {filter:?}, {geometry:?}", ops[op].def.name);
            Ok(())
        };
        same(0, geometry, &[&x, &weights])?;
        same(0, geometry, &[&x, &weights, &bias])?;
        same(1, &[&geometry[..], &images[1..3]].concat(), &[&weights, &dy])?;
        same(2, &[&geometry[..], &filter[..2]].concat(), &[&x, &dy])?;
        Ok(true)
    }
}

/// Returns strides, dilations and padding.
fn geometry(random: &mut Random) -> Geometry {
    let strides = random.pick(&[[1, 1], [1, 1], [1, 1], [2, 2], [2, 2], [2, 1], [1, 3], [3, 3]]);
    let dilations = random.pick(&[[1, 1], [1, 1], [1, 1], [1, 1], [2, 1], [2, 2]]);
    let (padding, pads) = random.pick(&[(0, [0; 4]), (1, [0; 4]), (1, [0; 4]), (2, [1, 0, 2, 1])]);
    [&strides[..], &dilations, &[padding], &pads].concat().try_into().unwrap()
}

#[test]
fn convolutions_of_every_shape() -> Result<()> {
    let mut random = Random::new(7);
    let gpus = Fast::several()?;
    let ops = [&ops::conv2d::OP, &ops::conv2d_input_grad::OP, &ops::conv2d_filter_grad::OP];
    let large = Convolution { ops, images: [2, 11, 9, 6], filter: [3, 3, 6, 128], geometry: [1, 1, 1, 1, 1, 0, 0, 0, 0] };
    assert!(large.check(&gpus[0], &mut random)?);
    for gpu in &gpus {
        let mut rounds = 0;
        while rounds < 16 {
            let [h, w] = [random.range(1, 13), random.range(1, 13)];
            let [kh, kw] = random.pick(&[[1, 1], [3, 3], [3, 3], [2, 3], [5, 1], [5, 5]]);
            let channels = random.pick(&[1, 2, 3, 4, 8, 16, 20, 33, 64]);
            let filters = random.pick(&[1, 3, 4, 16, 17, 32, 36, 70, 130]);
            let images = [random.range(1, 4), h, w, channels];
            let convolution = Convolution { ops, images, filter: [kh, kw, channels, filters], geometry: geometry(&mut random) };
            rounds += u32::from(convolution.check(gpu, &mut random)?);
        }
    }
    Fast::have_run(&gpus, &["convolve_128x128_f32", "convolve_128x64_f32", "convolve_128x32_f32"]);
    Fast::have_run(&gpus, &["filter_grad_128x64_f32", "filter_grad_64x64_f32"]);
    Fast::have_run(&gpus, &["conv2d_f32", "conv2d_input_grad_f32", "conv2d_filter_grad_f32", "gemm_sum_f32_4"]);
    Ok(())
}

#[test]
fn depthwise_convolutions_of_every_shape() -> Result<()> {
    let mut random = Random::new(8);
    let gpus = Fast::several()?;
    for gpu in &gpus {
        let mut rounds = 0;
        while rounds < 15 {
            let [h, w] = [random.range(1, 20), random.range(1, 20)];
            let [kh, kw] = random.pick(&[[3, 3], [3, 3], [3, 3], [2, 3], [5, 5]]);
            let channels = random.pick(&[1, 4, 6, 8, 24, 36, 132]);
            let multiplier = random.pick(&[1, 1, 1, 2]);
            let images = [random.range(1, 4), h, w, channels];
            let ops = [&ops::depthwise_conv2d::OP, &ops::depthwise_conv2d_input_grad::OP, &ops::depthwise_conv2d_filter_grad::OP];
            let convolution = Convolution { ops, images, filter: [kh, kw, channels, multiplier], geometry: geometry(&mut random) };
            rounds += u32::from(convolution.check(gpu, &mut random)?);
        }
    }
    Fast::have_run(&gpus, &["depthwise_3x3_stride_1_f32", "depthwise_3x3_stride_2_f32", "depthwise_3x3_filter_grad_f32"]);
    Fast::have_run(&gpus, &["depthwise_conv2d_f32_4", "depthwise_conv2d_input_grad_f32_4", "depthwise_conv2d_f32", "gemm_sum_f32_4"]);
    Ok(())
}

/// Windows with a maximum that is there twice, and averages of 1, 2 or 4 elements.
#[test]
fn poolings_of_every_shape() -> Result<()> {
    let mut random = Random::new(9);
    let gpu = Fast::new(16, 0)?;
    for _ in 0..40 {
        let images = [random.range(1, 3), random.range(2, 9), random.range(2, 9), random.pick(&[1, 3, 4, 8, 12, 17])];
        let words = [random.range(1, 2), random.range(1, 2), random.range(1, 3), random.range(1, 3), random.range(0, 1)];
        let x = integers(&mut random, &images)?;
        let outputs = ops::max_pool2d::DEF.output_types(&[x.tensor_type()], &words)?;
        let dy = integers(&mut random, outputs[0].shape.dims())?;
        let sized = [&words[..], &images[1..3]].concat();
        let uses: [(&'static Op, &[u32], &[&Tensor]); 5] = [
            (&ops::max_pool2d::OP, &words, &[&x]),
            (&ops::max_pool2d_pick::OP, &words, &[&x, &x]),
            (&ops::max_pool2d_grad::OP, &words, &[&x, &dy]),
            (&ops::avg_pool2d::OP, &words, &[&x]),
            (&ops::avg_pool2d_grad::OP, &sized, &[&dy]),
        ];
        for (op, words, inputs) in uses {
            let [wanted, own] = gpu.both(op, words, inputs)?;
            assert!(wanted == own, "{} of {images:?}, {words:?}", op.def.name);
        }
    }
    Fast::have_run(
        &[gpu],
        &["max_pool2d_f32_4", "max_pool2d_pick_f32", "max_pool2d_grad_f32_4", "avg_pool2d_f32_4", "avg_pool2d_grad_f32_4"],
    );
    Ok(())
}
