//! Compares the kernels of `gradlet-helium` with the portable ones, bit by bit, on pseudo-random operands of many shapes. Bytes around the
//! results and the working memory must stay as they were. Then runs an imported model in slices, and compares it with whole runs.

#![no_std]
#![no_main]

use core::mem::take;
use emulated::memory::Arena;
use emulated::{Failure, console, load, session};
use gradlet_core::custom_op::{Call, Slice};
use gradlet_core::ops::{packed_conv2d, packed_dense, packed_depthwise_conv2d};
use gradlet_core::ops::{quantized_add, quantized_matmul, quantized_mul, quantized_squared_difference};
use gradlet_core::tensor::{TensorView, TensorViewMut};
use gradlet_core::{DType, Kernel, Shape, TensorType};

emulated::model!();

static ARENA: Arena<ARENA_BYTES> = Arena::new();
static OPERANDS: Arena<{ 96 << 10 }> = Arena::new();
static OURS: Arena<{ 64 << 10 }> = Arena::new();
static PORTABLE: Arena<{ 64 << 10 }> = Arena::new();

/// Bytes before and after each output, and their value.
const GUARD: usize = 64;
const MARK: u8 = 0xa5;
/// Most weights of a filter whose sizes are up to 127.
const FULL: u32 = 256;
/// Round in which a layer has no filters.
const NOTHING: u32 = 77;

emulated::entry!(firmware);

fn firmware() -> Result<(), Failure> {
    let missing = || Failure::Check("arena");
    let (operands, ours) = (OPERANDS.take().ok_or_else(missing)?, OURS.take().ok_or_else(missing)?);
    let portable = PORTABLE.take().ok_or_else(missing)?;
    let mut test =
        Test { operands: operands.bytes, ours: ours.bytes, portable: portable.bytes, random: Random(MODEL.0.len() as u32), cases: 0 };
    type Round = fn(&mut Test, u32) -> Result<(), Failure>;
    for (key, rounds, round) in [
        ("convolutions", 1500, Test::convolution as Round),
        ("depthwise_convolutions", 1000, Test::depthwise_convolution),
        ("dense", 1000, Test::dense),
        ("sums", 1000, Test::sum),
        ("products", 1000, Test::product),
        ("squared_differences", 1000, Test::squared_difference),
        ("matrices", 1000, Test::matrices),
    ] {
        (0..rounds).try_for_each(|index| round(&mut test, index))?;
        console::report(key, take(&mut test.cases));
    }
    let arena = ARENA.take().ok_or_else(missing)?;
    slices(arena.bytes, &mut test)
}

/// Runs the model in slices of different lengths.
fn slices(arena: &mut [u8], test: &mut Test) -> Result<(), Failure> {
    let program = load(&MODEL.0, KERNELS, &["infer"])?;
    let infer = program.signature("infer")?;
    let mut session = session(&program, arena)?;
    let input = session.input_bytes_mut(infer, 0)?;
    let (Some(given), Some(want)) = (test.operands.get_mut(..input.len()), test.portable.get_mut(..session.output_bytes(infer, 0)?.len()))
    else {
        return Err(Failure::Check("room for the model"));
    };
    test.random.bytes(given);
    session.input_bytes_mut(infer, 0)?.copy_from_slice(given);
    session.run(infer)?;
    want.copy_from_slice(session.output_bytes(infer, 0)?);
    let mut count = 0;
    for budget in [1, 3000, 40_000] {
        session.input_bytes_mut(infer, 0)?.copy_from_slice(given);
        session.begin(infer)?;
        while session.advance(budget)?.is_pending() {
            count += 1;
        }
        if session.output_bytes(infer, 0)? != want {
            return Err(Failure::Check("other bits in slices"));
        }
    }
    console::report("slices", count);
    Ok(())
}

