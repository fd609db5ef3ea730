//! Hyperparameters, by which TensorBoard compares runs.

use super::writer::SummaryWriter;
use crate::formats::proto::hparams::h_params_plugin_data::Data;
use crate::formats::proto::hparams::{Experiment, HParamsPluginData, SessionEndInfo, SessionStartInfo, Status, Value, value};
use crate::formats::tensor_proto;
use gradlet_core::{Result, Tensor};
use prost::Message;
use std::collections::BTreeMap;

/// The value of a hyperparameter.
#[derive(Clone, Debug, PartialEq)]
pub enum HParam {
    /// A number.
    Number(f64),
    /// A text.
    Text(String),
    /// A boolean.
    Bool(bool),
}

impl From<f64> for HParam {
    fn from(number: f64) -> HParam {
        HParam::Number(number)
    }
}

impl From<i32> for HParam {
    fn from(number: i32) -> HParam {
        HParam::Number(number.into())
    }
}

impl From<&str> for HParam {
    fn from(text: &str) -> HParam {
        HParam::Text(text.into())
    }
}

impl From<bool> for HParam {
    fn from(choice: bool) -> HParam {
        HParam::Bool(choice)
    }
}

/// Returns the 64-bit FNV-1a hash of `bytes`. It is the same in every build, so equal values form one trial across runs.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

impl SummaryWriter {
    /// Records the hyperparameters of this run: TensorBoard's `hp.hparams`. Runs with the same `trial` form one row of the table,
    /// which shows their means. For `None`, the name of the trial is a hash of the values.
    ///
    /// ```
    /// let folder = tempfile::tempdir()?;
    /// let writer = gradlet::summary::create_file_writer(folder.path())?;
    /// writer.hparams([("learning_rate", 0.1.into()), ("optimizer", "adam".into()), ("augment", true.into())], None)?;
    /// writer.scalar("accuracy", 0.97, 1)?;
    /// # writer.close()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hparams<'a>(&self, values: impl IntoIterator<Item = (&'a str, HParam)>, trial: Option<&str>) -> Result<()> {
        let values: BTreeMap<&str, HParam> = values.into_iter().collect();
        let named = || format!("{:016x}", fnv1a(format!("{values:?}").as_bytes()));
        let start = SessionStartInfo {
            group_name: trial.map_or_else(named, Into::into),
            start_time_secs: super::writer::now(),
            hparams: values.iter().map(|(name, value)| (name.to_string(), message(value))).collect(),
            ..SessionStartInfo::default()
        };
        self.plugin_data("_hparams_/session_start_info", Data::SessionStartInfo(start))
    }

    /// Declares the hyperparameters and metrics of all runs below a folder, if this writer writes to that folder. TensorBoard's
    /// `hp.hparams_config`. Without it, TensorBoard shows the ones that it finds in the runs.
    pub fn experiment(&self, experiment: Experiment) -> Result<()> {
        self.plugin_data("_hparams_/experiment", Data::Experiment(experiment))
    }

    /// Records how the run ended.
    pub fn session_end(&self, status: Status) -> Result<()> {
        let end = SessionEndInfo { status: status.into(), end_time_secs: super::writer::now() };
        self.plugin_data("_hparams_/session_end_info", Data::SessionEndInfo(end))
    }

    fn plugin_data(&self, tag: &str, data: Data) -> Result<()> {
        let content = HParamsPluginData { version: 0, data: Some(data) }.encode_to_vec();
        let nothing = tensor_proto::to_proto(&Tensor::new(&crate::compute::devices::cpu(), &[0f32; 0], &[0])?)?;
        self.outside().write(tag, nothing, Some(super::writer::metadata("hparams", content)), 0)
    }
}

fn message(value: &HParam) -> Value {
    Value {
        kind: Some(match value {
            HParam::Number(number) => value::Kind::NumberValue(*number),
            HParam::Text(text) => value::Kind::StringValue(text.clone()),
            HParam::Bool(choice) => value::Kind::BoolValue(*choice),
        }),
    }
}
