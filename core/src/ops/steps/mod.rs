//! Optimizer steps: each op updates one variable.

pub mod adam_step;
pub mod matmul_adam;
pub mod matmul_sgd;
pub mod sgd_step;

use crate::base::dtype::Float;

/// True if the new values that add up to `sum` are certainly finite. A sum that is not finite proves nothing, because it can exceed the
/// range of the type.
fn finite<T: Float>(sum: T) -> bool {
    sum.sub(sum) == T::ZERO
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use crate::base::op::{Call, Kernel, Slice};
    use crate::base::shape::{Shape, TensorType};
    use crate::base::view::{TensorView, TensorViewMut};
    use std::vec::Vec;

    /// Runs a step on inputs of these shapes that are filled with 1, except that element `at` of input `input` is `odd`. Returns whether
    /// the kernel takes the new values for finite, and whether they are.
    fn claim_and_truth(kernel: &Kernel, attributes: &[u32], shapes: &[&[u32]], (input, at): (usize, usize), odd: f32) -> (bool, bool) {
        let values = shapes.iter().enumerate().map(|(index, dims)| {
            let mut elements = std::vec![1.0f32; dims.iter().product::<u32>() as usize];
            elements.iter_mut().skip(at).take(usize::from(index == input)).for_each(|element| *element = odd);
            (TensorType::new(kernel.dtype, Shape::new(dims).unwrap()), elements)
        });
        let values: Vec<_> = values.collect();
        let mut news: Vec<_> = (0..kernel.def.outputs).map(|_| (values[0].0, values[0].1.clone())).collect();
        let inputs: Vec<_> = values.iter().map(|(t, x)| TensorView { tensor_type: t, data: Some(bytemuck::cast_slice(x)) }).collect();
        let outputs = news.iter_mut().map(|(t, x)| TensorViewMut { tensor_type: t, data: bytemuck::cast_slice_mut(x) });
        let mut slice = Slice::all();
        (kernel.run)(&mut Call { attributes, inputs: &inputs, outputs: &mut outputs.collect::<Vec<_>>(), slice: &mut slice }).unwrap();
        (slice.finite, news.iter().all(|(_, x)| x.iter().all(|x| x.is_finite())))
    }

    #[test]
    fn a_step_never_takes_an_infinity_for_finite() {
        let adam = [0.9f32, 0.999, 1e-7, 0.1, 0.001].map(f32::to_bits);
        let scalar: &[u32] = &[];
        for (kernel, attributes, shapes) in [
            (&sgd_step::F32, &[][..], &[&[3, 11][..], &[3, 11], scalar][..]),
            (&matmul_sgd::F32, &[], &[&[3, 11], &[1, 3], &[1, 11], scalar]),
            (&matmul_sgd::F32, &[], &[&[3, 11], &[2, 3], &[2, 11], scalar]),
            (&adam_step::F32, &adam, &[&[3, 11], &[3, 11], &[3, 11], &[3, 11], scalar, &[2]]),
            (&matmul_adam::F32, &adam, &[&[3, 11], &[3, 11], &[3, 11], &[2, 3], &[2, 11], scalar, &[2]]),
        ] {
            for (input, dims) in shapes.iter().enumerate() {
                for at in 0..dims.iter().product::<u32>() as usize {
                    for odd in [1.0, -0.0, f32::MAX, f32::MIN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
                        let (claim, truth) = claim_and_truth(kernel, attributes, shapes, (input, at), odd);
                        // The claim holds if the old value of the variable, input 0, is finite.
                        assert!(truth || !claim || input == 0 && !odd.is_finite(), "{} with {odd} in input {input}", kernel.def.name);
                        assert!(claim || odd.abs() != 1.0, "{} does not see that all is finite", kernel.def.name);
                    }
                }
            }
        }
    }
}
