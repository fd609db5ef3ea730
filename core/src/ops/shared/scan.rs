//! Cumulative ops: their attributes, shape rule and loop.

use super::{elementwise, lanes};
use crate::base::dtype::{DType, Number};
use crate::base::error::{Error, Result};
use crate::base::op::{Call, read_attributes};
use crate::base::shape::TensorType;
use bytemuck::{Pod, Zeroable};

/// Attribute words of a cumulative op.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub struct Attributes {
    /// The axis, counted from the outermost.
    pub axis: u32,
    /// 1 if each result excludes its own element, and 0 if it includes it.
    pub exclusive: u32,
    /// 1 to accumulate from the last element to the first, and 0 from the first to the last.
    pub reverse: u32,
}

/// Shape rule of a cumulative op.
pub(in crate::ops) fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let [x] = inputs else { return Err(Error::Arity { got: inputs.len() as u8 }) };
    let Attributes { axis, exclusive, reverse } = read_attributes(attributes)?;
    if x.dtype == DType::Bool {
        return Err(Error::DType { input: 0 });
    }
    let wrong = [axis as usize >= x.shape.rank(), exclusive > 1, reverse > 1].iter().position(|&wrong| wrong);
    wrong.map_or(Ok(()), |index| Err(Error::Attribute { index: index as u8 }))?;
    elementwise::set(outputs, *x)
}

/// Replaces each element of each lane with the value accumulated up to it. The accumulated value is `start` at first, and `f`
/// combines it with one element after the other.
#[inline(always)]
pub(in crate::ops) fn run<T: Number>(call: &mut Call<'_, '_>, start: T, f: impl Fn(T, T) -> T) -> Result<()> {
    let Attributes { axis, exclusive, reverse } = call.attributes()?;
    let extent = call.output()?.dim(axis as usize);
    lanes::each(call, axis, 36, |lane: &mut [T], stride| {
        let mut total = start;
        for index in 0..extent {
            let at = if reverse == 1 { extent - 1 - index } else { index };
            let Some(slot) = lane.get_mut(at * stride) else { continue };
            let next = f(total, *slot);
            *slot = if exclusive == 1 { total } else { next };
            total = next;
        }
    })
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::super::testing::{Value, floats, indices, position, run, run_every_way, shapes};
    use super::*;
    use crate::ops::{cumprod, cumsum};

    #[test]
    fn same_as_one_element_at_a_time() {
        for dims in shapes(3, &[0, 1, 2, 5]).iter().filter(|dims| !dims.is_empty()) {
            let x = floats(dims, 1);
            let elements = x.elements::<f32>();
            for (words, axis) in (0..4).flat_map(|words| (0..dims.len()).map(move |axis| (words, axis))) {
                let (exclusive, reverse) = (words & 1 == 1, words & 2 == 2);
                let total = |index: &[u32], start: f32, f: fn(f32, f32) -> f32| {
                    let (own, last) = (index[axis], dims[axis]);
                    let mut before: std::vec::Vec<u32> = if reverse { (own..last).rev().collect() } else { (0..=own).collect() };
                    before.truncate(before.len() - usize::from(exclusive));
                    let at = |at: u32| position(dims, &[&index[..axis], &[at], &index[axis + 1..]].concat());
                    before.into_iter().fold(start, |total, place| f(total, elements[at(place)]))
                };
                let attributes = [axis as u32, exclusive.into(), reverse.into()];
                let of =
                    |start, f| Value::new(&indices(dims).iter().map(|index| total(index, start, f)).collect::<std::vec::Vec<f32>>(), dims);
                assert_eq!(run_every_way(&cumsum::F32, &attributes, &[&x]), [of(0.0, |a, b| a + b)], "{dims:?} {attributes:?}");
                assert_eq!(run_every_way(&cumprod::F32, &attributes, &[&x]), [of(1.0, |a, b| a * b)], "{dims:?} {attributes:?}");
            }
        }
    }

    #[test]
    fn attributes_are_checked() {
        let x = Value::new(&[1u8; 6], &[2, 3]);
        let refused = |words: &[u32]| run(&cumsum::U8, words, &[&x], &[]).0;
        assert_eq!(refused(&[2, 0, 0]), Err(Error::Attribute { index: 0 }));
        assert_eq!(refused(&[1, 2, 0]), Err(Error::Attribute { index: 1 }));
        assert_eq!(refused(&[1, 0, 2]), Err(Error::Attribute { index: 2 }));
        assert_eq!(refused(&[1]), Err(Error::Attribute { index: 0 }));
    }
}
