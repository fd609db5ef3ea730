//! The result of restoring a checkpoint.

use super::Checkpoint;
use super::objects::{Objects, Value};
use super::restore::SavedValues;
use gradlet_core::{Error, Result};
use std::fmt;

/// Report of the values of a checkpoint that were restored, and of those that were not. It can be queried at any time: variables
/// may be created, and get their values, long after [`Checkpoint::restore`].
pub struct Status<'c, 'a> {
    checkpoint: &'c Checkpoint<'a>,
    source: SavedValues,
}

impl<'c, 'a> Status<'c, 'a> {
    pub(super) fn new(checkpoint: &'c Checkpoint<'a>, source: SavedValues) -> Status<'c, 'a> {
        Status { checkpoint, source }
    }

    /// Checks that every value of the checkpoint was restored into an object. Also does the check of
    /// [`Status::assert_existing_objects_matched`]. The error names the values that are missing or left over.
    pub fn assert_consumed(&self) -> Result<&Self> {
        let left_over = self.left_over()?;
        if let Some(first) = left_over.first() {
            let text = format!(
                "the checkpoint has {} {} without an object to restore into: {first}{}",
                left_over.len(),
                values(&left_over),
                more(&left_over)
            );
            return Err(self.error(text));
        }
        self.assert_existing_objects_matched()
    }

    /// Checks that every variable and every other saved value of the objects was restored from the checkpoint. Variables that
    /// have no value yet are ignored. The error names the values that the checkpoint lacks.
    pub fn assert_existing_objects_matched(&self) -> Result<&Self> {
        let missing = self.missing()?;
        match missing.first() {
            None => Ok(self),
            Some(first) => Err(self.error(format!(
                "the checkpoint lacks {} {} of the objects: {first}{}",
                missing.len(),
                values(&missing),
                more(&missing)
            ))),
        }
    }

    /// Checks that at least one value in the files belongs to one of the program's objects. As in TensorFlow, the save counter of
    /// the checkpoint is one of the objects.
    pub fn assert_nontrivial_match(&self) -> Result<&Self> {
        let (_, matching) = self.matching()?;
        let found = matching.into_iter().flatten().any(|saved| self.source.graph.key(saved).is_some());
        if found { Ok(self) } else { Err(self.error("no value of the checkpoint has the name of an object".into())) }
    }

    /// States that the checkpoint may hold more values than the objects need. Checks nothing.
    pub fn expect_partial(&self) -> &Self {
        self
    }

    /// Returns the paths of the checkpoint's values that are not in any variable yet, such as `(root).step`.
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

    /// Returns the paths of the objects' values that are not in the checkpoint, such as `model/dense/bias`.
    pub fn missing(&self) -> Result<Vec<String>> {
        let (objects, matching) = self.matching()?;
        let arrived =
            |own: usize| matching[own].and_then(|saved| self.source.graph.key(saved)).is_some_and(|key| self.source.has_arrived(key));
        let there = |own: &usize| match &objects.all[*own].value {
            Some(Value::Variable(variable)) => variable.is_built(),
            value => value.is_some(),
        };
        let missing = (0..objects.all.len()).filter(there).filter(|own| !arrived(*own));
        // A variable that occurs in several places is reported only under the first.
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

/// Lists up to nine of the names after the first, for an error message.
fn more(names: &[String]) -> String {
    const SHOWN: usize = 9;
    let shown: String = names.iter().skip(1).take(SHOWN).map(|name| format!(", {name}")).collect();
    if names.len() > SHOWN + 1 { format!("{shown}, …") } else { shown }
}
