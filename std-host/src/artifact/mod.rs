//! The flat file: written, loaded, looked at, and handed to a firmware.

pub mod export;
pub mod firmware;
mod first_values;
pub mod inspect;
mod json;
pub mod loaded;
mod svg;

#[doc(inline)]
pub use gradlet_core::artifact::*;
