//! Writes a memory map for each firmware. The linker refuses a firmware that does not fit.

use std::{env, fs, io, path::PathBuf};

/// Memory of a board: first addresses and lengths of flash and RAM, in bytes. On the RISC-V machine, both are parts of its RAM.
struct Map {
    board: &'static str,
    flash: [u32; 2],
    ram: [u32; 2],
    /// Slower memory for a firmware that needs more RAM.
    more: Option<[u32; 2]>,
}

const fn map(board: &'static str, flash: [u32; 2], ram: [u32; 2]) -> Map {
    Map { board, flash, ram, more: None }
}

const MAPS: [Map; 7] = [
    map("MICROBIT", [0, 128 << 10], [0x2000_0000, 16 << 10]),
    map("MPS2_AN385", [0, 4 << 20], [0x2000_0000, 4 << 20]),
    map("MPS2_AN386", [0, 4 << 20], [0x2000_0000, 4 << 20]),
    map("MPS2_AN500", [0, 4 << 20], [0x2000_0000, 4 << 20]),
    map("MPS2_AN505", [0x1000_0000, 4 << 20], [0x3800_0000, 1 << 20]),
    Map { more: Some([0x7000_0000, 16 << 20]), ..map("MPS3_AN547", [0, 512 << 10], [0x2000_0000, 512 << 10]) },
    map("VIRT", [0x8000_0000, 2 << 20], [0x8020_0000, 2 << 20]),
];

/// RAM of a firmware that is not in [`LARGER`], in bytes, if the board has that much. Its flash is 1 MiB.
const RAM: u32 = 256 << 10;
/// Firmwares with more memory: (name, bytes of flash, bytes of RAM).
const LARGER: [(&str, u32, u32); 4] =
    [("book", 1 << 20, 1 << 20), ("helium", 1 << 20, 512 << 10), ("runner", 4 << 20, 4 << 20), ("slices", 1 << 20, 1 << 20)];

fn main() -> io::Result<()> {
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    let chosen = || MAPS.iter().filter(|map| env::var_os(format!("CARGO_FEATURE_{}", map.board)).is_some());
    let (Some(map), 1) = (chosen().next(), chosen().count()) else {
        let names = MAPS.map(|map| map.board.to_lowercase().replace('_', "-")).join(", ");
        return Err(io::Error::other(format!("choose one board with --no-default-features --features BOARD: {names}")));
    };
    let riscv = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "riscv32");
    for source in fs::read_dir("src/bin")? {
        let path = source?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let larger = LARGER.iter().find(|larger| larger.0 == name);
        let (_, flash, ram) = larger.copied().unwrap_or((&name, 1 << 20, RAM));
        let folder = out.join(&*name);
        fs::create_dir_all(&folder)?;
        let ram_of_board = if ram > map.ram[1] { map.more.unwrap_or(map.ram) } else { map.ram };
        let map = Map { ram: ram_of_board, ..*map };
        fs::write(folder.join("memory.x"), memory(&map, flash, ram, riscv))?;
        println!("cargo::rustc-link-arg-bin={name}=-L{}", folder.display());
        if riscv {
            println!("cargo::rustc-link-arg-bin={name}=-Tmemory.x");
        }
        println!("cargo::rustc-link-arg-bin={name}=-Tlink.x");
    }
    println!("cargo::rustc-env=GRADLET_BOARD={}", map.board.to_lowercase().replace('_', "-"));
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/bin");
    Ok(())
}

/// Returns the linker's memory map with at most `flash` and `ram` bytes.
fn memory(map: &Map, flash: u32, ram: u32, riscv: bool) -> String {
    let region =
        |name: &str, [origin, length]: [u32; 2], most: u32| format!("  {name} : ORIGIN = {origin:#010x}, LENGTH = {}\n", length.min(most));
    let regions = format!("MEMORY {{\n{}{}}}\n", region("FLASH", map.flash, flash), region("RAM", map.ram, ram));
    if !riscv {
        return regions;
    }
    // The names that riscv-rt's linker script gives to the parts of a program.
    let alias = |part: &str, region: &str| format!("REGION_ALIAS(\"REGION_{part}\", {region});\n");
    let in_flash = ["TEXT", "RODATA"].map(|part| alias(part, "FLASH"));
    let in_ram = ["DATA", "BSS", "HEAP", "STACK"].map(|part| alias(part, "RAM"));
    regions + &in_flash.concat() + &in_ram.concat()
}
