//! Damaged data of each format. Each module checks the properties that must hold for any bytes in its format.

pub mod artifact;
pub mod bundle;
pub mod events;
pub mod examples;
pub mod flat;
pub mod readers;
pub mod records;
pub mod telemetry;
