//! The boards of `gradlet new`, and the templates of their projects.

use clap::builder::{PossibleValue, PossibleValuesParser};

/// A board, and the files of its projects.
pub struct Board {
    /// Name of the board.
    pub name: &'static str,
    /// Its maker's name, and its processor.
    pub about: &'static str,
    /// Bytes of flash for code and model. The slots of checkpoints are elsewhere.
    pub flash: u32,
    /// Bytes of RAM.
    pub ram: u32,
    /// Bytes of a slot.
    pub slot: u32,
    /// Paths and contents of the files.
    pub files: &'static [(&'static str, &'static str)],
}

/// Bytes of flash that a firmware needs beside the model, at most: gradlet, the kernels of a model and the drivers.
pub const CODE: u32 = 96 << 10;
/// Bytes of RAM that a firmware needs beside the arena, at most: stack and statics.
pub const STACK: u32 = 12 << 10;
/// Bytes of a slot beside the checkpoint, at most.
pub const RECORD: u32 = 64;

/// The contents of a template.
macro_rules! template {
    ($folder:literal, $path:literal) => {
        include_str!(concat!("../../templates/", $folder, "/", $path))
    };
}

/// Defines a board, with the files that every board has. The list has the others: the template's folder, and the path.
macro_rules! board {
    ($name:literal, $about:literal, flash: $flash:expr, ram: $ram:expr, slot: $slot:expr, $($folder:literal / $path:literal),*) => {
        Board {
            name: $name,
            about: $about,
            flash: $flash,
            ram: $ram,
            slot: $slot,
            files: &[
                (".cargo/config.toml", template!($name, "config.toml")),
                (".gitignore", "/target\n"),
                ("Cargo.lock", template!($name, "Cargo.lock")),
                ("Cargo.toml", concat!(template!($name, "manifest.toml"), "\n", template!("common", "profile.toml"))),
                ("README.md", concat!(template!($name, "README.md"), "\n", template!("common", "README.md"))),
                ("src/learn.rs", template!("common", "src/learn.rs")),
                ("src/main.rs", template!($name, "src/main.rs")),
                $(($path, template!($folder, $path))),*
            ],
        }
    };
}

/// All boards.
pub static BOARDS: [Board; 6] = [
    board!("esp32c3", "Espressif's ESP32-C3-DevKitM-1, with a RISC-V core", flash: 3 << 20, ram: 300 << 10, slot: 256 << 10,
        "esp32c3" / "build.rs", "esp32c3" / "partitions.csv"),
    board!("mps2-an386", "Arm's MPS2 board with a Cortex-M4F, in QEMU", flash: 4 << 20, ram: 4 << 20, slot: 512 << 10,
        "common" / "build.rs", "mps2-an386" / "memory.x", "mps2-an386" / "src/board.rs"),
    board!("nrf52840-dk", "Nordic's nRF52840-DK, with a Cortex-M4F", flash: 768 << 10, ram: 256 << 10, slot: 128 << 10,
        "common" / "build.rs", "nrf52840-dk" / "memory.x", "common" / "src/slots.rs"),
    board!("nucleo-f446re", "ST's Nucleo-F446RE, with a Cortex-M4F", flash: 256 << 10, ram: 128 << 10, slot: 128 << 10,
        "common" / "build.rs", "nucleo-f446re" / "memory.x", "common" / "src/slots.rs"),
    board!("pico2", "Raspberry Pi Pico 2, on a Cortex-M33", flash: 3 << 20, ram: 512 << 10, slot: 512 << 10,
        "common" / "build.rs", "pico2" / "memory.x", "common" / "src/slots.rs", "common" / "src/wait.rs"),
    board!("pico2-riscv", "Raspberry Pi Pico 2, on a RISC-V core", flash: 3 << 20, ram: 512 << 10, slot: 512 << 10,
        "pico2-riscv" / "build.rs", "pico2-riscv" / "memory.x", "pico2-riscv" / "src/flash.rs", "common" / "src/slots.rs"),
];

impl Board {
    /// Returns the line of the board in the help.
    fn help(&self) -> String {
        format!("{}; {} KiB of flash for model and code, {} KiB of RAM", self.about, self.flash >> 10, self.ram >> 10)
    }
}

/// Returns the parser of the option with a board's name.
pub fn parser() -> PossibleValuesParser {
    BOARDS.iter().map(|board| PossibleValue::new(board.name).help(board.help())).collect::<Vec<_>>().into()
}

#[cfg(test)]
mod tests {
    use super::{BOARDS, CODE, STACK};

    /// Returns the length of a region in a linker's memory map, in bytes.
    fn length(map: &str, region: &str) -> Option<u32> {
        let line = map.lines().map(str::trim).find(|line| line.starts_with(region))?;
        let text = line.split("LENGTH = ").nth(1)?;
        let (number, unit) = text.split_at(text.len() - 1);
        Some(number.parse::<u32>().ok()? * if unit == "M" { 1 << 20 } else { 1 << 10 })
    }

    #[test]
    fn boards_have_the_lengths_of_their_memory_maps() {
        let mut maps = 0;
        for board in &BOARDS {
            let Some((_, map)) = board.files.iter().find(|(path, _)| *path == "memory.x") else { continue };
            assert_eq!(length(map, "FLASH"), Some(board.flash), "{}", board.name);
            assert_eq!(length(map, "RAM"), Some(board.ram), "{}", board.name);
            if let Some(slots) = length(map, "SLOTS") {
                assert_eq!(slots, 2 * board.slot, "{}", board.name);
            }
            maps += 1;
        }
        assert_eq!(maps, 5);
    }

    #[test]
    fn the_page_shows_what_fits_on_each_board() {
        let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../boards/README.md")).unwrap();
        for board in BOARDS.iter().filter(|board| board.name != "mps2-an386") {
            let name = format!("| `{}` | ", board.name);
            let row = page.lines().find_map(|line| line.strip_prefix(&*name)).unwrap_or_else(|| panic!("no row of {}", board.name));
            let figures: Vec<u32> = row.split(" | ").take(3).map(|figure| figure.replace(',', "").parse().unwrap()).collect();
            assert_eq!(figures, [board.flash - CODE, board.ram - STACK, board.slot].map(|bytes| bytes >> 10), "{}", board.name);
        }
    }
}
