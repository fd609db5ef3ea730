//! Step of a long short-term memory on quantised tensors: the next output and cell. x and the output are i8, the cell is i16.
//!
//! - Each gate has the sums `clamp(clamp(m · (weights · (x − x₀) + bias)) + r · recurrent · (output − y₀))`: i16 with 3 integer bits.
//! - The gates i, f and o are the logistic function of their sums, and g is the hyperbolic tangent: i16 without integer bits.
//! - The next cell is `clamp(f · cell + i · g)`. The next output is `clamp(y₀ + h · o · tanh(cell))`.
//!
//! The multipliers `m` and `r` belong to a gate, and `h` to the output. The weights of the gates stand one below the other in the order i,
//! f, g, o. Products with a multiplier are rounded twice, and those of the cell once. The bits are those of TensorFlow Lite's
//! UNIDIRECTIONAL_SEQUENCE_LSTM, which calls this type 8x8_16.

use crate::base::dtype::DType;
use crate::base::error::{Error, Result};
use crate::base::op::{Call, Kernel, OpDef, read_attributes};
use crate::base::shape::TensorType;
use crate::ops::shared::elementwise::same_dims;
use crate::ops::shared::fixed_point::{Multiplier, rounding_shift};
use crate::ops::shared::quantized::{check_zero_point, dot};
use crate::ops::shared::short_functions::{logistic, tanh};
use crate::ops::shared::window::part;
#[cfg(feature = "alloc")]
use crate::{base::quantization::Quantization, ops::quantized_conv2d::NO_GRADIENT, tensor::Tensor, tensor::scope::Op};

/// Number of gates.
const GATES: u32 = 4;
/// Integer bits of a gate's sums.
const GATE_BITS: u32 = 3;
/// Largest number of integer bits of the cell.
const MAX_CELL_BITS: u32 = 6;

/// Attribute words of the op.
#[repr(C)]
#[derive(Clone, Copy, Debug, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Attributes {
    /// Zero point of x.
    pub input_zero_point: i32,
    /// Zero point of the output.
    pub output_zero_point: i32,
    /// Multiplier `h`.
    pub hidden: Multiplier,
    /// Integer bits of the cell, at most 6.
    pub cell_bits: u32,
    /// Largest magnitude of a cell, at most 32767, or 0 for no limit.
    pub cell_clip: i32,
}

/// Definition of the op.
pub static DEF: OpDef =
    OpDef { code: crate::ops::code::quantized_lstm_step, name: "quantized_lstm_step", inputs: (7, 7), outputs: 2, infer, in_place: &[] };

const DTYPES: [DType; 7] = [DType::I8, DType::I8, DType::I16, DType::I8, DType::I8, DType::I32, DType::I32];

fn infer(inputs: &[TensorType], attributes: &[u32], outputs: &mut [TensorType]) -> Result<()> {
    let ([x, output, cell, weights, recurrent, bias, multipliers], [y, next, ..]) = (inputs, outputs) else {
        return Err(Error::Arity { got: inputs.len() as u8 });
    };
    if let Some(input) = inputs.iter().zip(DTYPES).position(|(input, dtype)| input.dtype != dtype) {
        return Err(Error::DType { input: input as u8 });
    }
    let Attributes { input_zero_point, output_zero_point, hidden, cell_bits, cell_clip } = read_attributes(attributes)?;
    check_zero_point(input_zero_point, DType::I8, 0)?;
    check_zero_point(output_zero_point, DType::I8, 1)?;
    for (index, fits) in [(2, hidden.is_valid()), (4, cell_bits <= MAX_CELL_BITS), (5, (0..=i32::from(i16::MAX)).contains(&cell_clip))] {
        if !fits {
            return Err(Error::Attribute { index });
        }
    }
    let &[batch, width] = x.shape.dims() else { return Err(Error::Rank { input: 0 }) };
    let &[_, cells] = cell.shape.dims() else { return Err(Error::Rank { input: 2 }) };
    let rows = cells.checked_mul(GATES).ok_or(Error::TooLarge)?;
    same_dims(1, &[batch, cells], output.shape.dims())?;
    same_dims(2, &[batch, cells], cell.shape.dims())?;
    same_dims(3, &[rows, width], weights.shape.dims())?;
    same_dims(4, &[rows, cells], recurrent.shape.dims())?;
    same_dims(5, &[rows], bias.shape.dims())?;
    same_dims(6, &[2 * GATES, Multiplier::WORDS as u32], multipliers.shape.dims())?;
    (*y, *next) = (*output, *cell);
    Ok(())
}

