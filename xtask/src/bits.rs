//! The same bits on the device: the training steps of an MLP and of an LSTM under QEMU against the host's, compiled and op by op.

#[path = "../../boards/mps2-an386/src/learn.rs"]
mod learn;

use crate::setup::Toolchain;
use crate::{firmware, models};
use anyhow::{Result, ensure};
use gradlet::device::AlignedBytes;
use gradlet::{Program, Session, ops};
use std::fs;
use std::time::Duration;

const STEPS: u32 = 100;
const LOG: &str = "bits.out";
const LIMIT: Duration = Duration::from_secs(120);

/// Fails unless the firmware `mlp` or `lstm` gives every loss of its steps, and every weight after them, as the host does.
pub fn check(toolchain: &Toolchain, name: &str) -> Result<()> {
    let folder = models::export(name)?;
    let elf = firmware::build(toolchain, name, Some(&folder))?;
    firmware::run(&elf, &folder, &[&STEPS.to_string(), LOG], LIMIT)?.ok()?;
    compare(&fs::read(folder.join(LOG))?, &host(&fs::read(folder.join("model.grdl"))?)?)
}

/// Fails unless the firmware `eager`, which builds its model itself, gives every loss and every variable as the host does.
pub fn check_eager(toolchain: &Toolchain) -> Result<()> {
    let folder = models::none()?;
    let elf = firmware::build(toolchain, "eager", None)?;
    let run = firmware::run(&elf, &folder, &[&STEPS.to_string(), LOG], LIMIT)?.ok()?;
    let mut host = Vec::new();
    learn::learn(STEPS, |step| step(), |bytes| host.extend(bytes))?;
    println!("heap {} bytes at most, {} instructions a step", run.number("heap_peak")?, run.number("instructions_train_step")?);
    compare(&fs::read(folder.join(LOG))?, &host)
}

/// Fails unless both logs hold the same bytes: the losses, then the variables.
fn compare(device: &[u8], host: &[u8]) -> Result<()> {
    let differs = host.iter().zip(device).position(|(host, device)| host != device);
    ensure!(device.len() == host.len(), "the device wrote {} bytes, the host {}", device.len(), host.len());
    ensure!(differs.is_none(), "device and host differ from byte {differs:?} on: {STEPS} losses come first, then the variables");
    println!("{STEPS} losses and {} bytes of variables: the same bits", host.len() - 4 * STEPS as usize);
    Ok(())
}

/// The losses, then the variables, as `boards/mps2-an386/src/mlp.rs` writes them.
fn host(artifact: &[u8]) -> Result<Vec<u8>> {
    let artifact = AlignedBytes::from(artifact);
    let program = Program::load(&artifact, ops::KERNELS, &["infer", "train"])?;
    let train = program.signature("train")?;
    let mut arena = AlignedBytes::zeroed(program.arena_bytes());
    let mut session = Session::new(&program, &mut arena)?;
    let mut log = Vec::new();
    for example in (0..STEPS).map(|step| step % 8) {
        let mut state = example;
        for value in session.input_mut::<f32>(train, 0)? {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *value = (state >> 16) as f32 / 65_536.0;
        }
        session.input_mut::<i32>(train, 1)?.fill(example as i32);
        session.run(train)?;
        log.extend(session.output_bytes(train, 0)?);
    }
    for variable in 0..session.variable_count() {
        log.extend(session.variable(variable)?);
    }
    Ok(log)
}
