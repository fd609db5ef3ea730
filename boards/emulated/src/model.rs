//! Macros that embed an exported model in a firmware.

/// Embeds the artifact as `MODEL`, and defines `KERNELS`, the list of its kernels, and `ARENA_BYTES`, the size of its arena. They come from
/// the folder that the environment variable `GRADLET_FIRMWARE_DIR` names.
#[macro_export]
macro_rules! model {
    () => {
        mod exported {
            include!(concat!($crate::folder!(), "/model.rs"));
        }
        use exported::{ARENA_BYTES, KERNELS};
        $crate::data!(MODEL, "GRADLET_MODEL", "model.grdl");
    };
}

/// Embeds the file `$file` of the exported model's folder in flash, as the static `$name`. Its symbol is `$symbol`, by which `xtask size`
/// finds it.
#[macro_export]
macro_rules! data {
    ($name:ident, $symbol:literal, $file:literal) => {
        #[unsafe(export_name = $symbol)]
        static $name: gradlet_core::runtime::Aligned<[u8; include_bytes!(concat!($crate::folder!(), "/", $file)).len()]> =
            gradlet_core::runtime::Aligned(*include_bytes!(concat!($crate::folder!(), "/", $file)));
    };
}

/// Expands to the path of the folder with the exported model.
#[macro_export]
macro_rules! folder {
    () => {
        env!(
            "GRADLET_FIRMWARE_DIR",
            "GRADLET_FIRMWARE_DIR must be the absolute path of a folder with model.grdl and model.rs: `gradlet export` writes them"
        )
    };
}