/// The weights of all gates for one operand.
struct Side<'a> {
    line: &'a [i8],
    weights: &'a [i8],
    multipliers: &'a [Multiplier],
    zero_point: i32,
}

impl<'a> Side<'a> {
    fn new(call: &Call<'_, 'a>, operand: usize, weights: usize, zero_point: i32, multipliers: &'a [Multiplier]) -> Result<Side<'a>> {
        Ok(Side { line: call.input(operand)?.slice(), weights: call.input(weights)?.slice(), multipliers, zero_point })
    }

    /// Returns the products of the weights in row `row`, which belongs to a gate, with line `line` of `columns` elements.
    fn product(&self, gate: usize, row: usize, line: usize, columns: usize, bias: i32) -> i32 {
        let (x, weights) = (part(self.line, line * columns, columns), part(self.weights, row * columns, columns));
        let multiplier = self.multipliers.get(gate).copied().filter(|multiplier| multiplier.is_valid()).unwrap_or_default();
        multiplier.twice(dot(bias, x, weights, self.zero_point))
    }
}

/// Returns the nearest number of 16 bits.
fn short(x: i32) -> i32 {
    x.clamp(i16::MIN.into(), i16::MAX.into())
}

fn run(call: &mut Call<'_, '_>) -> Result<()> {
    let Attributes { input_zero_point, output_zero_point, hidden, cell_bits, cell_clip } = call.attributes()?;
    let (width, cells) = (call.input(3)?.dim(1), call.input(4)?.dim(1));
    let (bias, multipliers) = (call.input(5)?.slice::<i32>(), call.input(6)?.bytes());
    let multipliers: &[Multiplier] = bytemuck::try_cast_slice(multipliers).unwrap_or_default();
    let (of_x, of_output) = multipliers.split_at_checked(GATES as usize).unwrap_or_default();
    let (x, output) = (Side::new(call, 0, 3, input_zero_point, of_x)?, Side::new(call, 1, 4, output_zero_point, of_output)?);
    let cell = call.input(2)?.slice::<i16>();
    let rows = call.rows(cell.len(), 20 * (width + cells) + 1200);
    let [next_output, next_cell, ..] = &mut *call.outputs else { return Err(Error::Internal) };
    let next = next_output.slice_mut::<i8>().iter_mut().zip(next_cell.slice_mut::<i16>());
    for (at, ((y, next), &cell)) in next.zip(cell).enumerate().take(rows.end).skip(rows.start) {
        let (line, unit) = (at / cells.max(1), at % cells.max(1));
        let sum = |gate: usize| {
            let row = gate * cells + unit;
            let sum = short(x.product(gate, row, line, width, bias.get(row).copied().unwrap_or(0)));
            short(sum.wrapping_add(output.product(gate, row, line, cells, 0)))
        };
        let [input, forget, open] = [0, 1, 3].map(|gate| logistic(sum(gate), GATE_BITS));
        let added = rounding_shift(input * tanh(sum(2), GATE_BITS), 15 + cell_bits);
        let cell = short(rounding_shift(forget * i32::from(cell), 15) + added);
        let cell = if cell_clip > 0 { cell.clamp(-cell_clip, cell_clip) } else { cell };
        *next = cell as i16;
        let scaled = hidden.twice(open * tanh(cell, cell_bits)).wrapping_add(output_zero_point);
        *y = scaled.clamp(i8::MIN.into(), i8::MAX.into()) as i8;
    }
    Ok(())
}

/// Portable kernel for i8.
pub const I8: Kernel = Kernel { def: &DEF, dtype: DType::I8, run };

/// The op. It has no gradient.
#[cfg(feature = "alloc")]
pub static OP: Op = Op::total(
    &DEF,
    "quantized_lstm_step(x[b,k], output[b,c], cell[b,c], weights[4c,k], recurrent[4c,c], bias[4c], multipliers[8,2])",
    NO_GRADIENT,
);

/// Scales of a step of an LSTM. The gates have the order input, forget, cell, output.
#[cfg(feature = "alloc")]
#[derive(Clone, Copy, Debug)]
pub struct LstmQuantization {
    /// Scale and zero point of x.
    pub input: Quantization,
    /// Scale and zero point of the output.
    pub output: Quantization,
    /// Scales of the weights of each gate for x.
    pub weights: [f32; 4],
    /// Scales of the weights of each gate for the last output.
    pub recurrent: [f32; 4],
    /// Scale of the cell: a power of two, from 2⁻¹⁵ to 2⁻⁹.
    pub cell: f32,
    /// Largest magnitude of a cell, as a real number. 0 for no limit.
    pub cell_clip: f32,
}

#[cfg(feature = "alloc")]
impl LstmQuantization {
    /// Returns the attributes and the multipliers of the gates. Fails if a scale is not as it should be.
    fn words(&self) -> Result<(Attributes, [Multiplier; 8])> {
        self.input.check(DType::I8)?;
        self.output.check(DType::I8)?;
        let Some(cell_bits) = (0..=MAX_CELL_BITS).find(|bits| self.cell == (1u32 << bits) as f32 / 32768.0) else {
            return Err(Error::message(alloc::format!(
                "expected a power of two from 2⁻¹⁵ to 2⁻⁹ as the scale of the cell, got {}",
                self.cell
            )));
        };
        // TensorFlow Lite's scales of products are f32.
        let of = |left: f32, right: f32| Multiplier::new(f64::from(left * right) * 4096.0);
        let mut multipliers = [Multiplier::default(); 8];
        let scales = self
            .weights
            .map(|scale| of(self.input.scale, scale))
            .into_iter()
            .chain(self.recurrent.map(|scale| of(self.output.scale, scale)));
        multipliers.iter_mut().zip(scales).for_each(|(to, from)| *to = from);
        let attributes = Attributes {
            input_zero_point: self.input.zero_point,
            output_zero_point: self.output.zero_point,
            hidden: Multiplier::new(f64::from(1.0 / self.output.scale) / f64::from(1 << 30)),
            cell_bits,
            cell_clip: (f64::from(self.cell_clip) / f64::from(self.cell)).clamp(0.0, 32767.0) as i32,
        };
        Ok((attributes, multipliers))
    }
}

#[cfg(feature = "alloc")]
impl Tensor {
    /// Returns the output and the cell of a quantised LSTM after `self[b,k]`, from the last output `[b,c]` and the last cell `[b,c]`.
    ///
    /// The weights of the four gates stand one below the other: `weights[4c,k]` for x, `recurrent[4c,c]` for the last output, `bias[4c]`.
    /// The result has the bits of TensorFlow Lite's UNIDIRECTIONAL_SEQUENCE_LSTM with weights of 8 bits.
    ///
    /// Fails if ranks, dimensions or element types do not match, a zero point is not an element of its tensor, or the scale of the cell is
    /// not a power of two from 2⁻¹⁵ to 2⁻⁹.
    ///
    /// ```
    /// # use gradlet_core::{Tensor, ops};
    /// use gradlet_core::{Quantization, ops::LstmQuantization};
    /// # let device = ops::portable_cpu();
    /// let x = Tensor::new(&device, &[100i8], &[1, 1])?;
    /// let (output, cell) = (Tensor::new(&device, &[0i8], &[1, 1])?, Tensor::new(&device, &[0i16], &[1, 1])?);
    /// let weights = Tensor::new(&device, &[127i8, 0, 127, 127], &[4, 1])?;
    /// let (recurrent, bias) = (Tensor::new(&device, &[0i8; 4], &[4, 1])?, Tensor::new(&device, &[0i32; 4], &[4])?);
    /// let of = |scale| Quantization { scale, zero_point: 0 };
    /// let (input, output_scale) = (of(0.01), of(1.0 / 128.0));
    /// let (weight_scales, cell_scale) = ([2.0 / 127.0; 4], 1.0 / 4096.0);
    /// let scaling = LstmQuantization {
    ///     input, output: output_scale, weights: weight_scales, recurrent: weight_scales, cell: cell_scale, cell_clip: 0.0,
    /// };
    /// let (output, cell) = x.quantized_lstm_step(&output, &cell, [&weights, &recurrent, &bias], &scaling)?;
    /// assert_eq!(cell.to_vec::<i16>()?, [3479]); // sigmoid(2) · tanh(2) = 0.849
    /// assert_eq!(output.to_vec::<i8>()?, [78]); // sigmoid(2) · tanh(0.849) = 0.609
    /// # Ok::<(), gradlet_core::Error>(())
    /// ```
    pub fn quantized_lstm_step(
        &self,
        output: &Tensor,
        cell: &Tensor,
        [weights, recurrent, bias]: [&Tensor; 3],
        scaling: &LstmQuantization,
    ) -> Result<(Tensor, Tensor)> {
        let (attributes, multipliers) = scaling.words()?;
        let multipliers = Tensor::new::<i32>(&self.device()?, bytemuck::cast_slice(&multipliers), &[2 * GATES, Multiplier::WORDS as u32])?;
        let operands = [self, output, cell, weights, recurrent, bias, &multipliers];
        let mut outputs = Tensor::emit(&OP, bytemuck::cast_slice(&[attributes]), &operands)?.into_iter();
        let (output, cell) = outputs.next().zip(outputs.next()).ok_or(Error::Internal)?;
        let of_cell = Quantization { scale: scaling.cell, zero_point: 0 };
        Ok((output.with_quantization(scaling.output)?, cell.with_quantization(of_cell)?))
    }
}

#[cfg(all(test, feature = "alloc"))]
mod tests {
    extern crate std;
    use super::*;
    use crate::ops::conv2d::tests::words;
    use crate::ops::portable_cpu;
    use crate::ops::quantized_conv2d::tests::integers;
    use crate::ops::shared::testing::{Value, run, run_every_way};
    use std::vec::Vec;

