//! CUDA's mathematical functions, as the interpreter computes them, against the host's.

use crate::support::{Loaded, load, random};

/// Arguments of every magnitude, the special ones first. NaN is not among them: it is tested by itself.
fn arguments(count: usize) -> Vec<f64> {
    let mut next = random(7);
    let special = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, 1e-40, -1e-40, 3.0, 100.0, -100.0, 1e10, 1e30, -1e30, f64::INFINITY, f64::NEG_INFINITY];
    let mut list = special.to_vec();
    while list.len() < count {
        let bits = next();
        let magnitude = 2f64.powi((bits >> 8 & 31) as i32 - 20) * (1.0 + (bits >> 12) as f64 / (1u64 << 52) as f64);
        list.push(if bits & 1 == 0 { magnitude } else { -magnitude });
    }
    list
}

/// The distance in units of the last place of the expected value, or of the smallest normal number.
fn distance(found: f64, expected: f64, fraction: i32, smallest: i32) -> f64 {
    if found == expected || found.is_nan() && expected.is_nan() {
        return 0.0;
    }
    if !found.is_finite() || !expected.is_finite() {
        return f64::INFINITY;
    }
    let exponent = expected.abs().max(2f64.powi(smallest)).log2().floor() as i32;
    (found - expected).abs() / 2f64.powi(exponent - fraction)
}

fn compare_f32(cuda: &mut Loaded, name: &str, tolerance: f64, expected: impl Fn(f64) -> f64) {
    let a: Vec<f32> = arguments(300).iter().map(|x| *x as f32).collect();
    let (input, output) = (cuda.upload(&a), cuda.device.allocate(4 * a.len()));
    cuda.launch(&format!("k_{name}"), [3, 1, 1], [128, 1, 1], &[&input, &output, &(a.len() as i32)]).unwrap();
    for (x, found) in a.iter().zip(cuda.download::<f32>(output)) {
        let expected = expected(f64::from(*x)) as f32;
        let distance = distance(found.into(), expected.into(), 23, -126);
        assert!(distance <= tolerance, "{name}({x:e}) = {found:e}, not {expected:e}: {distance} ulp");
    }
}

fn compare_f64(cuda: &mut Loaded, name: &str, tolerance: f64, expected: impl Fn(f64) -> f64) {
    let a = arguments(300);
    let (input, output) = (cuda.upload(&a), cuda.device.allocate(8 * a.len()));
    cuda.launch(&format!("k_{name}"), [3, 1, 1], [128, 1, 1], &[&input, &output, &(a.len() as i32)]).unwrap();
    for (x, found) in a.iter().zip(cuda.download::<f64>(output)) {
        let expected = expected(*x);
        let distance = distance(found, expected, 52, -1000);
        assert!(distance <= tolerance, "{name}({x:e}) = {found:e}, not {expected:e}: {distance} ulp");
    }
}

