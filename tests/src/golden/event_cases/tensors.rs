//! Comparison of tensors with a listing.

use crate::golden::checks::hex;
use crate::golden::parsed_json::{list, same};
use anyhow::{Context, Result, ensure};
use gradlet::io;
use gradlet::io::proto::TensorProto;
use gradlet::tensor::Values;
use serde_json::{Value as Json, json};
use sha2::{Digest, Sha256};

/// Checks that a message equals the tensor `{"dtype", "shape", "data"}`.
pub fn is(proto: &TensorProto, wanted: &Json) -> Result<()> {
    let values = io::from_proto(proto)?;
    let Values::Strings(strings) = &values else { return same(&values, wanted) };
    ensure!(wanted["dtype"] == "string" && wanted["shape"] == json!(strings.dims()), "strings {}, wanted {wanted}", strings.shape());
    let wanted = list(&wanted["data"])?;
    ensure!(wanted.len() == strings.values().len(), "{} strings", strings.values().len());
    strings.values().iter().zip(wanted).try_for_each(|(string, wanted)| text_is(string, wanted))
}

/// Checks that a string equals `{"hex"}`, or has the length and the digest in `{"bytes", "sha256"}`.
fn text_is(found: &[u8], wanted: &Json) -> Result<()> {
    if let Some(digits) = wanted["hex"].as_str() {
        ensure!(found == hex(digits)?, "{:?}, wanted {wanted}", String::from_utf8_lossy(found));
        return Ok(());
    }
    let digest: String = Sha256::digest(found).iter().map(|byte| format!("{byte:02x}")).collect();
    ensure!(wanted["bytes"] == found.len(), "{} bytes, wanted {wanted}", found.len());
    let wanted = wanted["sha256"].as_str().context("a string with neither hex nor sha256")?;
    ensure!(digest == wanted, "{} bytes with another digest", found.len());
    Ok(())
}
