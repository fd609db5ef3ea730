//! Gradient tests of matrix products, convolutions, pooling and losses.

use super::{Maker, Trial};
use gradlet_core::custom_op::Op;
use gradlet_core::ops::conv2d::{Conv2DOptions, Padding};
use gradlet_core::{Eager, Scope, Tensor, ops};

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "matmul" => maker.matmul(),
        "dense" => maker.dense(),
        "conv2d" => maker.conv2d(),
        "conv2d_input_grad" => maker.conv2d_input_grad(),
        "conv2d_filter_grad" => maker.conv2d_filter_grad(),
        "depthwise_conv2d" => maker.depthwise_conv2d(),
        "depthwise_conv2d_input_grad" => maker.depthwise_conv2d_input_grad(),
        "depthwise_conv2d_filter_grad" => maker.depthwise_conv2d_filter_grad(),
        "max_pool2d" => maker.pooling(&ops::max_pool2d::OP),
        "max_pool2d_grad" => maker.max_pool2d_grad(),
        "max_pool2d_pick" => maker.max_pool2d_pick(),
        "avg_pool2d" => maker.pooling(&ops::avg_pool2d::OP),
        "avg_pool2d_grad" => maker.avg_pool2d_grad(),
        "softmax" => maker.along_axis(Tensor::softmax),
        "log_softmax" => maker.along_axis(Tensor::log_softmax),
        "sparse_softmax_cross_entropy" => {
            let (logits, labels, _) = maker.cross_entropy();
            Trial::new(vec![logits, labels], |x| x[0].sparse_softmax_cross_entropy(&x[1]))
        }
        "sparse_softmax_cross_entropy_grad" => {
            let (logits, labels, dloss) = maker.cross_entropy();
            Trial::new(vec![logits, labels, dloss], |x| x[0].sparse_softmax_cross_entropy_grad(&x[1], &x[2]))
        }
        _ => return None,
    })
}

impl Maker {
    fn matmul(&mut self) -> Trial {
        let [m, k, n] = [(); 3].map(|()| self.random.range(1, 4));
        let (transpose_a, transpose_b) = (self.random.coin(), self.random.coin());
        let batch = self.dims((0, 2), 3);
        let (mut a, mut b) = (self.operand(&batch), self.operand(&batch));
        a.extend(if transpose_a { [k, m] } else { [m, k] });
        b.extend(if transpose_b { [n, k] } else { [k, n] });
        let inputs = vec![self.tensor(&a), self.tensor(&b)];
        Trial::new(inputs, move |x| x[0].matmul_with(&x[1], transpose_a, transpose_b))
    }

    fn dense(&mut self) -> Trial {
        let (mut dims, n) = (self.dims((1, 3), 4), self.random.range(1, 4));
        let k = self.random.range(1, 5);
        dims.push(k);
        let mut inputs = vec![self.tensor(&dims), self.tensor(&[k, n])];
        if self.random.coin() {
            inputs.push(self.tensor(&[n]));
        }
        Trial::new(inputs, |x| x[0].dense(&x[1], x.get(2)))
    }

    /// Returns random options of a convolution, the dimensions of its input images, and those of a filter that fits into them.
    fn convolution(&mut self) -> (Conv2DOptions, [u32; 4], [u32; 4]) {
        let random = &mut self.random;
        let mut pair = |high| [random.range(1, high), random.range(1, high)];
        let (kernel, strides, dilations, extra) = (pair(3), pair(3), pair(2), pair(4));
        let [height, width] = [0, 1].map(|axis| (kernel[axis] - 1) * dilations[axis] + extra[axis]);
        let [n, channels, filters] = [2, 3, 3].map(|high| random.range(1, high));
        let mut pad = || random.range(0, 2);
        let explicit = Padding::Explicit { top: pad(), bottom: pad(), left: pad(), right: pad() };
        let padding = random.pick(&[Padding::Valid, Padding::Same, explicit]);
        let options = Conv2DOptions::default().strides(strides).dilations(dilations).padding(padding);
        (options, [n, height, width, channels], [kernel[0], kernel[1], channels, filters])
    }

    fn conv2d(&mut self) -> Trial {
        let (options, x, filter) = self.convolution();
        let mut inputs = vec![self.tensor(&x), self.tensor(&filter)];
        if self.random.coin() {
            inputs.push(self.tensor(&filter[3..]));
        }
        Trial::new(inputs, move |x| x[0].conv2d(&x[1], x.get(2), &options))
    }

