//! Artifacts: exported, loaded, inspected, prepared for firmware.

pub mod export;
pub mod firmware;
mod first_values;
pub mod inspect;
mod json;
pub mod loaded;
mod svg;

#[doc(inline)]
pub use gradlet_core::artifact::*;
