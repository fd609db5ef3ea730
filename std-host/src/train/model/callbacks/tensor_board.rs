//! Event files of training, for TensorBoard.

use super::learning_rate::rate;
use super::{Callback, Logs, Model};
use crate::tensorboard::summary::{SummaryWriter, create_file_writer};
use crate::train::model::Batch;
use gradlet_core::{Error, Result, Scope, Tensor, Variable};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::time::Instant;

/// Frequency at which scalars are recorded between the steps of an epoch: Keras's `update_freq`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UpdateFreq {
    /// Never. Only epochs are recorded.
    #[default]
    Epoch,
    /// After each step.
    Batch,
    /// Once every given number of steps.
    Batches(usize),
}

/// Keras's `TensorBoard`: records training for `tensorboard --logdir LOG_DIR`.
///
/// The run `train` has the scalars `epoch_loss`, `epoch_learning_rate` and the metrics, such as `epoch_accuracy`. Their steps are
/// the epochs, counted from 0. The run `validation` has the same for validation, except for the learning rate. It also has each of
/// them as `evaluation_loss_vs_iterations` and so on, with the optimizer's step.
///
/// Unlike Keras, this callback always writes the scalars of epochs, for every [`update_freq`](TensorBoard::update_freq).
///
/// ```
/// use gradlet::train::callbacks::{TensorBoard, UpdateFreq};
/// let board = TensorBoard::new("logs").histogram_freq(1).update_freq(UpdateFreq::Batches(100));
/// ```
pub struct TensorBoard {
    log_dir: PathBuf,
    histogram_freq: usize,
    write_graph: bool,
    write_images: bool,
    write_steps_per_second: bool,
    update_freq: UpdateFreq,
    state: Option<State>,
}

/// State during training.
struct State {
    train: SummaryWriter,
    validation: Option<SummaryWriter>,
    /// Number of steps so far.
    step: usize,
    epoch: Count,
    batch: Count,
}

/// Counts of steps and samples since a start time.
#[derive(Clone, Copy)]
struct Count {
    begun: Instant,
    steps: usize,
    samples: usize,
}

impl Count {
    fn new() -> Count {
        Count { begun: Instant::now(), steps: 0, samples: 0 }
    }

    fn add(&mut self, samples: usize) {
        self.steps += 1;
        self.samples += samples;
    }

    /// Writes the steps and samples per second.
    fn write(&self, writer: &SummaryWriter, when: &str, step: usize) -> Result<()> {
        let seconds = self.begun.elapsed().as_secs_f64();
        writer.scalar(&format!("{when}_steps_per_second"), self.steps as f64 / seconds, step as i64)?;
        writer.scalar(&format!("{when}_images_per_second"), self.samples as f64 / seconds, step as i64)
    }
}

impl TensorBoard {
    /// Creates a callback that writes the scalars of epochs and the graph, to `log_dir/train` and `log_dir/validation`.
    pub fn new(log_dir: impl Into<PathBuf>) -> TensorBoard {
        TensorBoard {
            log_dir: log_dir.into(),
            histogram_freq: 0,
            write_graph: true,
            write_images: false,
            write_steps_per_second: false,
            update_freq: UpdateFreq::Epoch,
            state: None,
        }
    }

    /// Writes histograms of the weights after each epoch whose number is a multiple of `epochs`. For 0, writes none.
    pub fn histogram_freq(self, epochs: usize) -> TensorBoard {
        TensorBoard { histogram_freq: epochs, ..self }
    }

    /// Writes the graph of a training step, if `write_graph` is true. There is no graph if steps run eagerly.
    pub fn write_graph(self, write_graph: bool) -> TensorBoard {
        TensorBoard { write_graph, ..self }
    }

    /// Also writes the weights as images whenever histograms are written, if `write_images` is true.
    pub fn write_images(self, write_images: bool) -> TensorBoard {
        TensorBoard { write_images, ..self }
    }

    /// Writes `epoch_steps_per_second` and `batch_steps_per_second`, if `write` is true. Also writes `epoch_images_per_second` and
    /// `batch_images_per_second`, which Keras does not have. They count samples of any kind.
    pub fn write_steps_per_second(self, write: bool) -> TensorBoard {
        TensorBoard { write_steps_per_second: write, ..self }
    }

    /// Sets the frequency of `batch_loss` and the metrics of steps. They are means over the epoch so far, as in the logs.
    pub fn update_freq(self, update_freq: UpdateFreq) -> TensorBoard {
        TensorBoard { update_freq, ..self }
    }

    fn state(&mut self) -> Result<&mut State> {
        self.state.as_mut().ok_or_else(|| Error::message("the TensorBoard callback was called before on_train_begin"))
    }

    fn is_due(&self, step: usize) -> bool {
        match self.update_freq {
            UpdateFreq::Epoch => false,
            UpdateFreq::Batch => true,
            UpdateFreq::Batches(steps) => step.is_multiple_of(steps),
        }
    }

    /// Writes the logs of validation to the run `validation`.
    fn write_validation(&mut self, model: &Model, epoch: usize, logs: &Logs) -> Result<()> {
        let values: Vec<_> = logs.iter().filter_map(|(name, value)| Some((name.strip_prefix("val_")?, value))).collect();
        if values.is_empty() {
            return Ok(());
        }
        let (folder, iterations) = (self.log_dir.join("validation"), iterations(model)?);
        let validation = &mut self.state()?.validation;
        let writer = match validation {
            Some(writer) => writer,
            None => validation.insert(create_file_writer(folder)?),
        };
        values.iter().try_for_each(|(name, value)| writer.scalar(&format!("evaluation_{name}_vs_iterations"), value, iterations))?;
        values.iter().try_for_each(|(name, value)| writer.scalar(&format!("epoch_{name}"), value, epoch as i64))
    }
}

