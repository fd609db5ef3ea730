//! Tests that a thread sleeps while it waits for another thread: until the other thread has written a variable, has finished a call of the
//! same function, or has computed the first value of a variable.
#![cfg(unix)]

use gradlet::tensor::FirstValue;
use gradlet::{Eager, Function, Print, Result, Scope, Tensor, Variable};
use rustix::time::{ClockId, clock_gettime};
use std::sync::{Arc, Barrier};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_millis(300);

/// Returns the CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Asserts that `want` waits for a resource that another thread holds, and sleeps meanwhile. Returns the result of `want`. The other thread
/// runs `hold`, which takes the resource and then calls its argument, a function that sleeps for [`LONG`].
fn sleeps<R>(hold: impl FnOnce(&dyn Fn()) + Send, want: impl FnOnce() -> R) -> R {
    let held = Barrier::new(2);
    thread::scope(|threads| {
        threads.spawn(|| {
            hold(&|| {
                held.wait();
                sleep(LONG);
            })
        });
        held.wait();
        let (start, before) = (Instant::now(), cpu_time());
        let result = want();
        let (waited, computed) = (start.elapsed(), cpu_time() - before);
        assert!(waited > LONG / 2, "it waited {waited:?}");
        assert!(computed < waited / 10, "it computed {computed:?} while it waited {waited:?}");
        result
    })
}

#[test]
fn who_waits_for_a_variable_sleeps() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    let w = Variable::new(&scope, "w", &Tensor::scalar(&scope.device(), 1.0f32))?;
    let write = |now: &dyn Fn()| {
        let set = |bytes: &mut [u8]| {
            now();
            bytes.copy_from_slice(&2.0f32.to_le_bytes());
        };
        w.write(set).unwrap();
    };
    assert_eq!(sleeps(write, || scope.read(&w))?.item::<f32>()?, 2.0);
    let one = Tensor::scalar(&scope.device(), 1.0f32);
    sleeps(write, || scope.assign_add(&w, &one))?;
    assert_eq!(scope.read(&w)?.item::<f32>()?, 3.0);
    let double = Function::new({
        let w = w.clone();
        move |scope: &dyn Scope, x: Tensor| scope.assign_add(&w, &x)
    });
    double.call(&scope, one.clone())?;
    sleeps(write, || double.call(&scope, one.clone()))?;
    assert_eq!(scope.read(&w)?.item::<f32>()?, 3.0);
    Ok(())
}

#[test]
fn who_waits_for_a_function_sleeps() -> Result<()> {
    // The function blocks while it prints.
    let held = Arc::new(Barrier::new(2));
    let slow = held.clone();
    let device = gradlet::cpu().printing(move |_| {
        slow.wait();
        sleep(LONG);
    });
    let double = Function::new(|scope: &dyn Scope, x: Tensor| {
        scope.print("now", &[])?;
        x.add(&x)
    });
    let scope = Eager::new(&device);
    let x = Tensor::scalar(&device, 2.0f32);
    let concrete = double.concrete(&scope, &x)?;
    let run = || concrete.run(std::slice::from_ref(&x)).and_then(|results| results[0].item::<f32>()).unwrap();
    thread::scope(|threads| {
        threads.spawn(run);
        held.wait();
        // Releases the barrier for the print of the second run.
        threads.spawn(|| held.wait());
        let (start, before) = (Instant::now(), cpu_time());
        assert_eq!(run(), 4.0);
        let (waited, computed) = (start.elapsed(), cpu_time() - before);
        assert!(waited > LONG + LONG / 2, "it waited {waited:?}");
        assert!(computed < waited / 10, "it computed {computed:?} while it waited {waited:?}");
    });
    Ok(())
}

#[test]
fn who_waits_for_a_first_value_sleeps() -> Result<()> {
    struct Slow(Barrier);
    impl FirstValue for Slow {
        fn value(&self, initial: &Tensor) -> Result<Tensor> {
            self.0.wait();
            sleep(LONG);
            initial.add_scalar(1.0)
        }
    }
    let scope = Eager::new(&gradlet::cpu());
    let w = Variable::deferred("w");
    let slow = Arc::new(Slow(Barrier::new(2)));
    w.first_value_from(slow.clone());
    let initial = Tensor::scalar(&scope.device(), 1.0f32);
    thread::scope(|threads| {
        threads.spawn(|| w.create(&scope, &initial).unwrap());
        slow.0.wait();
        let before = cpu_time();
        w.create(&scope, &Tensor::scalar(&scope.device(), 7.0f32)).unwrap();
        assert!(cpu_time() - before < LONG / 10);
    });
    assert_eq!(scope.read(&w)?.item::<f32>()?, 2.0);
    Ok(())
}

/// With many threads and many short waits, no thread sleeps forever.
#[test]
fn nobody_misses_a_wake() -> Result<()> {
    let scope = Eager::new(&gradlet::cpu());
    let total = Variable::new(&scope, "total", &Tensor::scalar(&scope.device(), 0i64))?;
    let add = Function::new({
        let total = total.clone();
        move |scope: &dyn Scope, x: Tensor| scope.assign_add(&total, &x)
    });
    let one = Tensor::scalar(&scope.device(), 1i64);
    add.call(&scope, one.clone())?;
    thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| (0..2000).try_for_each(|_| add.call(&scope, one.clone())).unwrap());
        }
    });
    assert_eq!(scope.read(&total)?.item::<i64>()?, 16_001);
    Ok(())
}
