//! Means and variances, and what is computed with them, on a device that is not strict. Their kernels read a tensor once.

use gradlet::cuda::Options;
use gradlet_core::{DType, Device, Eager, Function, Result, Scope, Tensor};
use gradlet_tests::gpu::Emulator;
use gradlet_tests::random::Random;

type Compute = fn(&Tensor, &[i32]) -> Result<Vec<Tensor>>;

/// Numbers with this mean and a standard deviation of about 1.
fn numbers(device: &Device, dims: &[u32], mean: f32) -> Result<Tensor> {
    let mut random = Random::new(dims.iter().map(|&dim| u64::from(dim)).sum());
    let numbers: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| mean + 3.5 * (random.unit() as f32 - 0.5)).collect();
    Tensor::new(device, &numbers, dims)
}

/// Results of a function on a GPU, those in f64, and the kernels that ran.
type Results = (Vec<Vec<f32>>, Vec<Vec<f64>>, Vec<String>);

/// Computes a function of a tensor on the emulated GPU. Returns its results, those in f64 on the same numbers, and the kernels' names.
fn results(compute: Compute, dims: &[u32], axes: &[i32], mean: f32) -> Result<Results> {
    let emulator = Emulator::new()?;
    let device = emulator.gpu()?.create("GPU:0", &Options { strict: false, ..Options::default() })?;
    let own = axes.to_vec();
    let function = Function::new(move |_: &dyn Scope, x: Tensor| compute(&x, &own));
    let x = numbers(&device, dims, mean)?;
    let call = || function.call(&Eager::new(&device), x.clone())?.iter().map(|y| y.to_vec::<f32>()).collect::<Result<Vec<_>>>();
    call()?;
    let found = emulator.during(call).0?;
    let kernels = emulator.kernels();
    let fields = kernels.iter().map(|line| line.split(' ').collect::<Vec<_>>());
    let names = fields.flat_map(|fields| vec![fields[0].to_string(); fields[1].parse().unwrap()]).collect();
    assert_eq!(emulator.report(), "");
    let cpu = gradlet_core::ops::portable_cpu();
    let exact: Vec<f64> = x.to_vec::<f32>()?.into_iter().map(f64::from).collect();
    let exact = compute(&Tensor::new(&cpu, &exact, dims)?, axes)?;
    Ok((found, exact.iter().map(|y| y.to_vec::<f64>()).collect::<Result<_>>()?, names))
}

/// Checks the results, which may be wrong by this share of the mean and of 1.
fn check(compute: Compute, dims: &[u32], axes: &[i32], mean: f32) -> Result<Vec<String>> {
    let (found, exact, names) = results(compute, dims, axes, mean)?;
    for (result, (found, exact)) in found.iter().zip(&exact).enumerate() {
        assert_eq!(found.len(), exact.len());
        // A mean has the precision of its elements, and nothing else depends on their size.
        let tolerance = 3e-6 + if result == 0 { 0.0 } else { 4e-7 * f64::from(mean.abs()) };
        for (found, exact) in found.iter().zip(exact) {
            let wrong = (f64::from(*found) - exact).abs() / exact.abs().max(1.0);
            assert!(wrong < tolerance, "{dims:?} over {axes:?}, result {result}: {found}, not {exact}");
        }
    }
    Ok(names)
}

fn moments(x: &Tensor, axes: &[i32]) -> Result<Vec<Tensor>> {
    let (mean, variance) = x.moments(axes, true)?;
    Ok(vec![mean, variance])
}

/// Moments of a tensor that is computed where it is read, and stored.
fn moments_of_a_sum(x: &Tensor, axes: &[i32]) -> Result<Vec<Tensor>> {
    let x = x.add_scalar(1.0)?;
    let (mean, variance) = x.moments(axes, true)?;
    Ok(vec![mean, variance, x])
}

#[test]
fn moments_take_one_pass() -> Result<()> {
    for compute in [moments as Compute, moments_of_a_sum] {
        for mean in [0.0, 1000.0] {
            // Few and many columns, some of them at the end of a strip, and a block of columns for each image.
            for (dims, axes) in [
                (&[300, 7][..], &[0][..]),
                (&[4, 5, 6, 40], &[0, 1, 2]),
                (&[2, 130, 33], &[1]),
                (&[1, 5], &[0]),
                // Four neighbouring columns at once.
                (&[256, 2052], &[0]),
            ] {
                let names = check(compute, dims, axes, mean)?;
                assert!(names.len() <= 2);
                let quads = names.iter().any(|name| ["moments_quads_f32", "moments_opening_f32"].contains(&name.as_str()));
                assert!(dims[0] != 256 || quads, "{names:?}");
            }
            // Parts of columns, of long rows, and of all.
            for (dims, axes) in [(&[5000, 3][..], &[0][..]), (&[3, 20_000], &[1]), (&[30_001], &[0])] {
                let names = check(compute, dims, axes, mean)?;
                assert!(names.iter().any(|name| name == "moments_parts_f32") && names.len() == 2, "{names:?}");
            }
        }
    }
    Ok(())
}

