//! Tests of datasets with threads: order, panics, early ends, tuning, memory, and positions across processes.

use gradlet::data::{AUTOTUNE, Cardinality, Dataset, Interleave, Parallel, Shuffle};
use gradlet::io::tfrecord::{Compression, RecordFiles, RecordWriter};
use gradlet::{Error, Tensor};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Lock of the tests that count threads or measure memory, so that they run one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn all<T: Send + 'static>(dataset: &Dataset<T>) -> Vec<T> {
    dataset.iter().collect::<Result<_, _>>().unwrap()
}

/// Counts the pipeline threads of this process.
fn data_threads() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    tasks.filter(|task| std::fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.starts_with("gradlet-data"))).count()
}

/// Asserts that no pipeline thread remains. A joined thread may still be in `/proc` for a moment, because the kernel wakes the joining
/// thread first.
fn assert_no_thread_remains() {
    let start = Instant::now();
    while data_threads() > 0 {
        assert!(start.elapsed() < Duration::from_secs(1), "{} pipeline threads remain", data_threads());
        std::thread::yield_now();
    }
}

/// The expected cardinalities are those of the same stages in TensorFlow 2.21.
#[test]
fn what_is_taken_of_an_unknown_number_is_unknown() {
    let five = Dataset::range(0..5);
    let unknown = five.filter(|_| Ok(true));
    for count in [0, 3] {
        assert_eq!(unknown.take(count).cardinality(), Cardinality::Unknown);
        assert_eq!(unknown.skip(count).cardinality(), Cardinality::Unknown);
        assert_eq!(five.repeat().take(count).cardinality(), Cardinality::Finite(count));
        assert_eq!(five.repeat().skip(count).cardinality(), Cardinality::Infinite);
        assert_eq!(five.take(count).cardinality(), Cardinality::Finite(count));
    }
    assert_eq!(unknown.take(0).repeat().cardinality(), Cardinality::Infinite);
    assert_eq!(unknown.repeat_times(0).cardinality(), Cardinality::Finite(0));
    assert_eq!(all(&unknown.take(0)), [0i64; 0]);
}

#[test]
fn parallel_maps_keep_the_order_or_all_elements() {
    let _alone = alone();
    let slow = |x: i64| {
        // Elements take different times, so they finish in another order.
        std::thread::sleep(Duration::from_micros((x % 3 * 300) as u64));
        Ok(x * x)
    };
    let wanted = all(&Dataset::range(0..200).map(slow));
    for calls in [1, 2, 7] {
        assert_eq!(all(&Dataset::range(0..200).map_parallel(calls, slow)), wanted);
    }
    assert_eq!(all(&Dataset::range(0..200).map_parallel(AUTOTUNE, slow)), wanted);
    let mut any = all(&Dataset::range(0..200).map_parallel(Parallel::new(4).deterministic(false), slow));
    assert_ne!(any, wanted, "nothing overtook anything");
    any.sort_unstable();
    assert_eq!(any, wanted);
}

#[test]
fn errors_come_in_their_places_from_threads_too() {
    let _alone = alone();
    let failing = |x: i64| if x % 4 == 1 { Err(Error::message("no")) } else { Ok(x) };
    for dataset in [Dataset::range(0..10).map(failing), Dataset::range(0..10).map_parallel(3, failing)] {
        let items: Vec<Result<i64, String>> = dataset.iter().map(|item| item.map_err(|error| error.to_string())).collect();
        assert_eq!(items.len(), 10);
        assert_eq!(items[5], Err("stage 1 (map), element 5: no".into()));
        assert_eq!(items[6], Ok(6));
        assert_eq!(all(&dataset.ignore_errors().prefetch(2)), [0, 2, 3, 4, 6, 7, 8]);
    }
}

#[test]
fn a_panic_comes_out_where_elements_are_used_and_no_thread_remains() {
    let _alone = alone();
    let panicking = |x: i64| if x == 20 { panic!("element 20") } else { Ok(x) };
    let pipelines = [
        Dataset::range(0..100).map_parallel(4, panicking),
        Dataset::range(0..100).map_parallel(AUTOTUNE, panicking).prefetch(AUTOTUNE),
        Dataset::range(0..100).map(panicking).prefetch(3),
        Dataset::range(0..4)
            .interleave(Interleave::new(2).num_parallel_calls(2), move |file| Ok(Dataset::range(10 * file..10 * file + 10).map(panicking))),
    ];
    for pipeline in pipelines {
        let panic = catch_unwind(AssertUnwindSafe(|| pipeline.iter().count())).unwrap_err();
        assert_eq!(panic.downcast_ref::<&str>(), Some(&"element 20"));
        assert_no_thread_remains();
    }
}

