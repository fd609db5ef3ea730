//! The stored PTX, and the modules that are made of it.

pub(crate) mod opening;
pub(crate) mod program;
mod source;
mod write;
mod writer;

pub(crate) use source::Source;

use gradlet_core::{Error, Result};
use opening::Opening;
use program::Program;
use std::sync::OnceLock;

/// A kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Code {
    /// An entry of a stored file.
    Stored {
        /// Name of the file, such as `reduce`.
        file: &'static str,
        /// Name of the entry.
        entry: String,
    },
    /// A kernel for elementwise ops, whose PTX is written when it is first needed.
    Elementwise(Program),
    /// An entry of a stored file with an opening, and the computation that fills it.
    Opened {
        /// Name of the file.
        file: &'static str,
        /// Name of the entry.
        entry: String,
        /// The computation.
        opening: Opening,
    },
}

impl Code {
    /// Names the entry of a stored file.
    pub(crate) fn stored(file: &'static str, entry: String) -> Code {
        Code::Stored { file, entry }
    }

    /// Returns the name of the kernel's entry.
    pub(crate) fn entry(&self) -> &str {
        match self {
            Code::Stored { entry, .. } | Code::Opened { entry, .. } => entry,
            Code::Elementwise(_) => writer::ENTRY,
        }
    }

    /// Returns a module with the kernel, and the name of its entry. If `contract` is true, the driver may contract products and sums to
    /// fused operations, where the file allows it.
    pub(crate) fn ptx(&self, contract: bool) -> Result<(String, String)> {
        match self {
            Code::Stored { file, entry } => Ok((stored(file, entry, contract)?, entry.clone())),
            Code::Elementwise(program) => Ok((program.module(functions())?, writer::ENTRY.to_string())),
            Code::Opened { file, entry, opening } => Ok((opening.module(&stored(file, entry, contract)?, functions())?, entry.clone())),
        }
    }
}

/// A stored file, with its index once somebody has needed it.
struct File {
    name: &'static str,
    /// The text as `build.rs` has compressed it.
    packed: &'static [u8],
    /// True if products and sums may be contracted. Functions of the math library rely on the rounding of each operation, so no file that
    /// contains some may allow this.
    contracts: bool,
    index: OnceLock<Source>,
}

impl File {
    const fn new(name: &'static str, packed: &'static [u8], contracts: bool) -> File {
        File { name, packed, contracts, index: OnceLock::new() }
    }

    /// Returns the index of the text, which stays in memory from its first use on.
    fn source(&self) -> &Source {
        self.index.get_or_init(|| Source::new(self.text().leak()))
    }

    fn text(&self) -> String {
        let bytes = miniz_oxide::inflate::decompress_to_vec(self.packed).unwrap_or_default();
        String::from_utf8(bytes).unwrap_or_default()
    }
}

/// Lists files by their names, and whether they contract.
macro_rules! files {
    ($($name:ident: $contracts:literal),* $(,)?) => {
        [$(File::new(stringify!($name), include_bytes!(concat!(env!("OUT_DIR"), "/", stringify!($name), ".z")), $contracts)),*]
    };
}

static FILES: [File; 23] = files! {
    functions: false, steps: false, reduce: false, scan: false, softmax: false, top_k: false, linalg: true, conv: true, pool: true,
    gemm: true, gemm_80: false, thin: false, implicit_gemm: false, depthwise: false, tensor_core_80: false, depthwise_80: false,
    warpgroup_90a: false, array: false, scatter: false, all_reduce: false, fast_reduce: true, fast_softmax: false, moments: true,
};

fn file_named(name: &str) -> Result<&'static File> {
    FILES.iter().find(|file| file.name == name).ok_or(Error::Internal)
}

/// Returns a module with an entry of a stored file, as [`Code::ptx`] does.
fn stored(file: &str, entry: &str, contract: bool) -> Result<String> {
    let file = file_named(file)?;
    let source = file.source();
    let text = if source.has(entry) { Some(source.extract([entry])) } else { for_bf16(source, entry) };
    let text = text.ok_or(Error::Internal)?;
    Ok(if contract && file.contracts { contracted(&text) } else { text })
}

/// Returns the functions of elementwise ops.
pub(crate) fn functions() -> &'static Source {
    FILES[0].source()
}

