//! Writes a memory map for each firmware. The linker refuses a firmware that does not fit.

use std::{env, fs, io, path::PathBuf};

/// RAM of a firmware that is not in [`LARGER`], in bytes. Its flash is 1 MiB.
const RAM: u32 = 256 << 10;
/// Firmwares with more memory: (name, bytes of flash, bytes of RAM).
const LARGER: [(&str, u32, u32); 3] = [("book", 1 << 20, 1 << 20), ("runner", 4 << 20, 4 << 20), ("slices", 1 << 20, 1 << 20)];

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    for name in [
        "bare",
        "empty",
        "mlp",
        "lstm",
        "demo",
        "dispatch",
        "book",
        "runner",
        "eager",
        "flat",
        "restart",
        "hostile",
        "telemetry",
        "slices",
        "rtic",
        "embassy",
    ] {
        let larger = LARGER.iter().find(|larger| larger.0 == name);
        let (_, flash, ram) = larger.copied().unwrap_or((name, 1 << 20, RAM));
        let folder = out.join(name);
        fs::create_dir_all(&folder)?;
        let map = format!("MEMORY {{\n  FLASH : ORIGIN = 0x00000000, LENGTH = {flash}\n  RAM : ORIGIN = 0x20000000, LENGTH = {ram}\n}}\n");
        fs::write(folder.join("memory.x"), map)?;
        println!("cargo::rustc-link-arg-bin={name}=-L{}", folder.display());
        println!("cargo::rustc-link-arg-bin={name}=-Tlink.x");
    }
    println!("cargo::rerun-if-changed=build.rs");
    Ok(())
}
