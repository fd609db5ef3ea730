//! The exported model that a firmware is built around.

/// Names the artifact `MODEL`, and takes in the list of its `KERNELS` and the size of its arena, `ARENA_BYTES`: all from
/// the folder that the environment variable `GRADLET_FIRMWARE_DIR` gives.
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

/// Names a file of that folder, as bytes that lie in flash. `xtask size` finds them by the symbol.
#[macro_export]
macro_rules! data {
    ($name:ident, $symbol:literal, $file:literal) => {
        #[unsafe(export_name = $symbol)]
        static $name: gradlet_core::Aligned<[u8; include_bytes!(concat!($crate::folder!(), "/", $file)).len()]> =
            gradlet_core::Aligned(*include_bytes!(concat!($crate::folder!(), "/", $file)));
    };
}

/// The folder with the exported model.
#[macro_export]
macro_rules! folder {
    () => {
        env!(
            "GRADLET_FIRMWARE_DIR",
            "GRADLET_FIRMWARE_DIR must be the absolute path of a folder with model.grdl and model.rs: `gradlet export` writes them"
        )
    };
}