/// Elements whose squares overflow have a variance, as long as they are near each other.
#[test]
fn large_elements_have_a_variance() -> Result<()> {
    for (dims, axes) in [(&[300, 7][..], &[0][..]), (&[1, 5], &[0]), (&[256, 2052], &[0]), (&[5000, 3], &[0]), (&[9, 2100], &[1])] {
        let (found, ..) = results(moments, dims, axes, 1e20)?;
        assert!(found[1].iter().all(|variance| (0.0..1e28).contains(variance)), "{dims:?}: {:?}", &found[1][..3]);
    }
    Ok(())
}

/// Layer normalization of a sum of tensors, which is stored, with factors and shifts.
fn of_a_sum(x: &Tensor, axes: &[i32]) -> Result<Vec<Tensor>> {
    let x = x.add_scalar(1.0)?;
    let weight = |value: f64| -> Result<Tensor> { x.like(value)?.broadcast_to(&x.dims()[axes[0] as usize..]) };
    Ok(vec![x.mean(&[], false)?, x.layer_norm(axes, Some(&weight(1.25)?), Some(&weight(-0.5)?), 1e-3)?, x])
}

fn layer_norm(x: &Tensor, axes: &[i32]) -> Result<Vec<Tensor>> {
    Ok(vec![x.mean(&[], false)?, x.layer_norm(axes, None, None, 1e-3)?])
}

/// Results that need values of rows after the normalization.
fn layer_norm_and_more(x: &Tensor, axes: &[i32]) -> Result<Vec<Tensor>> {
    let (mean, variance) = x.moments(axes, true)?;
    let factor = variance.add_scalar(1e-3)?.rsqrt()?;
    let y = x.batch_normalization(&mean, &variance, None, None, 1e-3)?.relu()?;
    Ok(vec![mean.clone(), variance, factor, y, x.sub(&mean)?])
}

#[test]
fn rows_are_normalized_in_one_pass() -> Result<()> {
    for compute in [layer_norm as Compute, of_a_sum, layer_norm_and_more, moments] {
        // Rows of several teams in a block, of all sizes of teams, of one block, and of more elements than it holds.
        for (dims, axes) in [
            (&[37, 5][..], &[1][..]),
            (&[3, 4, 100], &[2]),
            (&[6, 10, 30], &[1, 2]),
            (&[9, 2100], &[1]),
            (&[20, 4500], &[1]),
            (&[1, 70], &[1]),
        ] {
            for mean in [0.0, 100.0] {
                let names = check(compute, dims, axes, mean)?;
                let own = names.iter().filter(|name| name.starts_with("normalize_") || name.starts_with("moments_")).count();
                assert!(own == 1, "{dims:?}: {names:?}");
            }
        }
    }
    Ok(())
}

/// A mean of nothing is NaN.
#[test]
fn nothing_is_normalized_without_a_fault() -> Result<()> {
    for compute in [layer_norm_and_more as Compute, moments, moments_of_a_sum] {
        for (dims, axes) in [(&[0, 4][..], &[1][..]), (&[4, 0], &[1]), (&[0, 4], &[0]), (&[4, 0], &[0]), (&[2, 0, 3], &[1])] {
            let (found, exact, _) = results(compute, dims, axes, 0.0)?;
            assert!(found.iter().map(Vec::len).eq(exact.iter().map(Vec::len)), "{dims:?} over {axes:?}: {found:?}");
            assert!(found.iter().flatten().all(|value| value.is_nan()), "{dims:?} over {axes:?}: {found:?}");
        }
    }
    Ok(())
}

/// The differences from the mean are stored by the kernel that reads the tensor the next time.
#[test]
fn columns_are_normalized_in_two_passes() -> Result<()> {
    for (dims, axes) in [(&[300, 7][..], &[0][..]), (&[2, 60, 50, 5], &[0, 1, 2]), (&[3, 40, 33], &[1])] {
        for mean in [0.0, 100.0] {
            let names = check(layer_norm_and_more, dims, axes, mean)?;
            let last = usize::from(names.contains(&"moments_parts_f32".to_string()));
            // The moments, the factors, the results, and one for each result that is alone.
            assert!(names[..].contains(&"moments_f32".to_string()) && names.len() <= 3 + last, "{names:?}");
        }
    }
    Ok(())
}

/// Normalizes numbers of 16 bits, in whose memory the differences have their place.
fn narrow_and_more(x: &Tensor, axes: &[i32]) -> Result<Vec<Tensor>> {
    let narrow = Tensor::concat(&[x.cast(DType::Bf16)?, x.cast(DType::Bf16)?], 0)?;
    layer_norm_and_more(&narrow.cast(x.dtype())?, axes)
}

#[test]
fn narrow_columns_are_normalized_in_two_passes() -> Result<()> {
    for (dims, axes) in [(&[300, 7][..], &[0][..]), (&[2, 60, 50, 3], &[0, 1, 2])] {
        let names = check(narrow_and_more, dims, axes, 1.0)?;
        assert!(names.contains(&"moments_opening_f32".to_string()), "{names:?}");
    }
    Ok(())
}
