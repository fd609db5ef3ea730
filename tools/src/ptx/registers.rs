//! The table of the registers, shared memory and spills of each kernel, as the assembler for each GPU reports them.

use super::oldest_gpu;
use anyhow::{Context, Result, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use xtask::setup::CudaCompilers;

/// The GPUs: Xavier, Orin, Hopper and Thor. Only CUDA 13 assembles for the last one.
const GPUS: [&str; 4] = ["sm_72", "sm_87", "sm_90", "sm_110"];
const THOR: &str = GPUS[3];
/// Beginnings of the names of the files whose kernels must not spill: products and convolutions.
const WITHOUT_SPILLS: [&str; 7] = ["linalg", "gemm", "thin", "conv", "depthwise", "tensor_core", "warpgroup"];

/// Needs of a kernel on a GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Needs {
    registers: u32,
    /// Bytes of shared memory of a block.
    shared: u32,
    /// Bytes of registers that a thread stores to memory and loads again, because it has too few.
    spilled: u32,
}

/// Returns the table of the kernels in these files. Fails if a kernel spills that must not. The cells for GPUs that a file is not for have
/// dashes. Dynamic shared memory is not in the table, because the host decides on it.
pub fn table(compilers: &CudaCompilers, files: &[PathBuf]) -> Result<String> {
    let assemble_all = |gpu| files.iter().map(|file| assemble(compilers, gpu, file)).collect::<Result<Vec<_>>>();
    // One thread for each GPU.
    let columns = thread::scope(|threads| {
        let started = GPUS.map(|gpu| threads.spawn(move || assemble_all(gpu)));
        started.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let columns = columns.into_iter().collect::<Result<Vec<_>>>()?;
    let mut table = String::from("# For each kernel and GPU: registers of a thread, bytes of shared memory, bytes of spills.\n");
    table += &format!("{:32}{}\n", "", GPUS.map(|gpu| format!("{gpu:>20}")).concat());
    for (at, file) in files.iter().enumerate() {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        let kernels: BTreeSet<&String> = columns.iter().flat_map(|files| files[at].keys()).collect();
        for kernel in kernels {
            let needs = columns.iter().map(|files| files[at].get(kernel).copied()).collect::<Vec<_>>();
            let spills = needs.iter().flatten().any(|needs| needs.spilled > 0);
            ensure!(
                !spills || WITHOUT_SPILLS.iter().all(|start| !name.starts_with(start)),
                "{kernel} in {name} spills registers: {needs:?}"
            );
            let cell = |needs: &Option<Needs>| match needs {
                Some(needs) => format!("{:>6}{:>8}{:>6}", needs.registers, needs.shared, needs.spilled),
                None => format!("{:>6}{:>8}{:>6}", "-", "-", "-"),
            };
            table += &format!("{:32}{}\n", format!("{name}/{kernel}"), needs.iter().map(cell).collect::<String>());
        }
    }
    Ok(table)
}

/// Returns the name by which the assembler knows a GPU for the files with PTX for the GPUs `oldest`, or `None` if that is not for it.
fn assembled(gpu: &str, oldest: &str) -> Option<String> {
    let number = |name: &str| name.trim_start_matches("sm_").parse::<u32>().unwrap_or(0);
    match oldest.strip_suffix('a') {
        Some(only) => (number(gpu) == number(only)).then(|| format!("{gpu}a")),
        None => (number(gpu) >= number(oldest)).then(|| gpu.to_string()),
    }
}

/// Assembles a file for a GPU, and returns what its kernels need: nothing if the file is not for this GPU.
fn assemble(compilers: &CudaCompilers, gpu: &str, file: &Path) -> Result<BTreeMap<String, Needs>> {
    let name = file.file_stem().unwrap_or_default().to_string_lossy();
    let Some(target) = assembled(gpu, oldest_gpu(&name)) else { return Ok(BTreeMap::new()) };
    let ptxas = if gpu == THOR { &compilers.ptxas_13 } else { &compilers.ptxas_12 };
    let mut command = Command::new(ptxas);
    let output = command.args([&format!("-arch={target}"), "-v", "-o", "/dev/null"]).arg(file).output();
    let output = output.with_context(|| format!("cannot start {}", ptxas.display()))?;
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{} for {gpu}: {report}", file.display());
    Ok(parse(&report))
}

/// Reads the assembler's report. The lines about a kernel follow its name. They include those about the functions that it calls.
fn parse(report: &str) -> BTreeMap<String, Needs> {
    let mut kernels: BTreeMap<String, Needs> = BTreeMap::new();
    let mut current = String::new();
    // The number before a unit, such as `30 registers`.
    let number = |line: &str, unit: &str| {
        let before = line.split(unit).next().filter(|before| before.len() < line.len())?;
        before.split(' ').next_back()?.parse::<u32>().ok()
    };
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            current = rest.split('\'').next().unwrap_or_default().to_string();
            kernels.insert(current.clone(), Needs::default());
        }
        let Some(needs) = kernels.get_mut(&current) else { continue };
        needs.registers = number(line, " registers").unwrap_or(needs.registers);
        needs.shared = number(line, " bytes smem").unwrap_or(needs.shared);
        needs.spilled += number(line, " bytes spill stores").unwrap_or(0) + number(line, " bytes spill loads").unwrap_or(0);
    }
    kernels
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_for_some_gpus() {
        let for_gpus = |oldest| GPUS.map(|gpu| assembled(gpu, oldest).unwrap_or_default());
        assert_eq!(for_gpus("70"), GPUS);
        assert_eq!(for_gpus("80"), ["", "sm_87", "sm_90", "sm_110"]);
        assert_eq!(for_gpus("90a"), ["", "", "sm_90a", ""]);
    }

    #[test]
    fn reports_are_read() {
        let report = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'sum_f32' for 'sm_72'\n\
            ptxas info    : Function properties for sum_f32\n    \
                0 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n\
            ptxas info    : Used 46 registers, used 1 barriers, 32 bytes smem, 472 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'fill_1' for 'sm_72'\n\
            ptxas info    : Used 12 registers, 392 bytes cmem[0]\n";
        let (sum, fill) = (Needs { registers: 46, shared: 32, spilled: 12 }, Needs { registers: 12, ..Needs::default() });
        assert_eq!(parse(report), [("sum_f32".into(), sum), ("fill_1".into(), fill)].into());
    }
}
