//! The whole path on ops that are not layers: tape, trace, compiled, exported.
use gradlet_core::*;

fn step(scope: &dyn Scope, w: &Variable, x: &Tensor) -> Result<Tensor> {
    let tape = scope.tape();
    let wt = tape.read(w)?;
    let y = x.mul(&wt)?.relu()?;
    let loss = y.mul(&y)?.sum(&[], false)?;
    let g = tape.gradient(&loss, w)?.unwrap();
    let lr = Tensor::scalar(&scope.device(), 0.1f32);
    scope.assign(w, &scope.read(w)?.sub(&g.mul(&lr)?)?)?;
    Ok(loss)
}

#[test]
fn compiled_equals_eager() {
    let scope = Eager::new(&ops::portable_cpu());
    let d = scope.device();
    let x = Tensor::new(&d, &[1.0f32, -2.0, 3.0, 0.5, 0.25, -1.5], &[2, 3]).unwrap();
    let init = Tensor::new(&d, &[0.3f32, -0.7, 0.9], &[3]).unwrap();
    let a = Variable::new(&scope, "a", &init).unwrap();
    let b = Variable::new(&scope, "b", &init).unwrap();
    let b2 = b.clone();
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| step(scope, &b2, &x));
    for _ in 0..5 {
        let l1 = step(&scope, &a, &x).unwrap().item::<f32>().unwrap();
        let l2 = f.call(&scope, x.clone()).unwrap().item::<f32>().unwrap();
        println!("{l1} {l2}");
        assert_eq!(l1.to_bits(), l2.to_bits());
        assert_eq!(scope.read(&a).unwrap().to_vec::<f32>().unwrap(), scope.read(&b).unwrap().to_vec::<f32>().unwrap());
    }
    assert_eq!(f.traces(), 1);
    let c = f.concrete(&scope, &x).unwrap();
    let p = plan::plan(c.graph());
    println!("scratch {} nodes {}", p.scratch, p.order.len());
    for &i in &p.order { let n=&p.graph.nodes[i]; println!("{} {:?} -> {:?}", n.op.def.name, n.inputs.iter().map(|&i|p.locations[i]).collect::<Vec<_>>(), n.outputs.iter().map(|&i|p.locations[i]).collect::<Vec<_>>()); }
    let mut art = Artifact::new();
    art.signature("train", &c, &["x"], &["loss"]).unwrap();
    let bytes = art.to_bytes().unwrap();
    println!("{:#?}", describe::Description::read(&bytes).unwrap().variables);
}

#[test]
fn second_derivative_and_swap() {
    let scope = Eager::new(&ops::portable_cpu());
    let d = scope.device();
    let x = Tensor::scalar(&d, 3.0f32);
    let outer = scope.tape();
    let x1 = outer.watch(&x).unwrap();
    let inner = outer.tape();
    let x2 = inner.watch(&x1).unwrap();
    let y = x2.mul(&x2).unwrap().mul(&x2).unwrap();
    let g = inner.gradient(&y, &x2).unwrap().unwrap();
    assert_eq!(g.item::<f32>().unwrap(), 27.0);
    let gg = outer.gradient(&g, &x1).unwrap().unwrap();
    assert_eq!(gg.item::<f32>().unwrap(), 18.0);
    let a = Variable::new(&scope, "a", &Tensor::scalar(&d, 1.0f32)).unwrap();
    let b = Variable::new(&scope, "b", &Tensor::scalar(&d, 2.0f32)).unwrap();
    let (a2, b2) = (a.clone(), b.clone());
    let swap = Function::new(move |s: &dyn Scope, (): ()| { let (x, y) = (s.read(&a2)?, s.read(&b2)?); s.assign(&a2, &y)?; s.assign(&b2, &x)?; s.read(&a2) });
    let r = swap.call(&scope, ()).unwrap();
    assert_eq!(r.item::<f32>().unwrap(), 2.0);
    assert_eq!(scope.read(&a).unwrap().item::<f32>().unwrap(), 2.0);
    assert_eq!(scope.read(&b).unwrap().item::<f32>().unwrap(), 1.0);
    let e = x.add(&Tensor::new(&d, &[1i32], &[1]).unwrap()).unwrap_err();
    println!("{e}");
}
