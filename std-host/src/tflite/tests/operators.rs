//! Tests of single operators.

use super::*;
use crate::formats::tflite::ElementType;
use gradlet_core::tensor::Bool;

fn ints(count: i32) -> Vec<i32> {
    (1..=count).collect()
}

fn i32s(numbers: &[i32]) -> Tensor {
    new(numbers, &[numbers.len() as u32])
}

#[test]
fn blocks_move_between_space_depth_and_batch() {
    let block = Some((19, vec![(0, Field::I32(2))]));
    let x = new(&[1, 2, 5, 6, 3, 4, 7, 8, 9, 10, 13, 14, 11, 12, 15, 16], &[1, 4, 4, 1]);
    let depth = compute("SPACE_TO_DEPTH", &[Input(&x)], block, &[DType::I32]).remove(0);
    assert_eq!((depth.dims(), depth.to_vec::<i32>().unwrap()), (&[1, 2, 2, 4][..], ints(16)));
    let block = Some((94, vec![(0, Field::I32(2))]));
    let space = compute("DEPTH_TO_SPACE", &[Input(&depth)], block, &[DType::I32]).remove(0);
    assert_eq!((space.dims(), space.to_vec::<i32>().unwrap()), (x.dims(), x.to_vec::<i32>().unwrap()));

    let (blocks, none) = (i32s(&[2, 2]), new(&[0i32; 4], &[2, 2]));
    let x = new(&ints(16), &[1, 4, 4, 1]);
    let operands = [Input(&x), Constant(&blocks), Constant(&none)];
    let batch = compute("SPACE_TO_BATCH_ND", &operands, None, &[DType::I32]).remove(0);
    assert_eq!(batch.dims(), [4, 2, 2, 1]);
    assert_eq!(batch.to_vec::<i32>().unwrap(), [1, 3, 9, 11, 2, 4, 10, 12, 5, 7, 13, 15, 6, 8, 14, 16]);
    let crops = new(&[1, 0, 0, 2], &[2, 2]);
    let operands = [Input(&batch), Constant(&blocks), Constant(&crops)];
    let space = compute("BATCH_TO_SPACE_ND", &operands, None, &[DType::I32]).remove(0);
    assert_eq!((space.dims(), space.to_vec::<i32>().unwrap()), (&[1, 3, 2, 1][..], vec![5, 6, 9, 10, 13, 14]));
}

#[test]
fn images_are_resized_around_three_kinds_of_centres() {
    let flags = |align, half| vec![(2, Field::Bool(align)), (3, Field::Bool(half))];
    let (x, size) = (new(&[0.0f32, 4.0], &[1, 1, 2, 1]), i32s(&[1, 4]));
    for (align, half, want) in
        [(false, true, [0.0, 1.0, 3.0, 4.0]), (false, false, [0.0, 2.0, 4.0, 4.0]), (true, false, [0.0, 4.0 / 3.0, 8.0 / 3.0, 4.0])]
    {
        let y = compute("RESIZE_BILINEAR", &[Input(&x), Constant(&size)], Some((15, flags(align, half))), &[DType::F32]).remove(0);
        assert!(y.to_vec::<f32>().unwrap().iter().zip(want).all(|(got, want)| (got - want).abs() < 1e-6), "{y:?}");
    }
    let flags = |align, half| vec![(0, Field::Bool(align)), (1, Field::Bool(half))];
    let (x, size) = (new(&[10i8, 20, 30], &[1, 3, 1, 1]), i32s(&[2, 1]));
    for (align, half, want) in [(false, true, [10, 30]), (false, false, [10, 20]), (true, false, [10, 30])] {
        let operands = [Input(&x), Constant(&size)];
        let y =
            compute_quantized("RESIZE_NEAREST_NEIGHBOR", &operands, Some((74, flags(align, half))), &[DType::I8], Some((0.5, 3))).remove(0);
        assert_eq!(y.to_vec::<i8>().unwrap(), want);
    }
}

