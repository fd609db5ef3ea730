//! Sizes and symbols of a firmware's ELF file.

use anyhow::{Context, Result};
use object::{Object, ObjectSection, ObjectSymbol};
use std::path::Path;

/// Names of functions that a firmware contains only if it has an allocator.
const ALLOCATOR: [&str; 6] = ["malloc", "calloc", "realloc", "free", "_sbrk", "_malloc_r"];

/// Parts of the names of functions that gradlet never needs on a device: panics, the formatting of text, and divisions of 64 bits.
const FORBIDDEN: [&str; 5] = ["4core9panicking", "4core3fmt", "len_mismatch_fail", "aeabi_uldivmod", "aeabi_ldivmod"];

/// An ELF file in memory.
pub struct Elf(Vec<u8>);

/// Sizes of a firmware, in bytes.
#[derive(Clone, Copy)]
pub struct Bytes {
    /// Flash for code, read-only data and the initial values of statics, without model and images.
    pub flash_code: u64,
    /// Flash for the model.
    pub flash_model: u64,
    /// RAM for all statics, including the arena. The stack is not included.
    pub ram_static: u64,
}

impl Elf {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Elf> {
        std::fs::read(path).map(Elf).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Returns the sizes, by kind of memory.
    pub fn bytes(&self) -> Result<Bytes> {
        let file = object::File::parse(&*self.0)?;
        let section = |name: &str| file.section_by_name(name).map_or(0, |section| section.size());
        let symbol = |name: &str| file.symbols().find(|symbol| symbol.name() == Ok(name)).map_or(0, |symbol| symbol.size());
        // The name of the model in a firmware in C is that of its source file.
        let (model, digits) = (symbol("GRADLET_MODEL") + symbol("model_artifact"), symbol("GRADLET_DIGITS"));
        let flash = section(".text") + section(".rodata") + section(".data");
        Ok(Bytes {
            flash_code: flash - model - digits,
            flash_model: model,
            ram_static: section(".data") + section(".bss") + section(".uninit"),
        })
    }

    /// Returns the names of the firmware's functions that allocate memory. A firmware without a heap has none.
    pub fn allocator_symbols(&self) -> Result<Vec<String>> {
        self.symbols(|name| name.contains("__rust_alloc") || ALLOCATOR.contains(&name))
    }

    /// Returns the names of the firmware's functions that panic, format text, or divide 64-bit numbers.
    pub fn forbidden_symbols(&self) -> Result<Vec<String>> {
        self.symbols(|name| FORBIDDEN.iter().any(|part| name.contains(part)))
    }

    fn symbols(&self, are: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let file = object::File::parse(&*self.0)?;
        let names = file.symbols().filter_map(|symbol| symbol.name().ok());
        Ok(names.filter(|name| are(name)).map(str::to_string).collect())
    }
}