impl Callback for TensorBoard {
    fn on_train_begin(&mut self, _: &Model) -> Result<()> {
        if self.write_images && !cfg!(feature = "image") {
            return Err(Error::message("TensorBoard::write_images needs gradlet's feature `image`"));
        }
        let train = create_file_writer(self.log_dir.join("train"))?;
        self.state = Some(State { train, validation: None, step: 0, epoch: Count::new(), batch: Count::new() });
        Ok(())
    }

    fn on_epoch_begin(&mut self, _: &Model, _: usize) -> Result<()> {
        self.state()?.epoch = Count::new();
        Ok(())
    }

    fn on_batch_begin(&mut self, model: &Model, _: usize, batch: &Batch) -> Result<()> {
        let write_graph = self.write_graph;
        let state = self.state()?;
        let samples = batch.samples()?;
        state.step += 1;
        if let Some(graph) = (write_graph && state.step == 1).then(|| model.train_graph(batch)).transpose()?.flatten() {
            state.train.graph(&graph)?;
        }
        state.batch = Count::new();
        state.batch.add(samples);
        state.epoch.add(samples);
        Ok(())
    }

    fn reads_batches(&self) -> bool {
        self.update_freq != UpdateFreq::Epoch
    }

    fn on_batch_end(&mut self, _: &Model, _: usize, logs: &Logs) -> Result<ControlFlow<()>> {
        let per_second = self.write_steps_per_second;
        let step = self.state()?.step;
        if self.is_due(step) {
            let State { train, batch, .. } = self.state()?;
            if per_second {
                batch.write(train, "batch", step)?;
            }
            logs.iter().try_for_each(|(name, value)| train.scalar(&format!("batch_{name}"), value, step as i64))?;
        }
        Ok(ControlFlow::Continue(()))
    }

    fn on_epoch_end(&mut self, model: &Model, epoch: usize, logs: &mut Logs) -> Result<ControlFlow<()>> {
        let per_second = self.write_steps_per_second;
        let State { train, epoch: count, .. } = self.state()?;
        let mut own = logs.clone();
        own.set("learning_rate", rate(model)?);
        let own = own.iter().filter(|(name, _)| !name.starts_with("val_"));
        for (name, value) in own {
            train.scalar(&format!("epoch_{name}"), value, epoch as i64)?;
        }
        if per_second {
            count.write(train, "epoch", epoch)?;
        }
        if self.histogram_freq > 0 && epoch.is_multiple_of(self.histogram_freq) {
            let images = self.write_images;
            write_weights(&self.state()?.train, model, epoch as i64, images)?;
        }
        self.write_validation(model, epoch, logs)?;
        Ok(ControlFlow::Continue(()))
    }

    fn on_train_end(&mut self, _: &Model) -> Result<()> {
        let Some(State { train, validation, .. }) = self.state.take() else { return Ok(()) };
        train.close()?;
        validation.map_or(Ok(()), |writer| writer.close())
    }
}

/// Returns the number of steps that the optimizer has done.
fn iterations(model: &Model) -> Result<i64> {
    let variables = model.optimizer()?.variables();
    let counts = |variable: &&Variable| variable.name() == "iteration";
    variables.iter().find(counts).map_or(Ok(0), |variable| model.scope().read(variable)?.item())
}

/// Writes a histogram of each of the model's weights. If `images` is true, also writes the weights that have an image.
fn write_weights(writer: &SummaryWriter, model: &Model, epoch: i64, images: bool) -> Result<()> {
    let layer = model.layer();
    for (path, variable) in layer.named_variables() {
        let (name, weight) = (format!("{}/{path}", layer.name()), model.scope().read(&variable)?);
        writer.histogram(&format!("{name}/histogram"), &weight, epoch)?;
        if let Some(image) = images.then(|| image(&weight)).transpose()?.flatten() {
            writer.image(&format!("{name}/image"), &image, epoch)?;
        }
    }
    Ok(())
}

/// Converts a weight to images as Keras does. A bias becomes a row. A kernel becomes an image that is at least as wide as high. A
/// kernel with three axes becomes one image per position on the last axis. A kernel with four axes is an image already if its
/// last axis has 3 or 4 elements. Returns `None` for any other weight.
fn image(weight: &Tensor) -> Result<Option<Tensor>> {
    let dims: Vec<u32> = weight.dims().iter().copied().filter(|&size| size != 1).collect();
    let weight = weight.reshape(&dims)?;
    Ok(match *dims.as_slice() {
        [length] => Some(weight.reshape(&[1, length, 1, 1])?),
        [rows, columns] if rows > columns => Some(weight.transpose(&[1, 0])?.reshape(&[1, columns, rows, 1])?),
        [rows, columns] => Some(weight.reshape(&[1, rows, columns, 1])?),
        [height, width, images] => Some(weight.transpose(&[2, 0, 1])?.reshape(&[images, height, width, 1])?),
        [_, _, _, 3 | 4] => Some(weight),
        _ => None,
    })
}
