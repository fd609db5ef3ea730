//! The program of `cargo xtask bench cuda` on an emulated GPU: it answers every row of a quick table.

#[allow(dead_code)]
#[path = "../../../../std-host/examples/bench_cuda.rs"]
mod example;
#[allow(dead_code)]
#[path = "../../../../tools/src/bench/cuda/rows.rs"]
mod rows;

use gradlet_core::Result;
use gradlet_tests::gpu::Emulator;
use std::fmt::Write;

/// Turns off the checks that take most of the time. Other tests have them for the same models.
const FAST: &str = "uninitialised=0 global_races=0";

/// Answers requests, one per line, and returns the lines of the answers after the first.
fn answers(requests: &str) -> Result<Vec<String>> {
    let (emulator, mut answers) = (Emulator::with(FAST)?, Vec::new());
    example::serve(&emulator.gpu()?, requests.as_bytes(), &mut answers).unwrap();
    let answers = String::from_utf8(answers).unwrap();
    let mut lines = answers.lines().map(String::from);
    assert!(lines.next().is_some_and(|line| line.starts_with("ready gradlet ")), "{answers}");
    Ok(lines.collect())
}

#[test]
fn answers_every_row() -> Result<()> {
    let rows = rows::rows(true);
    let mut requests = String::new();
    rows.iter().for_each(|row| writeln!(requests, "{} 1", row.request).unwrap());
    let answers = answers(&requests)?;
    assert_eq!(answers.len(), rows.len());
    for (row, answer) in rows.iter().zip(answers) {
        let time: f64 = answer.parse().unwrap_or_else(|_| panic!("{}: {answer}", row.request));
        assert!(time.is_finite() && time > 0.0, "{}: {time} ms", row.request);
    }
    Ok(())
}

/// A usual table asks for the same work as a quick one, with as many sizes.
#[test]
fn asks_for_the_same_work() {
    let form = |quick| -> Vec<_> {
        let rows = rows::rows(quick);
        let requests = rows.iter().map(|row| row.request.rsplit_once('/').unwrap());
        requests.map(|(work, sizes)| (work.to_string(), sizes.split('x').count())).collect()
    };
    assert_eq!(form(false), form(true));
}

#[test]
fn refuses_what_it_cannot_measure() -> Result<()> {
    let requests = "gemm 1\ngemm/f32/8 many\ngemm/f8/8 1\ngemm/f32/8x8 1\nlaunch/f32/8x8 1\ngemm/f32/8 3\ngemm/f32/8 2\n";
    let answers = answers(requests)?;
    assert!(answers[..3].iter().all(|answer| answer.starts_with("failed a request must be like")), "{answers:?}");
    assert_eq!(answers[3], "failed there is no work gemm with 2 sizes");
    assert_eq!(answers[4], "failed there is no work launch with 2 sizes");
    assert_eq!([5, 6].map(|index| answers[index].split(' ').count()), [3, 2], "{answers:?}");
    Ok(())
}
