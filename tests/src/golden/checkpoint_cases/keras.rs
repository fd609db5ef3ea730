//! Keras models that TensorFlow trained. After a restore, gradlet's predictions and its next training step must match Keras's.

use crate::golden::checks::{Checks, json};
use crate::golden::fixtures::{self, text};
use anyhow::{Context, Result, bail, ensure};
use gradlet::checkpoint::Checkpoint;
use gradlet::layers::{Activation, BatchNormalization, Conv2D, Dense, Flatten, Layer, MaxPooling2D, Module, Padding, ReLU, Sequential};
use gradlet::losses::{Loss, SparseCategoricalCrossentropy};
use gradlet::optimizers::{Adam, AdamW, Optimizer, RMSprop, Sgd};
use gradlet::{Differentiate, Eager, Scope, Tensor};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// Tolerance of results whose sums are computed in another order than Keras's, as a fraction of the largest value.
const NEAR: f32 = 2e-5;

/// Properties of a model that a listing does not contain. The test tries all combinations in [`UNSAID`], and selects the first with which
/// the restored model has Keras's predictions.
#[derive(Clone, Copy)]
struct Unsaid {
    activation: Activation,
    padding: Padding,
}

const UNSAID: [Unsaid; 6] = {
    const fn unsaid(activation: Activation, padding: Padding) -> Unsaid {
        Unsaid { activation, padding }
    }
    [
        unsaid(Activation::Relu, Padding::Same),
        unsaid(Activation::Relu, Padding::Valid),
        unsaid(Activation::Tanh, Padding::Same),
        unsaid(Activation::Tanh, Padding::Valid),
        unsaid(Activation::Linear, Padding::Same),
        unsaid(Activation::Linear, Padding::Valid),
    ]
};

/// Runs `STEM.next_step.safetensors` for the checkpoint that `STEM.json` lists.
pub fn next_step(folder: &Path, stem: &str, checks: &mut Checks) -> Result<()> {
    let listing = json(folder, &format!("{stem}.json"))?;
    let tensors = fixtures::tensors(&folder.join(format!("{stem}.next_step.safetensors")))?;
    checks.check(&format!("{stem}: next step"), || {
        let case = Case { prefix: folder.join(text(&listing, "prefix")?), listing, tensors };
        let found = UNSAID.into_iter().find(|unsaid| case.predicts(*unsaid).unwrap_or(false));
        // If none has the right predictions, report the first one's error.
        let unsaid = match found {
            Some(unsaid) => unsaid,
            None => bail!("no model of these layers has the predictions of Keras's: {:?}", case.predicts(UNSAID[0])),
        };
        case.next_step(unsaid, false).context("restored before it is built")?;
        case.next_step(unsaid, true).context("restored after it was built")
    });
    Ok(())
}

struct Case {
    prefix: PathBuf,
    listing: Json,
    tensors: HashMap<String, Tensor>,
}

impl Case {
    fn tensor(&self, name: &str) -> Result<Tensor> {
        self.tensors.get(name).cloned().with_context(|| format!("no tensor {name:?}"))
    }

    /// Returns the value of the weight with a Keras path, such as `sequential/hidden/kernel`. `when` is the prefix of the value's name in
    /// the file, such as `weights_at_save`.
    fn weight(&self, when: &str, path: &str) -> Result<Tensor> {
        self.tensor(&format!("{when}/{path}"))
    }

    /// Returns the kernel of a layer.
    fn kernel(&self, layer: &str) -> Result<Tensor> {
        let ending = format!("{layer}/kernel");
        let paths = self.listing["weights_order"].as_array().context("no weights_order")?;
        let path = paths.iter().filter_map(Json::as_str).find(|path| path.ends_with(&ending));
        self.weight("weights_at_save", path.with_context(|| format!("no kernel of {layer}"))?)
    }

    fn model(&self, unsaid: Unsaid) -> Result<Sequential> {
        let layers = self.listing["model_config_layers"].as_array().context("no layers")?;
        let mut model = Sequential::new();
        for (index, layer) in layers.iter().enumerate() {
            let name = text(layer, "name")?;
            let activation = if index + 1 == layers.len() { Activation::Linear } else { unsaid.activation };
            model = match text(layer, "class")? {
                "InputLayer" => model,
                "Dense" => {
                    let units = *self.kernel(name)?.dims().last().context("a scalar kernel")?;
                    model.with_named(name, Dense::new(units).activation(activation))
                }
                "Conv2D" => {
                    let kernel = self.kernel(name)?;
                    let [height, width, _, filters] = *kernel.dims() else { bail!("a kernel {:?}", kernel.dims()) };
                    model.with_named(name, Conv2D::new(filters, [height, width]).activation(activation).padding(unsaid.padding))
                }
                "BatchNormalization" => model.with_named(name, BatchNormalization::default()),
                "MaxPooling2D" => model.with_named(name, MaxPooling2D::new([2, 2])),
                "Flatten" => model.with_named(name, Flatten),
                "ReLU" => model.with_named(name, ReLU::default()),
                other => bail!("unknown layer {other}"),
            };
        }
        Ok(model)
    }

