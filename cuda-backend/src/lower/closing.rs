//! Groups of elementwise nodes that begin with a product, whose kernel computes the others where it would store its elements.

use super::elementwise::{self, Grouped};
use super::{Job, Target, lower};
use crate::lower::call::{Argument, KernelCall};
use crate::ptx::opening::Opening;
use crate::ptx::{self, Code};
use gradlet_core::device::{Member, Slot, Source};
use gradlet_core::{DType, Error, Result, TensorType, ops};

/// Lowers the product `first` with the elementwise nodes `others`. If no kernel computes both, the product goes to the place of another
/// result at first.
pub(super) fn group(elements: usize, first: &Member, others: &[Member], target: &Target) -> Result<Grouped> {
    let slot = |source: &Source| if let Source::Memory(slot) = source { Ok(*slot) } else { Err(Error::Internal) };
    let operands = first.inputs.iter().map(slot).collect::<Result<Vec<Slot>>>()?;
    let types: Vec<TensorType> = operands.iter().map(|slot| slot.tensor_type).collect();
    let job = Job { op: first.op, attributes: &first.attributes, inputs: &types, outputs: &[first.output], target: *target };
    let mut calls = lower(&job)?;
    let last = calls.pop().ok_or(Error::Internal)?;
    if let Some(closed) = closed(&last, first, others, operands.len())? {
        // Only the last launch writes the result.
        calls.extend(closed.calls);
        return Ok(Grouped { calls, inputs: [operands, closed.inputs].concat(), outputs: closed.outputs });
    }
    let place = first.kept.or(others.last().and_then(|last| last.kept)).ok_or(Error::Internal)?;
    calls.push(last);
    Ok(Grouped { calls, inputs: operands, outputs: vec![place] }.then(apart(elements, first, others, place, target)?))
}

/// Returns the launch `product` with the nodes `others`, if its kernel takes them. Their inputs stand after the product's `inputs` inputs.
fn closed(product: &KernelCall, first: &Member, others: &[Member], inputs: usize) -> Result<Option<Grouped>> {
    let Code::Stored { file, entry } = &product.code else { return Ok(None) };
    let entry = format!("{entry}_closing");
    let own: Vec<Member> = [first].into_iter().chain(others).cloned().collect();
    let (mut program, axes, loads, outputs) = elementwise::program(&own, None)?;
    // A kernel takes 4 elements at a time.
    let narrow = program.loads.iter().all(|load| load.dtype.size() <= 4) && program.calls.iter().all(|call| call.result.size() <= 4);
    if !narrow || !ptx::is_stored(file, &entry) {
        return Ok(None);
    }
    program.even = axes[0].is_multiple_of(4);
    let sizes = axes.iter().take(axes.len() - 1).map(|&length| Argument::Wide(length));
    let operands = (0..loads.len()).map(|index| Argument::Input(inputs + index)).chain((0..outputs.len()).map(Argument::Output));
    let closing: Vec<Argument> = sizes.chain(operands).collect();
    let mut call = product.clone().with(|operand| if let Argument::Output(_) = operand { Argument::Wide(0) } else { operand });
    call.arguments.extend(closing);
    call.code = Code::Opened { file, entry, opening: Opening { axes: [axes.len(), 0, 0], program, by_row: 0 } };
    Ok(Some(Grouped { calls: vec![call], inputs: loads, outputs }))
}

/// Lowers the nodes `others` of a group whose product is at `place`.
fn apart(elements: usize, first: &Member, others: &[Member], place: Slot, target: &Target) -> Result<Grouped> {
    debug_assert_eq!(first.output.dtype, DType::F32);
    let slot = Slot { tensor_type: first.output, ..place };
    let read =
        Member { op: &ops::identity::DEF, attributes: Vec::new(), inputs: vec![Source::Memory(slot)], output: first.output, kept: None };
    let own: Vec<Member> = [read].into_iter().chain(others.iter().cloned()).collect();
    elementwise::group(elements, &own, target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::assert_assembles;
    use gradlet_core::{Shape, TensorType};

    fn slot(dims: &[u32], offset: u64) -> Slot {
        Slot { tensor_type: TensorType::new(DType::F32, Shape::new(dims).unwrap()), base: 0, offset }
    }

    /// Lowers a product, to which a row is added before the hyperbolic tangent.
    fn lowered([m, k, n]: [u32; 3], kept: bool) -> Grouped {
        let output = slot(&[m, n], 0).tensor_type;
        let value = |member| Source::Value { member, tensor_type: output };
        let member = |op, attributes, inputs, kept| Member { op, attributes, inputs, output, kept };
        let operands = [slot(&[m, k], 1 << 30), slot(&[k, n], 1 << 31)].map(Source::Memory).to_vec();
        let first = member(&ops::matmul::DEF, vec![0, 0], operands, kept.then(|| slot(&[m, n], 1 << 32)));
        let others = [
            member(&ops::add::DEF, vec![], vec![value(0), Source::Memory(slot(&[n], 1 << 33))], None),
            member(&ops::tanh::DEF, vec![], vec![value(1)], Some(slot(&[m, n], 1 << 34))),
        ];
        group((m * n) as usize, &first, &others, &Target { strict: false, ..Target::ORIN }).unwrap()
    }

    #[test]
    fn the_kernel_of_a_product_computes_the_rest() {
        let Grouped { calls, inputs, outputs } = lowered([256, 64, 256], true);
        let [KernelCall { code: Code::Opened { entry, .. }, .. }] = &calls[..] else { panic!("{calls:?}") };
        assert!(entry.starts_with("gemm_") && entry.ends_with("_closing"), "{entry}");
        assert_eq!((inputs.len(), outputs.len()), (3, 2));
    }

    #[test]
    fn another_product_goes_to_the_place_of_a_result() {
        let Grouped { calls, inputs, outputs } = lowered([1, 64, 256], false);
        assert!(matches!(&calls[1].code, Code::Elementwise(program) if program.loads.len() == 2), "{calls:?}");
        assert_eq!((calls.len(), inputs.len(), inputs[2].offset), (2, 4, 1 << 34));
        assert!(outputs.iter().all(|slot| slot.offset == 1 << 34));
    }

    /// No instruction is left that the host should have replaced. If there is an assembler, it takes the kernels, and nothing spills.
    #[test]
    fn closings_are_filled() {
        let mut entries = Vec::new();
        for size in [[2048, 64, 2048], [2048, 64, 128], [64, 64, 64], [4096, 64, 32], [32, 64, 4096], [64, 4096, 64], [63, 4096, 63]] {
            let call = lowered(size, false).calls.pop().unwrap();
            let (text, entry) = call.code.ptx(true).unwrap();
            assert!(entry.ends_with("_closing") && !text.contains("// closing"), "{entry}");
            assert_assembles(&entry, &text);
            entries.push(entry);
        }
        let staged = ["gemm_async_128x128_f32_closing", "gemm_async_128x256_f32_closing"];
        assert!(staged.iter().all(|entry| entries.iter().any(|own| own == entry)), "{entries:?}");
    }
}
