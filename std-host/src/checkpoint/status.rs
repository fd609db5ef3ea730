//! What became of a restored checkpoint.

use super::Checkpoint;
use super::objects::{Objects, Value};
use super::restore::SavedValues;
use gradlet_core::{Error, Result};
use std::fmt;

/// What a checkpoint held and what its objects took of it, to be asked whenever it should be known: variables may be created, and get
/// their values, long after [`Checkpoint::restore`].
pub struct Status<'c, 'a> {
    checkpoint: &'c Checkpoint<'a>,
    source: SavedValues,
}

impl<'c, 'a> Status<'c, 'a> {
    pub(super) fn new(checkpoint: &'c Checkpoint<'a>, source: SavedValues) -> Status<'c, 'a> {
        Status { checkpoint, source }
    }

    /// Fails where a value of the checkpoint has no variable yet, and where [`Status::assert_existing_objects_matched`] does. The error
    /// names what is missing or left over.
    pub fn assert_consumed(&self) -> Result<&Self> {
        let left_over = self.left_over()?;
        if let Some(first) = left_over.first() {
            let text =
                format!("the checkpoint holds {} {} that no object took: {first}{}", left_over.len(), values(&left_over), more(&left_over));
            return Err(self.error(text));
        }
        self.assert_existing_objects_matched()
    }

    /// Fails where a variable, or another value, of the objects is not in the checkpoint; those without a value do not count. The error
    /// names it.
    pub fn assert_existing_objects_matched(&self) -> Result<&Self> {
        let missing = self.missing()?;
        match missing.first() {
            None => Ok(self),
            Some(first) => Err(self.error(format!(
                "{} {} got nothing from the checkpoint: {first}{}",
                missing.len(),
                values(&missing),
                more(&missing)
            ))),
        }
    }

    /// Fails where nothing in the checkpoint is for one of its objects. As in TensorFlow, the checkpoint's own counter is one of them.
    pub fn assert_nontrivial_match(&self) -> Result<&Self> {
        let (_, matching) = self.matching()?;
        let found = matching.into_iter().flatten().any(|saved| self.source.graph.key(saved).is_some());
        if found { Ok(self) } else { Err(self.error("nothing in the checkpoint has the name of an object".into())) }
    }

    /// Says that it is well if the checkpoint holds more than the objects take. Nothing is checked.
    pub fn expect_partial(&self) -> &Self {
        self
    }

    /// The values of the checkpoint that are in no variable so far, such as `(root).step`.
    pub fn left_over(&self) -> Result<Vec<String>> {
        let (objects, matching) = self.matching()?;
        let taken = |object: usize| {
            let built = |own: &usize| match &objects.all[*own].value {
                Some(Value::Variable(variable)) => variable.is_built(),
                Some(Value::State(_)) => true,
                None => false,
            };
            (0..matching.len()).filter(|&own| matching[own] == Some(object)).any(|own| built(&own))
        };
        Ok(self.source.graph.valued().filter(|(object, _)| !taken(*object)).map(|(_, path)| path).collect())
    }

    /// The paths of the objects' values that are not in the checkpoint, such as `model/dense/bias`.
    pub fn missing(&self) -> Result<Vec<String>> {
        let (objects, matching) = self.matching()?;
        let arrived =
            |own: usize| matching[own].and_then(|saved| self.source.graph.key(saved)).is_some_and(|key| self.source.has_arrived(key));
        let there = |own: &usize| match &objects.all[*own].value {
            Some(Value::Variable(variable)) => variable.is_built(),
            value => value.is_some(),
        };
        let missing = (0..objects.all.len()).filter(there).filter(|own| !arrived(*own));
        // A variable in several places is looked for under the first.
        let mut named: Vec<(&Value, String)> = Vec::new();
        for own in missing {
            let Some(value) = &objects.all[own].value else { continue };
            let known = |other: &Value| matches!((other, value), (Value::Variable(one), Value::Variable(two)) if one == two);
            let elsewhere = (0..objects.all.len()).any(|other| objects.all[other].value.as_ref().is_some_and(known) && arrived(other));
            if !elsewhere && !named.iter().any(|(other, _)| known(other)) {
                named.push((value, objects.path(own)));
            }
        }
        Ok(named.into_iter().map(|(_, path)| path).collect())
    }

    fn matching(&self) -> Result<(Objects, Vec<Option<usize>>)> {
        let objects = Objects::of(self.checkpoint, self.source.graph.own_paths(), &mut ())?;
        let matching = self.source.graph.matching(&objects, 0);
        Ok((objects, matching))
    }

    fn error(&self, text: String) -> Error {
        Error::message(format!("{}: {text}", self.source.reader.prefix().display()))
    }
}

impl fmt::Debug for Status<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({:?} of {})", self.checkpoint, self.source.reader.prefix().display())
    }
}

fn values(names: &[String]) -> &'static str {
    if names.len() == 1 { "value" } else { "values" }
}

/// Some of the other names.
fn more(names: &[String]) -> String {
    const SHOWN: usize = 9;
    let shown: String = names.iter().skip(1).take(SHOWN).map(|name| format!(", {name}")).collect();
    if names.len() > SHOWN + 1 { format!("{shown}, …") } else { shown }
}
