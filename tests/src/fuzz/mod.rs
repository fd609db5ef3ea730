//! Damage, format by format: each module has what must hold of any bytes.

pub mod artifact;
pub mod bundle;
pub mod events;
pub mod examples;
pub mod flat;
pub mod readers;
pub mod records;
pub mod telemetry;
