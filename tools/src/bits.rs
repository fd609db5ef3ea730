//! Checks that device and host compute the same bits. Firmwares under QEMU train an MLP and an LSTM, compiled and eagerly.

#[path = "../../boards/emulated/src/learn.rs"]
mod learn;

use crate::models;
use anyhow::{Result, ensure};
use gradlet::device::AlignedBytes;
use gradlet::runtime::SignatureId;
use gradlet::runtime::program::checksum;
use gradlet::{Program, Session, ops};
use gradlet_tools::firmware;
use std::fs;
use std::time::Duration;
use xtask::boards;
use xtask::setup::Toolchain;

const STEPS: u32 = 100;
const LOG: &str = "bits.out";
const LIMIT: Duration = Duration::from_secs(120);

/// Fails if a loss of the firmware `mlp` or `lstm`, or a weight after its last step, differs from the host's.
pub fn check(toolchain: &Toolchain, name: &str) -> Result<()> {
    let folder = models::export(name)?;
    let firmware = firmware::build(toolchain, name, Some(&folder))?;
    firmware::run(&firmware, &folder, &[&STEPS.to_string(), LOG], LIMIT)?.ok()?;
    compare(&fs::read(folder.join(LOG))?, &host(&fs::read(folder.join("model.grdl"))?, "train", STEPS)?)
}

/// Fails if a loss or a variable of the firmware `eager`, which builds its own model, differs from the host's.
pub fn check_eager(toolchain: &Toolchain) -> Result<()> {
    let folder = boards::no_model()?;
    let firmware = firmware::build(toolchain, "eager", None)?;
    let run = firmware::run(&firmware, &folder, &[&STEPS.to_string(), LOG], LIMIT)?.ok()?;
    let mut host = Vec::new();
    learn::learn(STEPS, |step| step(), |bytes| host.extend(bytes))?;
    println!("heap {} bytes at most, {} instructions a step", run.number("heap_peak")?, run.number("instructions_train_step")?);
    compare(&fs::read(folder.join(LOG))?, &host)
}

/// Number of training steps between two saves of the firmware `restart`, and number of its saves.
const SAVES: [u32; 2] = [10, 4];

/// Fails if a loss or a variable of the firmware `restart` differs from the host's. The firmware restarts after each save, the host never.
/// The check repeats with a loss of power at several operations of the second save.
pub fn check_restart(toolchain: &Toolchain) -> Result<()> {
    let folder = models::export("restart")?;
    let firmware = firmware::build(toolchain, "restart", Some(&folder))?;
    let [steps, saves] = SAVES;
    let host = host(&fs::read(folder.join("model.grdl"))?, "train", steps * saves)?;
    let (losses, variables) = host.split_at(4 * (steps * saves) as usize);
    let run = |cut: Option<u64>| {
        let words =
            ["train".to_string(), steps.to_string(), saves.to_string(), LOG.into()].into_iter().chain(cut.map(|cut| cut.to_string()));
        let words: Vec<String> = words.collect();
        let run = firmware::run(&firmware, &folder, &words.iter().map(String::as_str).collect::<Vec<_>>(), LIMIT)?.ok()?;
        // An interrupted save has no effect, so the firmware repeats its steps.
        let part = |save: u32| save * steps..(save + 1) * steps;
        let parts = [0, 1].into_iter().chain(cut.map(|_| 1)).chain(2..saves);
        let expected = parts.flat_map(part).flat_map(|step| {
            let loss = &losses[4 * step as usize..][..4];
            [&step.to_le_bytes(), loss].concat()
        });
        let expected: Vec<u8> = expected.chain(variables.iter().copied()).collect();
        ensure!(fs::read(folder.join(LOG))? == expected, "the device's log differs from the host's (power cut at operation {cut:?})");
        ensure!(
            run.number("restarts")? == u64::from(saves) + u64::from(cut.is_some()),
            "the number of restarts is wrong (power cut at operation {cut:?})"
        );
        run.number("flash_operations")
    };
    let operations = run(None)?;
    let cuts = [0, 1, 2, operations / 3, operations / 2, operations - 5, operations - 4, operations - 3, operations - 2, operations - 1];
    cuts.iter().try_for_each(|&cut| run(Some(cut)).map(drop))?;
    println!("{saves} restarts, and {} losses of power in a save of {operations} operations: the same bits", cuts.len());
    Ok(())
}

