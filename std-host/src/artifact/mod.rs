//! Artifacts: export, loading, inspection, and source code for firmware.

pub mod c_source;
mod costs;
mod engine;
pub mod export;
pub mod firmware;
mod first_values;
pub mod inspect;
mod json;
pub(crate) mod loaded;
mod svg;

#[doc(inline)]
pub use gradlet_core::artifact::*;
pub use loaded::{Loaded, LoadedSignature, load, load_signatures};
