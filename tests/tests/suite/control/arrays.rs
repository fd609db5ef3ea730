//! Eager `TensorArray`, compared with the logs of TensorFlow's programs.

use crate::control::{eager, error, f32s, floats, i32s, ints};
use gradlet_core::{DType, Differentiate, Result, TensorArray};

fn array(dtype: DType, size: u32) -> TensorArray {
    TensorArray::new(&eager(), dtype, size, false)
}

#[test]
fn all_that_an_array_does_eagerly() -> Result<()> {
    let rows = floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2]);
    let a = array(DType::F32, 3).clear_after_read(false).unstack(&rows)?;
    assert_eq!((a.stack()?.dims(), f32s(&a.stack()?)), (&[3, 2][..], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]));
    let gathered = a.gather(&ints(&[2, 0], &[2]))?;
    assert_eq!((gathered.dims(), f32s(&gathered)), (&[2, 2][..], vec![5.0, 6.0, 1.0, 2.0]));
    assert_eq!(f32s(&a.concat()?), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    assert_eq!(i32s(&a.size()?), [3]);
    assert_eq!((f32s(&a.read(1)?), f32s(&a.read(1)?)), (vec![3.0, 4.0], vec![3.0, 4.0]));
    assert_eq!(error(a.read(3)), "cannot read index 3 of an array of 3 elements");
    assert_eq!(error(a.read(-1)), "cannot read index -1 of an array of 3 elements");
    assert_eq!((a.element_shape(), a.dtype(), a.dynamic_size()), (None, DType::F32, false));

    let b = TensorArray::new(&eager(), DType::I32, 0, true).write(2, &ints(&[5], &[]))?;
    assert_eq!((i32s(&b.size()?), i32s(&b.stack()?)), (vec![3], vec![0, 0, 5]));
    let d = array(DType::I32, 2);
    assert_eq!(error(d.write(2, &ints(&[1], &[]))), "cannot write to index 2: the array has 2 elements, and its size is not dynamic");
    assert_eq!(error(d.read(0)), "the element is unwritten, and the shape of elements is not known: use with_element_shape");
    let e = array(DType::F32, 4).scatter(&ints(&[3, 1], &[2]), &floats(&[10.0, 20.0], &[2]))?;
    assert_eq!((i32s(&e.size()?), f32s(&e.read(3)?)), (vec![4], vec![10.0]));
    let twice = "element 3 was cleared by an earlier read: use clear_after_read(false) to read elements more than once";
    assert_eq!(error(e.read(3)), twice);
    let s = array(DType::I32, 3).split(&ints(&[1, 2, 3, 4, 5], &[5]), &[2, 0, 3])?;
    assert_eq!([i32s(&s.read(0)?), i32s(&s.read(1)?), i32s(&s.read(2)?)], [vec![1, 2], vec![], vec![3, 4, 5]]);
    let w = array(DType::F32, 1).write(0, &floats(&[1.0], &[]))?.write(0, &floats(&[2.0], &[]))?;
    assert_eq!(f32s(&w.read(0)?), [2.0]);
    assert_eq!(error(w.write(0, &ints(&[1], &[]))), "the elements of the array must be f32, not i32");
    let m = array(DType::F32, 2).write(0, &floats(&[1.0], &[1]))?;
    assert_eq!(error(m.write(1, &floats(&[1.0, 2.0], &[2]))), "the elements of the array must have the shape [1], not [2]");
    Ok(())
}

#[test]
fn what_is_written_is_another_array() -> Result<()> {
    let a = array(DType::F32, 2).with_element_shape(&[])?;
    let b = a.write(0, &floats(&[7.0], &[]))?;
    assert_eq!((f32s(&a.stack()?), f32s(&b.stack()?)), (vec![0.0, 0.0], vec![7.0, 0.0]));
    // An element that is cleared in one array remains in the other.
    b.read(0)?;
    assert!(b.read(0).is_err() && b.clone().read(0).is_err() && b.stack().is_err() && a.read(0).is_ok());
    assert_eq!(f32s(&b.write(0, &floats(&[8.0], &[]))?.read(0)?), [8.0]);
    Ok(())
}

#[test]
fn elements_of_several_shapes() -> Result<()> {
    let a = array(DType::I32, 2).infer_shape(false).write(0, &ints(&[1, 2], &[1, 2]))?.write(1, &ints(&[3, 4, 5, 6], &[2, 2]))?;
    assert_eq!((a.concat()?.dims(), i32s(&a.concat()?)), (&[3, 2][..], vec![1, 2, 3, 4, 5, 6]));
    assert_eq!(error(a.stack()), "stack needs tensors of the same type, but got slices of the types i32[1,1,2] and i32[1,2,2]");
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() -> Result<()> {
    let a = array(DType::I32, 2);
    let (one, two, three) = (ints(&[1], &[]), ints(&[1, 2], &[2]), ints(&[1, 2, 3], &[3]));
    assert_eq!(error(a.unstack(&three)), "cannot unstack 3 slices: the array has 2 elements, and its size is not dynamic");
    assert_eq!(error(a.unstack(&one)), "the elements of an array cannot be taken from a scalar, which has no axis");
    assert_eq!(error(a.split(&three, &[3])), "cannot split 1 lengths: the array has 2 elements, and its size is not dynamic");
    assert_eq!(error(a.split(&three, &[1, 1])), "axis 0 of i32[3] cannot be split into parts of sizes [1, 1]");
    assert_eq!(error(a.write(-1, &one)), "cannot write to index -1 of an array: it must be at least 0 and below 2^32");
    assert_eq!(error(a.write(&two, &one)), "an index of an array must be a scalar or a vector of i32 or i64, not i32[2]");
    assert_eq!(error(a.read(&floats(&[0.0], &[]))), "an index of an array must be a scalar or a vector of i32 or i64, not f32[]");
    assert_eq!(error(a.scatter(&two, &three)), "scatter needs one index for each slice of i32[3], but got the indices i32[2]");
    assert_eq!(error(a.unstack(&two)?.concat()), "concat joins elements along their first axis, and scalars have none: stack them");
    assert_eq!(a.unstack(&ints(&[], &[0]))?.stack()?.dims(), [0]);
    Ok(())
}

#[test]
fn gradients_are_summed() -> Result<()> {
    let tape = eager().persistent_tape();
    let x = tape.watch(&floats(&[1.0, 2.0, 3.0], &[3]))?;
    let a = TensorArray::new(&tape, DType::F32, 3, false).clear_after_read(false).unstack(&x)?;
    let gathered = a.gather(&ints(&[0, 2, 2], &[3]))?;
    let y = gathered.square()?.sum(&[], false)?.add(&a.read(1)?.mul_scalar(10.0)?)?;
    assert_eq!(f32s(&y), [39.0]);
    assert_eq!(f32s(&tape.gradient(&y, &x)?.unwrap()), [2.0, 10.0, 12.0]);

    let indices = ints(&[2, 0], &[2]);
    let b = TensorArray::new(&tape, DType::F32, 3, false).scatter(&indices, &x.index(1..)?)?.write(1, &x.index(0)?)?;
    let y = b.stack()?.mul(&floats(&[1.0, 10.0, 100.0], &[3]))?.sum(&[], false)?;
    assert_eq!(f32s(&tape.gradient(&y, &x)?.unwrap()), [10.0, 100.0, 1.0]);
    Ok(())
}
