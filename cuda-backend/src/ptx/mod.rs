//! The stored PTX, and the modules that are made of it.

pub(crate) mod program;
mod source;
mod write;
mod writer;

pub(crate) use source::Source;

use gradlet_core::{Error, Result};
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
}

impl Code {
    /// Names the entry of a stored file.
    pub(crate) fn stored(file: &'static str, entry: String) -> Code {
        Code::Stored { file, entry }
    }

    /// Returns a module with the kernel, and the name of its entry. If `contract` is true, the driver may contract products and sums to
    /// fused operations, where the file allows it.
    pub(crate) fn ptx(&self, contract: bool) -> Result<(String, String)> {
        match self {
            Code::Stored { file, entry } => {
                let file = file_named(file)?;
                let source = file.source();
                let text = if source.has(entry) { source.extract([entry.as_str()]) } else { return Err(Error::Internal) };
                Ok((if contract && file.contracts { contracted(&text) } else { text }, entry.clone()))
            }
            Code::Elementwise(program) => Ok((program.module(functions())?, writer::ENTRY.to_string())),
        }
    }
}

/// A stored file, with its index once somebody has needed it.
struct File {
    name: &'static str,
    text: &'static str,
    /// True if products and sums may be contracted. Functions of the math library rely on the rounding of each operation, so no file that
    /// contains some may allow this.
    contracts: bool,
    index: OnceLock<Source>,
}

impl File {
    const fn new(name: &'static str, text: &'static str, contracts: bool) -> File {
        File { name, text, contracts, index: OnceLock::new() }
    }

    fn source(&self) -> &Source {
        self.index.get_or_init(|| Source::new(self.text))
    }
}

/// Lists files by their names, and whether they contract.
macro_rules! files {
    ($($name:ident: $contracts:literal),* $(,)?) => {
        [$(File::new(stringify!($name), include_str!(concat!("../../ptx/", stringify!($name), ".ptx")), $contracts)),*]
    };
}

static FILES: [File; 11] = files! {
    functions: false, steps: false, reduce: false, scan: false, softmax: false, top_k: false, linalg: true, conv: true, pool: true,
    array: false, scatter: false,
};

fn file_named(name: &str) -> Result<&'static File> {
    FILES.iter().find(|file| file.name == name).ok_or(Error::Internal)
}

/// Returns the functions of elementwise ops.
pub(crate) fn functions() -> &'static Source {
    FILES[0].source()
}

/// True if a stored file has this entry.
pub(crate) fn is_stored(file: &str, entry: &str) -> bool {
    file_named(file).is_ok_and(|file| file.source().has(entry))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_becomes_a_module() {
        for file in FILES.iter().filter(|file| file.name != "functions") {
            let source = file.source();
            for entry in source.names().filter(|name| file.text.contains(&format!(".entry {name}("))) {
                let (text, name) = Code::stored(file.name, entry.to_string()).ptx(true).unwrap();
                assert_eq!(text.matches(".entry").count(), 1, "{name}");
                assert!(text.starts_with(".version"), "{name}");
            }
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
