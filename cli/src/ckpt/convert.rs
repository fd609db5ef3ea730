//! The command `gradlet ckpt convert`.

use super::names::{Map, matched, parse_map};
use super::source::{Checkpoint, Content, Item, to_safetensors};
use super::target::{self, Kind, Output};
use crate::print;
use anyhow::{Result, bail};
use clap::Args;
use gradlet::checkpoint::bundle::element_bytes;
use gradlet::io::proto::DataType;
use gradlet::io::weights::check_foreign;
use std::path::{Path, PathBuf};

/// Convert the tensors of a checkpoint to a checkpoint of another kind
///
/// With --like, the output has the names, types and shapes of another checkpoint or artifact, and the values of the input. Tensors
/// are matched by name, then by path (`dense/kernel` matches `sequential/dense/kernel`), then by type and shape if only one tensor
/// has them. The matches are printed.
///
/// Without --like, names stay the same, except that TensorFlow's suffix is removed. If only the output is a TensorFlow checkpoint,
/// each part of a name becomes an object. `dense/kernel` is then restored into the attribute `kernel` of the object that is saved
/// as `dense`.
#[derive(Args)]
#[command(after_help = "Examples:
  gradlet ckpt convert training weights.safetensors
  gradlet ckpt convert training tuned.grdl --like cnn.grdl
  gradlet ckpt convert weights.safetensors imported/ckpt --like keras/ckpt-1 --partial
  gradlet ckpt convert trained.grdc tuned.grdl --like cnn.grdl --partial
  gradlet ckpt convert --skip-damaged training/ckpt-7 rest/ckpt
  gradlet ckpt convert --dry-run training tuned.grdl --like cnn.grdl --map model/w=dense/kernel")]
pub struct Convert {
    /// A TensorFlow checkpoint's prefix or folder, a safetensors file, an artifact, or a flat checkpoint
    input: PathBuf,
    /// The file to write, or the prefix of a TensorFlow checkpoint
    output: PathBuf,
    /// Kind of the output [default: determined by the file extension]
    #[arg(long, value_name = "KIND")]
    to: Option<Kind>,
    /// Checkpoint with the names, types and shapes of the output; required for an artifact
    #[arg(long, value_name = "CHECKPOINT")]
    like: Option<PathBuf>,
    /// Artifact with the variable names of a flat checkpoint [default: --like, if it is an artifact]
    #[arg(long, value_name = "FILE")]
    artifact: Option<PathBuf>,
    /// Name of a tensor in the input, and of the tensor in the output that gets its values
    #[arg(long, value_name = "FROM=TO", value_parser = parse_map)]
    map: Vec<Map>,
    /// Keep the values from --like for tensors that the input does not have
    #[arg(long, requires = "like")]
    partial: bool,
    /// Omit damaged tensors
    #[arg(long)]
    skip_damaged: bool,
    /// Print the changes without writing anything
    #[arg(long)]
    dry_run: bool,
}

impl Convert {
    pub fn run(&self, quiet: bool) -> Result<()> {
        let kind = match self.to {
            Some(kind) => kind,
            None => check_foreign(&self.output).map(|()| Kind::of(&self.output))?,
        };
        let mut text = String::new();
        let artifact = self.artifact.as_deref().or(self.like.as_deref().filter(|like| Kind::of(like) == Kind::Artifact));
        let input = match self.skip_damaged {
            true => whole(&self.input, artifact, &mut text)?,
            false => Checkpoint::open(&self.input, artifact)?,
        };
        let like = self.like.as_deref().map(|like| Checkpoint::open(like, artifact)).transpose()?;
        let mut outputs = match &like {
            Some(like) => self.as_in(&input, like, &mut text)?,
            None => self.renamed(&input, &mut text)?,
        };
        self.leave_out(kind, like.as_ref(), &mut outputs, &mut text);
        if outputs.is_empty() {
            bail!("there is no tensor to write");
        }
        if !self.dry_run {
            self.write(kind, &outputs, &input, like.as_ref())?;
        }
        let done = if self.dry_run { "would get" } else { "has" };
        text += &format!("{} {done} {} tensors\n", self.output.display(), outputs.len());
        if quiet { Ok(()) } else { print(&text) }
    }

