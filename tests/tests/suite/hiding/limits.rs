//! Devices with little memory: what they refuse, what the error says, and what fits.

use crate::cnn::{Cnn, bytes};
use gradlet_core::error::OutOfMemory;
use gradlet_core::{Device, Eager, Error, Function, Result, Scope, Tensor, Variable, ops};
use gradlet_tests::hiding::Hiding;
use gradlet_tests::random::Random;
use std::cmp::Reverse;

/// Limit of the devices, in bytes.
const LIMIT: u64 = 1 << 17;

/// Allocates `bytes` bytes.
fn block(device: &Device, bytes: u64) -> Result<Tensor> {
    Tensor::full(device, 0u8, &[bytes as u32])
}

/// Returns the error for a request of `bytes` bytes.
fn shortage(device: &Device, bytes: u64) -> OutOfMemory {
    match block(device, bytes).unwrap_err().root() {
        Error::OutOfMemory(shortage) => (**shortage).clone(),
        error => panic!("{error}"),
    }
}

/// Fills `device`, whose limit is [`LIMIT`], and checks what its errors say. `beside` is another device with this limit.
fn fill(device: &Device, beside: &Device) -> Result<()> {
    let scope = Eager::new(device);
    let weights = Variable::new(&scope, "weights", &Tensor::full(device, 1.0f32, &[2000])?)?;
    let scale = Function::new(move |scope: &dyn Scope, x: Tensor| x.mul(&scope.read(&weights)?)?.add(&x)).named("scale");
    let x = Tensor::full(device, 2.0f32, &[3, 1])?;
    let y = scale.call(&scope, x.clone())?;

    let others = beside.memory_info();
    let first = shortage(device, LIMIT);
    assert_eq!((first.device.as_str(), first.requested, first.limit), (device.name(), LIMIT, Some(LIMIT)));
    let names: Vec<&str> = first.holders.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["function scale", "variable \"weights\"", "tensors"], "{first}");
    assert!(first.holders.is_sorted_by_key(|(_, bytes)| Reverse(*bytes)), "{first}");
    let info = device.memory_info();
    assert_eq!(first.holders.iter().map(|(_, bytes)| bytes).sum::<u64>(), info.current, "{first}");
    assert!(info.peak <= LIMIT && info.limit == Some(LIMIT), "{info:?}");

    // Requests of the largest block fill the device.
    let (mut blocks, mut free, mut largest) = (Vec::new(), first.free, first.largest);
    while largest > 0 {
        assert_eq!(shortage(device, largest + 1).largest, largest);
        blocks.push(block(device, largest)?);
        free -= largest;
        let left = shortage(device, LIMIT);
        assert_eq!(left.free, free);
        largest = left.largest;
    }
    assert_eq!(free, 0);
    let error = scale.call(&scope, x.clone()).unwrap_err();
    assert!(matches!(error.root(), Error::OutOfMemory(shortage) if shortage.free == 0), "{error}");

    assert_eq!(beside.memory_info(), others);
    drop(block(beside, LIMIT)?);
    drop(blocks);
    assert_eq!(scale.call(&scope, x)?.to_vec::<f32>()?, [4.0; 6000]);
    assert_eq!(y.to_vec::<f32>()?, [4.0; 6000]);
    Ok(())
}

#[test]
fn a_full_remote_device_says_who_holds_its_memory() -> Result<()> {
    let [own, other] = [(); 2].map(|()| Hiding::limited(LIMIT));
    fill(&own.device, &other.device)?;
    assert_eq!([own.live(), other.live()], [0, 0]);
    Ok(())
}

#[test]
fn a_full_cpu_says_who_holds_its_memory() -> Result<()> {
    let [own, other] = [(); 2].map(|()| ops::portable_cpu().limited(LIMIT));
    fill(&own, &other)?;
    assert_eq!([own, other].map(|device| device.memory_info().current), [0, 0]);
    Ok(())
}

#[test]
fn a_training_step_runs_in_the_memory_that_it_plans() -> Result<()> {
    /// Height and width of the images.
    const LARGE: u32 = 24;
    let cpu = ops::portable_cpu();
    let cnn = Cnn::of_side(&cpu, 1, LARGE)?;
    let batch = cnn.batch(0)?;
    let planned = cnn.compiled().concrete(&cnn.scope, &batch)?.planned_bytes()?;
    let all = (planned + bytes(&batch.0).len() + bytes(&batch.1).len()) as u64;
    for (percent, fits) in [(105, true), (99, false)] {
        let cnn = Cnn::of_side(&cpu.limited(all * percent / 100), 1, LARGE)?;
        let (train, before) = (cnn.compiled(), cnn.state());
        for index in 0..3 {
            let loss = train.call(&cnn.scope, cnn.batch(index)?).and_then(|loss| loss.item::<f32>());
            match loss {
                Ok(loss) => assert!(fits && loss.is_finite(), "{loss} with {percent} % of {all} bytes"),
                Err(error) => assert!(!fits && matches!(error.root(), Error::OutOfMemory(_)), "{percent} % of {all} bytes: {error}"),
            }
        }
        assert_eq!(cnn.state() == before, !fits);
    }
    Ok(())
}

/// Allocates and frees at random in four threads, on a device with the limit [`LIMIT`]. Every tensor has a number of its own, which tells
/// if another tensor has overlapped it.
fn crowd(device: &Device, rounds: u32) {
    let work = |thread: u32| {
        let (mut random, mut own, mut refused) = (Random::new(u64::from(thread)), Vec::new(), 0);
        for round in 0..rounds {
            if random.coin() || own.is_empty() {
                let (count, number) = (random.range(1, 2000), (round << 2 | thread) as i32);
                match Tensor::full(device, number, &[count]) {
                    Ok(tensor) => own.push((tensor, number)),
                    Err(error) => {
                        let Error::OutOfMemory(shortage) = error.root() else { panic!("{error}") };
                        assert!(shortage.largest < shortage.requested && shortage.largest <= shortage.free, "{error}");
                        refused += 1;
                    }
                }
            } else {
                let (tensor, number): (Tensor, i32) = own.swap_remove(random.below(own.len()));
                assert!(tensor.to_vec::<i32>().unwrap().iter().all(|element| *element == number), "an overlap");
            }
        }
        refused
    };
    let refused: u32 = std::thread::scope(|threads| {
        let workers: Vec<_> = (0..4).map(|thread| threads.spawn(move || work(thread))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    let info = device.memory_info();
    assert!(info.current == 0 && info.peak <= LIMIT && info.peak > LIMIT / 2, "{info:?}");
    assert!(refused > rounds / 100, "only {refused} requests were refused");
}

#[test]
fn four_threads_share_a_limited_device() {
    let hiding = Hiding::limited(LIMIT);
    crowd(&hiding.device, 250_000);
    assert_eq!(hiding.live(), 0);
    crowd(&ops::portable_cpu().limited(LIMIT), 250_000);
}
