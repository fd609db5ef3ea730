//! Cases that read an event file while it is being written. The reader must see the flushed events.

use super::steps;
use crate::golden::checks::Checks;
use anyhow::{Context, Result, ensure};
use gradlet::summary::{Options, Run, SummaryWriter};
use serde_json::Value as Json;
use std::path::Path;
use std::time::Duration;

pub fn live(_: &Path, stem: &str, json: &Json, checks: &mut Checks) -> Result<()> {
    let cases = json.as_array().context("expected a JSON list")?;
    checks.check(stem, || {
        let folder = tempfile::tempdir()?;
        let options = Options { flush_interval: Duration::from_secs(3600), ..Options::default() };
        let writer = SummaryWriter::with_options(folder.path(), options)?;
        for case in cases {
            let step = case["after_step"].as_i64().context("no step")?;
            writer.scalar("x", step, step)?;
            if case["flushed"] == true {
                writer.flush()?;
            }
            let run = Run::read(folder.path())?;
            let seen: Vec<i64> = run.series("x").map_or(Vec::new(), |series| series.points.iter().map(|point| point.step).collect());
            let wanted = steps(&case["steps_seen"])?;
            ensure!(seen == wanted && run.damage.is_empty(), "after step {step}: {seen:?}, wanted {wanted:?}");
        }
        Ok(())
    });
    Ok(())
}
