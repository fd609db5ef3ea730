//! Gives the linker the memory map, and the names of the interrupts from the chip's crate.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::copy("memory.x", out.join("memory.x"))?;
    println!("cargo::rustc-link-search={}", out.display());
    for script in ["memory.x", "device.x", "link.x"] {
        println!("cargo::rustc-link-arg-bins=-T{script}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=memory.x");
    Ok(())
}
