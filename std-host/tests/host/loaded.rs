//! Tests of loaded artifacts: their signatures run as functions, without the source of the model.

use gradlet::artifact::describe::Description;
use gradlet::artifact::{Loaded, inspect};
use gradlet::control::{WhileOptions, cond, while_loop};
use gradlet::layers::{Activation, Dense, Layer, Module, Sequential};
use gradlet::losses::{Loss, MeanSquaredError};
use gradlet::optimizers::{Adam, Optimizer};
use gradlet::{Artifact, Device, Differentiate, Eager, Function, Result, Scope, Tensor};
use std::sync::Arc;

/// Exports a model of two layers with the signatures of TensorFlow Lite's on-device training.
fn quartet() -> Result<Vec<u8>> {
    let scope = Eager::with_seed(&gradlet::cpu(), 7);
    let device = scope.device();
    let model = Arc::new(Sequential::new().with(Dense::new(4).activation(Activation::Tanh)).with(Dense::new(1)));
    let (x, y) = (Tensor::full(&device, 0.5f32, &[2, 3])?, Tensor::full(&device, 0.25f32, &[2, 1])?);
    model.apply(&scope, &x)?;
    let optimizer = Arc::new(Adam::new(0.05));
    optimizer.build(&scope, &*model)?;

    let (own, by) = (model.clone(), optimizer.clone());
    let train = Function::new(move |scope: &dyn Scope, (x, y): (Tensor, Tensor)| {
        let tape = scope.tape();
        let loss = MeanSquaredError.call(&y, &own.call(&tape, &x)?)?;
        let gradients = tape.gradient(&loss, &own.trainable_variables())?;
        by.apply_gradients(scope, &gradients)?;
        Ok(loss)
    });
    let own = model.clone();
    let infer = Function::new(move |scope: &dyn Scope, x: Tensor| own.call(scope, &x));
    let mut named = model.named_variables();
    named.extend(optimizer.named_variables().into_iter().map(|(name, variable)| (format!("adam/{name}"), variable)));

    let mut artifact = Artifact::new();
    artifact.signature("train", &*train.concrete(&scope, &(x.clone(), y))?, &["x", "y"], &["loss"])?;
    artifact.signature("infer", &*infer.concrete(&scope, &x)?, &["x"], &["y"])?;
    artifact.checkpoint_signatures(&scope, &named)?;
    Ok(artifact.to_bytes()?.to_vec())
}

#[test]
fn train_save_restore_infer() -> Result<()> {
    let bytes = quartet()?;
    let device = gradlet::cpu();
    let x = Tensor::new(&device, &[1.0f32, 2.0, 3.0, -1.0, 0.5, 0.0], &[2, 3])?;
    let y = Tensor::new(&device, &[1.0f32, -1.0], &[2, 1])?;
    let trained = Loaded::new(&bytes, None)?;
    let train = |loaded: &Loaded| -> Result<f32> { loaded.signature("train")?.call(&[x.clone(), y.clone()])?[0].item() };
    let infer = |loaded: &Loaded| -> Result<Vec<f32>> { loaded.signature("infer")?.call(std::slice::from_ref(&x))?[0].to_vec() };
    let untrained = infer(&trained)?;
    let first = train(&trained)?;
    for _ in 0..19 {
        train(&trained)?;
    }
    let saved = trained.signature("save")?.call_named(&[])?;
    assert!(saved.iter().any(|(name, _)| *name == "dense_1/kernel") && saved.iter().any(|(name, _)| name.starts_with("adam/")));

    let fresh = Loaded::new(&bytes, None)?;
    assert_eq!(infer(&fresh)?, untrained);
    fresh.signature("restore")?.call_named(&saved)?;
    assert_eq!(infer(&fresh)?, infer(&trained)?);
    // The optimizer's state is loaded too, so both continue with the same values.
    let next = train(&trained)?;
    assert_eq!((train(&fresh)?, infer(&fresh)?), (next, infer(&trained)?));
    assert!(next < first / 2.0, "{first} {next}");
    Ok(())
}