/// A linear congruential generator.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Returns a number of `least..=most`.
    fn of(&mut self, least: i32, most: i32) -> i32 {
        least + (self.next() % (most - least + 1) as u32) as i32
    }

    /// Returns a number of `1..=most`.
    fn up_to(&mut self, most: u32) -> u32 {
        1 + self.next() % most
    }

    /// Returns multipliers with exponents in these ranges, which scales lead to; in each fourth round, with any exponents.
    fn multipliers(&mut self, round: u32, usual: [(i32, i32); 3]) -> [[u32; 2]; 3] {
        let ranges = if round.is_multiple_of(4) { [(-31, 30); 3] } else { usual };
        ranges.map(|(least, most)| match self.of(0, 4) {
            // A half: that of the operand with the larger scale.
            0 => [1 << 30, 0],
            _ => [(1 << 30) | (self.next() << 6), self.of(least, most) as u32],
        })
    }

    fn batch(&mut self) -> u32 {
        [0, 1, 1, 1, 2].get(self.next() as usize % 5).copied().unwrap_or(1)
    }

    fn range(&mut self) -> [u32; 2] {
        let range = if self.of(0, 1) == 0 { [-128, 127] } else { [self.of(-128, 0), self.of(0, 127)] };
        range.map(|limit| limit as u32)
    }

    /// Returns the attribute words of a window: strides, dilations, padding.
    fn window(&mut self, strides: [u32; 2]) -> [u32; 9] {
        let padding = self.next() % 3;
        let [top, bottom, left, right] = [0; 4].map(|_| if padding == 2 { self.next() % 3 } else { 0 });
        let [down, across] = strides;
        [down, across, 1, 1, padding, top, bottom, left, right]
    }

    /// Writes elements. Now and then, all of them are the least one, or have small sizes.
    fn bytes(&mut self, bytes: &mut [u8]) {
        let (least, greatest) = [(-128, -128), (-1, 1)].get(self.next() as usize % 8).copied().unwrap_or((-128, 127));
        bytes.iter_mut().for_each(|byte| *byte = self.of(least, greatest) as u8);
    }

    /// Writes weights. Now and then, all of them have the largest size.
    fn weights(&mut self, weights: &mut [u8], size: u32) {
        let (size, extreme) = (size as i32, self.of(0, 15) == 0);
        weights.iter_mut().for_each(|weight| *weight = if extreme { size } else { self.of(-size, size) } as u8);
    }

    /// Writes constants of a channel whose filter has `products` weights.
    fn channel(&mut self, bytes: &mut [u8], products: u32) {
        let (shift, most) = (self.of(1, 12), 1 << self.of(2, 14 + products.min(FULL).ilog2() as i32));
        // With the last one, products are halves of integers.
        let multiplier = match self.of(0, 15) {
            0 => 0,
            1..14 => (1 << 30) | (self.next() << 6) as i32,
            _ => 1 << 30,
        };
        let words = [2 * self.of(-most, most), multiplier, (1 << (shift - 1)) + (self.of(-128, 127) << shift), shift];
        bytes.chunks_exact_mut(4).zip(words).for_each(|(bytes, word)| bytes.copy_from_slice(&word.to_le_bytes()));
    }
}

struct Test {
    operands: &'static mut [u8],
    ours: &'static mut [u8],
    portable: &'static mut [u8],
    random: Random,
    cases: u32,
}