#[test]
fn dropping_an_iterator_ends_its_threads() {
    let _alone = alone();
    let endless = Dataset::range(0..10).repeat().map_parallel(4, Ok).shuffle(100).batch(8).prefetch(AUTOTUNE);
    for taken in [0, 1, 50] {
        let mut iterator = endless.iter();
        iterator.by_ref().take(taken).for_each(|batch| assert_eq!(batch.unwrap().dims(), [8]));
        assert_eq!(data_threads() > 0, taken > 0);
        let start = Instant::now();
        drop(iterator);
        assert_no_thread_remains();
        assert!(start.elapsed() < Duration::from_secs(1));
    }
    assert_eq!(endless.iter().take(3).count(), 3);
}

#[test]
fn autotune_takes_the_threads_that_the_consumer_needs() {
    let _alone = alone();
    let cores = std::thread::available_parallelism().unwrap().get();
    // The function sleeps, so that more threads always help, whatever the load of the machine.
    let slow = Dataset::range(0..1000).map_parallel(AUTOTUNE, |x| {
        std::thread::sleep(Duration::from_millis(3));
        Ok(x)
    });
    assert_eq!(slow.tuned()[0].value(), cores);
    all(&slow);
    assert_eq!(slow.tuned()[0].stage(), "stage 1 (map)");
    assert!(slow.tuned()[0].value() > cores, "{} of {cores}", slow.tuned()[0].value());
    // A consumer that is slower than the function needs fewer threads. The setting remains for the next pass. A loaded machine can make
    // the consumer wait in a pass.
    let quick = Dataset::range(0..300).map_parallel(AUTOTUNE, Ok);
    let fewer = (0..20).any(|_| {
        quick.iter().for_each(|_| std::thread::sleep(Duration::from_millis(2)));
        quick.tuned()[0].value() < cores
    });
    assert!(fewer || cores == 1, "{} of {cores}", quick.tuned()[0].value());
}

