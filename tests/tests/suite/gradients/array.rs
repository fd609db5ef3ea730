//! Gradient tests of ops that only move elements and compute nothing.

use super::{Maker, Trial};
use gradlet_core::ops::pad::PadMode;
use gradlet_core::ops::slicing::Index;
use gradlet_core::{Tensor, ops};
use gradlet_tests::random::Random;

pub fn trial(maker: &mut Maker, name: &str) -> Option<Trial> {
    Some(match name {
        "reshape" => maker.unary(|x| x.reshape_open(&[1, -1, 1])),
        "transpose" => {
            let dims = maker.dims((0, 4), 4);
            let order: Vec<u32> = maker.random.permutation(dims.len()).into_iter().map(|axis| axis as u32).collect();
            let x = maker.tensor(&dims);
            Trial::new(vec![x], move |x| x[0].transpose(&order))
        }
        "broadcast_to" => {
            let dims = maker.dims((0, 4), 4);
            let from = maker.operand(&dims);
            let x = maker.tensor(&from);
            Trial::new(vec![x], move |x| x[0].broadcast_to(&dims))
        }
        "concat" => maker.concat(),
        "strided_slice" => maker.strided_slice(),
        "pad" => maker.pad(),
        "gather" => maker.gather(),
        "gather_grad" => maker.segments(),
        "scatter_add" => maker.scatter_add(),
        "gather_nd" => {
            let (dims, index) = maker.slices();
            Trial::new(vec![maker.tensor(&dims), index], |x| x[0].gather_nd(&x[1]))
        }
        "scatter_nd" => {
            let (dims, index) = maker.slices();
            let updates = maker.updates(&dims, &index);
            Trial::new(vec![updates, index], move |x| x[0].scatter_nd(&x[1], &dims))
        }
        "tensor_scatter_update" => {
            let dims = maker.dims((1, 3), 4);
            // Indices must be unique. For a duplicate, TensorFlow's gradient is that of the last update only.
            let rows = maker.random.permutation(dims[0] as usize).into_iter().map(|row| row as i32);
            let rows: Vec<i32> = rows.take(maker.random.range(0, dims[0]) as usize).collect();
            let index = Tensor::new(&maker.device, &rows, &[rows.len() as u32, 1]).unwrap();
            let inputs = vec![maker.tensor(&dims), maker.updates(&dims, &index), index];
            Trial::new(inputs, |x| x[0].tensor_scatter_update(&x[2], &x[1]))
        }
        _ => return None,
    })
}

impl Maker {
    /// Returns a trial of `concat` with up to ten tensors, more than a single op accepts.
    fn concat(&mut self) -> Trial {
        let dims = self.dims((1, 3), 3);
        let axis = self.random.below(dims.len());
        let inputs = (0..self.random.range(1, 10)).map(|_| {
            let mut dims = dims.clone();
            dims[axis] = self.random.range(0, 3);
            self.tensor(&dims)
        });
        Trial::new(inputs.collect(), move |x| Tensor::concat(x, axis as i32))
    }

    fn strided_slice(&mut self) -> Trial {
        let dims = self.dims((0, 4), 5);
        let place = |random: &mut Random| (random.below(3) > 0).then(|| random.range(0, 10) as i64 - 5);
        let index = |random: &mut Random| match random.below(6) {
            0 => Index::NewAxis,
            sign => {
                Index::Slice { start: place(random), end: place(random), step: random.range(1, 3) as i64 * if sign > 2 { 1 } else { -1 } }
            }
        };
        let indices: Vec<Index> = dims.iter().map(|_| index(&mut self.random)).collect();
        let x = self.tensor(&dims);
        Trial::new(vec![x], move |x| x[0].index(&indices[..]))
    }

    /// Returns a trial of `pad`. The padding value is an input of the op, but not of the method.
    fn pad(&mut self) -> Trial {
        let dims = self.dims((0, 3), 4);
        let mode = [PadMode::Constant(0.5), PadMode::Reflect, PadMode::Symmetric][self.random.below(3)];
        let most = |dim: u32| if matches!(mode, PadMode::Constant(_)) { 3 } else { dim - 1 };
        let paddings: Vec<_> = dims.iter().map(|&dim| (self.random.range(0, most(dim)), self.random.range(0, most(dim)))).collect();
        let x = self.tensor(&dims);
        Trial::new(vec![x], move |x| x[0].pad(&paddings, mode))
    }

    fn gather(&mut self) -> Trial {
        let dims = self.dims((1, 4), 3);
        let axis = self.random.below(dims.len());
        let batch_dims = self.random.below(axis + 1);
        let index = [&dims[..batch_dims], &self.dims((0, 2), 4)].concat();
        let inputs = vec![self.tensor(&dims), self.labels(&index, dims[axis])];
        Trial::new(inputs, move |x| x[0].gather_batched(&x[1], axis as i32, batch_dims as u32))
    }

    /// Returns a trial of `unsorted_segment_sum`. Some segment ids are -1, which drops their elements.
    fn segments(&mut self) -> Trial {
        let dims = self.dims((0, 4), 4);
        let chosen = &dims[..self.random.below(dims.len() + 1)];
        let segments = self.labels(chosen, 4).sub(&Tensor::scalar(&self.device, 1i32)).unwrap();
        Trial::new(vec![self.tensor(&dims), segments], |x| x[0].unsorted_segment_sum(&x[1], 3))
    }

    fn scatter_add(&mut self) -> Trial {
        let dims = self.dims((0, 4), 4);
        let (chosen, slice) = dims.split_at(self.random.below(dims.len() + 1));
        let index = self.labels(chosen, 4).sub(&Tensor::scalar(&self.device, 1i32)).unwrap();
        let sum = self.tensor(&[&[3], slice].concat());
        Trial::of(&ops::scatter_add::OP, vec![0, 0], vec![sum, self.tensor(&dims), index])
    }

    /// Returns random dimensions of a tensor, and random indices of some of its slices.
    fn slices(&mut self) -> (Vec<u32>, Tensor) {
        let dims = self.dims((1, 3), 4);
        let depth = self.random.range(0, dims.len() as u32);
        let rows = self.dims((0, 2), 3);
        let columns: Vec<Tensor> = dims[..depth as usize].iter().map(|&dim| self.labels(&rows, dim)).collect();
        let nothing = || Tensor::new::<i32>(&self.device, &[], &[&rows[..], &[0]].concat());
        let index = if columns.is_empty() { nothing() } else { Tensor::stack(&columns, -1) };
        (dims, index.unwrap())
    }

    /// Returns random new values for the slices at `index` of a tensor of shape `dims`.
    fn updates(&mut self, dims: &[u32], index: &Tensor) -> Tensor {
        let (&depth, rows) = index.dims().split_last().unwrap();
        self.tensor(&[rows, &dims[depth as usize..]].concat())
    }
}