    /// Operands for a batch, a number of inputs and a number of cells.
    fn operands([batch, width, cells]: [u32; 3], multipliers: [Multiplier; 8]) -> [Value; 7] {
        let bytes = |dims: &[u32], seed| Value::new(&integers(dims, seed, 40.0).iter().map(|&x| x as i8).collect::<Vec<_>>(), dims);
        let cell: Vec<i16> = integers(&[batch, cells], 3, 9000.0).iter().map(|&x| x as i16).collect();
        let multipliers: Vec<i32> = multipliers.iter().flat_map(|multiplier| [multiplier.value, multiplier.exponent]).collect();
        [
            bytes(&[batch, width], 1),
            bytes(&[batch, cells], 2),
            Value::new(&cell, &[batch, cells]),
            bytes(&[4 * cells, width], 4),
            bytes(&[4 * cells, cells], 5),
            Value::new(&integers(&[4 * cells], 6, 900.0), &[4 * cells]),
            Value::new(&multipliers, &[8, 2]),
        ]
    }

    fn scaling(cell: f32, cell_clip: f32) -> LstmQuantization {
        let of = |scale, zero_point| Quantization { scale, zero_point };
        let (weights, recurrent) = ([0.02, 0.03, 0.01, 0.02], [0.01, 0.02, 0.03, 0.04]);
        LstmQuantization { input: of(0.02, 9), output: of(0.007, -5), weights, recurrent, cell, cell_clip }
    }

