#![allow(missing_docs)]
use gradlet_core::control::*;
use gradlet_core::*;
#[test]
fn t1() {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let f = Function::new(|scope: &dyn Scope, x: Tensor| cond(scope, &x.less(&x.like(0.0)?)?, || x.neg(), || x.mul(&x)));
    assert_eq!(f.call(&scope, Tensor::scalar(&device, 3.0f32)).unwrap().item::<f32>().unwrap(), 9.0);
    assert_eq!(f.call(&scope, Tensor::scalar(&device, -3.0f32)).unwrap().item::<f32>().unwrap(), 3.0);
}
#[test]
fn t2() {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let f = Function::new(|scope: &dyn Scope, n: Tensor| {
        let state = (n.like(0.0)?, n.like(0.0)?);
        let (_, sum) =
            while_loop(scope, WhileOptions::default(), state, |(i, _)| i.less(&n), |(i, sum)| Ok((i.add(&i.like(1.0)?)?, sum.add(&i)?)))?;
        Ok(sum)
    });
    assert_eq!(f.call(&scope, Tensor::scalar(&device, 5i32)).unwrap().item::<i32>().unwrap(), 10);
    assert_eq!(f.call(&scope, Tensor::scalar(&device, 0i32)).unwrap().item::<i32>().unwrap(), 0);
}
#[test]
fn variables_in_branches_and_nested() {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let v = Variable::new(&scope, "v", &Tensor::new(&device, &[1.0f32, 2.0], &[2]).unwrap()).unwrap();
    let w = v.clone();
    let f = Function::new(move |scope: &dyn Scope, n: Tensor| {
        let start = (n.like(0.0)?, scope.read(&w)?);
        let zero = n.like(0.0)?;
        let two = n.like(2.0)?;
        let (_, last) = while_loop(
            scope,
            WhileOptions { max_iterations: Some(10) },
            start,
            |(i, _)| i.less(&n),
            |(i, s)| {
                cond(
                    scope,
                    &i.floormod(&two)?.equal(&zero)?,
                    || {
                        let now = scope.read(&w)?;
                        scope.assign(&w, &now.add(&now)?)?;
                        Ok(())
                    },
                    || scope.assign(&w, &scope.read(&w)?.add(&s)?),
                )?;
                // swap-like
                let s2 = scope.read(&w)?;
                Ok((i.add(&i.like(1.0)?)?, s2))
            },
        )?;
        Ok((last, scope.read(&w)?))
    });
    // reference eager
    let run = |n: i32| {
        let mut w = [1.0f32, 2.0];
        let mut s = w;
        for i in 0..n.min(10) {
            for k in 0..2 {
                w[k] = if i % 2 == 0 { w[k] + w[k] } else { w[k] + s[k] };
            }
            s = w;
        }
        (s, w)
    };
    for n in [0, 1, 2, 3, 5, 20] {
        scope.assign(&v, &Tensor::new(&device, &[1.0f32, 2.0], &[2]).unwrap()).unwrap();
        let (a, b) = f.call(&scope, Tensor::scalar(&device, n)).unwrap();
        let (s, w) = run(n);
        assert_eq!(a.to_vec::<f32>().unwrap(), s, "{n}");
        assert_eq!(b.to_vec::<f32>().unwrap(), w, "{n}");
        assert_eq!(scope.read(&v).unwrap().to_vec::<f32>().unwrap(), w, "{n}");
    }
    assert_eq!(f.traces(), 1);
}
#[test]
fn swap() {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let f = Function::new(|scope: &dyn Scope, (n, a, b): (Tensor, Tensor, Tensor)| {
        let (_, a2, b2) = while_loop(
            scope,
            WhileOptions::default(),
            (n.like(0.0)?, a.clone(), b),
            |(i, _, _)| i.less(&n),
            |(i, a, b)| Ok((i.add(&i.like(1.0)?)?, b, a)),
        )?;
        Ok((a2, b2, a))
    });
    for n in 0..4 {
        let (a, b, c) =
            f.call(&scope, (Tensor::scalar(&device, n), Tensor::scalar(&device, 1.0f32), Tensor::scalar(&device, 2.0f32))).unwrap();
        let want = if n % 2 == 0 { (1.0, 2.0, 1.0) } else { (2.0, 1.0, 1.0) };
        assert_eq!((a.item::<f32>().unwrap(), b.item::<f32>().unwrap(), c.item::<f32>().unwrap()), want);
    }
}

