//! Tensors whose sizes do not fit in 32 bits. They need 16 GiB of memory and 6 GiB of disk, one test after the other.

use gradlet::checkpoint::Checkpoint;
use gradlet_core::{DType, Eager, Function, Result, Scope, Tensor, Variable};

/// Number of columns of a matrix of five rows that has 5 GiB of floats.
const FLOATS: u32 = 1 << 28;
/// Number of columns of a matrix of five rows that has 5 GiB of bytes. Its elements cannot be counted in 32 bits either.
const BYTES: u32 = 1 << 30;

/// Returns the last three elements of a matrix.
fn end(x: &Tensor) -> Result<Tensor> {
    x.index((-1, -3..))
}

#[test]
#[ignore = "needs 16 GiB of memory: `cargo xtask test all` runs it"]
fn five_gib_of_floats() -> Result<()> {
    let device = gradlet::cpu();
    let scope = Eager::new(&device);
    let number = Tensor::new(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0], &[5, 1])?;
    let x = number.broadcast_to(&[5, FLOATS])?;
    assert!(device.memory_info().current > 5 << 30);
    assert_eq!(end(&x)?.to_vec::<f32>()?, [5.0; 3]);
    let count = FLOATS as f32;
    assert_eq!(x.sum(&[], false)?.item::<f32>()?, 15.0 * count);
    assert_eq!(x.sum(&[1], false)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0, 5.0].map(|number| number * count));
    assert_eq!(end(&x.sum(&[0], true)?)?.to_vec::<f32>()?, [15.0; 3]);
    assert_eq!((x.mean(&[], false)?.item::<f32>()?, x.max(&[], false)?.item::<f32>()?), (3.0, 5.0));

    // In a function, 5 GiB of scratch memory.
    let double = Function::new(|_: &dyn Scope, x: Tensor| Ok((x.add(&x)?.reverse(&[0])?.sum(&[1], false)?, end(&x.add(&x)?)?)));
    let (sums, last) = double.call(&scope, x.clone())?;
    assert_eq!(sums.to_vec::<f32>()?, [10.0, 8.0, 6.0, 4.0, 2.0].map(|number| number * count));
    assert_eq!(last.to_vec::<f32>()?, [10.0; 3]);
    drop(double);

    let folder = tempfile::tempdir().expect("a folder");
    let variable = Variable::new(&scope, "large", &x)?;
    drop(x);
    let prefix = Checkpoint::new().with("large", &variable).save(folder.path().join("ckpt")).expect("a checkpoint");
    scope.assign(&variable, &Tensor::zeros(&device, variable.tensor_type()?)?)?;
    device.free_unused();
    Checkpoint::new().with("large", &variable).restore(&prefix).expect("the checkpoint");
    let restored = scope.read(&variable)?;
    assert_eq!((end(&restored)?.to_vec::<f32>()?, restored.sum(&[], false)?.item::<f32>()?), (vec![5.0; 3], 15.0 * count));
    Ok(())
}

#[test]
#[ignore = "needs 16 GiB of memory: `cargo xtask test all` runs it"]
fn more_elements_than_32_bits_count() -> Result<()> {
    let device = gradlet::cpu();
    let number = Tensor::new(&device, &[1u8, 2, 3, 4, 5], &[5, 1])?;
    let x = number.broadcast_to(&[5, BYTES])?;
    assert_eq!(end(&x)?.to_vec::<u8>()?, [5; 3]);
    assert_eq!(x.max(&[1], false)?.to_vec::<u8>()?, [1, 2, 3, 4, 5]);
    assert_eq!(x.index((.., -1))?.to_vec::<u8>()?, [1, 2, 3, 4, 5]);
    let y = x.add(&number)?;
    drop(x);
    assert_eq!(end(&y)?.to_vec::<u8>()?, [10; 3]);
    let rows = y.gather(&Tensor::new(&device, &[4i64], &[1])?, 0)?;
    assert_eq!((rows.dims(), end(&rows)?.to_vec::<u8>()?), (&[1, BYTES][..], vec![10; 3]));
    let flat = y.reshape_open(&[-1]).expect_err("a dimension that does not fit in 32 bits");
    assert!(flat.to_string().contains("5368709120"), "{flat}");
    assert_eq!(y.reshape_open(&[-1, 5])?.dims(), [BYTES, 5]);
    assert_eq!(y.equal(&y)?.cast(DType::U8)?.min(&[], false)?.item::<u8>()?, 1);
    Ok(())
}