type Case = (&'static str, f64, fn(f64) -> f64);

/// The name without its suffix, the error in ulp that CUDA's manual allows (and one for the host), the host's function.
const CASES: [Case; 29] = [
    ("sin", 3.0, f64::sin),
    ("cos", 3.0, f64::cos),
    ("tan", 5.0, f64::tan),
    ("exp", 3.0, f64::exp),
    ("exp2", 3.0, f64::exp2),
    ("expm1", 3.0, f64::exp_m1),
    ("log", 2.0, f64::ln),
    ("log2", 2.0, f64::log2),
    ("log10", 3.0, f64::log10),
    ("log1p", 3.0, f64::ln_1p),
    ("sqrt", 0.0, f64::sqrt),
    ("cbrt", 2.0, f64::cbrt),
    ("erf", 3.0, libm::erf),
    ("erfc", 6.0, libm::erfc),
    ("tanh", 3.0, f64::tanh),
    ("sinh", 4.0, f64::sinh),
    ("cosh", 3.0, f64::cosh),
    ("asin", 3.0, f64::asin),
    ("acos", 3.0, f64::acos),
    ("atan", 3.0, f64::atan),
    ("asinh", 4.0, libm::asinh),
    ("acosh", 5.0, libm::acosh),
    ("atanh", 4.0, libm::atanh),
    ("lgamma", 8.0, libm::lgamma),
    ("floor", 0.0, f64::floor),
    ("ceil", 0.0, f64::ceil),
    ("trunc", 0.0, f64::trunc),
    ("round", 0.0, f64::round),
    ("rint", 0.0, f64::round_ties_even),
];

#[test]
fn functions_of_an_f32() {
    let mut cuda = load("math.ptx");
    for (name, tolerance, expected) in CASES {
        // Near the zeros of lgamma the error is absolute.
        let lgamma = |x: f64| if (-4.0..-2.0).contains(&x) { f64::NAN } else { expected(x) };
        match name {
            "lgamma" => lgamma_f32(&mut cuda, lgamma),
            _ => compare_f32(&mut cuda, &format!("{name}f"), tolerance, expected),
        }
    }
}

/// Positive arguments only: for others, CUDA's manual allows any error near the zeros.
fn lgamma_f32(cuda: &mut Loaded, expected: impl Fn(f64) -> f64) {
    let a: Vec<f32> = (1..200).map(|i| i as f32 * 0.37).collect();
    let (input, output) = (cuda.upload(&a), cuda.device.allocate(4 * a.len()));
    cuda.launch("k_lgammaf", [2, 1, 1], [128, 1, 1], &[&input, &output, &(a.len() as i32)]).unwrap();
    for (x, found) in a.iter().zip(cuda.download::<f32>(output)) {
        let expected = expected((*x).into());
        assert!((f64::from(found) - expected).abs() <= 1e-6 * expected.abs().max(1.0), "lgammaf({x}) = {found}, not {expected}");
    }
}

#[test]
fn functions_of_an_f64() {
    let mut cuda = load("math.ptx");
    for (name, tolerance, expected) in CASES {
        if name == "lgamma" {
            let a: Vec<f64> = (1..200).map(|i| f64::from(i) * 0.37).collect();
            let (input, output) = (cuda.upload(&a), cuda.device.allocate(8 * a.len()));
            cuda.launch("k_lgamma", [2, 1, 1], [128, 1, 1], &[&input, &output, &(a.len() as i32)]).unwrap();
            for (x, found) in a.iter().zip(cuda.download::<f64>(output)) {
                assert!((found - expected(*x)).abs() <= 1e-14 * expected(*x).abs().max(1.0), "lgamma({x}) = {found}");
            }
            continue;
        }
        compare_f64(&mut cuda, name, tolerance, expected);
    }
}

type Pairs = (&'static str, f64, fn(f64, f64) -> f64);

#[test]
fn functions_of_two() {
    const PAIRS: [Pairs; 7] = [
        ("pow", 9.0, f64::powf),
        ("fmod", 0.0, |a, b| a % b),
        ("atan2", 4.0, f64::atan2),
        ("hypot", 3.0, f64::hypot),
        ("fmin", 0.0, f64::min),
        ("fmax", 0.0, f64::max),
        ("copysign", 0.0, f64::copysign),
    ];
    let mut cuda = load("math.ptx");
    let all = arguments(80);
    let (a, b): (Vec<f64>, Vec<f64>) = all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b))).unzip();
    let count = a.len();
    let (narrow_a, narrow_b): (Vec<f32>, Vec<f32>) = a.iter().zip(&b).map(|(a, b)| (*a as f32, *b as f32)).unzip();
    for (name, tolerance, expected) in PAIRS {
        let (first, second, output) = (cuda.upload(&narrow_a), cuda.upload(&narrow_b), cuda.device.allocate(4 * count));
        cuda.launch(&format!("k_{name}f"), [50, 1, 1], [128, 1, 1], &[&first, &second, &output, &(count as i32)]).unwrap();
        for ((a, b), found) in narrow_a.iter().zip(&narrow_b).zip(cuda.download::<f32>(output)) {
            let expected = expected((*a).into(), (*b).into()) as f32;
            let distance = distance(found.into(), expected.into(), 23, -126);
            assert!(distance <= tolerance, "{name}f({a:e}, {b:e}) = {found:e}, not {expected:e}: {distance} ulp");
        }
        let (first, second, output) = (cuda.upload(&a), cuda.upload(&b), cuda.device.allocate(8 * count));
        cuda.launch(&format!("k_{name}"), [50, 1, 1], [128, 1, 1], &[&first, &second, &output, &(count as i32)]).unwrap();
        for ((a, b), found) in a.iter().zip(&b).zip(cuda.download::<f64>(output)) {
            let expected = expected(*a, *b);
            let distance = distance(found, expected, 52, -1000);
            assert!(distance <= tolerance, "{name}({a:e}, {b:e}) = {found:e}, not {expected:e}: {distance} ulp");
        }
    }
}

#[test]
fn nan_stays_nan() {
    let mut cuda = load("math.ptx");
    for (name, ..) in CASES {
        let (input, output) = (cuda.upload(&[f32::NAN]), cuda.device.allocate(4));
        cuda.block(&format!("k_{name}f"), 1, &[&input, &output, &1i32]);
        assert!(cuda.download::<f32>(output)[0].is_nan(), "{name}f");
        let (input, output) = (cuda.upload(&[f64::NAN]), cuda.device.allocate(8));
        cuda.block(&format!("k_{name}"), 1, &[&input, &output, &1i32]);
        assert!(cuda.download::<f64>(output)[0].is_nan(), "{name}");
    }
}