#[test]
fn autotune_fetches_more_ahead_when_the_consumer_comes_in_bursts() {
    let _alone = alone();
    let bursts = Dataset::range(0..240)
        .map(|x| {
            std::thread::sleep(Duration::from_micros(500));
            Ok(x)
        })
        .prefetch(AUTOTUNE);
    for (index, _) in bursts.iter().enumerate() {
        if index % 12 == 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
    assert!(bursts.tuned()[0].value() >= 4, "{:?}", bursts.tuned());
}

/// Counts the sleeps that begin while another thread sleeps. Unlike a duration, the count is the same on a busy machine.
#[derive(Clone, Default)]
struct Sleeps(Arc<[AtomicUsize; 2]>);

impl Sleeps {
    fn sleep(&self) {
        let [asleep, together] = &*self.0;
        if asleep.fetch_add(1, Ordering::SeqCst) > 0 {
            together.fetch_add(1, Ordering::SeqCst);
        }
        std::thread::sleep(Duration::from_millis(2));
        asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn together(&self) -> usize {
        self.0[1].load(Ordering::SeqCst)
    }
}

#[test]
fn prefetch_works_while_the_consumer_does() {
    let _alone = alone();
    let together = |prefetch: bool| {
        let sleeps = Sleeps::default();
        let own = sleeps.clone();
        let slow = Dataset::range(0..40).map(move |x| {
            own.sleep();
            Ok(x)
        });
        let slow = if prefetch { slow.prefetch(2) } else { slow };
        slow.iter().for_each(|_| sleeps.sleep());
        sleeps.together()
    };
    assert_eq!(together(false), 0);
    let together = together(true);
    assert!(together > 30, "only {together} of 80 sleeps");
}

#[test]
fn parallel_interleave_reads_in_order_at_the_same_time() {
    let _alone = alone();
    let read = |interleave: Interleave| {
        let sleeps = Sleeps::default();
        let own = sleeps.clone();
        let file = move |file: i64| {
            let own = own.clone();
            Ok(Dataset::range(0..20 + file).map(move |line| {
                own.sleep();
                Ok((file, line))
            }))
        };
        (all(&Dataset::range(0..6).interleave(interleave, file)), sleeps.together())
    };
    let (mut wanted, alone) = read(Interleave::new(3).block_length(2));
    let (got, together) = read(Interleave::new(3).block_length(2).num_parallel_calls(3));
    assert_eq!(got, wanted);
    assert_eq!(alone, 0);
    assert!(together > 60, "only {together} of {} sleeps", wanted.len());
    let (mut any, _) = read(Interleave::new(3).num_parallel_calls(Parallel::new(3).deterministic(false)));
    any.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(any, wanted);
}

#[test]
fn a_position_goes_on_in_another_pipeline_with_unknown_seeds() {
    let _alone = alone();
    let build = || {
        let mixed = Dataset::sample_from_datasets(vec![Dataset::range(0..500), Dataset::range(1000..1500)], None, None, false);
        mixed.shuffle(64).map_parallel(3, |x| Ok(x * 2)).repeat_times(4).batch(7).shuffle(Shuffle::new(5)).prefetch(2)
    };
    let values = |batch: Result<Tensor, Error>| batch.unwrap().to_vec::<i64>().unwrap();
    for taken in [0, 1, 80, 400] {
        let mut iterator = build().iter();
        iterator.by_ref().take(taken).for_each(drop);
        let saved = iterator.position().to_tensor(&gradlet::cpu()).unwrap();
        let resumed = build().iter_from(&gradlet::data::Position::from_tensor(&saved).unwrap()).unwrap();
        let wanted: Vec<_> = iterator.map(values).collect();
        assert_eq!(resumed.map(values).collect::<Vec<_>>(), wanted);
        assert_eq!(wanted.len(), 4000usize.div_ceil(7) - taken);
    }
    let other = Dataset::range(0..3).iter();
    assert!(build().iter_from(&other.position()).is_err());
}

#[test]
fn skipped_elements_are_not_computed() {
    let _alone = alone();
    let careful = |x: i64| if x < 90 { panic!("{x} is computed") } else { Ok(x) };
    let whole = Dataset::range(0..100);
    assert_eq!(all(&whole.map(careful).skip(90).take(1)), [90]);
    assert_eq!(all(&whole.map_parallel(4, careful).prefetch(2).skip(95)), [95, 96, 97, 98, 99]);
    let batches = whole.map(careful).batch(10);
    let mut iterator = batches.iter();
    assert_eq!(iterator.nth(9).unwrap().unwrap().to_vec::<i64>().unwrap()[0], 90);
    assert_eq!(iterator.position().delivered(), 10);
}

#[test]
#[ignore = "a program that the next test ends"]
fn endless_pipeline() {
    let endless = Dataset::range(0..10).repeat().map_parallel(AUTOTUNE, Ok).shuffle(1000).batch(8).prefetch(AUTOTUNE);
    println!("started");
    endless.iter().for_each(drop);
}

/// A child process. Dropping this value kills the process, even if the test fails.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn ctrl_c_ends_a_program_with_pipelines() {
    // A program that a shell starts in the background ignores SIGINT, and so do its children. `--default-signal` resets this.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(std::env::current_exe().unwrap()).args(["endless_pipeline", "--exact", "--ignored"]);
    let mut program = Program(command.stdout(Stdio::null()).spawn().unwrap());
    std::thread::sleep(Duration::from_millis(500));
    assert!(program.0.try_wait().unwrap().is_none(), "it ended by itself");
    assert!(Command::new("kill").args(["-INT", &program.0.id().to_string()]).status().unwrap().success());
    let start = Instant::now();
    while program.0.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(5), "it hangs");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the peak memory of this process so far, in KiB.
fn high_water() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Reads a file of 64 MiB 64 times.
#[test]
fn streaming_4_gib_takes_little_memory() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records");
    let mut writer = RecordWriter::create(&path, Compression::None).unwrap();
    let record: Vec<u8> = (0..8192).map(|at| (at % 251) as u8).collect();
    (0..8192).for_each(|_| writer.write(&record).unwrap());
    writer.finish().unwrap();
    let records = RecordFiles::new(vec![path; 64]).dataset();
    let lengths = records.shuffle(1000).map_parallel(AUTOTUNE, |record| Ok((record[250], record.len() as i64)));
    let bytes =
        lengths.batch(64).prefetch(AUTOTUNE).reduce(0, |bytes, (_, lengths)| Ok(bytes + lengths.to_vec::<i64>()?.iter().sum::<i64>()));
    assert_eq!(bytes.unwrap(), 4 << 30);
    assert!(high_water() < 200 << 10, "{} KiB", high_water());
}

#[test]
fn only_what_is_in_flight_is_in_memory() {
    let _alone = alone();
    let before = high_water();
    // 2 GiB in elements of 1 MiB.
    let large = Dataset::range(0..2048).map(|x| Tensor::full(&gradlet::cpu(), x as u8, &[1 << 20]));
    let sums = large.map_parallel(2, |row| Ok(row.bytes()?[7])).prefetch(4).reduce(0u64, |sum, x| Ok(sum + u64::from(x))).unwrap();
    assert_eq!(sums, 8 * (0..256).sum::<u64>());
    assert!(high_water() - before < 64 << 10, "{} KiB more", high_water() - before);
}
