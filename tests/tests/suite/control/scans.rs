//! Tests of loops over slices: `scan`, `foldl` and `map_fn`.

use crate::control::{eager, error, f32s, floats, i32s, ints};
use gradlet_core::control::{ScanOptions, foldl, map_fn, scan};
use gradlet_core::{DType, Differentiate, Result, Tensor};

#[test]
fn scans_as_tensorflow() -> Result<()> {
    let scope = eager();
    let x = ints(&[1, 2, 3, 4, 5, 6], &[6]);
    let pair = (x.add_scalar(1.0)?, x);
    let ones = scan(&scope, ScanOptions::default(), &pair, ints(&[0], &[]), |a, (x, y)| x.sub(&y)?.add(&a))?;
    assert_eq!(i32s(&ones), [1, 2, 3, 4, 5, 6]);
    let fibonacci = |(a, b): (Tensor, Tensor), _| Ok((b.clone(), a.add(&b)?));
    let (a, b) = scan(&scope, ScanOptions::default(), &pair.0, (ints(&[0], &[]), ints(&[1], &[])), fibonacci)?;
    assert_eq!((i32s(&a), i32s(&b)), (vec![1, 1, 2, 3, 5, 8], vec![1, 2, 3, 5, 8, 13]));
    assert_eq!(i32s(&foldl(&scope, &pair.1, ints(&[0], &[]), |sum, x| sum.add(&x))?), [21]);
    let empty = scan(&scope, ScanOptions::default(), &ints(&[], &[0]), floats(&[1.0, 2.0], &[2]), |a, _| Ok(a))?;
    assert_eq!(empty.dims(), [0, 2]);
    Ok(())
}

#[test]
fn what_does_not_fit_is_an_error() {
    let (scope, x) = (eager(), ints(&[1, 2, 3], &[3]));
    let scan = |elements: &Tensor| scan(&scope, ScanOptions::default(), elements, x.clone(), |_, x| Ok(x));
    assert_eq!(error(scan(&x)), "the elements of the array must have the shape [3], not []");
    let counts = "the elements of a scan must have the same number of slices along their first axes, not [i32[]]";
    assert_eq!(error(scan(&ints(&[1], &[]))), counts);
    assert!(error(map_fn(&scope, DType::F32, &x, Ok)).contains("must be f32, not i32"));
}

#[test]
fn gradients_of_a_scan() -> Result<()> {
    let tape = eager().tape();
    let x = tape.watch(&floats(&[1.0, 2.0, 3.0], &[3]))?;
    // Cumulative products: x0, x0 x1, x0 x1 x2.
    let y = scan(&tape, ScanOptions::default(), &x, floats(&[1.0], &[]), |a, x| a.mul(&x))?;
    assert_eq!(f32s(&y), [1.0, 2.0, 6.0]);
    assert_eq!(f32s(&tape.gradient(&y, &x)?.unwrap()), [1.0 + 2.0 + 6.0, 1.0 + 3.0, 2.0]);
    Ok(())
}
