//! Checks of firmwares with more than one model: two models in turn, and a model that is replaced while the device runs.

use crate::{bits, models};
use anyhow::{Result, ensure};
use gradlet::artifact::firmware as source;
use gradlet::device::AlignedBytes;
use gradlet::runtime::checkpoint::Contents;
use gradlet::{Program, Session, ops};
use gradlet_tools::firmware;
use std::fs;
use std::time::Duration;
use xtask::setup::Toolchain;

const LIMIT: Duration = Duration::from_secs(120);
const LOG: &str = "models.out";
const STEPS: u32 = 20;

/// Trains two models in turn, in shared scratch memory. Fails if a loss or a variable differs from training one after the other.
pub fn check_two(toolchain: &Toolchain) -> Result<()> {
    let names = ["mlp:64-32-10", "mlp:64-16-16-10"];
    let [first, second] = names.map(|spec| models::of(spec, &["train"]));
    let (first, second) = (first?, second?);
    let folder = models::write("two", &first)?;
    fs::write(folder.join("second.grdl"), &second)?;
    fs::write(folder.join("second.rs"), source::source(&second, "cargo xtask")?)?;
    let two = firmware::build(toolchain, "two", Some(&folder))?;
    let run = firmware::run(&two, &folder, &[&STEPS.to_string(), LOG], LIMIT)?.ok()?;
    let [first, second] = [&first, &second].map(|artifact| bits::host(artifact, "train", STEPS));
    let (first, second) = (first?, second?);
    let losses = 4 * STEPS as usize;
    let in_turn = first.chunks(4).zip(second.chunks(4)).take(STEPS as usize).flat_map(|(a, b)| [a, b].concat());
    let expected: Vec<u8> = in_turn.chain(first.iter().skip(losses).copied()).chain(second.iter().skip(losses).copied()).collect();
    ensure!(fs::read(folder.join(LOG))? == expected, "two models in turn have other bits than one after the other");
    println!("two models in turn, {} shared bytes: the host's bits", run.number("shared")?);
    Ok(())
}

/// Replaces the model of the firmware `update`. Fails unless the new model keeps what fits and learns on with the host's bits, unless each
/// bad model is refused and costs nothing, and unless a loss of power leaves the old model in place.
pub fn check_update(toolchain: &Toolchain) -> Result<()> {
    let old = models::of("mlp:64-32-10", &["train"])?;
    let new = models::of("mlp:64-32-16-10", &["train"])?;
    let folder = models::write("update", &old)?;
    let update = firmware::build(toolchain, "update", Some(&folder))?;
    let run = |file: &str, cut: Option<u32>| -> Result<(firmware::Run, Vec<u8>)> {
        let (steps, cut) = (STEPS.to_string(), cut.map(|cut| cut.to_string()));
        let words = [file, &steps, LOG].into_iter().chain(cut.as_deref());
        let run = firmware::run(&update, &folder, &words.collect::<Vec<_>>(), LIMIT)?.ok()?;
        Ok((run, fs::read(folder.join(LOG))?))
    };

    let mut damaged = new.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    let mut large = new.clone();
    large.resize(100 << 10, 0);
    let bad = [
        ("damaged", damaged, "load"),
        ("of other kernels", models::adam(false)?, "load"),
        ("of more memory", models::of("mlp:64-64-10", &["train"])?, "the model needs more memory than there is"),
        ("too large", large, "the model is larger than a bank"),
    ];
    let alone = bits::host(&old, "train", STEPS)?;
    for (what, bytes, why) in &bad {
        fs::write(folder.join("bad.grdl"), bytes)?;
        let (run, log) = run("bad.grdl", None)?;
        ensure!(run.text("refused")? == *why, "the model {what} was refused because of: {}", run.text("refused")?);
        ensure!(log == alone, "the old model has other bits after the model {what}");
    }

    fs::write(folder.join("new.grdl"), &new)?;
    let expected = |rounds| replaced(&old, &new, rounds);
    ensure!(run("new.grdl", None)?.1 == expected(1)?, "the new model has other bits than the host's");
    // Operations of the flash while the model arrives: two erasures at least, a write for each 8 bytes, and two for the record.
    let writes = (new.len() as u32).div_ceil(8);
    let cuts = [0, 1, 8, writes / 2, writes];
    for cut in cuts {
        ensure!(run("new.grdl", Some(cut))?.1 == expected(2)?, "other bits after a loss of power at operation {cut}");
    }
    println!("a model replaced, {} bad ones refused, {} losses of power: the host's bits", bad.len(), cuts.len());
    Ok(())
}

/// Trains the old model for `rounds` rounds, then the new one with the values that fit. Returns the losses, then the new model's variables.
fn replaced(old: &[u8], new: &[u8], rounds: u32) -> Result<Vec<u8>> {
    let (old, new) = (AlignedBytes::from(old), AlignedBytes::from(new));
    let [old, new] = [&old, &new].map(|bytes| Program::load(bytes, ops::KERNELS, &["train"]));
    let (old, new) = (old?, new?);
    let [mut first, mut second] = [&old, &new].map(|program| AlignedBytes::zeroed(program.arena_bytes()));
    let (mut first, mut second) = (Session::new(&old, &mut first)?, Session::new(&new, &mut second)?);
    let mut log = Vec::new();
    for _ in 0..rounds {
        train(&mut first, &old, &mut log)?;
    }
    let mut checkpoint = Vec::new();
    first.save(&mut checkpoint, Contents::Changed)?;
    second.restore_other(&old, &mut &checkpoint[..])?;
    train(&mut second, &new, &mut log)?;
    for index in 0..second.variable_count() {
        log.extend(second.variable(index)?);
    }
    Ok(log)
}

fn train(session: &mut Session<'_, '_>, program: &Program<'_>, log: &mut Vec<u8>) -> Result<()> {
    let train = program.signature("train")?;
    for step in 0..STEPS {
        bits::example(session, train, step % 8)?;
        session.run(train)?;
        log.extend(session.output_bytes(train, 0)?);
    }
    Ok(())
}
