//! The version of the library and of the header.

/// Version of this header: 65536 times the major version, plus 256 times the minor one, plus the patch.
pub const GRADLET_VERSION: u32 = 0x000100;
const _: () = {
    let parts = [env!("CARGO_PKG_VERSION_MAJOR"), env!("CARGO_PKG_VERSION_MINOR"), env!("CARGO_PKG_VERSION_PATCH")];
    let (mut version, mut at) = (0, 0);
    while at < parts.len() {
        let Ok(part) = u32::from_str_radix(parts[at], 10) else { panic!("a version is a number") };
        version = version << 8 | part;
        at += 1;
    }
    assert!(GRADLET_VERSION == version, "GRADLET_VERSION is not the version of this package");
};

/// Returns the version of the library. It must be GRADLET_VERSION, because the sizes of structs are in the header.
#[unsafe(no_mangle)]
pub extern "C" fn gradlet_version() -> u32 {
    GRADLET_VERSION
}
