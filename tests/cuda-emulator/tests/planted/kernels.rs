//! Runs planted kernels.

use crate::Verdict;
use crate::session::{GLOBAL, Launch, Outcome, Session};

/// Runs a kernel, or its twin. `place` is the name of its file, and properties of the emulator.
pub fn run(name: &str, place: &str, has_mistake: bool) -> Outcome<Verdict> {
    let (file, words) = place.split_once(' ').unwrap_or((place, ""));
    let text = match file {
        "global" => GLOBAL,
        "shared" => include_str!("shared.ptx"),
        "ampere" => include_str!("ampere.ptx"),
        "hopper" => include_str!("hopper.ptx"),
        "control" => include_str!("control.ptx"),
        "uninitialised" => include_str!("uninitialised.ptx"),
        _ => panic!("{name} is in {file}, which does not exist"),
    };
    let session = Session::new(words)?;
    let entry = if has_mistake { name.to_string() } else { format!("{name}_right") };
    let function = session.function(session.load(text)?, &entry)?;
    let (from, out) = (session.numbers()?, session.numbers()?);
    // Products need four warps.
    let (blocks, threads) = if file == "hopper" { (2, 128) } else { (4, 64) };
    Launch { function, grid: [blocks, 1, 1], block: [threads, 1, 1], shared: 0, stream: session.stream }.submit(out, from)?;
    session.synchronise()?;
    Ok(Verdict::Right)
}