impl Test {
    fn convolution(&mut self, round: u32) -> Result<(), Failure> {
        let random = &mut self.random;
        let pointwise = round.is_multiple_of(3);
        let ([kh, kw], strides) = match round % 3 {
            0 => ([1, 1], [1, 1]),
            1 => ([random.up_to(4), random.up_to(5)], [random.up_to(2); 2]),
            _ => ([random.up_to(3), random.up_to(3)], [random.up_to(3), random.up_to(3)]),
        };
        let c = if round < 1230 { round / 30 } else { random.up_to(300) };
        let (n, h, w, co) = (random.batch(), random.up_to(9), random.up_to(9), random.up_to(40));
        let (n, co) = if round == NOTHING { (1, 0) } else { (n, co) };
        let (k, length) = (kh * kw * c, (kh * kw * c).next_multiple_of(8));
        let size = if k <= FULL { 127 } else { (127 * FULL / k).max(1) };
        let [s, t, d, e, padding, top, bottom, left, right] = random.window(strides);
        let [least, greatest] = random.range();
        let pads = if pointwise && random.of(0, 3) > 0 { [0; 4] } else { [top, bottom, left, right] };
        let zero = random.of(-128, 127) as u32;
        let attributes = [s, t, d, e, padding, pads[0], pads[1], pads[2], pads[3], zero, least, greatest, kh, kw];
        let types = [(DType::I8, &[n, h, w, c][..]), (DType::I8, &[co, length]), (DType::I32, &[co, 4])];
        self.compare([&gradlet_helium::packed_conv2d::I8, &packed_conv2d::I8], &attributes, types, |random, [x, filter, channels]| {
            random.bytes(x);
            filter.fill(0);
            filter
                .chunks_exact_mut((length as usize).max(1))
                .for_each(|filter| random.weights(filter.get_mut(..k as usize).unwrap_or_default(), size));
            channels.chunks_exact_mut(16).for_each(|channel| random.channel(channel, k.max(1)));
        })
    }

    fn depthwise_convolution(&mut self, round: u32) -> Result<(), Failure> {
        let random = &mut self.random;
        let strides = [random.up_to(2); 2];
        let c = if round < 800 { round / 20 + 1 } else { random.up_to(400) };
        let (n, h, w) = (random.batch(), random.up_to(9), if round % 50 == 0 { 30 } else { random.up_to(12) });
        let [s, t, d, e, padding, top, bottom, left, right] = random.window(strides);
        let ([least, greatest], zero) = (random.range(), random.of(-128, 127) as u32);
        let attributes = [s, t, d, e, padding, top, bottom, left, right, zero, least, greatest, 3, 3];
        let types = [(DType::I8, &[n, h, w, c][..]), (DType::I32, &[c, 7])];
        let kernels = [&gradlet_helium::packed_depthwise_conv2d::I8, &packed_depthwise_conv2d::I8];
        self.compare(kernels, &attributes, types, |random, [x, filters]| {
            random.bytes(x);
            for filter in filters.chunks_exact_mut(28) {
                random.bytes(filter);
                random.weights(filter.get_mut(16..25).unwrap_or_default(), 127);
                random.channel(filter.get_mut(..16).unwrap_or_default(), 9);
            }
        })
    }

    fn dense(&mut self, round: u32) -> Result<(), Failure> {
        let random = &mut self.random;
        let (lines, k, n) = (random.batch(), round % 100, random.up_to(40));
        let (lines, n) = if round == NOTHING { (1, 0) } else { (lines, n) };
        let k = if round % 10 == 0 { 7 * k } else { k };
        let (words, [least, greatest], roundings) = (n.div_ceil(4), random.range(), random.up_to(2));
        let types = [(DType::I8, &[lines, k][..]), (DType::I32, &[words, k]), (DType::I32, &[words, 16])];
        let kernels = [&gradlet_helium::packed_dense::I8, &packed_dense::I8];
        self.compare(kernels, &[n, roundings, least, greatest], types, |random, [x, filter, channels]| {
            random.bytes(x);
            random.bytes(filter);
            channels.chunks_exact_mut(16).for_each(|channel| random.channel(channel, k.max(1)));
        })
    }

    fn sum(&mut self, round: u32) -> Result<(), Failure> {
        let random = &mut self.random;
        let [a, b, sum] = random.multipliers(round, [(-6, 0), (-6, 0), (-20, -14)]);
        let words = [a[0], a[1], b[0], b[1], sum[0], sum[1], random.next() % 2];
        self.pairs([&gradlet_helium::quantized_add::I8, &quantized_add::I8], round, words)
    }