/// Number of resets of the firmware `hostile`.
const RESETS: u32 = 1000;

/// Runs the firmware `hostile`, which is reset at random instructions. It checks itself that its variables are always those after a whole
/// step. Fails if these variables differ from the host's after the same number of steps.
pub fn check_hostile(toolchain: &Toolchain) -> Result<()> {
    let folder = models::export("hostile")?;
    let firmware = firmware::build(toolchain, "hostile", Some(&folder))?;
    let run = firmware::run(&firmware, &folder, &[&RESETS.to_string(), LOG], LIMIT)?.ok()?;
    let counted = run.console.lines().filter(|line| !line.starts_with("stack"));
    println!("{}", counted.collect::<Vec<_>>().join(", "));
    for key in ["refused", "resumed", "unfinished", "restored", "saves", "sliced_saves", "foreign_saves", "older_restored", "discarded"] {
        ensure!(run.number(key)? > 0, "the firmware did not test everything: {key} is 0");
    }
    let device = fs::read(folder.join(LOG))?;
    let host = sums(&fs::read(folder.join("model.grdl"))?, device.len() / 4)?;
    ensure!(host == device, "the variables of the device after a whole step differ from the host's");
    println!("{} different states, all after a whole step: the same bits", host.len() / 4);
    Ok(())
}

/// Trains on the host. Returns the checksums of the variables after each number of steps, as `boards/emulated/src/bin/hostile.rs` writes
/// them.
fn sums(artifact: &[u8], count: usize) -> Result<Vec<u8>> {
    let artifact = AlignedBytes::from(artifact);
    let program = Program::load(&artifact, ops::KERNELS, &["train", "set_learning_rate"])?;
    let (train, set) = (program.signature("train")?, program.signature("set_learning_rate")?);
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let mut sums = Vec::new();
    for step in 0..count as u32 {
        let mut sum = 1u32;
        for value in (0..session.variable_count()).map(|index| session.variable(index)) {
            // Without the number of steps and the learning rate.
            if let value @ [_, _, _, _, _, _, _, _, _, ..] = value? {
                sum = sum.rotate_left(1) ^ checksum(value);
            }
        }
        sums.extend(sum.to_le_bytes());
        session.set_input(set, 0, &[0.001 * (1 + step % 3) as f32])?;
        session.run(set)?;
        example(&mut session, train, step % 8)?;
        session.run(train)?;
    }
    Ok(sums)
}

/// Fails if the two logs differ. A log has the losses, then the variables.
pub fn compare(device: &[u8], host: &[u8]) -> Result<()> {
    let differs = host.iter().zip(device).position(|(host, device)| host != device);
    ensure!(device.len() == host.len(), "the device wrote {} bytes, but the host {}", device.len(), host.len());
    ensure!(
        differs.is_none(),
        "the device's log differs from the host's from byte {differs:?} on (it has {STEPS} losses, then the variables)"
    );
    println!("{STEPS} losses and {} bytes of variables: the same bits", host.len() - 4 * STEPS as usize);
    Ok(())
}

/// Runs the training steps of `signature` on the host. Returns the losses, then the variables, in the form that
/// `boards/emulated/src/mlp.rs` writes.
pub fn host(artifact: &[u8], signature: &str, steps: u32) -> Result<Vec<u8>> {
    let artifact = AlignedBytes::from(artifact);
    let program = Program::load(&artifact, ops::KERNELS, &[signature])?;
    let train = program.signature(signature)?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let mut log = Vec::new();
    for example in (0..steps).map(|step| step % 8) {
        self::example(&mut session, train, example)?;
        session.run(train)?;
        log.extend(session.output_bytes(train, 0)?);
    }
    // The variables of other signatures are not loaded.
    log.extend((0..session.variable_count()).flat_map(|index| session.variable(index)).flatten());
    Ok(log)
}

/// Sets the inputs of `train` to example number `example`.
pub fn example(session: &mut Session<'_, '_>, train: SignatureId, example: u32) -> Result<()> {
    let mut state = example;
    for value in session.input_mut::<f32>(train, 0)? {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *value = (state >> 16) as f32 / 65_536.0;
    }
    session.input_mut::<i32>(train, 1)?.fill(example as i32);
    Ok(())
}
