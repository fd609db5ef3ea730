//! Parser of serialized SequenceExamples that does not create the message.

use super::AsRecord;
use super::lists::List;
use super::parse::{feature_key, open, vector};
use super::parsed::{Parsed, ParsedFeatures};
use super::spec::{FeatureSpec, Features};
use super::wire::{Wire, delimited};
use crate::values::ragged::RaggedTensor;
use crate::values::sparse::SparseTensor;
use gradlet_core::{Device, Error, Result, Shape, Tensor};
use std::collections::BTreeMap;

/// Names and serialized messages of the requested features that the record has.
type Found<'a> = BTreeMap<&'a str, &'a [u8]>;

/// Parses a serialized SequenceExample: the context features, which belong to the whole sequence, and the feature lists, which have a
/// feature for each step.
///
/// `context` can have [`FixedLenFeature`](super::FixedLenFeature)s, [`VarLenFeature`](super::VarLenFeature)s and
/// [`RaggedFeature`](super::RaggedFeature)s, with values like those of [`parse_single_example`]. `steps` can have
/// [`FixedLenSequenceFeature`]s, `VarLenFeature`s and `RaggedFeature`s. They become dense tensors with the steps as their first dimension,
/// sparse tensors of rank 2, and ragged tensors. The rules are those of TensorFlow's `tf.io.parse_single_sequence_example`.
///
/// Fails if the record is not a SequenceExample, if a feature has a list of another type or size than requested, or if a required feature
/// is missing.
///
/// ```
/// use gradlet::io::example::{FeatureType, Features, FixedLenFeature, FixedLenSequenceFeature};
/// use gradlet::io::example::{SequenceExample, parse_single_sequence_example};
/// let record = SequenceExample::new().with_context("id", 7).with_steps("words", [1i64, 2]).to_bytes();
/// let context = Features::new().with("id", FixedLenFeature::new(FeatureType::I64, &[]));
/// let steps = Features::new().with("words", FixedLenSequenceFeature::new(FeatureType::I64, &[]));
/// let (context, steps) = parse_single_sequence_example(&record, &context, &steps)?;
/// assert_eq!(context.tensor("id")?.item::<i64>()?, 7);
/// assert_eq!(steps.tensor("words")?.to_vec::<i64>()?, [1, 2]);
/// # Ok::<(), gradlet::Error>(())
/// ```
///
/// [`parse_single_example`]: super::parse_single_example
/// [`FixedLenSequenceFeature`]: super::FixedLenSequenceFeature
pub fn parse_single_sequence_example<R: AsRecord>(
    record: &R,
    context: &Features,
    steps: &Features,
) -> Result<(ParsedFeatures, ParsedFeatures)> {
    let (mut of_context, mut of_steps) = (Found::new(), Found::new());
    let read = read_message(record.as_ref(), (context, &mut of_context), (steps, &mut of_steps));
    read.ok_or_else(|| Error::message("Invalid protocol message input, example id: <unknown>"))?;
    let device = crate::compute::devices::cpu();
    // Types are checked before sizes.
    let context = context.0.iter().map(|(name, spec)| {
        let (source, feature) = (Requested { name, spec, record, device: &device }, of_context.get(name.as_str()).copied());
        Ok((source.context_list(feature.unwrap_or_default())?, source, feature.is_some()))
    });
    let context = context.collect::<Result<Vec<_>>>()?;
    let steps = steps.0.iter().map(|(name, spec)| {
        let (source, features) = (Requested { name, spec, record, device: &device }, of_steps.get(name.as_str()).copied());
        Ok((source.step_lists(features.unwrap_or_default())?, source, features.is_some()))
    });
    let steps = steps.collect::<Result<Vec<_>>>()?;
    let context = context.into_iter().map(|(list, source, there)| Ok((source.name.into(), source.context(list, there)?)));
    let context = ParsedFeatures(context.collect::<Result<_>>()?);
    let steps = steps.into_iter().map(|((list, ends), source, there)| Ok((source.name.into(), source.steps(list, &ends, there)?)));
    Ok((context, ParsedFeatures(steps.collect::<Result<_>>()?)))
}

