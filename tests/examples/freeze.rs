//! Writes the frozen sample of the present format version, once, when that version is released:
//! `cargo run --release -p gradlet-tests --example freeze`. Samples that are there are left alone.

use gradlet_core::program::VERSION;
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
