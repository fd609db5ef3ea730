//! Damaged data of each format. A module has the properties that must hold for any bytes.

pub mod artifact;
pub mod bundle;
pub mod events;
pub mod examples;
pub mod flat;
pub mod readers;
pub mod records;
pub mod telemetry;