    fn product(&mut self, round: u32) -> Result<(), Failure> {
        let [product, ..] = self.random.multipliers(round, [(-12, 2); 3]);
        self.pairs([&gradlet_helium::quantized_mul::I8, &quantized_mul::I8], round, product)
    }

    fn squared_difference(&mut self, round: u32) -> Result<(), Failure> {
        let [a, b, square] = self.random.multipliers(round, [(-6, 0), (-6, 0), (-22, -10)]);
        let kernels = [&gradlet_helium::quantized_squared_difference::I8, &quantized_squared_difference::I8];
        self.pairs(kernels, round, [a[0], a[1], b[0], b[1], square[0], square[1]])
    }

    /// Compares kernels of two operands, broadcast, whose attributes end with `words`.
    fn pairs<const N: usize>(&mut self, kernels: [&Kernel; 2], round: u32, words: [u32; N]) -> Result<(), Failure> {
        let random = &mut self.random;
        let mut attributes = [0; 12];
        let (numbers, rest) = attributes.split_at_mut(5);
        let ([least, greatest], mut byte) = (random.range(), || random.of(-128, 127) as u32);
        numbers.copy_from_slice(&[byte(), byte(), byte(), least, greatest]);
        rest.iter_mut().zip(words).for_each(|(to, word)| *to = word);
        let dims = [random.batch(), random.up_to(9), round % 100];
        let (column, row, few) = ([dims[0], dims[1], 1], [dims[2]], [dims[1], dims[2]]);
        let (a, b): (&[u32], &[u32]) = match round % 10 {
            0 => (&dims, &few),
            1 => (&dims, &column),
            2 => (&column, &row),
            3 => (&row, &column),
            4 => (&few, &dims),
            5 => (&[], &dims),
            _ => (&dims, &dims),
        };
        let attributes = attributes.get(..5 + N).unwrap_or_default();
        self.compare(kernels, attributes, [(DType::I8, a), (DType::I8, b)], |random, [a, b]| {
            random.bytes(a);
            random.bytes(b);
        })
    }

    fn matrices(&mut self, round: u32) -> Result<(), Failure> {
        let random = &mut self.random;
        let [multiplier, ..] = random.multipliers(round, [(-14, 1); 3]);
        let (m, k, n) = (random.up_to(5), round % 100, random.up_to(45));
        let (m, n) = if round == NOTHING { (1, 0) } else { (m, n) };
        let (transposed, batch) = ([u32::from(round % 16 == 1), random.next() % 2], random.batch());
        let ([least, greatest], mut byte) = (random.range(), || random.of(-128, 127) as u32);
        let attributes = [byte(), byte(), byte(), least, greatest, multiplier[0], multiplier[1], transposed[0], transposed[1]];
        let dims = |rows, columns, transposed| if transposed == 0 { [batch, rows, columns] } else { [batch, columns, rows] };
        let (a, b) = (dims(m, k, transposed[0]), dims(k, n, transposed[1]));
        let types = [(DType::I8, &a[..]), (DType::I8, if round.is_multiple_of(3) { b.get(1..).unwrap_or_default() } else { &b })];
        self.compare([&gradlet_helium::quantized_matmul::I8, &quantized_matmul::I8], &attributes, types, |random, [a, b]| {
            random.bytes(a);
            random.bytes(b);
        })
    }

