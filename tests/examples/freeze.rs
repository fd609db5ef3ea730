//! Writes the frozen samples of the current format version: `cargo run --release -p gradlet-tests --example freeze`.
//!
//! Run it once, when that version is released. It never overwrites a sample.

use gradlet_core::runtime::program::VERSION;
use gradlet_tests::frozen;

fn main() -> anyhow::Result<()> {
    for (name, bytes) in frozen::current()? {
        let (artifact, answers) = frozen::paths(name, VERSION);
        if artifact.exists() {
            anyhow::bail!("{} is there already, and frozen", artifact.display());
        }
        std::fs::write(&answers, frozen::answers(&bytes)?)?;
        std::fs::write(&artifact, &*bytes)?;
    }
    Ok(())
}
