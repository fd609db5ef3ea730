//! `cargo xtask ptx`: compiles the GPU's kernels to PTX, which is committed. Users need neither the compiler nor its headers.

mod nvrtc;
mod registers;

use anyhow::{Context, Result, ensure};
use nvrtc::Nvrtc;
use std::fs;
use std::path::{Path, PathBuf};
use xtask::setup;
use xtask::shell::root;

const KERNELS: &str = "cuda-backend/kernels";
const STORED: &str = "cuda-backend/ptx";
/// The table of the kernels' registers, among the stored files.
const TABLE: &str = "registers.txt";
/// The oldest GPUs that PTX is for, unless the name of a file ends with the number of a later one, such as `_80`.
const OLDEST: &str = "70";
/// No contraction to fused operations, so that sums have the same bits as on a CPU.
const OPTIONS: [&str; 3] = ["-fmad=false", "--std=c++17", "-w"];
/// Beginning of the names of files with functions that other PTX calls.
const FUNCTIONS: &str = "functions";
/// The newest version of PTX that the driver of CUDA 11.4 takes. Only kernels for later GPUs need a newer one, that of CUDA 12.0.
const VERSIONS: [&str; 2] = [".version 7.4", ".version 8.0"];

/// Compiles all kernels. Writes the stored files, or with `check`, fails if one of them differs.
pub fn run(check: bool) -> Result<()> {
    let compilers = setup::install_cuda_compilers()?;
    let nvrtc = Nvrtc::load(&compilers.nvrtc)?;
    let compiled = files(KERNELS, "cu")?.iter().map(|source| compile(&nvrtc, source)).collect::<Result<Vec<_>>>()?;
    differences(&compiled, check)?;
    let stored = files(STORED, "ptx")?;
    let alone: Vec<_> = stored.iter().filter(|path| compiled.iter().all(|(own, _)| own != *path)).collect();
    ensure!(alone.is_empty(), "no kernels belong to {alone:?}");
    let table = registers::table(&compilers, &stored)?;
    differences(&[(root().join(STORED).join(TABLE), table)], check)?;
    println!("{} files of kernels, {} bytes of PTX", compiled.len(), compiled.iter().map(|(_, text)| text.len()).sum::<usize>());
    Ok(())
}

/// Returns the paths of the files with this extension in a folder of the workspace, sorted.
fn files(folder: &str, extension: &str) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(root().join(folder)).with_context(|| folder.to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.retain(|path| path.extension().is_some_and(|own| own == extension));
    files.sort();
    Ok(files)
}

/// Compiles a file of kernels. Returns the path of the stored file, and its text.
fn compile(nvrtc: &Nvrtc, source: &Path) -> Result<(PathBuf, String)> {
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    let mut options: Vec<String> = OPTIONS.iter().map(|option| option.to_string()).collect();
    options.push(format!("-I{}", root().join(KERNELS).display()));
    let gpu = oldest_gpu(name.trim_end_matches(".cu"));
    options.push(format!("-arch=compute_{gpu}"));
    options.extend(name.starts_with(FUNCTIONS).then(|| "-rdc=true".into()));
    let text = nvrtc.compile(&name, &fs::read_to_string(source)?, &options).with_context(|| format!("{KERNELS}/{name}"))?;
    Ok((root().join(STORED).join(&*name).with_extension("ptx"), portable(&text, VERSIONS[usize::from(gpu.starts_with('9'))])))
}

/// Returns the number of the oldest GPUs that a file with this name is for. An `a` at its end means that it is for these GPUs only.
fn oldest_gpu(name: &str) -> &str {
    let ending = name.rsplit_once('_').map(|(_, ending)| ending);
    ending.filter(|ending| ending.starts_with(|first: char| first.is_ascii_digit())).unwrap_or(OLDEST)
}

/// Sets the version of the PTX. Removes the lines that consist of a comment, which name the compiler or begin and end assembly, and the
/// hints about loads whose bytes are not all used, which only newer versions know.
fn portable(text: &str, version: &str) -> String {
    let dropped = |line: &&str| {
        ["// begin inline", "// end inline", ".pragma \"used_bytes_mask"].iter().any(|start| line.trim_start().starts_with(start))
    };
    let lines = text.lines().filter(|line| !line.starts_with("//") && !dropped(line));
    let lines = lines.map(|line| if line.starts_with(".version ") { version } else { line }).skip_while(|line| line.is_empty());
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Writes the files whose text differs from that on disk. With `check`, fails if there are any.
fn differences(files: &[(PathBuf, String)], check: bool) -> Result<()> {
    let differs = |(path, text): &&(PathBuf, String)| fs::read_to_string(path).ok().as_ref() != Some(text);
    let differing: Vec<_> = files.iter().filter(differs).collect();
    let names: Vec<_> = differing.iter().map(|(path, _)| path.strip_prefix(root()).unwrap_or(path).display().to_string()).collect();
    ensure!(!check || names.is_empty(), "not what the kernels give (run `cargo xtask ptx` to write them): {}", names.join(", "));
    for ((path, text), name) in differing.into_iter().zip(names) {
        fs::write(path, text).with_context(|| name.clone())?;
        println!("{name}: {} bytes", text.len());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files_name_gpus() {
        assert_eq!(["linalg", "top_k", "tensor_core_80", "warpgroup_90a"].map(oldest_gpu), ["70", "70", "80", "90a"]);
    }

    #[test]
    fn ptx_names_no_compiler() {
        let text =
            "//\n// Generated by NVIDIA NVVM Compiler\n//\n\n.version 8.8\n.target sm_70\n\n\t// .globl\ta\n{\n\t// begin inline asm\n}\n";
        assert_eq!(portable(text, VERSIONS[0]), ".version 7.4\n.target sm_70\n\n\t// .globl\ta\n{\n}\n");
    }
}