    /// Runs both kernels on operands of these types, and compares the results. Leaves out what the op refuses or the memory cannot hold.
    fn compare<const N: usize>(
        &mut self,
        [kernel, portable]: [&Kernel; 2],
        attributes: &[u32],
        types: [(DType, &[u32]); N],
        fill: impl Fn(&mut Random, [&mut [u8]; N]),
    ) -> Result<(), Failure> {
        let mut inputs = [TensorType::EMPTY; N];
        for (input, (dtype, dims)) in inputs.iter_mut().zip(types) {
            *input = TensorType::new(dtype, Shape::new(dims)?);
        }
        let Ok(outputs) = kernel.def.output_types(&inputs, attributes) else { return Ok(()) };
        let outputs = outputs.get(..usize::from(kernel.def.outputs)).unwrap_or_default();
        let needed = |types: &[TensorType], more| types.iter().map(|of| padded(of) + more).sum::<usize>();
        if needed(&inputs, 0) > self.operands.len() || needed(outputs, 2 * GUARD) > self.ours.len() {
            return Ok(());
        }
        let mut rest = &mut *self.operands;
        let operands = inputs.each_ref().map(|of| {
            let (operand, after) = take(&mut rest).split_at_mut(padded(of));
            rest = after;
            operand.get_mut(..bytes(of)).unwrap_or_default()
        });
        fill(&mut self.random, operands);
        let mut rest = &*self.operands;
        let inputs = inputs.each_ref().map(|tensor_type| {
            let (operand, after) = rest.split_at(padded(tensor_type));
            rest = after;
            TensorView { tensor_type, data: operand.get(..bytes(tensor_type)) }
        });
        let want = run(portable, attributes, &inputs, outputs, self.portable, None)?;
        let mut same = want == run(kernel, attributes, &inputs, outputs, self.ours, None)?;
        // A kernel reads an input that shares the bytes of the result there.
        for &(input, _) in kernel.def.in_place {
            let input = usize::from(input);
            if inputs.get(input).map(|input| input.tensor_type) == outputs.first() {
                same &= want == run(kernel, attributes, &inputs, outputs, self.ours, Some(input))?;
            }
        }
        self.cases += 1;
        if same {
            return Ok(());
        }
        console::text("kernel", kernel.def.name);
        inputs.iter().flat_map(|input| input.dims()).for_each(|&dim| console::report("dim", dim));
        attributes.iter().for_each(|&word| console::report("attribute", word));
        Err(Failure::Check("other bits"))
    }
}

fn bytes(of: &TensorType) -> usize {
    of.bytes().unwrap_or(0)
}

fn padded(of: &TensorType) -> usize {
    bytes(of).next_multiple_of(4)
}

/// Runs a kernel, and returns its first output. Input `shared` shares its bytes. Fails if the kernel writes around its outputs.
fn run<'m, const N: usize>(
    kernel: &Kernel,
    attributes: &[u32],
    inputs: &[TensorView<'_>; N],
    types: &[TensorType],
    memory: &'m mut [u8],
    shared: Option<usize>,
) -> Result<&'m [u8], Failure> {
    memory.fill(MARK);
    let mut outputs: heapless::Vec<TensorViewMut<'_>, 2> = heapless::Vec::new();
    let (mut rest, mut inputs) = (&mut *memory, *inputs);
    for tensor_type in types {
        let (output, after) = take(&mut rest).split_at_mut(2 * GUARD + padded(tensor_type));
        rest = after;
        let data = output.get_mut(GUARD..GUARD + bytes(tensor_type)).unwrap_or_default();
        if let Some(bytes) = shared.and_then(|shared| inputs.get_mut(shared)).and_then(|input| input.data.take()) {
            data.copy_from_slice(bytes);
        }
        let _ = outputs.push(TensorViewMut { tensor_type, data });
    }
    (kernel.run)(&mut Call { attributes, inputs: &inputs, outputs: &mut outputs, slice: &mut Slice::all() })?;
    drop(outputs);
    let (mut around, memory) = (&*memory, &*memory);
    for of in types {
        let (output, after) = around.split_at(2 * GUARD + padded(of));
        around = after;
        let ends = output.get(..GUARD).into_iter().chain(output.get(GUARD + bytes(of)..)).flatten();
        if ends.into_iter().any(|&byte| byte != MARK) {
            return Err(Failure::Check("bytes around an output"));
        }
    }
    types.first().and_then(|of| memory.get(GUARD..GUARD + bytes(of))).ok_or(Failure::Check("output"))
}
