//! Event files that gradlet writes from the same values as TensorFlow.

use crate::golden::fixtures;
use anyhow::{Context, Result, bail, ensure};
use gradlet::io::proto;
use gradlet::io::proto::summary::value::Value as Held;
use gradlet::io::proto::{Event, GraphDef, Summary, event, summary};
use gradlet::summary::{EventReader, HParam, SummaryWriter, create_file_writer};
use gradlet::tensor::Strings;
use gradlet::{Tensor, image};
use prost::Message;
use serde_json::Value as Json;
use std::cell::Cell;
use std::collections::HashMap;
use std::path::Path;

/// Writes every event of `file` of the run `stem` with gradlet, and checks that the messages equal those of TensorFlow.
pub fn again(folder: &Path, stem: &str, listing: &Json, file: &str) -> Result<()> {
    let events: Vec<Event> = EventReader::open(&folder.join(file))?.collect::<Result<_, _>>()?;
    let arrays = folder.join(format!("{stem}.safetensors"));
    let arrays = if arrays.exists() { fixtures::tensors(&arrays)? } else { HashMap::new() };
    let target = tempfile::tempdir()?;
    let writer = create_file_writer(target.path())?;
    let written = Written { listing, arrays: &arrays, missing: Cell::new(tried(listing)) };
    for event in events.iter().filter(|event| !matches!(event.what, Some(event::What::FileVersion(_)))) {
        match &event.what {
            Some(event::What::Summary(Summary { value })) if value.len() == 1 => written.value(&writer, event, &value[0])?,
            Some(event::What::GraphDef(graph)) => writer.graph(&GraphDef::decode(&graph[..])?)?,
            _ => writer.write_event(event)?,
        }
    }
    writer.close()?;
    let found: Vec<Event> = EventReader::open(writer.path())?.collect::<Result<_, _>>()?;
    ensure!(found.len() == events.len(), "{} events, wanted {}", found.len(), events.len());
    for (found, wanted) in found.iter().zip(&events).skip(1) {
        equal(found, wanted).with_context(|| format!("step {}", wanted.step))?;
    }
    Ok(())
}

/// Counts the accepted calls of a listing that are not part of the run. No file contains their arguments.
fn tried(listing: &Json) -> usize {
    let accepted = |case: &Json| usize::from(case["ok"] == true);
    let of = |case: &Json| accepted(case) + case.as_object().into_iter().flatten().map(|(_, case)| accepted(case)).sum::<usize>();
    listing.as_object().into_iter().flatten().map(|(_, case)| of(case)).sum()
}

struct Written<'a> {
    listing: &'a Json,
    arrays: &'a HashMap<String, Tensor>,
    /// Number of further values that may have no array in the fixture.
    missing: Cell<usize>,
}

impl Written<'_> {
    fn value(&self, plain: &SummaryWriter, event: &Event, value: &summary::Value) -> Result<()> {
        let (tag, step) = (value.tag.as_str(), event.step);
        let Some(Held::Tensor(tensor)) = &value.value else { return Ok(plain.write_event(event)?) };
        let metadata = value.metadata.clone().unwrap_or_default();
        let writer = if metadata.summary_description.is_empty() { plain.clone() } else { plain.described(&metadata.summary_description) };
        let given = gradlet::io::from_proto(tensor)?;
        match (metadata.plugin_data.as_ref().map_or("", |data| &data.plugin_name), self.array(tag)) {
            ("scalars", _) => writer.scalar(tag, given.numbers()?, step)?,
            ("text", _) => writer.text(tag, given.strings()?.clone(), step)?,
            ("histograms", Some(array)) => {
                let buckets = self.listing["buckets_argument"][tag].as_u64().unwrap_or(30);
                writer.histogram_with(tag, array, step, buckets as u32)?;
            }
            ("images", Some(array)) => {
                let most = self.listing[format!("max_outputs_{tag}").as_str()].as_u64().unwrap_or(3);
                writer.image_with(tag, array, step, most as u32)?;
            }
            ("audio", Some(array)) => {
                let rate = self.listing["decoded"][tag]["clips"][0]["sample_rate"].as_u64().context("no sample rate")?;
                writer.audio(tag, array, rate as u32, step)?;
            }
            ("images" | "histograms" | "audio", None) => {
                let missing = self.missing.get().checked_sub(1).with_context(|| format!("no array input/{tag}"))?;
                self.missing.set(missing);
                plain.write(tag, tensor.clone(), value.metadata.clone(), step)?;
            }
            ("hparams", _) => hparams(&writer, &metadata.plugin_data.unwrap_or_default().content)?,
            _ => plain.write(tag, tensor.clone(), value.metadata.clone(), step)?,
        }
        Ok(())
    }

    fn array(&self, tag: &str) -> Option<&Tensor> {
        self.arrays.get(&format!("input/{tag}"))
    }
}