    /// Returns the real output and cell of a cell.
    fn real(scaling: &LstmQuantization, operands: &[Value; 7], line: usize, unit: usize) -> (f64, f64) {
        let [x, output, cell, weights, recurrent, bias, _] = operands;
        let (width, cells) = (weights.dims()[1] as usize, recurrent.dims()[1] as usize);
        let reals = |of: &Value, quantization: Quantization, start: usize, count: usize| -> Vec<f64> {
            of.elements::<i8>()[start..start + count].iter().map(|&x| quantization.real(x.into()).into()).collect()
        };
        let sums = [0, 1, 2, 3].map(|gate| {
            let row = gate * cells + unit;
            let by = |scale| Quantization { scale, zero_point: 0 };
            let dot = |a: Vec<f64>, b: Vec<f64>| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            let of_x = dot(reals(x, scaling.input, line * width, width), reals(weights, by(scaling.weights[gate]), row * width, width));
            let last = reals(output, scaling.output, line * cells, cells);
            let of_output = dot(last, reals(recurrent, by(scaling.recurrent[gate]), row * cells, cells));
            let bias = f64::from(bias.elements::<i32>()[row]) * f64::from(scaling.input.scale * scaling.weights[gate]);
            ((of_x + bias).clamp(-8.0, 8.0) + of_output).clamp(-8.0, 8.0)
        });
        let open = |sum: f64| 1.0 / (1.0 + libm::exp(-sum));
        let last = f64::from(cell.elements::<i16>()[line * cells + unit]) * f64::from(scaling.cell);
        let cell = open(sums[1]) * last + open(sums[0]) * libm::tanh(sums[2]);
        let limit = if scaling.cell_clip > 0.0 { scaling.cell_clip.into() } else { 32767.0 * f64::from(scaling.cell) };
        let cell = cell.clamp(-limit, limit);
        (open(sums[3]) * libm::tanh(cell), cell)
    }