/// An artifact runs on any device. With the portable kernels it keeps the bits of the executor, with the fast ones it is near.
#[test]
fn a_loaded_artifact_runs_on_a_device() -> Result<()> {
    let bytes = quartet()?;
    let (x, y) = ([1.0f32, 2.0, 3.0, -1.0, 0.5, 0.0], [1.0f32, -1.0]);
    let train = |loaded: &Loaded, device: &Device| -> Result<Vec<f32>> {
        let (x, y) = (Tensor::new(device, &x, &[2, 3])?, Tensor::new(device, &y, &[2, 1])?);
        let step = |_| loaded.signature("train")?.call(&[x.clone(), y.clone()])?[0].item();
        (0..5).map(step).collect()
    };
    let cpu = gradlet::cpu();
    let executor = Loaded::new(&bytes, None)?;
    // The state moves to the device.
    let wanted = [train(&executor, &cpu)?, train(&executor, &cpu)?];
    let portable = Loaded::new(&bytes, None)?;
    assert_eq!(train(&portable, &cpu)?, wanted[0]);
    let portable = portable.on(&gradlet::portable_cpu())?;
    assert_eq!(train(&portable, &gradlet::portable_cpu())?, wanted[1]);
    assert_eq!(portable.to_bytes()?[..], executor.to_bytes()?[..]);
    let fast = Loaded::new(&bytes, None)?.on(&cpu)?;
    for (near, wanted) in train(&fast, &cpu)?.iter().zip(&wanted[0]) {
        assert!((near - wanted).abs() < 1e-5, "{near} {wanted}");
    }

    let kernel = executor.variable("dense/kernel")?;
    fast.assign("dense/kernel", &kernel)?;
    assert_eq!(fast.variable("dense/kernel")?.bytes()?, kernel.bytes()?);
    portable.reset()?;
    assert_eq!(train(&portable, &gradlet::portable_cpu())?, wanted[0]);
    let error = train(&portable, &cpu).unwrap_err().to_string();
    assert_eq!(error, "input 0 (x) of \"train\" is on CPU:0, but the signature runs on portable CPU:0: copy it with `to`");
    let saved = portable.signature("save")?.call_named(&[])?;
    let restored = Loaded::new(&bytes, None)?.on(&gradlet::portable_cpu())?;
    restored.signature("restore")?.call_named(&saved)?;
    assert_eq!(restored.to_bytes()?[..], portable.to_bytes()?[..]);
    Ok(())
}

#[test]
fn wrong_calls_are_explained() -> Result<()> {
    let loaded = Loaded::new(&quartet()?, Some(&["infer", "train"]))?;
    let told = |result: Result<()>| result.unwrap_err().to_string();
    let x = Tensor::full(&gradlet::cpu(), 1.0f32, &[2, 3])?;
    assert_eq!(told(loaded.signature("save").map(drop)), "there is no signature \"save\"; the artifact has train, infer");
    let infer = loaded.signature("infer")?;
    assert_eq!(told(infer.call(&[]).map(drop)), "\"infer\" takes 1 inputs (x: f32[2,3]), got 0");
    assert_eq!(told(infer.call_named(&[("z", x.clone())]).map(drop)), "\"infer\" has no input \"z\"; it has x: f32[2,3]");
    let train = loaded.signature("train")?;
    let error = told(train.call_named(&[("x", x.clone())]).map(drop));
    assert_eq!(error, "input \"y\" of \"train\" is not given; it has x: f32[2,3], y: f32[2,1]");
    assert_eq!(told(train.call(&[x.clone(), x.clone()]).map(drop)), "input 1 of \"train\" is f32[2,1], got f32[2,3]");
    let elsewhere = Tensor::full(&gradlet::portable_cpu(), 1.0f32, &[2, 1])?;
    let error = told(train.call(&[x.clone(), elsewhere]).map(drop));
    assert_eq!(error, "input 1 (y) of \"train\" is on portable CPU:0, but the signature runs on CPU:0: copy it with `to`");
    assert_eq!(told(loaded.assign("dense/bias", &x)), "variable \"dense/bias\" is f32[4], it cannot hold f32[2,3]");
    let only = Loaded::new(&quartet()?, Some(&["infer"]))?;
    let bias = only.variable("dense/bias")?;
    assert_eq!(told(only.assign("dense/bias", &bias)), "variable \"dense/bias\" is a constant: no loaded signature assigns it");
    loaded.assign("dense/bias", &bias)?;
    assert!(told(loaded.variable("b").map(drop)).starts_with("there is no variable \"b\"; the artifact has dense/kernel, dense/bias, "));
    Ok(())
}

