//! Gives the linker the HAL's memory map.

fn main() {
    println!("cargo::rustc-link-arg-bins=-Tlinkall.x");
    println!("cargo::rerun-if-changed=build.rs");
}