fn read_message<'a>(
    record: &'a [u8],
    (context, of_context): (&'a Features, &mut Found<'a>),
    (steps, of_steps): (&'a Features, &mut Found<'a>),
) -> Option<()> {
    let mut message = Wire::new(record);
    while !message.at_end() {
        if message.expect(delimited(1)) {
            read_map(message.message()?, context, of_context)?;
        } else if message.expect(delimited(2)) {
            read_map(message.message()?, steps, of_steps)?;
        } else {
            message.skip()?;
        }
    }
    Some(())
}

/// Adds the requested features of a map to `found`. If several have the same name, the last one counts. Returns `None` if the map is
/// malformed.
fn read_map<'a>(mut map: Wire<'a>, features: &'a Features, found: &mut Found<'a>) -> Option<()> {
    while !map.at_end() {
        let mut entry = map.expect(delimited(1)).then(|| map.message())??;
        let name = entry.expect(delimited(1)).then(|| entry.string())??;
        let value = entry.expect(delimited(2)).then(|| entry.string())??;
        if !entry.at_end() {
            return None;
        }
        if let Some((name, _)) = std::str::from_utf8(name).ok().and_then(|name| features.0.get_key_value(name)) {
            found.insert(name, value);
        }
    }
    Some(())
}

/// Requested feature, and the record that it is read from.
struct Requested<'a, R> {
    name: &'a str,
    spec: &'a FeatureSpec,
    record: &'a R,
    device: &'a Device,
}