#[test]
fn slices_and_parts() {
    let x = new(&ints(12), &[3, 4]);
    let parts = compute("SPLIT_V", &[Input(&x), Constant(&i32s(&[1, -1])), Constant(&i32s(&[1]))], None, &[DType::I32; 2]);
    assert_eq!(parts[1].to_vec::<i32>().unwrap(), [2, 3, 4, 6, 7, 8, 10, 11, 12]);
    let y = compute("SLICE", &[Input(&x), Constant(&i32s(&[1, 2])), Constant(&i32s(&[-1, 1]))], None, &[DType::I32]).remove(0);
    assert_eq!((y.dims(), y.to_vec::<i32>().unwrap()), (&[2, 1][..], vec![7, 11]));

    let masks = |begin, end, ellipsis, new, shrink| {
        Some((32, [begin, end, ellipsis, new, shrink].into_iter().enumerate().map(|(at, mask)| (at as u16, Field::I32(mask))).collect()))
    };
    let slice = |begin: &[i32], end: &[i32], step: &[i32], masks: Options| {
        let (begin, end, step) = (i32s(begin), i32s(end), i32s(step));
        compute("STRIDED_SLICE", &[Input(&x), Constant(&begin), Constant(&end), Constant(&step)], masks, &[DType::I32]).remove(0)
    };
    let row = slice(&[-1, 0], &[0, 2], &[1, 1], masks(0, 2, 0, 0, 1));
    assert_eq!((row.dims(), row.to_vec::<i32>().unwrap()), (&[4][..], vec![9, 10, 11, 12]));
    let back = slice(&[0, 3], &[3, 0], &[2, -2], masks(0, 0, 0, 0, 0));
    assert_eq!((back.dims(), back.to_vec::<i32>().unwrap()), (&[2, 2][..], vec![4, 2, 12, 10]));
    let column = slice(&[0, 0, 1], &[0, 0, 2], &[1, 1, 1], masks(0, 0, 1, 2, 4));
    assert_eq!((column.dims(), column.to_vec::<i32>().unwrap()), (&[3, 1][..], vec![2, 6, 10]));

    let y =
        compute("PADV2", &[Input(&x), Constant(&new(&[0, 0, 1, 0], &[2, 2])), Constant(&new(&[9i32], &[]))], None, &[DType::I32]).remove(0);
    assert_eq!(y.to_vec::<i32>().unwrap()[..6], [9, 1, 2, 3, 4, 9]);
    let y = compute("SQUEEZE", &[Input(&new(&[1, 2], &[1, 2, 1]))], Some((30, vec![(0, Field::List(vec![0]))])), &[DType::I32]).remove(0);
    assert_eq!(y.dims(), [2, 1]);
    let y = compute("EXPAND_DIMS", &[Input(&x), Constant(&i32s(&[-1]))], None, &[DType::I32]).remove(0);
    assert_eq!(y.dims(), [3, 4, 1]);
    let y = compute("BROADCAST_TO", &[Input(&new(&[1, 2], &[2, 1])), Constant(&i32s(&[2, 2]))], None, &[DType::I32]).remove(0);
    assert_eq!(y.to_vec::<i32>().unwrap(), [1, 1, 2, 2]);
    let y = compute("RESHAPE", &[Input(&new(&[7], &[1, 1]))], Some((17, vec![(0, Field::List(vec![0]))])), &[DType::I32]).remove(0);
    assert!(y.dims().is_empty());
}

