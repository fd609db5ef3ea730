//! Further contents of a listing: decoded images and audio, and calls with their errors.

use super::written::strings;
use crate::golden::fixtures;
use anyhow::{Context, Result, bail, ensure};
use gradlet::io::proto::XSpace;
use gradlet::summary::{Run, create_file_writer};
use gradlet::{Summarize, Tensor, image};
use prost::Message;
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;

/// Checks the field `key` of the listing of the run `stem`. The field's value is `case`.
pub fn other(folder: &Path, stem: &str, listing: &Json, key: &str, case: &Json) -> Result<()> {
    let run = || Run::read(&folder.join(stem));
    let arrays = || fixtures::tensors(&folder.join(format!("{stem}.safetensors")));
    match key {
        // TensorBoard's reader without its rule that purges orphaned points. In version 2 files, the rule purges nothing.
        "purge_orphaned_data_false" => {
            let run = run()?;
            let points = run.all().flat_map(|(_, _, series)| &series.points);
            let found: Json = points.map(|point| json!([point.step, point.number()])).collect();
            ensure!(found == *case, "{found}");
        }
        "decoded_sizes" => decoded_sizes(&run()?, &arrays()?, case)?,
        "decoded" => sounds(&run()?, &arrays()?, case)?,
        // The case "written again" tests these values.
        "buckets_argument" => (),
        key if key.starts_with("max_outputs_") => (),
        // The case does not contain the numbers, but any numbers with a NaN produce the same result.
        "with_nan" => {
            let point = run()?.series("with_nan").and_then(|series| series.points.first().cloned()).context("no series")?;
            let wanted = point.tensor()?.numbers()?.to_vec::<f64>()?;
            let target = tempfile::tempdir()?;
            let writer = create_file_writer(target.path())?;
            let numbers = Tensor::new(&gradlet::cpu(), &[1.0f32, f32::NAN, 2.0], &[3])?;
            writer.histogram_with("with_nan", &numbers, 0, wanted.len() as u32 / 3)?;
            writer.close()?;
            let point =
                Run::read(target.path())?.series("with_nan").and_then(|series| series.points.first().cloned()).context("no series")?;
            let found = point.tensor()?.numbers()?.to_vec::<f64>()?;
            let same = found.iter().zip(&wanted).all(|(found, wanted)| found == wanted || found.is_nan() && wanted.is_nan());
            ensure!(same && found.len() == wanted.len(), "{found:?}, wanted {wanted:?}");
        }
        "returns" => ensure!(*case == json!({ "ok": true }) && run()?.graph.is_some(), "no graph"),
        "errors" | "calls" => calls(listing, key, case)?,
        "xplane" => {
            for (file, wanted) in case.as_object().context("expected a JSON object")? {
                profile(&fs::read(folder.join(file))?, wanted)?;
            }
        }
        "files_all" => {
            for file in case.as_array().context("expected a JSON list")? {
                ensure!(folder.join(file.as_str().context("no name")?).is_file(), "{file} is missing");
            }
        }
        key => bail!("there is no check for {key:?}"),
    }
    Ok(())
}

type Arrays = std::collections::HashMap<String, Tensor>;

fn decoded_sizes(run: &Run, arrays: &Arrays, case: &Json) -> Result<()> {
    for (tag, wanted) in case.as_object().context("expected a JSON object")? {
        let strings = strings(run, tag)?;
        let [width, height, files @ ..] = strings.values() else { bail!("{tag}: {} strings", strings.values().len()) };
        ensure!(wanted["width"] == String::from_utf8_lossy(width).as_ref() && wanted["height"] == String::from_utf8_lossy(height).as_ref());
        ensure!(wanted["images_written"] == files.len(), "{tag}: {} images", files.len());
        let pixels = files.iter().map(|file| Ok(image::decode_png(file, 0)?.to_vec::<u8>()?)).collect::<Result<Vec<_>>>()?;
        ensure!(arrays[&format!("decoded/{tag}")].to_vec::<u8>()? == pixels.concat(), "{tag}: the pixels differ");
    }
    Ok(())
}

