//! Modules that TensorFlow saved, restored into gradlet modules of the same structure. With these weights, the same input
//! must produce the same output.

use super::keras::near;
use crate::golden::checks::{Checks, json};
use crate::golden::fixtures::{self, text};
use anyhow::{Context, Result, bail, ensure};
use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::BundleReader;
use gradlet::layers::{Module, Padding};
use gradlet::ops::conv2d::Conv2DOptions;
use gradlet::{Eager, Scope, Tensor, Variable};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;

/// A layer that computes `x · w + b`.
#[derive(Module)]
struct Affine {
    w: Variable,
    b: Variable,
}

/// A convolution with a bias.
#[derive(Module)]
struct Conv {
    k: Variable,
    b: Variable,
}

/// Dense layers with ReLU between them.
#[derive(Module)]
struct Mlp {
    layers: Vec<Affine>,
}

/// Convolutions `c1`, `c2`, …, and a dense layer.
#[derive(Module)]
struct Cnn {
    #[module(name = "")]
    convs: BTreeMap<String, Conv>,
    head: Affine,
}

/// Runs `STEM.io.safetensors` for the checkpoint that `STEM.json` lists.
pub fn in_and_out(folder: &Path, stem: &str, checks: &mut Checks) -> Result<()> {
    let listing = json(folder, &format!("{stem}.json"))?;
    let prefix = folder.join(text(&listing, "prefix")?);
    let tensors = fixtures::tensors(&folder.join(format!("{stem}.io.safetensors")))?;
    checks.check(&format!("{stem}: output"), || {
        let reader = BundleReader::open(&prefix)?;
        let [x, y] = ["x", "y"].map(|name| tensors.get(name).with_context(|| format!("no tensor {name:?}")));
        let (x, y) = (x?, y?);
        let scope = Eager::new(&gradlet::cpu());
        let shaped = |name: &str| -> Result<Variable> {
            let key = format!("model/{name}/.ATTRIBUTES/VARIABLE_VALUE");
            let like = reader.tensor(&key, &scope.device())?;
            Ok(Variable::new(&scope, name, &Tensor::zeros(&scope.device(), like.tensor_type())?)?)
        };
        let has = |name: &str| reader.entry(&format!("model/{name}/.ATTRIBUTES/VARIABLE_VALUE")).is_some();
        let affine = |at: &str| Ok(Affine { w: shaped(&format!("{at}/w"))?, b: shaped(&format!("{at}/b"))? });
        let step = Cell::new(-1i64);
        let restore = |model: &dyn Module| -> Result<()> {
            Checkpoint::new().with("model", model).with("step", &step).restore(&prefix)?.assert_consumed()?;
            ensure!(step.get() >= 0, "the step is {}", step.get());
            Ok(())
        };
        if has("layers/0/w") {
            let count = (0..).take_while(|index| has(&format!("layers/{index}/w"))).count();
            let mlp = Mlp { layers: (0..count).map(|index| affine(&format!("layers/{index}"))).collect::<Result<_>>()? };
            restore(&mlp)?;
            near(&mlp.call(&scope, x)?, y)
        } else if has("head/w") {
            let names = (1..).map(|index| format!("c{index}")).take_while(|name| has(&format!("{name}/k")));
            let conv = |name: String| Ok((name.clone(), Conv { k: shaped(&format!("{name}/k"))?, b: shaped(&format!("{name}/b"))? }));
            let cnn = Cnn { convs: names.map(conv).collect::<Result<_>>()?, head: affine("head")? };
            restore(&cnn)?;
            near(&cnn.call(&scope, x)?, y)
        } else {
            bail!("no known form of module has these keys")
        }
    });
    Ok(())
}

impl Mlp {
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let (last, layers) = self.layers.split_last().context("no layers")?;
        let x = layers.iter().try_fold(x.clone(), |x, layer| layer.call(scope, &x)?.relu())?;
        Ok(last.call(scope, &x)?)
    }
}

impl Affine {
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> gradlet::Result<Tensor> {
        x.matmul(&scope.read(&self.w)?)?.add(&scope.read(&self.b)?)
    }
}

impl Cnn {
    /// Applies the module. The first convolution has stride 1, the others have stride 2.
    fn call(&self, scope: &dyn Scope, x: &Tensor) -> Result<Tensor> {
        let mut x = x.clone();
        for (index, conv) in self.convs.values().enumerate() {
            let mut options = Conv2DOptions::default();
            options.strides = if index == 0 { [1; 2] } else { [2; 2] };
            options.padding = Padding::Same;
            x = x.conv2d(&scope.read(&conv.k)?, Some(&scope.read(&conv.b)?), &options)?.relu()?;
        }
        let samples = x.dims()[0];
        let features = x.dims().iter().skip(1).product();
        Ok(self.head.call(scope, &x.reshape(&[samples, features])?)?)
    }
}
