//! cuBLASLt as one of the plans among which the tuner chooses. The emulator has one, whose time is that of its configuration.

use super::tuner::{Case, LONG, device, launches, long, tuned_options};
use gradlet::cuda::Options;
use gradlet_core::{DType, Eager, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::gpu::{Emulator, open_cublaslt};
use gradlet_tests::random::Random;
use std::path::Path;

/// Starts an emulator whose cuBLASLt takes this many nanoseconds.
fn with_time(nanoseconds: u64) -> Result<Emulator> {
    let emulator = Emulator::with(&format!("cublaslt={nanoseconds}"))?;
    emulator.open_cublaslt()?;
    Ok(emulator)
}

/// Returns the names of the kernels of the product [`LONG`], on a device that has chosen its plan.
fn kernels(emulator: &Emulator, options: &Options) -> Result<Vec<String>> {
    let device = device(emulator, options)?;
    long(&device)?;
    Ok(launches(emulator, || long(&device))?.0.into_iter().map(|(kernel, _)| kernel).collect())
}

#[test]
fn products_of_every_shape() -> Result<()> {
    let random = &mut Random::new(41);
    let mut cases = Vec::new();
    for dtype in [DType::F32, DType::F16, DType::Bf16] {
        let case = |case: Result<Case>| case.map(|case| case.cast(dtype));
        for flips in [[false, false], [true, false], [false, true], [true, true]] {
            let [m, k, n] = [(); 3].map(|()| random.range(2, 40));
            let of = |dims: [u32; 2], flip: bool| if flip { [dims[1], dims[0]] } else { dims };
            let (a, b) = (of([m, k], flips[0]), of([k, n], flips[1]));
            let batches: [[&[u32]; 2]; 4] = [[&[], &[]], [&[3], &[3]], [&[3], &[]], [&[], &[3]]];
            let [left, right] = random.pick(&batches);
            let dims = ([left, &a].concat(), [right, &b].concat());
            cases.push(case(Case::new(random, &ops::matmul::OP, &flips.map(u32::from), &[&dims.0, &dims.1])));
            cases.push(case(Case::new(random, &ops::dense::OP, &[flips[1].into()], &[&[m, k], &b, &[n]])));
        }
    }
    let tf32 = Case::new(random, &ops::matmul::OP, &[0, 0], &[&[64, 32], &[32, 48]]);
    for (tf32, cases) in [(false, cases), (true, vec![tf32])] {
        let emulator = with_time(1)?;
        let device = device(&emulator, &Options { tf32, ..Options::default() })?;
        for case in cases {
            let case = case?;
            let plan = if tf32 { "cublasLt_tf32" } else { "cublasLt" };
            emulator.driver().add_tuning(&format!("gradlet tuning 1\n{}", case.line(plan)))?;
            emulator.control("reset-counts");
            case.check(&device)?;
            assert!(emulator.kernels().iter().any(|line| line.starts_with("cublasLt ")), "{}", case.line("cublasLt"));
            assert_eq!(emulator.report(), "");
        }
    }
    Ok(())
}

#[test]
fn the_faster_one_computes() -> Result<()> {
    let emulator = with_time(1 << 30)?;
    let own = kernels(&emulator, &tuned_options())?;
    assert!(!own.contains(&"cublasLt".to_string()), "{own:?}");
    let tuning = emulator.driver().tuning();
    let time = |line: &str| line.rsplit("; ").next().and_then(|time| time.parse::<u64>().ok());
    let (library, others): (Vec<&str>, Vec<&str>) = tuning.lines().skip(1).partition(|line| line.contains("; cublasLt; "));
    let fastest = others.into_iter().filter_map(time).min().unwrap_or_default();
    assert!(library.len() == 1 && fastest > 20_000, "{tuning}");
    // A graph that ends and another one that begins cost ten microseconds.
    assert_eq!(kernels(&with_time(fastest - 10_000)?, &tuned_options())?, own);
    assert_eq!(kernels(&with_time(fastest - 14_000)?, &tuned_options())?, ["cublasLt"]);
    Ok(())
}

#[test]
fn it_is_never_needed() -> Result<()> {
    let emulator = with_time(1)?;
    let plain = device(&emulator, &Options::default())?;
    let (own, _) = launches(&emulator, || long(&plain))?;
    assert!(own.iter().all(|(kernel, _)| kernel != "cublasLt"), "{own:?}");
    assert_eq!(kernels(&emulator, &Options { strict: true, ..tuned_options() })?, ["matmul_small_f32"]);
    assert_eq!(kernels(&emulator, &tuned_options())?, ["cublasLt"]);
    // Its time is in the file, but where it is not installed, gradlet's kernels compute.
    let without = Emulator::new()?;
    without.driver().add_tuning(&emulator.driver().tuning())?;
    let names = kernels(&without, &Options::default())?;
    assert!(names.iter().any(|name| name.starts_with("gemm_")) && !names.contains(&"cublasLt".to_string()), "{names:?}");
    // Where it is, it computes without a measurement.
    let with = Emulator::new()?;
    with.open_cublaslt()?;
    with.driver().add_tuning(&emulator.driver().tuning())?;
    assert_eq!(kernels(&with, &Options::default())?, ["cublasLt"]);
    assert_eq!(with.driver().tuning(), emulator.driver().tuning());
    Ok(())
}

/// It is checked before its first use.
#[test]
fn a_wrong_one_is_not_used() -> Result<()> {
    let emulator = Emulator::with("cublaslt=1 cublaslt_wrong=1")?;
    emulator.open_cublaslt()?;
    let names = kernels(&emulator, &tuned_options())?;
    assert!(!names.contains(&"cublasLt".to_string()) && !emulator.driver().tuning().contains("cublasLt"), "{names:?}");
    Ok(())
}

#[test]
fn what_it_does_not_compute_has_kernels() -> Result<()> {
    let emulator = with_time(1)?;
    let device = device(&emulator, &tuned_options())?;
    let product = |dims: [&[u32]; 2]| -> Result<Vec<f32>> {
        Tensor::full(&device, 1f32, dims[0])?.matmul(&Tensor::full(&device, 1f32, dims[1])?)?.to_vec::<f32>()
    };
    // The emulator's has no algorithm for a single column. It is not asked for several batch dimensions or empty sums.
    assert_eq!(product([&[20, 300], &[300, 1]])?, [300f32; 20]);
    assert_eq!(product([&[2, 1, 4, 5], &[3, 5, 6]])?, [5f32; 2 * 3 * 4 * 6]);
    assert_eq!(product([&[4, 0], &[0, 6]])?, [0f32; 24]);
    assert!(!emulator.driver().tuning().contains("cublasLt"));
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A function with a product between its graphs, with another argument in each call.
#[test]
fn functions_run_it_between_graphs() -> Result<()> {
    let emulator = with_time(1)?;
    let device = device(&emulator, &tuned_options())?;
    let scope = Eager::new(&device);
    let full = |value: f32, dims: &[u32]| Tensor::full(&device, value, dims);
    let weights = full(1., &LONG[1])?;
    let turned = |x: &Tensor| x.reverse(&[0])?.reverse(&[1])?.reverse(&[0]);
    let step = Function::new(move |_: &dyn Scope, x: Tensor| turned(&turned(&x)?.matmul(&weights)?)?.sum(&[], false));
    for round in 0..3 {
        let x = full(round as f32, &LONG[0])?;
        let (sum, counts) = emulator.during(|| step.call(&scope, x)?.item::<f32>());
        assert_eq!(sum?, round as f32 * 400. * 48. * 56.);
        if round > 0 {
            assert_eq!((counts.graph_launches, counts.kernel_launches), (2, 1), "{counts:?}");
        }
    }
    assert_eq!(emulator.report(), "");
    Ok(())
}

/// A refused label ends the step before a product that would change a variable.
#[test]
fn a_refusal_comes_before_the_product() -> Result<()> {
    let emulator = with_time(1)?;
    let device = device(&emulator, &tuned_options())?;
    let scope = Eager::new(&device);
    let total = Variable::new(&scope, "total", &Tensor::full(&device, 1f32, &[48, 56])?)?;
    let own = total.clone();
    let [a, b] = LONG.map(|dims| Tensor::full(&device, 1f32, &dims).unwrap());
    let step = Function::new(move |scope: &dyn Scope, labels: Tensor| {
        let losses = a.slice(&[0, 0], &[4, 10])?.sparse_softmax_cross_entropy(&labels)?;
        let product = a.matmul(&b)?;
        scope.assign(&own, &product)?;
        losses.sum(&[], false)
    });
    let labels = |last: i32| Tensor::new(&device, &[0, 1, 2, last], &[4]);
    assert!(step.call(&scope, labels(10)?).is_err());
    assert_eq!(scope.read(&total)?.to_vec::<f32>()?, [1f32; 48 * 56]);
    step.call(&scope, labels(9)?)?;
    assert_eq!(scope.read(&total)?.to_vec::<f32>()?, [400f32; 48 * 56]);
    assert!(emulator.kernels().iter().any(|line| line.starts_with("cublasLt ")));
    assert_eq!(emulator.report(), "");
    Ok(())
}

#[test]
fn another_file_is_no_cublaslt() -> Result<()> {
    let emulator = Emulator::new()?;
    let error = |path: &Path| open_cublaslt(emulator.driver(), path).unwrap_err().to_string();
    let missing = error(Path::new("/nowhere/libcublasLt.so"));
    assert!(missing.starts_with("/nowhere/libcublasLt.so is no cuBLASLt: "), "{missing}");
    emulator.open_cublaslt()?;
    assert!(emulator.open_cublaslt().unwrap_err().to_string().contains("too late"));
    Ok(())
}
