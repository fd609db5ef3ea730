//! An estimate of the cycles of a Cortex-M4: the executed instructions, each with the cycles that Arm's manual states. It knows neither the
//! flash's wait states nor its cache, so it is for information only.

use anyhow::{Context, Result, ensure};
use gradlet_tools::firmware::{self, Firmware};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

const OBJDUMP: &str = "arm-none-eabi-objdump";
/// Functions of the firmwares that run between two training steps.
const BETWEEN: [&str; 2] = ["emulated::memory::paint_stack", "emulated::memory::stack_high_water"];
/// Training steps of the two runs. Their difference is the cost of a step.
const STEPS: [u64; 2] = [8, 16];

/// The cost of a training step.
pub struct Step {
    /// Executed instructions.
    pub instructions: u64,
    /// Estimated cycles.
    pub cycles: u64,
}

/// Estimates the cost of a training step of the firmware `mlp`. The inner error is the reason why there is no estimate.
pub fn of_step(firmware: &Firmware, folder: &Path) -> Result<Result<Step, String>> {
    if xtask::shell::answer(OBJDUMP, &["--version"]).is_none() {
        return Ok(Err(format!("{OBJDUMP} is missing")));
    }
    let code = disassemble(&firmware.elf)?;
    let [few, many] = STEPS.map(|steps| run(firmware, folder, steps, &code));
    let ([few, many], count) = ([few?, many?], STEPS[1] - STEPS[0]);
    let each = |figure: fn(&Step) -> u64| (figure(&many) - figure(&few)) / count;
    Ok(Ok(Step { instructions: each(|step| step.instructions), cycles: each(|step| step.cycles) }))
}

/// An instruction: the address of the next one, and its cycles. A jump takes two cycles more.
struct Instruction {
    next: u32,
    cycles: u64,
}

/// Returns the instructions of a firmware by their addresses, without those between two steps.
fn disassemble(elf: &Path) -> Result<HashMap<u32, Instruction>> {
    let output = Command::new(OBJDUMP).args(["--disassemble", "--demangle", "--wide"]).arg(elf).output().context("cannot start objdump")?;
    ensure!(output.status.success(), "{OBJDUMP} cannot read {}", elf.display());
    let text = String::from_utf8_lossy(&output.stdout);
    let (mut code, mut wanted) = (HashMap::new(), true);
    for line in text.lines() {
        if let Some((_, function)) = line.split_once('<').filter(|_| line.ends_with(">:")) {
            wanted = !BETWEEN.iter().any(|name| function.starts_with(name));
        }
        let mut fields = line.split('\t');
        let (Some(address), Some(bytes), Some(name)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let Ok(address) = u32::from_str_radix(address.trim().trim_end_matches(':'), 16) else { continue };
        let size = if bytes.trim().len() > 4 { 4 } else { 2 };
        if wanted {
            code.insert(address, Instruction { next: address + size, cycles: cycles(name.trim(), fields.next().unwrap_or_default()) });
        }
    }
    Ok(code)
}

/// Returns the cycles of an instruction that does not jump: the table "Instruction set summary" of the Cortex-M4's manual, and that of its
/// float unit. A load takes two cycles, a store one, and a division of integers is counted with six of its two to twelve.
fn cycles(name: &str, operands: &str) -> u64 {
    let name = name.split('.').next().unwrap_or(name);
    let many = || match operands.split_once('{') {
        Some((_, list)) => list.trim_end_matches('}').split(',').map(registers).sum(),
        None => 1,
    };
    match name {
        "vldmia" | "vldmdb" | "vstmia" | "vstmdb" | "vpush" | "vpop" => 1 + many(),
        "ldrd" | "strd" => 3,
        "vmla" | "vmls" | "vnmla" | "vnmls" | "vfma" | "vfms" | "vfnma" | "vfnms" => 3,
        "vdiv" | "vsqrt" => 14,
        "vldr" | "vstr" => 2,
        "sdiv" | "udiv" => 6,
        _ if ["ldm", "stm", "push", "pop"].iter().any(|start| name.starts_with(start)) => 1 + many(),
        _ if name.starts_with("ldr") => 2,
        _ => 1,
    }
}

/// Returns the number of registers in a part of a list, such as `r4` or `s16-s23`.
fn registers(part: &str) -> u64 {
    let number = |name: &str| name.trim().trim_start_matches(char::is_alphabetic).parse::<u64>().ok();
    match part.split_once('-') {
        Some((first, last)) => number(first).zip(number(last)).map_or(1, |(first, last)| last - first + 1),
        None => 1,
    }
}

/// Runs a firmware with `steps` training steps, and adds up the instructions that it executes.
fn run(firmware: &Firmware, folder: &Path, steps: u64, code: &HashMap<u32, Instruction>) -> Result<Step> {
    let mut qemu = firmware::qemu(firmware, &[&steps.to_string(), "cycles.out"]);
    // Each instruction is a block of its own, and QEMU writes a line for it.
    qemu.args(["-singlestep", "-d", "exec,nochain", "-D", "/dev/stdout", "-serial", "null"]);
    let mut child = qemu.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    let mut total = Step { instructions: 0, cycles: 0 };
    let mut next = None;
    let mut lines = BufReader::new(child.stdout.take().context("QEMU has no output")?);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let address = std::str::from_utf8(&line).ok().and_then(|line| line.split('/').nth(1));
        let address = address.and_then(|address| u32::from_str_radix(address, 16).ok());
        if let Some(instruction) = address.and_then(|address| code.get(&address)) {
            total.instructions += 1;
            total.cycles += instruction.cycles + if next.is_some() && next != address { 2 } else { 0 };
            next = Some(instruction.next);
        } else {
            next = None;
        }
        line.clear();
    }
    ensure!(child.wait()?.success(), "the firmware failed");
    Ok(total)
}
