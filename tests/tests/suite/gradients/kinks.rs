//! Values and gradients at kinks and edges, compared with TensorFlow's.

use gradlet_core::{Differentiate, Eager, Result, Tensor, ops};

type Function = fn(&[Tensor]) -> Result<Tensor>;

fn function(name: &str) -> Option<Function> {
    Some(match name {
        "exp" => |x| x[0].exp(),
        "log" => |x| x[0].log(),
        "sqrt" => |x| x[0].sqrt(),
        "rsqrt" => |x| x[0].rsqrt(),
        "abs" => |x| x[0].abs(),
        "tanh" => |x| x[0].tanh(),
        "sigmoid" => |x| x[0].sigmoid(),
        "expm1" => |x| x[0].expm1(),
        "log1p" => |x| x[0].log1p(),
        "softplus" => |x| x[0].softplus(),
        "sin" => |x| x[0].sin(),
        "cos" => |x| x[0].cos(),
        "erf" => |x| x[0].erf(),
        "square" => |x| x[0].square(),
        "reciprocal" => |x| x[0].reciprocal(),
        "relu" => |x| x[0].relu(),
        "relu6" => |x| x[0].relu6(),
        "leaky_relu" => |x| x[0].leaky_relu(0.2),
        "elu" => |x| x[0].elu(1.0),
        "elu_half" => |x| x[0].elu(0.5),
        "celu" => |x| x[0].celu(0.5),
        "selu" => |x| x[0].selu(),
        "softsign" => |x| x[0].softsign(),
        "silu" => |x| x[0].silu(),
        "hard_sigmoid" => |x| x[0].hard_sigmoid(),
        "hard_silu" => |x| x[0].hard_silu(),
        "log_sigmoid" => |x| x[0].log_sigmoid(),
        "gelu" => |x| x[0].gelu(false),
        "gelu_approximate" => |x| x[0].gelu(true),
        "mish" => |x| x[0].mish(),
        "tanh_shrink" => |x| x[0].tanh_shrink(),
        "hard_shrink" => |x| x[0].hard_shrink(0.5),
        "soft_shrink" => |x| x[0].soft_shrink(0.5),
        "threshold" => |x| x[0].threshold(0.5, 9.0),
        "hard_tanh" => |x| x[0].hard_tanh(),
        "sparse_sigmoid" => |x| x[0].sparse_sigmoid(),
        "sparse_plus" => |x| x[0].sparse_plus(),
        "squareplus" => |x| x[0].squareplus(4.0),
        "clip_by_norm" => |x| x[0].clip_by_norm(1.0, &[]),
        "where_sqrt" => |x| x[0].greater(&x[0].like(0.0)?)?.select(&x[0].sqrt()?, &x[0]),
        "maximum" => |x| x[0].maximum(&x[1]),
        "minimum" => |x| x[0].minimum(&x[1]),
        "pow" => |x| x[0].pow(&x[1]),
        "div" => |x| x[0].div(&x[1]),
        "divide_no_nan" => |x| x[0].divide_no_nan(&x[1]),
        "multiply_no_nan" => |x| x[0].multiply_no_nan(&x[1]),
        "floormod" => |x| x[0].floormod(&x[1]),
        "squared_difference" => |x| x[0].squared_difference(&x[1]),
        "mul" => |x| x[0].mul(&x[1]),
        _ => return None,
    })
}

/// Returns the value and the gradients of `function` at a point.
fn at(function: Function, point: &[f32]) -> Result<Vec<f32>> {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let tape = scope.tape();
    let x = point.iter().map(|&x| tape.watch(&Tensor::scalar(&device, x))).collect::<Result<Vec<_>>>()?;
    let y = function(&x)?;
    let mut results = vec![y.item()?];
    for gradient in tape.gradient(&y, x.as_slice())? {
        results.push(gradient.map_or(Ok(0.0), |gradient| gradient.item())?);
    }
    Ok(results)
}

#[test]
fn kinks_and_edges_are_tensorflows() {
    let mut wrong = Vec::new();
    for line in include_str!("kinks.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split('|');
        let name = parts.next().unwrap_or_default().trim();
        let function = function(name).unwrap_or_else(|| panic!("no function {name:?}"));
        for row in parts {
            let row: Vec<f32> = row.split_whitespace().map(|number| number.parse().unwrap()).collect();
            let (point, want) = row.split_at((row.len() - 1) / 2);
            let got = at(function, point).unwrap();
            let near = |(&got, &want): (&f32, &f32)| {
                (got - want).abs() <= 1e-6 + 2e-6 * want.abs() || got == want || got.is_nan() && want.is_nan()
            };
            if !got.iter().zip(want).all(near) {
                wrong.push(format!("{name} at {point:?} gives {got:?}, not {want:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}