fn sounds(run: &Run, arrays: &Arrays, case: &Json) -> Result<()> {
    for (tag, wanted) in case.as_object().context("expected a JSON object")? {
        let strings = strings(run, tag)?;
        ensure!(wanted["tensor_shape"] == json!(strings.dims()), "{tag}: {:?}", strings.dims());
        let clips = wanted["clips"].as_array().context("no clips")?;
        for (index, (file, wanted)) in strings.values().iter().step_by(2).zip(clips).enumerate() {
            ensure!(wanted["wav_bytes"] == file.len(), "{tag}: {} bytes", file.len());
            let samples: Vec<i32> = file[44..].chunks_exact(2).map(|sample| i16::from_le_bytes([sample[0], sample[1]]).into()).collect();
            let wanted = arrays[&format!("decoded/{tag}/{index}")].to_vec::<i32>()?;
            ensure!(samples == wanted, "{tag}: the samples differ");
        }
    }
    Ok(())
}

/// Checks that each call in `case` accepts or refuses its arguments as in TensorFlow.
fn calls(listing: &Json, key: &str, case: &Json) -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, wanted) in case.as_object().context("expected a JSON object")? {
        let writer = create_file_writer(folder.path())?;
        let device = gradlet::cpu();
        let scope = gradlet::Eager::new(&writer.as_default(&device));
        let (one, image) = (Tensor::scalar(&device, 1f32), |dims: &[u32]| Tensor::full(&device, 1u8, dims));
        let called = match name.as_str() {
            // A scope whose device has no writer drops the summary.
            "no_writer_returns" | "noop_writer_returns" => gradlet::Eager::new(&device).scalar("a", &one, 1).map(|()| false),
            "with_writer_returns" | "should_record" => scope.scalar("a", &one, 1).map(|()| true),
            "no_step" => scope.scalar("a", &one, None).map(|()| true),
            "record_if_false_returns" => writer.record_if(false).scalar("a", 1, 1).map(|()| false),
            "record_if_callable_no_step" => writer.record_if(false).scalar("a", 1, None).map(|()| false),
            "vector_as_scalar" => writer.scalar("a", Tensor::full(&device, 1f32, &[2])?, 1).map(|()| true),
            // These calls do not compile in Rust: a string as a scalar, and an export without a trace.
            "string_as_scalar" | "export_without_on" => continue,
            "write_after_close" => writer.close().and_then(|()| writer.scalar("a", 1, 1)).map(|()| true),
            "rank3" => writer.image("a", &image(&[2, 2, 1])?, 0).map(|()| true),
            "five_channels" => scope.image("a", &image(&[1, 2, 2, 5])?, 0, 3).map(|()| true),
            "int32_data" => writer.image("a", &Tensor::full(&device, 7i32, &[1, 2, 2, 1])?, 0).map(|()| true),
            other => bail!("unknown call {other:?} in {key:?} of {:?}", listing["files"]),
        };
        writer.close()?;
        let recorded = Run::read(writer.path())?.all().count() > 0;
        match (called, wanted.get("ok"), wanted.get("error")) {
            (Ok(_), Some(Json::Bool(wanted)), None) => ensure!(recorded == *wanted, "{name}: recorded {recorded}, wanted {wanted}"),
            (Err(_), None, Some(_)) => ensure!(!recorded, "{name}: failed, but was recorded"),
            (called, ..) => bail!("{name}: {called:?}, wanted {wanted}"),
        }
    }
    Ok(())
}

fn profile(bytes: &[u8], wanted: &Json) -> Result<()> {
    let space = XSpace::decode(bytes)?;
    ensure!(wanted["bytes"] == bytes.len() && wanted["hostnames"] == json!(space.hostnames), "{:?}", space.hostnames);
    let planes = wanted["planes"].as_array().context("no planes")?;
    ensure!(planes.len() == space.planes.len(), "{} planes", space.planes.len());
    for (plane, wanted) in space.planes.iter().zip(planes) {
        let events = plane.lines.iter().map(|line| line.events.len()).sum::<usize>();
        ensure!(wanted["name"] == plane.name && wanted["lines"] == plane.lines.len() && wanted["events"] == events, "{}", plane.name);
        let used: std::collections::BTreeSet<i64> =
            plane.lines.iter().flat_map(|line| &line.events).map(|event| event.metadata_id).collect();
        let mut names: Vec<&str> = used.iter().filter_map(|id| Some(plane.event_metadata.get(id)?.name.as_str())).collect();
        names.sort();
        names.dedup();
        ensure!(wanted["event_names"] == json!(names), "{names:?}");
    }
    Ok(())
}
