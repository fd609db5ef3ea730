//! The committed header is the one that cbindgen writes.

use cbindgen::{Builder, Config};
use std::path::Path;
use std::{env, fs};

/// The modules that declare something for C, in the order of the header.
const MODULES: [&str; 12] =
    ["version", "outcome", "text", "memory", "kernels", "program", "loading", "session", "tensors", "checkpoint", "slots", "telemetry"];

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = Config::from_file(root.join("cbindgen.toml")).unwrap();
    let builder =
        MODULES.iter().fold(Builder::new().with_config(config), |builder, module| builder.with_src(root.join(format!("src/{module}.rs"))));
    let mut header = Vec::new();
    builder.generate().unwrap().write(&mut header);
    let path = root.join("include/gradlet.h");
    if env::var_os("GRADLET_WRITE_HEADER").is_some() {
        fs::write(&path, &header).unwrap();
    }
    let committed = fs::read(&path).unwrap_or_default();
    assert!(committed == header, "{} is old: run this test with GRADLET_WRITE_HEADER=1", path.display());
}
