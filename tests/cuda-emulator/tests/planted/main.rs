//! Planted faults: the emulator catches each of them, and lets a twin without the mistake pass. `faults.txt` is the list.

mod behaviour;
mod devices;
mod kernels;
mod limits;
mod memory;
mod modules;
mod order;
mod session;

use session::{Outcome, report};

/// Result of a planted program.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It ran, and its results are right.
    Right,
    /// It ran, and its results are wrong.
    Wrong,
}

impl Verdict {
    fn of(is_right: bool) -> Verdict {
        if is_right { Verdict::Right } else { Verdict::Wrong }
    }
}

/// A program: with its mistake, or without it.
type Program = fn(has_mistake: bool) -> Outcome<Verdict>;

/// The programs with mistakes of the host, by name.
fn programs() -> impl Iterator<Item = (&'static str, Program)> {
    [memory::PROGRAMS, limits::PROGRAMS, modules::PROGRAMS, order::PROGRAMS, devices::PROGRAMS].concat().into_iter()
}

/// A line of the list.
struct Planted {
    name: &'static str,
    place: &'static str,
    expected: &'static str,
}

fn list() -> Vec<Planted> {
    let lines = include_str!("faults.txt").lines().filter(|line| !line.starts_with('#'));
    let columns = lines.map(|line| line.split('|').map(str::trim).collect::<Vec<&str>>());
    columns
        .map(|columns| match columns[..] {
            [name, place, _, expected] => Planted { name, place, expected },
            _ => panic!("{columns:?} are not four columns"),
        })
        .collect()
}

/// Runs a program and describes its end as the list does.
fn observe(planted: &Planted, has_mistake: bool) -> String {
    let verdict = match programs().find(|(name, _)| *name == planted.name) {
        Some((_, program)) if planted.place == "driver" => program(has_mistake),
        _ => kernels::run(planted.name, planted.place, has_mistake),
    };
    match (verdict, report()) {
        (Ok(Verdict::Right), _) => "right".into(),
        (Ok(Verdict::Wrong), _) => "wrong result".into(),
        (Err(status), kind) if kind.is_empty() => format!("{status:?}"),
        (Err(status), kind) => format!("{status:?}: {kind}"),
    }
}

#[test]
fn planted_faults_are_caught() {
    let list = list();
    let results: Vec<String> = list.iter().map(|planted| observe(planted, true)).collect();
    let missed = list.iter().zip(&results).filter(|(planted, result)| planted.expected != **result);
    let missed: Vec<String> = missed.map(|(planted, result)| format!("{}: {result}, not {}", planted.name, planted.expected)).collect();
    assert!(missed.is_empty(), "{} of {} faults differ:\n{}", missed.len(), list.len(), missed.join("\n"));
}

#[test]
fn twins_without_the_mistake_pass() {
    let failed: Vec<String> = list()
        .iter()
        .map(|planted| (planted.name, observe(planted, false)))
        .filter(|(_, result)| result != "right")
        .map(|(name, result)| format!("{name}: {result}"))
        .collect();
    assert!(failed.is_empty(), "twins fail:\n{}", failed.join("\n"));
}

#[test]
fn the_list_has_each_program_once() {
    let mut names: Vec<&str> = list().iter().map(|planted| planted.name).collect();
    let count = names.len();
    assert!(programs().all(|(name, _)| names.contains(&name)));
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}