    fn write(&self, kind: Kind, outputs: &[Output<'_>], input: &Checkpoint, like: Option<&Checkpoint>) -> Result<()> {
        match (kind, like.map(|like| &like.content)) {
            (Kind::Tensorflow, None) if self.map.is_empty() => match &input.content {
                Content::Bundle { graph: Some(graph), .. } => target::same_objects(&self.output, graph.clone(), outputs),
                _ => target::bundle(&self.output, outputs),
            },
            (Kind::Artifact, Some(Content::Artifact(like))) => target::artifact(&self.output, like, outputs),
            (Kind::Flat, Some(Content::Artifact(like))) => target::flat(&self.output, like, outputs),
            (Kind::Artifact, _) => bail!("to write an artifact, name another artifact of the same model: --like MODEL.grdl"),
            (Kind::Flat, _) => bail!("to write a flat checkpoint, name the artifact that it belongs to: --like MODEL.grdl"),
            (Kind::Safetensors, _) => target::safetensors(&self.output, outputs),
            (Kind::Tensorflow, Some(Content::Bundle { reader, .. })) => target::like_bundle(&self.output, reader, outputs),
            (Kind::Tensorflow, _) => target::bundle(&self.output, outputs),
        }
    }

    /// Returns all tensors of the input, renamed as `--map` specifies. Adds a line about each tensor to `text`.
    fn renamed<'c>(&self, input: &'c Checkpoint, text: &mut String) -> Result<Vec<Output<'c>>> {
        let known = |from: &str| input.items.iter().any(|item| item.name == *from || item.key == *from);
        if let Some((from, to)) = self.map.iter().find(|(from, _)| !known(from)) {
            bail!("--map {from}={to}: the input has no tensor {from:?}");
        }
        let outputs = input.items.iter().enumerate().map(|(index, item)| {
            let said = self.map.iter().find(|(from, _)| item.name == *from || item.key == *from);
            let name = said.map_or(&item.name, |(_, to)| to).clone();
            *text += &line(&name, item, if said.is_some() { " (by --map)" } else { "" });
            Output { name, from: input, index }
        });
        Ok(outputs.collect())
    }

    /// Returns the tensors of `like` with the values of the matching tensors of the input. With `--partial`, a tensor without a
    /// match keeps its value from `like`; otherwise it is an error. Adds a line about each tensor to `text`.
    fn as_in<'c>(&self, input: &'c Checkpoint, like: &'c Checkpoint, text: &mut String) -> Result<Vec<Output<'c>>> {
        let sources = matched(&input.items, &like.items, &self.map)?;
        let missing: Vec<&str> =
            like.items.iter().zip(&sources).filter(|(_, source)| source.is_none()).map(|(item, _)| item.name.as_str()).collect();
        if !missing.is_empty() && !self.partial {
            let names = missing.iter().take(5).map(|name| format!("{name:?}")).collect::<Vec<_>>().join(", ");
            let more = if missing.len() > 5 { ", …" } else { "" };
            bail!("the input has no tensor for {names}{more}: name them with --map FROM=TO, or keep their values with --partial");
        }
        let outputs = like.items.iter().zip(&sources).enumerate().map(|(index, (item, source))| match source {
            Some((source, because)) => {
                *text += &line(&item.name, &input.items[*source], because.words());
                Output { name: item.key.clone(), from: input, index: *source }
            }
            None => {
                *text += &format!("{} keeps its values\n", item.name);
                Output { name: item.key.clone(), from: like, index }
            }
        });
        let outputs = outputs.collect();
        let used = |index: usize| sources.iter().flatten().any(|(source, _)| *source == index);
        let unused = input.items.iter().enumerate().filter(|(index, _)| !used(*index));
        unused.for_each(|(_, item)| *text += &format!("{} is not used\n", item.name));
        Ok(outputs)
    }

    /// Removes from `outputs` the tensors that a checkpoint of this kind cannot hold. Adds a line about each of them to `text`.
    fn leave_out(&self, kind: Kind, like: Option<&Checkpoint>, outputs: &mut Vec<Output<'_>>, text: &mut String) {
        let constant = |name: &str| match like.map(|like| &like.content) {
            Some(Content::Artifact(like)) => {
                like.description().variables.iter().any(|variable| variable.name == name && variable.assigned_by.is_empty())
            }
            _ => false,
        };
        outputs.retain(|output| {
            if kind == Kind::Flat && constant(&output.name) {
                *text += &format!("{} is left out: no signature of the artifact assigns it\n", output.name);
                return false;
            }
            let item = &output.from.items[output.index];
            let fits = match kind {
                Kind::Safetensors => to_safetensors(item.dtype).is_some(),
                _ => item.dtype == DataType::DtString || element_bytes(item.dtype).is_some(),
            };
            if !fits {
                *text += &format!("{} is left out: the output cannot hold {}\n", item.name, item.describe());
            }
            fits
        });
    }
}

/// Opens a checkpoint without its damaged tensors. Adds a description of the damage to `text`.
fn whole(path: &Path, artifact: Option<&Path>, text: &mut String) -> Result<Checkpoint> {
    let mut checkpoint = Checkpoint::open_damaged(path, artifact)?;
    if let Content::Flat { damage, .. } = &checkpoint.content {
        damage.iter().for_each(|damage| *text += &format!("{}: {damage}\n", path.display()));
    }
    let Content::Bundle { reader, .. } = &checkpoint.content else { return Ok(checkpoint) };
    reader.damage().iter().for_each(|damage| *text += &format!("{damage}\n"));
    checkpoint.items.retain(|item| {
        let verified = reader.verify(&item.key);
        verified.as_ref().err().into_iter().for_each(|damage| *text += &format!("{} is left out: {damage}\n", item.name));
        verified.is_ok()
    });
    Ok(checkpoint)
}

/// Formats a line such as `dense/kernel: float32[4, 2] of model/w (by its path)`.
fn line(name: &str, source: &Item, because: &str) -> String {
    match name == source.name {
        true => format!("{name}: {}\n", source.describe()),
        false => format!("{name}: {} of {}{because}\n", source.describe(), source.name),
    }
}
