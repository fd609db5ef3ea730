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
pub static BOARDS: [Board; 1] = [
    board!("mps2-an386", "Arm's MPS2 board with a Cortex-M4F, in QEMU", flash: 4 << 20, ram: 4 << 20, slot: 512 << 10, "common" / "build.rs", "mps2-an386" / "memory.x", "mps2-an386" / "src/board.rs"),
];

/// Returns the parser of the option with a board's name.
pub fn parser() -> PossibleValuesParser {
    BOARDS.iter().map(|board| PossibleValue::new(board.name).help(board.about)).collect::<Vec<_>>().into()
}
