//! How long the long tests are: the plain run tries a share of what `cargo xtask test all` tries.

use std::env;

/// The variable that `cargo xtask test all` sets to `all`.
pub const VARIABLE: &str = "GRADLET_CAMPAIGN";

/// True if campaigns run in full.
pub fn is_full() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == "all")
}

/// How many of `full` cases are to be tried: all of them, or a tenth.
pub fn cases(full: u64) -> u64 {
    if is_full() { full } else { full.div_ceil(10) }
}