fn program(scope: &dyn Scope, x: &Tensor, w: &Tensor, n: &Tensor) -> Result<Tensor> {
    let zero = n.like(0.0)?;
    let (_, h, s) = while_loop(
        scope,
        WhileOptions { max_iterations: Some(6) },
        (zero.clone(), x.like(0.0)?.broadcast_to(&[2])?, x.like(0.0)?),
        |(i, ..)| i.less(n),
        |(i, h, s)| {
            let row = x.gather(&i, 0)?;
            let h = row.add(&h.mul(w)?)?.tanh()?;
            let two = i.like(2.0)?;
            let t = cond(scope, &i.floormod(&two)?.equal(&i.like(0.0)?)?, || h.mul(&h)?.sum(&[], false), || h.mul(w)?.sum(&[], false))?;
            Ok((i.add_scalar(1.0)?, h, s.add(&t)?))
        },
    )?;
    h.sum(&[], false)?.add(&s.mul(&s)?)
}
fn grads(scope: &dyn Scope, x: &Tensor, w: &Tensor, n: &Tensor) -> Result<(Tensor, Tensor, Tensor, Tensor, Tensor)> {
    let outer = scope.handle().persistent_tape();
    let (x, w) = (outer.watch(x)?, outer.watch(w)?);
    let inner = outer.handle().tape();
    let (x2, w2) = (inner.watch(&x)?, inner.watch(&w)?);
    let y = program(&inner, &x2, &w2, n)?;
    let g = inner.gradient(&y, [x2.clone(), w2.clone()].as_slice())?;
    let (gx, gw) = (g[0].clone().unwrap(), g[1].clone().unwrap());
    let z = gx.mul(&gx)?.sum(&[], false)?.add(&gw.mul(&gw)?.sum(&[], false)?)?;
    let gg = outer.gradient(&z, [x.clone(), w.clone()].as_slice())?;
    Ok((y, gx, gw, gg[0].clone().unwrap(), gg[1].clone().unwrap()))
}
#[test]
fn gradients() {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let f = Function::new(|scope: &dyn Scope, (x, w, n): (Tensor, Tensor, Tensor)| grads(scope, &x, &w, &n));
    for n in [0, 1, 2, 5, 6] {
        let x = Tensor::new(&device, &[0.1f32, 0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8, 0.9, 1.0, 0.2, 0.3], &[6, 2]).unwrap();
        let w = Tensor::new(&device, &[0.5f32, -0.3], &[2]).unwrap();
        let n = Tensor::scalar(&device, n);
        let a = f.call(&scope, (x.clone(), w.clone(), n.clone())).unwrap();
        if n.item::<i32>().unwrap() == 0 {
            continue;
        }
        let b = grads(&scope, &x, &w, &n).unwrap();
        let pairs = [(a.0, b.0), (a.1, b.1), (a.2, b.2), (a.3, b.3), (a.4, b.4)];
        for (k, (a, b)) in pairs.iter().enumerate() {
            let (a, b) = (a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
            for (p, q) in a.iter().zip(&b) {
                assert!((p - q).abs() <= 1e-5 * q.abs().max(1.0), "{k} {a:?} {b:?}");
            }
        }
    }
}

fn on_device(concrete: &ConcreteFunction, inputs: &[Tensor]) -> Vec<Vec<u8>> {
    let names: Vec<String> = (0..inputs.len()).map(|i| format!("i{i}")).collect();
    let outs: Vec<String> = (0..concrete.graph().outputs.len()).map(|i| format!("o{i}")).collect();
    let mut artifact = Artifact::new();
    artifact
        .signature(
            "f",
            concrete,
            &names.iter().map(|s| s.as_str()).collect::<Vec<_>>(),
            &outs.iter().map(|s| s.as_str()).collect::<Vec<_>>(),
        )
        .unwrap();
    let bytes = artifact.to_bytes().unwrap();
    let program = Program::load(&bytes, ops::KERNELS, &["f"]).unwrap();
    let mut arena = device::AlignedBytes::zeroed(program.arena_bytes());
    println!("artifact {} arena {}", bytes.len(), program.arena_bytes());
    let id = program.signature("f").unwrap();
    let mut session = Session::new(&program, &mut arena).unwrap();
    for (i, t) in inputs.iter().enumerate() {
        let bytes = if t.dtype() == DType::F32 {
            t.to_vec::<f32>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>()
        } else {
            t.to_vec::<i32>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect()
        };
        session.input_bytes_mut(id, i).unwrap().copy_from_slice(&bytes);
    }
    session.run(id).unwrap();
    outs.iter().enumerate().map(|(i, _)| session.output_bytes(id, i).unwrap().to_vec()).collect()
}
#[test]
fn device_gradients() {
    let device = ops::portable_cpu();
    let scope = Eager::new(&device);
    let f = Function::new(|scope: &dyn Scope, (x, w, n): (Tensor, Tensor, Tensor)| grads(scope, &x, &w, &n));
    for n in [0, 1, 2, 5, 6] {
        let x = Tensor::new(&device, &[0.1f32, 0.2, 0.3, -0.4, 0.5, 0.6, -0.7, 0.8, 0.9, 1.0, 0.2, 0.3], &[6, 2]).unwrap();
        let w = Tensor::new(&device, &[0.5f32, -0.3], &[2]).unwrap();
        let n = Tensor::scalar(&device, n);
        let concrete = f.concrete(&scope, &(x.clone(), w.clone(), n.clone())).unwrap();
        let inputs = [x, w, n];
        let host = concrete.run(&inputs).unwrap();
        let got = on_device(&concrete, &inputs);
        for (h, g) in host.iter().zip(&got) {
            let h: Vec<u8> = h.to_vec::<f32>().unwrap().iter().flat_map(|x| x.to_le_bytes()).collect();
            assert_eq!(&h, g);
        }
    }
}
