//! How long the long tests are: the plain run tries a share of what `cargo xtask test all` tries.

use std::env;

/// The variable that `cargo xtask test all` sets to `all`.
pub const VARIABLE: &str = "GRADLET_CAMPAIGN";

/// True if campaigns run in full.
pub fn is_full() -> bool {
    env::var_os(VARIABLE).is_some_and(|value| value == "all")
}