    #[test]
    fn near_the_real_step() {
        for dims in [[1, 1, 1], [3, 2, 5], [2, 0, 3], [2, 3, 0], [0, 2, 2], [1, 20, 4]] {
            for scaling in [scaling(1.0 / 32768.0, 0.0), scaling(1.0 / 4096.0, 0.0), scaling(1.0 / 8192.0, 0.5), scaling(1.0 / 512.0, 3.0)]
            {
                let (attributes, multipliers) = scaling.words().unwrap();
                let operands = operands(dims, multipliers);
                let got = run_every_way(&I8, &words(attributes), &operands.each_ref());
                let (outputs, next) = (got[0].elements::<i8>(), got[1].elements::<i16>());
                assert_eq!(outputs.len(), (dims[0] * dims[2]) as usize);
                for (at, (&y, &cell)) in outputs.iter().zip(&next).enumerate() {
                    let (line, unit) = (at / dims[2] as usize, at % dims[2] as usize);
                    let (want, want_cell) = real(&scaling, &operands, line, unit);
                    let off = f64::from(cell) * f64::from(scaling.cell) - want_cell;
                    assert!(off.abs() < 2e-3 + f64::from(scaling.cell), "{dims:?} {at}: cell {cell}, off by {off}");
                    let want = (want / f64::from(scaling.output.scale) - 5.0).clamp(-128.0, 127.0);
                    assert!((f64::from(y) - want).abs() < 1.0, "{dims:?} {at}: {y}, not {want}");
                }
            }
        }
    }

    #[test]
    fn absurd_operands_are_refused_or_harmless() {
        let (attributes, multipliers) = scaling(1.0 / 4096.0, 0.0).words().unwrap();
        let good = operands([2, 3, 4], multipliers);
        for (index, bad) in [(0, 128), (1, -129), (2, -1), (3, 31), (4, 7), (5, -1), (5, 32768)] {
            let mut words = words(attributes);
            words[index] = bad as u32;
            let index = if index == 3 { 2 } else { index as u8 };
            assert_eq!(run(&I8, &words, &good.each_ref(), &[]).0, Err(Error::Attribute { index }));
        }
        for (input, dims) in [(1, [2, 3]), (2, [3, 4]), (3, [16, 4]), (4, [15, 4]), (6, [4, 2])] {
            let mut operands = good.clone();
            let zeros = std::vec![0i32; (dims[0] * dims[1]) as usize];
            operands[input] = match input {
                2 => Value::new(&zeros.iter().map(|&x| x as i16).collect::<Vec<_>>(), &dims),
                6 => Value::new(&zeros, &dims),
                _ => Value::new(&zeros.iter().map(|&x| x as i8).collect::<Vec<_>>(), &dims),
            };
            assert!(run(&I8, &words(attributes), &operands.each_ref(), &[]).0.is_err(), "{input}");
        }
        for (value, exponent) in [(i32::MAX, 30), (i32::MIN, 0), (1, i32::MIN), (i32::MAX, -31)] {
            let hidden = Multiplier { value: i32::MAX, exponent: 30 };
            let attributes = Attributes { input_zero_point: -128, output_zero_point: 127, hidden, cell_bits: 0, cell_clip: 1 };
            let extreme = operands([2, 3, 4], [Multiplier { value, exponent }; 8]);
            run_every_way(&I8, &words(attributes), &extreme.each_ref());
        }
        let (x, cell) = (Tensor::new(&portable_cpu(), &[0i8], &[1, 1]).unwrap(), Tensor::new(&portable_cpu(), &[0i16], &[1, 1]).unwrap());
        for scale in [0.0003, 1.0, f32::NAN] {
            assert!(x.quantized_lstm_step(&x, &cell, [&x, &x, &x], &scaling(scale, 0.0)).is_err());
        }
    }
}