    fn conv2d_input_grad(&mut self) -> Trial {
        let (options, x, filter) = self.convolution();
        let (images, filter) = (self.tensor(&x), self.tensor(&filter));
        let dy = self.tensor(images.conv2d(&filter, None, &options).unwrap().dims());
        Trial::new(vec![dy, filter], move |v| v[0].conv2d_input_grad(&v[1], &options, [x[1], x[2]]))
    }

    fn conv2d_filter_grad(&mut self) -> Trial {
        let (options, x, filter) = self.convolution();
        let (images, weights) = (self.tensor(&x), self.tensor(&filter));
        let dy = self.tensor(images.conv2d(&weights, None, &options).unwrap().dims());
        Trial::new(vec![images, dy], move |v| v[0].conv2d_filter_grad(&v[1], &options, [filter[0], filter[1]]))
    }

    fn depthwise_conv2d(&mut self) -> Trial {
        let (options, x, filter) = self.convolution();
        let mut inputs = vec![self.tensor(&x), self.tensor(&filter)];
        if self.random.coin() {
            inputs.push(self.tensor(&[filter[2] * filter[3]]));
        }
        Trial::new(inputs, move |x| x[0].depthwise_conv2d(&x[1], x.get(2), &options))
    }

    fn depthwise_conv2d_input_grad(&mut self) -> Trial {
        let (options, x, filter) = self.convolution();
        let (images, filter) = (self.tensor(&x), self.tensor(&filter));
        let dy = self.tensor(images.depthwise_conv2d(&filter, None, &options).unwrap().dims());
        Trial::new(vec![dy, filter], move |v| v[0].depthwise_conv2d_input_grad(&v[1], &options, [x[1], x[2]]))
    }

    fn depthwise_conv2d_filter_grad(&mut self) -> Trial {
        let (options, x, filter) = self.convolution();
        let (images, weights) = (self.tensor(&x), self.tensor(&filter));
        let dy = self.tensor(images.depthwise_conv2d(&weights, None, &options).unwrap().dims());
        Trial::new(vec![images, dy], move |v| v[0].depthwise_conv2d_filter_grad(&v[1], &options, [filter[0], filter[1]]))
    }

    /// Returns random attribute words for a pooling op, and input images for it with distinct elements.
    fn pooled_images(&mut self) -> (Vec<u32>, Tensor) {
        let (options, x, [height, width, ..]) = self.convolution();
        let same = u32::from(self.random.coin());
        (vec![height, width, options.strides[0], options.strides[1], same], self.distinct(&x))
    }

    /// Returns a random upstream gradient for the result of the pooling op `op`, with the attribute words `words`, on the input images `x`.
    fn pooled(&mut self, op: &'static Op, words: &[u32], x: &Tensor) -> Tensor {
        let y = Eager::new(&self.device).emit(op, words, &[x]).unwrap().remove(0);
        self.tensor(y.dims())
    }

    fn pooling(&mut self, op: &'static Op) -> Trial {
        let (words, x) = self.pooled_images();
        Trial::of(op, words, vec![x])
    }

    fn max_pool2d_grad(&mut self) -> Trial {
        let (words, x) = self.pooled_images();
        let dy = self.pooled(&ops::max_pool2d::OP, &words, &x);
        Trial::of(&ops::max_pool2d_grad::OP, words, vec![x, dy])
    }

    fn max_pool2d_pick(&mut self) -> Trial {
        let (words, x) = self.pooled_images();
        let values = self.tensor(x.dims());
        Trial::of(&ops::max_pool2d_pick::OP, words, vec![x, values])
    }

    fn avg_pool2d_grad(&mut self) -> Trial {
        let (mut words, x) = self.pooled_images();
        let dy = self.pooled(&ops::avg_pool2d::OP, &words, &x);
        words.extend(&x.dims()[1..3]);
        Trial::of(&ops::avg_pool2d_grad::OP, words, vec![dy])
    }

    fn cross_entropy(&mut self) -> (Tensor, Tensor, Tensor) {
        let (mut dims, classes) = (self.dims((0, 2), 4), self.random.range(1, 5));
        let (labels, dloss) = (self.labels(&dims, classes), self.tensor(&dims));
        dims.push(classes);
        (self.tensor(&dims), labels, dloss)
    }
}
