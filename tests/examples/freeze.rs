//! Writes the frozen sample of the current format version: `cargo run --release -p gradlet-tests --example freeze`.
//!
//! Run it once, when that version is released. It never overwrites a sample.

use gradlet_core::runtime::program::VERSION;
use gradlet_tests::frozen;

fn main() -> anyhow::Result<()> {
    let (artifact, answers) = frozen::folder(VERSION);
    if artifact.exists() {
        anyhow::bail!("{} is there already, and frozen", artifact.display());
    }
    let bytes = frozen::sample()?;
    std::fs::write(&answers, frozen::answers(&bytes)?)?;
    Ok(std::fs::write(&artifact, &*bytes)?)
}