/// Variables with the same name get unique names in the artifact.
#[test]
fn names_are_unique() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    let layers = Arc::new([Dense::new(2), Dense::new(2)]);
    let x = Tensor::full(&scope.device(), 1.0f32, &[1, 2])?;
    let f = Function::new(move |scope: &dyn Scope, x: Tensor| layers[1].apply(scope, &layers[0].apply(scope, &x)?));
    let mut artifact = Artifact::new();
    artifact.signature("f", &*f.concrete(&scope, &x)?, &["x"], &["y"])?;
    let description = Description::read(&artifact.to_bytes()?)?;
    let mut names: Vec<&str> = description.variables.iter().map(|variable| variable.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["bias", "bias_1", "kernel", "kernel_1"]);
    Ok(())
}

/// Computes the Collatz sequence that starts at `n`. Returns its number of steps and its last element.
fn collatz(scope: &dyn Scope, n: Tensor) -> Result<(Tensor, Tensor)> {
    let state = (n.like(0.0)?, n.clone());
    let most = WhileOptions { max_iterations: Some(200) };
    while_loop(
        scope,
        most,
        state,
        |(_, n)| n.greater(&n.like(1.0)?),
        |(steps, n)| {
            let two = n.like(2.0)?;
            let even = n.floormod(&two)?.equal(&n.like(0.0)?)?;
            let next = cond(scope, &even, || n.floordiv(&two), || n.mul(&n.like(3.0)?)?.add(&n.like(1.0)?))?;
            Ok((steps.add(&n.like(1.0)?)?, next))
        },
    )
}

#[test]
fn control_flow_is_loaded_and_shown_as_a_tree() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    let number = |n: i32| Tensor::scalar(&scope.device(), n);
    let f = Function::new(collatz);
    let mut artifact = Artifact::new();
    artifact.signature("collatz", &*f.concrete(&scope, &number(1))?, &["n"], &["steps", "last"])?.doc("collatz", "How long it takes.")?;
    let bytes = artifact.to_bytes()?;
    let loaded = Loaded::new(&bytes, None)?;
    for (n, steps) in [(1, 0), (6, 8), (27, 111)] {
        let found = loaded.signature("collatz")?.call(&[number(n)])?;
        assert_eq!((found[0].item::<i32>()?, found[1].item::<i32>()?), (steps, 1));
    }

    let description = Description::read(&bytes)?;
    let text = inspect::text(&description);
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("no {part:?} in {text}"));
    let parts = ["signature collatz(n: i32[]) -> ", "\n  How long it takes.\n", "while_loop  ", "\n         condition:\n", "  less "];
    assert!(parts.map(place).is_sorted(), "{text}");
    let parts = ["\n         body:\n", "      cond ", "\n             true:\n", "floordiv  i32", "\n             false:\n"];
    assert!(parts.map(place).is_sorted() && place("condition:") < place("body:"), "{text}");
    let value = inspect::json(&description, &[]);
    let instructions = value["signatures"][0]["instructions"].as_array().unwrap();
    let repeated = instructions.iter().find(|one| one["op"] == "while_loop").unwrap();
    let body = repeated["blocks"].as_array().unwrap().iter().find(|block| block["when"] == "body").unwrap();
    assert!(body["instructions"].as_array().unwrap().iter().any(|one| one["op"] == "cond" && one["blocks"][0]["when"] == "true"));
    let signature = &description.signatures[0];
    assert!(inspect::svg(&description, &[signature], &[]).contains("› › "));
    let storages = inspect::storages(signature);
    assert!(inspect::peak(signature, &storages).1 <= signature.scratch, "{text}");
    Ok(())
}