fn hparams(writer: &SummaryWriter, content: &[u8]) -> Result<()> {
    use proto::hparams::{HParamsPluginData, h_params_plugin_data::Data, value::Kind};
    match HParamsPluginData::decode(content)?.data {
        Some(Data::SessionStartInfo(start)) => {
            let mut values = Vec::new();
            for (name, value) in &start.hparams {
                values.push((
                    name.as_str(),
                    match &value.kind {
                        Some(Kind::NumberValue(number)) => HParam::from(*number),
                        Some(Kind::StringValue(text)) => HParam::from(text.as_str()),
                        Some(Kind::BoolValue(choice)) => HParam::from(*choice),
                        other => bail!("the hyperparameter {name:?} is {other:?}"),
                    },
                ));
            }
            Ok(writer.hparams(values, Some(&start.group_name))?)
        }
        Some(Data::Experiment(experiment)) => Ok(writer.experiment(experiment)?),
        Some(Data::SessionEndInfo(end)) => Ok(writer.session_end(end.status())?),
        None => bail!("the metadata of the hyperparameters is empty"),
    }
}

/// Checks that two events are equal except for their times. Images must have the same pixels, but not the same bytes.
fn equal(found: &Event, wanted: &Event) -> Result<()> {
    let (mut found, mut wanted) = (normal(found)?, normal(wanted)?);
    for event in [&mut found, &mut wanted] {
        event.wall_time = 0.0;
    }
    ensure!(found == wanted, "{found:?}\nwanted {wanted:?}");
    Ok(())
}

fn normal(event: &Event) -> Result<Event> {
    let mut event = event.clone();
    match &mut event.what {
        Some(event::What::Summary(summary)) => summary.value.iter_mut().try_for_each(normal_value)?,
        // The entries of a map may be encoded in any order.
        Some(event::What::GraphDef(bytes)) => *bytes = GraphDef::decode(&bytes[..])?.encode_to_vec().into(),
        _ => (),
    }
    Ok(event)
}

fn normal_value(value: &mut summary::Value) -> Result<()> {
    use proto::hparams::{HParamsPluginData, h_params_plugin_data::Data};
    let Some(data) = value.metadata.as_mut().and_then(|metadata| metadata.plugin_data.as_mut()) else { return Ok(()) };
    if data.plugin_name == "hparams" {
        let mut content = HParamsPluginData::decode(&data.content[..])?;
        match &mut content.data {
            Some(Data::SessionStartInfo(start)) => start.start_time_secs = 0.0,
            Some(Data::SessionEndInfo(end)) => end.end_time_secs = 0.0,
            _ => (),
        }
        data.content = content.encode_to_vec().into();
    }
    if let (Some(Held::Tensor(tensor)), "images") = (&mut value.value, data.plugin_name.as_str()) {
        for png in tensor.string_val.iter_mut().skip(2) {
            *png = image::decode_png(png, 0)?.to_vec::<u8>()?.into();
        }
    }
    Ok(())
}

/// Returns the strings of the first point of a series.
pub fn strings(run: &gradlet::summary::Run, tag: &str) -> Result<Strings> {
    let point = run.series(tag).and_then(|series| series.points.first()).with_context(|| format!("no series {tag:?}"))?;
    Ok(point.tensor()?.strings()?.clone())
}