#[test]
fn indices_and_ranges() {
    let x = new(&ints(6), &[3, 2]);
    let y = compute("GATHER_ND", &[Input(&x), Input(&new(&[2, 1, 0, 0], &[2, 2]))], None, &[DType::I32]).remove(0);
    assert_eq!(y.to_vec::<i32>().unwrap(), [6, 1]);
    let y = compute(
        "GATHER",
        &[Input(&x), Input(&new(&[1, 0, 1], &[3, 1]))],
        Some((23, vec![(0, Field::I32(1)), (1, Field::I32(1))])),
        &[DType::I32],
    );
    assert_eq!((y[0].dims(), y[0].to_vec::<i32>().unwrap()), (&[3, 1][..], vec![2, 3, 6]));
    let y = compute("EMBEDDING_LOOKUP", &[Input(&i32s(&[2, 0])), Constant(&x)], None, &[DType::I32]).remove(0);
    assert_eq!(y.to_vec::<i32>().unwrap(), [5, 6, 1, 2]);
    let operands = [Input(&new(&[1, 1, 3], &[3, 1])), Input(&i32s(&[1, 2, 3])), Constant(&i32s(&[4]))];
    assert_eq!(compute("SCATTER_ND", &operands, None, &[DType::I32])[0].to_vec::<i32>().unwrap(), [0, 3, 0, 3]);
    let number = |number: i32| new(&[number], &[]);
    let range = |start, end, step| {
        let operands = [Constant(&number(start)), Constant(&number(end)), Constant(&number(step))];
        compute("RANGE", &operands, None, &[DType::I32]).remove(0).to_vec::<i32>().unwrap()
    };
    assert_eq!((range(1, 8, 3), range(3, 0, -2), range(0, -1, 1)), (vec![1, 4, 7], vec![3, 1], vec![]));
    let y = compute("FILL", &[Constant(&i32s(&[2, 1])), Input(&number(5))], None, &[DType::I32]).remove(0);
    assert_eq!((y.dims(), y.to_vec::<i32>().unwrap()), (&[2, 1][..], vec![5, 5]));
    let shape = compute("SHAPE", &[Input(&x)], None, &[DType::I32]).remove(0);
    assert_eq!(shape.to_vec::<i32>().unwrap(), [3, 2]);
    assert_eq!(compute("RANK", &[Input(&x)], None, &[DType::I32])[0].item::<i32>().unwrap(), 2);
}

#[test]
fn elements() {
    let (x, y) = (i32s(&[7, -7]), i32s(&[2, 2]));
    assert_eq!(compute("DIV", &[Input(&x), Input(&y)], None, &[DType::I32])[0].to_vec::<i32>().unwrap(), [3, -3]);
    let relu6 = Some((11, vec![(0, Field::I8(3))]));
    assert_eq!(compute("ADD", &[Input(&x), Input(&y)], relu6, &[DType::I32])[0].to_vec::<i32>().unwrap(), [6, 0]);
    let x = new(&[-2.0f32, -1.0, 3.0, 4.0], &[2, 2]);
    let y = compute("PRELU", &[Input(&x), Constant(&new(&[0.5f32, 0.25], &[2]))], None, &[DType::F32]).remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [-1.0, -0.25, 3.0, 4.0]);
    let condition = new(&[Bool::from(true), Bool::from(false)], &[2]);
    let y = compute("SELECT", &[Input(&condition), Input(&x), Input(&x.neg().unwrap())], None, &[DType::F32]).remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [-2.0, -1.0, -3.0, -4.0]);
    let y = compute("SELECT_V2", &[Input(&condition), Input(&x), Input(&x.neg().unwrap())], None, &[DType::F32]).remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [-2.0, 1.0, 3.0, -4.0]);
    let y = compute("ADD_N", &[Input(&x), Input(&x), Input(&x)], None, &[DType::F32]).remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [-6.0, -3.0, 9.0, 12.0]);
    let half = new(&[0.5f32], &[1]).cast(DType::F16).unwrap();
    assert_eq!(compute("DEQUANTIZE", &[Constant(&half)], None, &[DType::F32])[0].to_vec::<f32>().unwrap(), [0.5]);
}

/// Each group of channels has its own filters.
#[test]
fn a_convolution_has_groups() {
    let x = new(&[1.0f32, 2.0, 3.0, 4.0], &[1, 1, 1, 4]);
    let filter = new(&[1.0f32, 10.0, 100.0, 1000.0], &[2, 1, 1, 2]);
    let bias = new(&[0.5f32, 0.25], &[2]);
    let options = Some((1, vec![(0, Field::I8(1)), (1, Field::I32(1)), (2, Field::I32(1))]));
    let y = compute("CONV_2D", &[Input(&x), Constant(&filter), Constant(&bias)], options, &[DType::F32]).remove(0);
    assert_eq!(y.to_vec::<f32>().unwrap(), [21.5, 4300.25]);
}

#[test]
fn a_dense_layer_flattens_unless_it_keeps_dimensions() {
    let (x, weights) = (new(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], &[2, 2, 2]), new(&[1.0f32, 10.0], &[1, 2]));
    for (keep, dims) in [(false, &[4, 1][..]), (true, &[2, 2, 1])] {
        let options = Some((8, vec![(2, Field::Bool(keep))]));
        let y = compute("FULLY_CONNECTED", &[Input(&x), Constant(&weights), Missing], options, &[DType::F32]).remove(0);
        assert_eq!((y.dims(), y.to_vec::<f32>().unwrap()), (dims, vec![21.0, 43.0, 65.0, 87.0]));
    }
}