impl<R: AsRecord> Requested<'_, R> {
    /// Appends the values of `feature` to `list`. Returns `None` if the feature is malformed or does not have the requested type.
    fn append(&self, list: &mut List, feature: &mut Wire<'_>) -> Option<()> {
        let key = feature_key(self.spec.feature_type());
        feature.expect(key).then(|| feature.message()).flatten().and_then(|values| list.append(values, self.record))
    }

    fn wrong_type(&self, what: &str) -> Error {
        let wanted = self.spec.feature_type();
        Error::message(format!("Name: <unknown>, {what}.  Data types don't match. Expected type: {wanted}"))
    }

    /// Reads the values of a context feature.
    fn context_list(&self, feature: &[u8]) -> Result<List> {
        let mut list = List::new(self.spec.feature_type(), 0);
        if !feature.is_empty() {
            let read = self.append(&mut list, &mut Wire::new(feature));
            read.ok_or_else(|| self.wrong_type(&format!("Context feature: {}", self.name)))?;
        }
        Ok(list)
    }

    /// Returns the value of a context feature. `there` is true if the record has the feature.
    fn context(&self, mut list: List, there: bool) -> Result<Parsed> {
        match self.spec {
            FeatureSpec::FixedLen(_) => {
                let (row, size) = self.spec.row()?;
                let default = self.spec.default(self.name, size)?;
                if !there {
                    default.iter().for_each(|default| list.extend(default));
                }
                let (name, count) = (self.name, list.len());
                match count {
                    _ if count == size => Ok(list.into_values(self.device, row.dims())?.into()),
                    _ if count < size && default.is_some() => Err(Error::message(format!(
                        "Unexpected number of elements in example <unknown>: feature {name} has {count}, not {size}"
                    ))),
                    _ => Err(Error::message(format!(
                        "Inconsistent max number of elements for feature {name}: expected {size}, but found {count}"
                    ))),
                }
            }
            FeatureSpec::VarLen(_) => {
                let count = list.len();
                Ok(Parsed::Sparse(self.sparse(list, (0..count as i64).collect(), &[count])?))
            }
            FeatureSpec::Ragged(_) => Ok(vector(list, self.device)?.into()),
            FeatureSpec::FixedLenSequence(_) => Err(self.unsupported("FixedLenSequenceFeature among the features of the context")),
        }
    }

    /// Reads the values of a feature list, and the boundaries of its steps.
    fn step_lists(&self, features: &[u8]) -> Result<(List, Vec<usize>)> {
        let (mut list, mut ends) = (List::new(self.spec.feature_type(), 0), vec![0]);
        let mut steps = Wire::new(features);
        while !steps.at_end() {
            self.step(&mut steps, &mut list, ends.len() - 1)?;
            ends.push(list.len());
        }
        Ok((list, ends))
    }

    /// Returns the value of a feature list. `there` is true if the record has it.
    fn steps(&self, list: List, ends: &[usize], there: bool) -> Result<Parsed> {
        let counts = ends.windows(2).map(|ends| ends[1] - ends[0]);
        match self.spec {
            FeatureSpec::VarLen(_) => {
                let longest = counts.clone().max().unwrap_or(0);
                let indices = counts.enumerate().flat_map(|(step, count)| (0..count as i64).flat_map(move |at| [step as i64, at]));
                Ok(Parsed::Sparse(self.sparse(list, indices.collect(), &[ends.len() - 1, longest])?))
            }
            FeatureSpec::Ragged(_) => {
                let splits = ends.iter().map(|&end| end as i64).collect();
                Ok(Parsed::Ragged(RaggedTensor::new(vector(list, self.device)?, vec![splits])?))
            }
            FeatureSpec::FixedLenSequence(feature) => {
                if feature.default.is_some() {
                    let text = format!("Value feature_list.dense_defaults[{}] must be None: steps are not padded", self.name);
                    return Err(Error::message(text));
                }
                if !there && !feature.allow_missing {
                    return Err(self.missing());
                }
                let (row, size) = self.spec.row()?;
                self.check_rows(&row, size, list.len(), counts)?;
                let steps = u32::try_from(ends.len() - 1).map_err(|_| Error::TooLarge)?;
                Ok(list.into_values(self.device, &[&[steps], row.dims()].concat())?.into())
            }
            FeatureSpec::FixedLen(_) => Err(self.unsupported("FixedLenFeature among the features of steps")),
        }
    }

    fn unsupported(&self, kind: &str) -> Error {
        Error::message(format!("feature {:?}: Unsupported {kind}", self.name))
    }

    fn missing(&self) -> Error {
        Error::message(format!(
            "Name: <unknown>, Feature list '{}' is required but could not be found.  Did you mean to include it in \
             feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?  Here that is allow_missing(true)",
            self.name
        ))
    }

    fn check_rows(&self, row: &Shape, size: usize, total: usize, counts: impl Iterator<Item = usize>) -> Result<()> {
        let name = self.name;
        if size > 0 && !total.is_multiple_of(size) {
            let text = format!("Total values size: {total} is not consistent with output shape: {}", open(row));
            return Err(Error::message(format!("Feature list '{name}' has an unexpected number of values.  {text}")));
        }
        let mut rows = counts.enumerate();
        let Some((index, count)) = rows.find(|&(_, count)| count != size) else { return Ok(()) };
        let text = format!("Key: {name}, Index: {index}.  Number of values != expected.  values size: {count} but output shape: {row}");
        Err(Error::message(format!("Name: <unknown>, {text}")))
    }

    /// Reads the next of `steps`, which has the number `index`, and appends its values to `list`.
    fn step(&self, steps: &mut Wire<'_>, list: &mut List, index: usize) -> Result<()> {
        let malformed = || Error::message(format!("Error in sequence feature {} in example <unknown>", self.name));
        let mut feature = steps.expect(delimited(1)).then(|| steps.message()).flatten().ok_or_else(malformed)?;
        if feature.at_end() {
            return Ok(());
        }
        // A feature of two bytes has no room for values, so it must not claim any.
        let overstated = matches!(feature.rest(), &[_, count] if count > 0);
        let read = if overstated { None } else { self.append(list, &mut feature) };
        read.ok_or_else(|| self.wrong_type(&format!("Feature list: {}, Index: {index}", self.name)))?;
        if feature.at_end() { Ok(()) } else { Err(malformed()) }
    }

    fn sparse(&self, list: List, indices: Vec<i64>, dims: &[usize]) -> Result<SparseTensor> {
        let narrow = |count: usize| u32::try_from(count).map_err(|_| Error::TooLarge);
        let dense_shape = Shape::new(&dims.iter().map(|&dim| narrow(dim)).collect::<Result<Vec<_>>>()?)?;
        let indices = Tensor::new(self.device, &indices, &[narrow(list.len())?, dims.len() as u32])?;
        SparseTensor::new(indices, vector(list, self.device)?, dense_shape)
    }
}