/// True if a stored file has this entry.
pub(crate) fn is_stored(file: &str, entry: &str) -> bool {
    file_named(file).is_ok_and(|file| file.source().has(entry))
}

/// Returns the kernel `entry` for bf16, if there is one for f16. Only the types of products on tensor cores and of conversions from f32
/// differ.
fn for_bf16(source: &Source, entry: &str) -> Option<String> {
    let stored = entry.replacen("_bf16", "_f16", 1);
    let text = (stored != entry && source.has(&stored)).then(|| source.extract([stored.as_str()]))?;
    let replaced = [(stored.as_str(), entry), (".f16.f16", ".bf16.bf16"), ("cvt.rn.f16x2", "cvt.rn.bf16x2")];
    Some(replaced.into_iter().fold(text, |text, (from, to)| text.replace(from, to)))
}

/// Returns `text` with products, sums and differences that the driver's compiler may contract: those without a mode of rounding.
fn contracted(text: &str) -> String {
    let mut text = text.to_string();
    for operation in ["mul", "add", "sub"] {
        for dtype in ["f32", "f64"] {
            text = text.replace(&format!("\t{operation}.rn.{dtype} "), &format!("\t{operation}.{dtype} "));
        }
    }
    text
}

/// Asserts that NVIDIA's assembler, if there is one, takes a module, and that all values fit into registers. `GRADLET_PTXAS` names it.
#[cfg(test)]
pub(crate) fn assert_assembles(name: &str, module: &str) {
    use std::{io::Write, process};
    let arguments = ["-arch=sm_87", "-v", "-o", "/dev/null", "/dev/stdin"];
    let named = std::env::var_os("GRADLET_PTXAS");
    let mut command = process::Command::new(named.clone().unwrap_or("ptxas".into()));
    let command = command.args(arguments).stdin(process::Stdio::piped()).stderr(process::Stdio::piped());
    let mut assembler = match command.spawn() {
        Ok(assembler) => assembler,
        Err(error) if named.is_some() => panic!("{named:?}: {error}"),
        Err(_) => return eprintln!("no ptxas here"),
    };
    assembler.stdin.take().unwrap().write_all(module.as_bytes()).unwrap();
    let output = assembler.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let whole = said.contains(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
    assert!(output.status.success() && whole, "{name}: {said}\n{module}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_becomes_a_module() {
        for file in FILES.iter().filter(|file| file.name != "functions") {
            let (source, text) = (file.source(), file.text());
            for entry in source.names().filter(|name| text.contains(&format!(".entry {name}("))) {
                let (text, name) = Code::stored(file.name, entry.to_string()).ptx(true).unwrap();
                assert_eq!(text.matches(".entry").count(), 1, "{name}");
                assert!(text.starts_with(".version"), "{name}");
            }
        }
    }

    #[test]
    fn kernels_for_bf16_are_those_for_f16() {
        for (file, kind) in [("tensor_core_80", "product_F_64x64"), ("tensor_core_80", "sum_F_4"), ("warpgroup_90a", "warpgroup_F_nn_256")]
        {
            let (text, name) = Code::stored(file, kind.replace('F', "bf16")).ptx(true).unwrap();
            assert!(text.contains(&format!(".entry {name}(")) && !text.contains(&kind.replace('F', "f16")));
            let converted = text.replace("cvt.f32.f16", "");
            assert!(!converted.contains(".f16") && converted.contains("cvt.rn.bf16x2.f32"), "{name}");
            assert_eq!(text.contains(".bf16.bf16"), !kind.starts_with("sum"), "{name}");
        }
    }

    #[test]
    fn a_missing_kernel_is_an_error() {
        assert!(Code::stored("array", "none".to_string()).ptx(true).is_err());
        assert!(Code::stored("none", "none".to_string()).ptx(true).is_err());
    }

    #[test]
    fn contraction_leaves_fused_and_rounded_operations() {
        let text = "\tmul.rn.f32 \t%f1;\n\tfma.rn.f32 \t%f2;\n\tadd.rz.f64 \t%fd1;\n\tsub.rn.f64 \t%fd2;\n";
        assert_eq!(contracted(text), "\tmul.f32 \t%f1;\n\tfma.rn.f32 \t%f2;\n\tadd.rz.f64 \t%fd1;\n\tsub.f64 \t%fd2;\n");
    }
}