/// Operators that only move elements work on those of quantized tensors. Padding has the value of the zero point.
#[test]
fn quantized_elements_move() {
    let x = new(&[-5i8, 7, 1, 3], &[1, 2, 2, 1]);
    let run = |name, operands: &[Operand<'_>], options| compute_quantized(name, operands, options, &[DType::I8], Some((0.5, -3))).remove(0);
    let pool = Some((5, vec![(1, Field::I32(1)), (2, Field::I32(1)), (3, Field::I32(2)), (4, Field::I32(2))]));
    assert_eq!(run("MAX_POOL_2D", &[Input(&x)], pool).to_vec::<i8>().unwrap(), [7, 7, 3, 3]);
    let y = run("PAD", &[Input(&x), Constant(&new(&[0, 0, 0, 0, 1, 0, 0, 0], &[4, 2]))], None);
    assert_eq!(y.to_vec::<i8>().unwrap(), [-3, -5, 7, -3, 1, 3]);
    let y = run("CONCATENATION", &[Input(&x), Input(&x)], Some((10, vec![(0, Field::I32(3))])));
    assert_eq!(y.to_vec::<i8>().unwrap(), [-5, -5, 7, 7, 1, 1, 3, 3]);
    let y = run("REDUCE_MAX", &[Input(&x), Constant(&i32s(&[1, -1]))], Some((27, vec![(0, Field::Bool(true))])));
    assert_eq!((y.dims(), y.to_vec::<i8>().unwrap()), (&[1, 1, 2, 1][..], vec![1, 7]));

    let wrong = single("RESHAPE", &[Input(&x)], None, &[DType::I8], Some((0.5, 200)));
    let error = Model::from_bytes(wrong).unwrap_err().to_string();
    assert!(error.ends_with("tensor 0: its zero point 0 is 200, which is not a value of INT8"), "{error}");
    let power = single("POW", &[Input(&x), Input(&x)], None, &[DType::I8], Some((0.5, -3)));
    let reasons = Model::from_bytes(power).unwrap().unsupported();
    assert_eq!(reasons[0].reason, "it is not supported for quantized tensors");
}

#[test]
fn branches_and_loops() {
    let x = new(&[3i32], &[]);
    let (number, flag) = (Described::like(&x), Described::of(DType::Bool));
    let constant = |value: i32| Described::constant(&new(&[value], &[]));
    let body = |name: &'static str, value: i32, result: &Described| Graph {
        tensors: vec![number.clone(), constant(value), result.clone()],
        operators: vec![operator(name, vec![0, 1], vec![2], None)],
        inputs: vec![0],
        outputs: vec![2],
        ..Graph::default()
    };
    let main = |operators: Vec<Operator>| Graph {
        tensors: vec![number.clone(), constant(10), flag.clone(), number.clone()],
        operators,
        inputs: vec![0],
        outputs: vec![3],
        ..Graph::default()
    };
    let subgraphs = |first, second| vec![(0, Field::I32(first)), (1, Field::I32(second))];
    let choose = main(vec![operator("LESS", vec![0, 1], vec![2], None), operator("IF", vec![2, 0], vec![3], Some((92, subgraphs(1, 2))))]);
    let graphs = [choose, body("ADD", 1, &number), body("SUB", 1, &number)];
    assert_eq!(call(&model(&graphs), &[&x])[0].item::<i32>().unwrap(), 4);
    assert_eq!(call(&model(&graphs), &[&new(&[20i32], &[])])[0].item::<i32>().unwrap(), 19);
    let repeat = main(vec![operator("WHILE", vec![0], vec![3], Some((93, subgraphs(1, 2))))]);
    let graphs = [repeat, body("LESS", 100, &flag), body("MUL", 2, &number)];
    assert_eq!(call(&model(&graphs), &[&x])[0].item::<i32>().unwrap(), 192);
}

