//! What TensorFlow did, step by step, and what gradlet does at the same steps.

use super::{managed, restored};
use crate::golden::checks::{Checks, json};
use anyhow::{Context, Result, ensure};
use gradlet::checkpoint::Checkpoint;
use gradlet::checkpoint::bundle::BundleReader;
use gradlet::layers::{Module, Visitor};
use gradlet::{DType, Eager, Scope, Tensor, Variable};
use serde_json::Value as Json;
use std::path::Path;

/// Steps that gradlet has not, by the names of their cases, with the reason.
const WITHOUT_MEANING: [(&str, &str); 3] = [
    ("max_to_keep_negative", "the number is a usize"),
    ("no_args", "the compiler says it"),
    ("restore_none", "a path is no option: who has none has nothing to restore"),
];

/// Whether the case is none in Rust.
pub fn without_meaning(name: &str) -> bool {
    WITHOUT_MEANING.iter().any(|(known, _)| *known == name)
}

/// Runs the cases of a transcript: of managers if it tells of saves, of restoring otherwise.
pub fn transcript(folder: &Path, stem: &str, checks: &mut Checks) -> Result<()> {
    let file = format!("{stem}_transcript.json");
    let transcript = json(folder, &file)?;
    let cases = transcript.as_object().context("no object")?;
    let managed = cases.values().any(|case| case.get("after_each_save").is_some());
    for (name, case) in cases.iter().filter(|(name, _)| !without_meaning(name)) {
        let run = || if managed { managed::case(folder, name, case) } else { restored::case(&folder.join(stem), name, case, &transcript) };
        checks.check(&format!("{file} {name}"), run);
    }
    Ok(())
}

/// Variables by path, as the objects of a checkpoint.
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
    /// Variables of zeros for all that a checkpoint holds, but for its counter.
    pub fn of(prefix: &Path) -> Result<Tree> {
        let mut tree = Tree::default();
        for (path, value) in values(prefix)? {
            tree.add(&path, zeros(&path, &value)?);
        }
        Ok(tree)
    }

    /// The variables whose last names are these.
    pub fn only(prefix: &Path, names: &[&str]) -> Result<Tree> {
        let mut tree = Tree::default();
        for (path, value) in values(prefix)?.into_iter().filter(|(path, _)| names.contains(&last(path))) {
            tree.add(&path, zeros(&path, &value)?);
        }
        Ok(tree)
    }

    /// Puts a variable at a path.
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

    /// The objects, each under its name.
    pub fn checkpoint(&self) -> Checkpoint<'_> {
        self.children.iter().fold(Checkpoint::new(), |checkpoint, (name, child)| checkpoint.with(name, child))
    }

    /// The variable of this last name.
    pub fn variable(&self, name: &str) -> Result<Variable> {
        let found = self.named_variables().into_iter().find(|(path, _)| last(path) == name);
        Ok(found.with_context(|| format!("no variable {name:?}"))?.1)
    }

    /// The variables hold the values of an object by their last names.
    pub fn hold(&self, wanted: &Json) -> Result<()> {
        for (name, wanted) in wanted.as_object().context("no object")? {
            holds(&self.variable(name)?, wanted).with_context(|| name.clone())?;
        }
        Ok(())
    }
}

/// The last name of a path.
pub fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// A variable holds these numbers.
pub fn holds(variable: &Variable, wanted: &Json) -> Result<()> {
    let got = elements(&scope().read(variable)?)?;
    let wanted = numbers(wanted)?;
    let same = got.len() == wanted.len() && got.iter().zip(&wanted).all(|(got, wanted)| got.to_bits() == wanted.to_bits());
    ensure!(same, "{got:?}, wanted {wanted:?}");
    Ok(())
}

/// The numbers of a nested list.
pub fn numbers(json: &Json) -> Result<Vec<f64>> {
    match json {
        Json::Array(items) => Ok(items.iter().map(numbers).collect::<Result<Vec<_>>>()?.concat()),
        number => Ok(vec![crate::golden::parsed_json::float(number)?]),
    }
}

/// The elements of a tensor.
pub fn elements(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.cast(DType::F64)?.to_vec()?)
}

/// What a checkpoint holds, by the paths of its variables, but for its counter.
pub fn values(prefix: &Path) -> Result<Vec<(String, Tensor)>> {
    let reader = BundleReader::open(prefix)?;
    let paths = reader.entries().filter_map(|(key, _)| key.strip_suffix("/.ATTRIBUTES/VARIABLE_VALUE"));
    let paths = paths.filter(|path| *path != "save_counter").map(String::from).collect::<Vec<_>>();
    let value = |path: &String| reader.tensor(&format!("{path}/.ATTRIBUTES/VARIABLE_VALUE"), &gradlet::cpu());
    paths.into_iter().map(|path| Ok((path.clone(), value(&path)?))).collect()
}

/// A variable of zeros of the type of `like`.
fn zeros(path: &str, like: &Tensor) -> Result<Variable> {
    let bytes = vec![0; like.bytes()?.len()];
    let value = Tensor::from_bytes(&gradlet::cpu(), like.tensor_type(), &bytes)?;
    Ok(Variable::new(&scope(), last(path), &value)?)
}

/// A scope to read and set variables in.
pub fn scope() -> Eager {
    Eager::new(&gradlet::cpu())
}

/// The words of an error that a case wants, and what a text lacks of those that are in `needed`.
pub fn says(text: &str, needed: &[&str]) -> Result<()> {
    needed.iter().try_for_each(|word| {
        ensure!(text.contains(word), "got: {text}\nwanted: {word}");
        Ok(())
    })
}