    fn optimizer(&self) -> Result<Box<dyn Optimizer>> {
        let config = &self.listing["optimizer_config"];
        let number = |key: &str| config[key].as_f64().with_context(|| format!("no {key}"));
        let rate = number("learning_rate")? as f32;
        Ok(match text(config, "name")? {
            "adam" => Box::new(
                Adam::new(rate)
                    .beta_1(number("beta_1")?)
                    .beta_2(number("beta_2")?)
                    .epsilon(number("epsilon")?)
                    .amsgrad(config["amsgrad"] == true),
            ),
            "adamw" | "adam_w" => Box::new(AdamW::new(rate).weight_decay(number("weight_decay")?)),
            "sgd" => Box::new(Sgd::new(rate).momentum(number("momentum")?).nesterov(config["nesterov"] == true)),
            "rmsprop" | "rm_sprop" => {
                Box::new(RMSprop::new(rate).rho(number("rho")?).momentum(number("momentum")?).centered(config["centered"] == true))
            }
            other => bail!("unknown optimizer {other}"),
        })
    }

    /// True if a restored model has Keras's predictions.
    fn predicts(&self, unsaid: Unsaid) -> Result<bool> {
        let scope = Eager::new(&gradlet::cpu());
        let model = self.model(unsaid)?;
        let checkpoint = Checkpoint::new().with("model", &model);
        checkpoint.restore(&self.prefix)?;
        let predicted = model.apply(&scope, &self.tensor("x")?)?;
        Ok(near(&predicted, &self.tensor("y_pred_before")?).is_ok())
    }

    fn next_step(&self, unsaid: Unsaid, built: bool) -> Result<()> {
        let scope = Eager::new(&gradlet::cpu());
        let (model, optimizer) = (self.model(unsaid)?, self.optimizer()?);
        let (x, y) = (self.tensor("x")?, self.tensor("y")?);
        if built {
            model.apply(&scope, &x)?;
            optimizer.build(&scope, &model)?;
        }
        let checkpoint = Checkpoint::new().with("model", &model).with("optimizer", &optimizer);
        let status = checkpoint.restore(&self.prefix)?;
        let before = model.apply(&scope, &x)?;
        near(&before, &self.tensor("y_pred_before")?).context("predictions before")?;
        optimizer.build(&scope, &model)?;
        status.assert_consumed()?;
        self.compare_weights(&model, "weights_at_save", |one, other| {
            ensure!(one.bytes()? == other.bytes()?, "the bits differ");
            Ok(())
        })?;

        let tape = scope.with_training(true).tape();
        let loss = SparseCategoricalCrossentropy::default().from_logits(true).call(&y, &model.apply(&tape, &x)?)?;
        let losses = self.listing["losses"].as_array().context("no losses")?;
        let wanted = losses.last().and_then(Json::as_f64).context("no loss")? as f32;
        ensure!((loss.item::<f32>()? - wanted).abs() <= NEAR * wanted.abs(), "the loss is {}, wanted {wanted}", loss.item::<f32>()?);
        optimizer.apply_gradients(&scope, &tape.gradient(&loss, &model.trainable_variables())?)?;
        self.compare_weights(&model, "weights_after_next_step", near)?;
        let state = self.listing["optimizer_variables"].as_array().context("no optimizer_variables")?;
        let own = optimizer.variables();
        ensure!(own.len() == state.len(), "{} variables of the optimizer, wanted {}", own.len(), state.len());
        for (variable, path) in own.iter().zip(state) {
            let path = path.as_str().context("no path")?;
            let wanted = self.weight("optimizer_after_next_step", path)?;
            near(&scope.read(variable)?, &wanted).with_context(|| path.to_string())?;
        }
        near(&model.apply(&scope, &x)?, &self.tensor("y_pred_after")?).context("predictions after")
    }

    fn compare_weights(&self, model: &Sequential, when: &str, same: impl Fn(&Tensor, &Tensor) -> Result<()>) -> Result<()> {
        let scope = Eager::new(&gradlet::cpu());
        let paths = self.listing["weights_order"].as_array().context("no weights_order")?;
        let own = model.named_variables();
        ensure!(own.len() == paths.len(), "{} weights, wanted {}", own.len(), paths.len());
        for path in paths {
            let path = path.as_str().context("no path")?;
            let found = own.iter().find(|(own, _)| path == own || path.ends_with(&format!("/{own}")));
            let (_, variable) = found.with_context(|| format!("no variable {path}"))?;
            same(&scope.read(variable)?, &self.weight(when, path)?).with_context(|| format!("{when}: {path}"))?;
        }
        Ok(())
    }
}

/// Checks that two tensors are equal up to rounding.
pub fn near(one: &Tensor, other: &Tensor) -> Result<()> {
    ensure!(one.tensor_type() == other.tensor_type(), "{}, wanted {}", one.tensor_type(), other.tensor_type());
    if !one.dtype().is_float() {
        ensure!(one.bytes()? == other.bytes()?, "the numbers differ");
        return Ok(());
    }
    let (one, other) = (one.to_vec::<f32>()?, other.to_vec::<f32>()?);
    let largest = other.iter().fold(0.0f32, |largest, value| largest.max(value.abs()));
    let far = one.iter().zip(&other).find(|(one, other)| (**one - **other).abs() > NEAR * largest.max(1e-3));
    ensure!(far.is_none(), "the difference {far:?} is too large for values up to {largest}");
    Ok(())
}
