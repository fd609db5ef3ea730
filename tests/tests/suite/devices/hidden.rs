//! Programs on several devices whose memory is hidden: the same results as on CPUs, and as many copies as the log says.

use gradlet::config::{Context, Environment, LogicalDeviceConfiguration};
use gradlet::{Function, Result, Scope, Tensor, Variable};
use gradlet_tests::golden::checks::Checks;
use gradlet_tests::golden::{device_cases, fixtures};
use gradlet_tests::hiding::{Counts, HidingGpu};
use std::sync::{Arc, Mutex};

#[test]
fn every_scenario_has_tensorflows_results() {
    let mut checks = Checks::default();
    let context = || Context::of(HidingGpu::cpu(1 << 20), [], &Environment::default());
    device_cases::scenarios_in(&fixtures("devices"), context, &mut checks).unwrap();
    assert_eq!((checks.counts.passed, checks.counts.failed), (344, 0));
    let mut checks = Checks::default();
    let context = || Context::portable([], &Environment::default());
    device_cases::scenarios_in(&fixtures("devices"), context, &mut checks).unwrap();
    assert_eq!((checks.counts.passed, checks.counts.failed), (344, 0));
}

#[test]
fn there_are_as_many_copies_as_the_log_says() -> Result<()> {
    let cpu = HidingGpu::cpu(1 << 20);
    let context = Context::of(cpu.clone(), [], &Environment::default());
    context.set_logical_device_configuration(&context.list_physical_devices(None)[0], &[LogicalDeviceConfiguration::new(); 2])?;
    let log = Arc::new(Mutex::new(Vec::<String>::new()));
    let sink = log.clone();
    context.log_to(move |line| sink.lock().unwrap().push(line.into()));
    context.set_log_device_placement(true);
    let scope = context.scope()?;
    let there = scope.with_device("CPU:1")?;
    let a = Tensor::new(&scope.device(), &[1.0f32, 2.0], &[2])?;
    let v = Variable::new(&scope, "v", &Tensor::new(&scope.device(), &[5.0f32, 6.0], &[2])?)?;
    drop(there);
    let b = Tensor::new(&scope.device(), &[3.0f32, 4.0], &[2])?;
    let function = Function::new(|scope: &dyn Scope, (a, b): (Tensor, Tensor)| {
        let there = scope.with_device("CPU:1")?;
        let product = a.mul(&b)?;
        drop(there);
        product.add(&b)
    });
    let work = || -> Result<Vec<f32>> {
        let sum = a.add(&b)?; // One copy: a.
        let twice = sum.add(&scope.read(&v)?)?; // One copy: v.
        scope.assign_add(&v, &sum)?; // One copy: sum. The variable computes on its own device.
        let result = function.call(&scope, (a.clone(), twice))?; // Two copies: twice to CPU:1, the product back.
        assert_eq!(result.device()?.name(), "CPU:0");
        result.to_vec()
    };
    let (before, made) = (counts(&cpu), copies(&log));
    assert_eq!(work()?, [18.0, 36.0]);
    let (after, made) = (counts(&cpu), copies(&log) - made);
    assert_eq!(made, 5);
    // Each copy is a download and an upload. The elements of the result are downloaded, too.
    assert_eq!((after.downloads - before.downloads, after.uploads - before.uploads), (made as u64 + 1, made as u64));
    let log = log.lock().unwrap();
    for (start, device) in [("Executing op AddV2 in device ", "CPU:0"), ("AddV2: (AddV2): ", "CPU:0"), ("Mul: (Mul): ", "CPU:1")] {
        let line = format!("{start}/job:localhost/replica:0/task:0/device:{device}");
        assert!(log.contains(&line), "{line} is not in {log:#?}");
    }
    Ok(())
}

fn copies(log: &Mutex<Vec<String>>) -> usize {
    log.lock().unwrap().iter().filter(|line| line.starts_with("Copying ")).count()
}

/// Returns the counts of all devices together.
fn counts(cpu: &HidingGpu) -> Counts {
    cpu.created().iter().map(|(hiding, _)| hiding.counts()).fold(Counts::default(), |sum, counts| Counts {
        uploads: sum.uploads + counts.uploads,
        downloads: sum.downloads + counts.downloads,
        ..sum
    })
}