/// A handle's name is that of its options, and the first assignment creates the variable.
#[test]
fn variables_keep_their_values() {
    let x = new(&[2.0f32], &[1]);
    let handle = Described::of(ElementType::RESOURCE);
    let named = || Some((111, vec![(1, Field::Text("sum"))]));
    let main = Graph {
        tensors: vec![Described::like(&x), handle.clone(), Described::like(&x), Described::like(&x)],
        operators: vec![
            operator("CALL_ONCE", vec![], vec![], Some((103, vec![(0, Field::I32(1))]))),
            operator("VAR_HANDLE", vec![], vec![1], named()),
            operator("READ_VARIABLE", vec![1], vec![2], None),
            operator("ADD", vec![0, 2], vec![3], None),
            operator("ASSIGN_VARIABLE", vec![1, 3], vec![], None),
        ],
        inputs: vec![0],
        outputs: vec![3],
        ..Graph::default()
    };
    let start = Graph {
        tensors: vec![handle, Described::constant(&new(&[10.0f32], &[1]))],
        operators: vec![operator("VAR_HANDLE", vec![], vec![0], named()), operator("ASSIGN_VARIABLE", vec![0, 1], vec![], None)],
        ..Graph::default()
    };
    let model = Model::from_bytes(model(&[main, start])).unwrap();
    let scope = Eager::new(&portable_cpu());
    let function = model.function().unwrap();
    assert_eq!(model.call(&scope, &[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [12.0]);
    assert_eq!(function.call(&scope, vec![x.clone()]).unwrap()[0].to_vec::<f32>().unwrap(), [14.0]);
    assert_eq!(model.call(&scope, &[&x]).unwrap()[0].to_vec::<f32>().unwrap(), [16.0]);
}

/// A sequence `[time,batch,width]`, in which each output is added to the next input.
#[test]
fn a_recurrent_layer_adds_its_last_output() {
    let x = new(&[1.0f32, 2.0, 3.0, -100.0], &[4, 1, 1]);
    let (weight, recurrent, bias, state) =
        (new(&[10.0f32], &[1, 1]), new(&[0.5f32], &[1, 1]), new(&[1.0f32], &[1]), new(&[4.0f32], &[1, 1]));
    let operands = [Input(&x), Constant(&weight), Constant(&recurrent), Constant(&bias), Input(&state)];
    let options = Some((31, vec![(0, Field::Bool(true)), (1, Field::I8(1))]));
    let y = compute("UNIDIRECTIONAL_SEQUENCE_RNN", &operands, options, &[DType::F32]).remove(0);
    assert_eq!((y.dims(), y.to_vec::<f32>().unwrap()), (&[4, 1, 1][..], vec![13.0, 27.5, 44.75, 0.0]));
    let x = new(&[3.0f32, 5.0, 1.0, 1.0], &[1, 2, 2, 1]);
    let pool = Some((5, vec![(0, Field::I8(1)), (1, Field::I32(1)), (2, Field::I32(1)), (3, Field::I32(2)), (4, Field::I32(2))]));
    assert_eq!(compute("L2_POOL_2D", &[Input(&x)], pool, &[DType::F32])[0].to_vec::<f32>().unwrap(), [3.0]);
}

/// The artifact of a loop does not grow with the sequence.
#[test]
fn a_long_sequence_is_a_loop() {
    let x = new(&[1.0f32; 10_000], &[10_000, 1, 1]);
    let (half, bias, state) = (new(&[0.5f32], &[1, 1]), new(&[0.0f32], &[1]), new(&[0.0f32], &[1, 1]));
    let operands = [Input(&x), Constant(&half), Constant(&half), Constant(&bias), Constant(&state)];
    let options = || Some((31, vec![(0, Field::Bool(true)), (1, Field::I8(1))]));
    let y = compute("UNIDIRECTIONAL_SEQUENCE_RNN", &operands, options(), &[DType::F32]).remove(0).to_vec::<f32>().unwrap();
    assert_eq!((y.len(), &y[..3], y[9999]), (10_000, &[0.5, 0.75, 0.875][..], 1.0));
    let model = Model::from_bytes(single("UNIDIRECTIONAL_SEQUENCE_RNN", &operands, options(), &[DType::F32], None)).unwrap();
    let bytes = model.export(1).unwrap();
    assert!(bytes.len() < 2500, "{} bytes", bytes.len());
}

/// A constant that an operator makes larger is not in the artifact as a whole.
#[test]
fn a_filled_tensor_is_not_exported() {
    let (dims, value) = (i32s(&[1000, 1000]), new(&[0.5f32], &[]));
    let operands = [Constant(&dims), Constant(&value)];
    let model = Model::from_bytes(single("FILL", &operands, None, &[DType::F32], None)).unwrap();
    let bytes = model.export(1).unwrap();
    assert!(bytes.len() < 1000, "{} bytes", bytes.len());
    let y = compute("FILL", &operands, None, &[DType::F32]).remove(0);
    assert_eq!((y.dims(), y.to_vec::<f32>().unwrap()[999_999]), (&[1000, 1000][..], 0.5));
}

/// Peepholes, a projection with clipping, and coupled gates, against the formula in f64.
#[test]
fn an_lstm_has_optional_parts() {
    const CELLS: usize = 3;
    let numbers = |count: usize, seed: f32| (0..count).map(|at| ((at as f32 + 1.3) * seed).sin() * 0.7).collect::<Vec<f32>>();
    let (batch, width) = (2, 2);
    // Four steps are unrolled, and eleven are a loop.
    for (coupled, peepholes, projected, steps) in
        [(false, false, false, 4), (false, false, false, 11), (true, false, true, 11), (false, true, true, 11), (true, true, false, 4)]
    {
        let outputs = if projected { 2 } else { CELLS };
        let x = new(&numbers(batch * steps * width, 0.37), &[batch as u32, steps as u32, width as u32]);
        let weights = |rows: usize, columns: usize, seed: f32| new(&numbers(rows * columns, seed), &[rows as u32, columns as u32]);
        let list = |count: usize, seed: f32| new(&numbers(count, seed), &[count as u32]);
        let of_input: Vec<Tensor> = (0..4).map(|at| weights(CELLS, width, 1.1 + at as f32)).collect();
        let recurrent: Vec<Tensor> = (0..4).map(|at| weights(CELLS, outputs, 2.3 + at as f32)).collect();
        let holes: Vec<Tensor> = (0..3).map(|at| list(CELLS, 3.7 + at as f32)).collect();
        let biases: Vec<Tensor> = (0..4).map(|at| list(CELLS, 4.1 + at as f32)).collect();
        let projection = weights(2, CELLS, 5.9);
        let (h, c) = (new(&vec![0.0f32; batch * outputs], &[batch as u32, outputs as u32]), new(&[0.0f32; 2 * CELLS], &[2, CELLS as u32]));
        let mut operands = vec![Input(&x)];
        let given = |tensor, given: bool| if given { Constant(tensor) } else { Missing };
        operands.extend(of_input.iter().enumerate().map(|(at, tensor)| given(tensor, at > 0 || !coupled)));
        operands.extend(recurrent.iter().enumerate().map(|(at, tensor)| given(tensor, at > 0 || !coupled)));
        operands.extend(holes.iter().enumerate().map(|(at, tensor)| given(tensor, peepholes && (at > 0 || !coupled))));
        operands.extend(biases.iter().enumerate().map(|(at, tensor)| given(tensor, at > 0 || !coupled)));
        operands.extend([given(&projection, projected), Missing, Constant(&h), Constant(&c)]);
        let options = Some((71, vec![(0, Field::I8(4)), (1, Field::F32(0.6)), (2, Field::F32(0.4))]));
        let y = compute("UNIDIRECTIONAL_SEQUENCE_LSTM", &operands, options, &[DType::F32]).remove(0);

        let at = |tensor: &Tensor, index: usize| f64::from(tensor.to_vec::<f32>().unwrap()[index]);
        let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
        for row in 0..batch {
            let (mut h, mut c) = (vec![0.0; outputs], vec![0.0; CELLS]);
            for step in 0..steps {
                let sum = |gate: usize, cell: usize| {
                    let from_x: f64 =
                        (0..width).map(|k| at(&x, (row * steps + step) * width + k) * at(&of_input[gate], cell * width + k)).sum();
                    let from_h: f64 = (0..outputs).map(|k| h[k] * at(&recurrent[gate], cell * outputs + k)).sum();
                    from_x + from_h + at(&biases[gate], cell)
                };
                let hole = |at_hole: usize, c: &[f64], cell: usize| if peepholes { at(&holes[at_hole], cell) * c[cell] } else { 0.0 };
                let mut next = c.clone();
                for cell in 0..CELLS {
                    let forget = sigmoid(sum(1, cell) + hole(1, &c, cell));
                    let input = if coupled { 1.0 - forget } else { sigmoid(sum(0, cell) + hole(0, &c, cell)) };
                    next[cell] = (forget * c[cell] + input * sum(2, cell).tanh()).clamp(-0.6, 0.6);
                }
                let open: Vec<f64> = (0..CELLS).map(|cell| sigmoid(sum(3, cell) + hole(2, &next, cell)) * next[cell].tanh()).collect();
                c = next;
                h = match projected {
                    true => (0..outputs)
                        .map(|k| (0..CELLS).map(|cell| open[cell] * at(&projection, k * CELLS + cell)).sum::<f64>().clamp(-0.4, 0.4))
                        .collect(),
                    false => open,
                };
                for (k, want) in h.iter().enumerate() {
                    let got = at(&y, (row * steps + step) * outputs + k);
                    assert!(
                        (got - want).abs() < 1e-6,
                        "{got} instead of {want}: coupled {coupled}, peepholes {peepholes}, projected {projected}"
                    );
                }
            }
        }
    }
}

#[test]
fn quantized_tensors_are_compared_and_scattered() {
    let compare = |name, a: &Tensor, b: &Tensor| {
        compute_quantized(name, &[Input(a), Input(b)], None, &[DType::Bool], Some((0.001, 0))).remove(0).to_vec::<Bool>().unwrap()
    };
    let flags = |flags: &[bool]| flags.iter().map(|&flag| flag.into()).collect::<Vec<Bool>>();
    // With 8 bits after the point, 0 and 0.001 are equal, 0.2 and 0.204 are not.
    let (a, b) = (new(&[0u8, 200, 2], &[3]), new(&[1u8, 204, 2], &[3]));
    assert_eq!(compare("EQUAL", &a, &b), flags(&[true, false, true]));
    assert_eq!(compare("LESS", &a, &b), flags(&[false, true, false]));
    let (a, b) = (new(&[0i8, -128, 2], &[3]), new(&[1i8, -120, 2], &[3]));
    assert_eq!(compare("GREATER_EQUAL", &a, &b), flags(&[true, false, true]));
    assert_eq!(compare("NOT_EQUAL", &a, &b), flags(&[false, true, false]));
    // Integers of 16 bits are compared as they are.
    let (a, b) = (new(&[0i16, 300, 2], &[3]), new(&[1i16, 301, 2], &[3]));
    assert_eq!(compare("LESS", &a, &b), flags(&[true, true, false]));
    // Elements that nothing is added to are the integer 0, whatever it stands for.
    let operands = [Input(&new(&[1, 1, 3], &[3, 1])), Input(&new(&[1i8, 2, 3], &[3])), Constant(&i32s(&[4]))];
    let y = compute_quantized("SCATTER_ND", &operands, None, &[DType::I8], Some((0.5, 3))).remove(0);
    assert_eq!(y.to_vec::<i8>().unwrap(), [0, 3, 0, 3]);
}

/// The position of a slice is moved into the tensor. A slice as large as the tensor replaces it.
#[test]
fn a_slice_is_replaced() {
    let x = new(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2]);
    let replaced = |slice: &Tensor, begin: [i32; 2]| {
        let begin = new(&begin, &[2]);
        compute("DYNAMIC_UPDATE_SLICE", &[Input(&x), Input(slice), Input(&begin)], None, &[DType::F32])[0].to_vec::<f32>().unwrap()
    };
    let row = new(&[8.0f32, 9.0], &[1, 2]);
    assert_eq!(replaced(&row, [1, 0]), [1.0, 2.0, 8.0, 9.0]);
    assert_eq!(replaced(&row, [7, 0]), [1.0, 2.0, 8.0, 9.0]);
    assert_eq!(replaced(&row, [-3, 1]), [8.0, 9.0, 3.0, 4.0]);
    assert_eq!(replaced(&new(&[5.0f32], &[1, 1]), [0, 1]), [1.0, 5.0, 3.0, 4.0]);
    assert_eq!(replaced(&new(&[5.0f32, 6.0, 7.0, 8.0], &[2, 2]), [1, 1]), [5.0, 6.0, 7.0, 8.0]);
}
