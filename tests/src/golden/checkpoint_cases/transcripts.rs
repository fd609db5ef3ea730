//! Transcripts of TensorFlow's checkpoints, step by step. gradlet repeats the steps.

use super::{managed, restored};
use crate::golden::checks::{Checks, json};
use anyhow::{Context, Result, ensure};
use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::BundleReader;
use gradlet::layers::{Module, Visitor};
use gradlet::{DType, Eager, Scope, Tensor, Variable};
use serde_json::Value as Json;
use std::path::Path;

/// Names of cases that do not exist in gradlet, with the reason.
const WITHOUT_MEANING: [(&str, &str); 3] = [
    ("max_to_keep_negative", "the number is a usize"),
    ("no_args", "the compiler says it"),
    ("restore_none", "a path is no option: who has none has nothing to restore"),
];

/// True if the case does not exist in gradlet.
pub fn without_meaning(name: &str) -> bool {
    WITHOUT_MEANING.iter().any(|(known, _)| *known == name)
}

/// Runs the cases of a transcript. A transcript with saves belongs to checkpoint managers, and any other belongs to restores.
pub fn transcript(folder: &Path, stem: &str, checks: &mut Checks) -> Result<()> {
    let file = format!("{stem}_transcript.json");
    let transcript = json(folder, &file)?;
    let cases = transcript.as_object().context("expected a JSON object")?;
    let managed = cases.values().any(|case| case.get("after_each_save").is_some());
    for (name, case) in cases.iter().filter(|(name, _)| !without_meaning(name)) {
        let run = || if managed { managed::case(folder, name, case) } else { restored::case(&folder.join(stem), name, case, &transcript) };
        checks.check(&format!("{file} {name}"), run);
    }
    Ok(())
}

/// A tree of variables, as the objects of a checkpoint.
#[derive(Default)]
pub struct Tree {
    variable: Option<Variable>,
    children: Vec<(String, Tree)>,
}

impl Module for Tree {
    fn visit(&self, visitor: &mut dyn Visitor) {
        self.variable.iter().for_each(|variable| visitor.variable(variable));
        self.children.iter().for_each(|(name, child)| visitor.module(name, child));
    }
}

impl Tree {
    /// Creates a variable of zeros for every value of a checkpoint, except for its save counter.
    pub fn of(prefix: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        for (path, value) in values(prefix)? {
            tree.add(&path, zeros(&path, &value)?);
        }
        Ok(tree)
    }

    /// Like [`Tree::of`], but only for the variables whose paths end with one of `names`.
    pub fn only(prefix: &Path, names: &[&str]) -> Result<Tree> {
        let mut tree = Tree::default();
        for (path, value) in values(prefix)?.into_iter().filter(|(path, _)| names.contains(&last(path))) {
            tree.add(&path, zeros(&path, &value)?);
        }
        Ok(tree)
    }

    /// Adds a variable at a path.
    pub fn add(&mut self, path: &str, variable: Variable) {
        let (name, rest) = path.split_once('/').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let at = self.children.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
            self.children.push((name.into(), Tree::default()));
            self.children.len() - 1
        });
        let child = &mut self.children[at].1;
        match rest {
            Some(rest) => child.add(rest, variable),
            None => child.variable = Some(variable),
        }
    }

    /// Returns a checkpoint of the objects, each under its name.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        self.children.iter().fold(Checkpoint::new(), |checkpoint, (name, child)| checkpoint.with(name, child))
    }

    /// Returns the variable whose path ends in this name.
    pub fn variable(&self, name: &str) -> Result<Variable> {
        let found = self.named_variables().into_iter().find(|(path, _)| last(path) == name);
        Ok(found.with_context(|| format!("no variable {name:?}"))?.1)
    }

    /// Checks that the variables have the values in the JSON object `wanted`. Its keys are the last names of the variables' paths.
    pub fn hold(&self, wanted: &Json) -> Result<()> {
        for (name, wanted) in wanted.as_object().context("expected a JSON object")? {
            holds(&self.variable(name)?, wanted).with_context(|| name.clone())?;
        }
        Ok(())
    }
}

/// Returns the last name of a path.
pub fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Checks that a variable has the numbers in the nested list `wanted`.
pub fn holds(variable: &Variable, wanted: &Json) -> Result<()> {
    let got = elements(&scope().read(variable)?)?;
    let wanted = numbers(wanted)?;
    let same = got.len() == wanted.len() && got.iter().zip(&wanted).all(|(got, wanted)| got.to_bits() == wanted.to_bits());
    ensure!(same, "{got:?}, wanted {wanted:?}");
    Ok(())
}

/// Returns the numbers of a nested list, flattened.
pub fn numbers(json: &Json) -> Result<Vec<f64>> {
    match json {
        Json::Array(items) => Ok(items.iter().map(numbers).collect::<Result<Vec<_>>>()?.concat()),
        number => Ok(vec![crate::golden::parsed_json::float(number)?]),
    }
}

/// Returns the elements of a tensor as f64.
pub fn elements(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.cast(DType::F64)?.to_vec()?)
}

/// Returns the values of a checkpoint with the paths of their variables, except for the save counter.
pub fn values(prefix: &Path) -> Result<Vec<(String, Tensor)>> {
    let reader = BundleReader::open(prefix)?;
    let paths = reader.entries().filter_map(|(key, _)| key.strip_suffix("/.ATTRIBUTES/VARIABLE_VALUE"));
    let paths = paths.filter(|path| *path != "save_counter").map(String::from).collect::<Vec<_>>();
    let value = |path: &String| reader.tensor(&format!("{path}/.ATTRIBUTES/VARIABLE_VALUE"), &gradlet::cpu());
    paths.into_iter().map(|path| Ok((path.clone(), value(&path)?))).collect()
}

/// Creates a variable of zeros with the type of `like`.
fn zeros(path: &str, like: &Tensor) -> Result<Variable> {
    let bytes = vec![0; like.bytes()?.len()];
    let value = Tensor::from_bytes(&gradlet::cpu(), like.tensor_type(), &bytes)?;
    Ok(Variable::new(&scope(), last(path), &value)?)
}

/// Creates an eager scope on the host's device.
pub fn scope() -> Eager {
    Eager::new(&gradlet::cpu())
}

/// Checks that an error text contains every word of `needed`.
pub fn says(text: &str, needed: &[&str]) -> Result<()> {
    needed.iter().try_for_each(|word| {
        ensure!(text.contains(word), "got: {text}\nwanted: {word}");
        Ok(())
    })
}
