//! Parser of serialized Examples that does not create the message.

use super::lists::List;
use super::parsed::{Parsed, ParsedFeatures};
use super::spec::{FeatureSpec, FeatureType, Features};
use super::wire::{Wire, delimited};
use super::{AsRecord, could_not_parse};
use crate::formats::proto::feature::Kind;
use crate::values::Values;
use crate::values::ragged::RaggedTensor;
use crate::values::sparse::SparseTensor;
use gradlet_core::{Device, Error, Result, Shape, Tensor};

/// Parses a batch of serialized Examples. The result has a value for each of `features`, with the batch as its first dimension.
///
/// Records of type [`Bytes`](bytes::Bytes) are not copied: strings share their memory. The rules are those of TensorFlow's
/// `tf.io.parse_example`. If several features have the same name, the last one counts. If a feature has several lists, the first one
/// counts.
///
/// Fails if a record is not an Example, if a feature has a list of another type or size than requested, or if a feature without a default
/// is missing.
///
/// ```
/// use gradlet::io::example::{Example, FeatureType, Features, FixedLenFeature, VarLenFeature, parse_example};
/// let records = [3, 4].map(|label| Example::new().with("label", label).with("words", ["a", "b"]).to_bytes());
/// let features = Features::new()
///     .with("label", FixedLenFeature::new(FeatureType::I64, &[]))
///     .with("words", VarLenFeature::new(FeatureType::Strings));
/// let batch = parse_example(&records, &features)?;
/// assert_eq!(batch.tensor("label")?.to_vec::<i64>()?, [3, 4]);
/// assert_eq!(batch.sparse("words")?.dense_shape().dims(), [2, 2]);
/// # Ok::<(), gradlet::Error>(())
/// ```
#[doc(alias = "tf.io.parse_example")]
pub fn parse_example<R: AsRecord>(records: &[R], features: &Features) -> Result<ParsedFeatures> {
    parse(records, features, Mode::Batch)
}

/// Parses one serialized Example, like [`parse_example`], but without a batch dimension.
///
/// Sparse tensors have rank 1. A ragged feature becomes a dense tensor of rank 1.
pub fn parse_single_example<R: AsRecord>(record: &R, features: &Features) -> Result<ParsedFeatures> {
    parse(std::slice::from_ref(record), features, Mode::Single)
}

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Single,
    Batch,
}

fn parse<R: AsRecord>(records: &[R], features: &Features, mode: Mode) -> Result<ParsedFeatures> {
    let mut columns = features.0.iter().map(|(name, spec)| Column::new(name, spec, records.len(), mode)).collect::<Result<Vec<_>>>()?;
    fetch(records);
    let mut entries = Vec::new();
    for (index, record) in records.iter().enumerate() {
        entries.clear();
        read_example(record.as_ref(), &mut entries).ok_or_else(|| could_not_parse(record.as_ref()))?;
        // If several features have the same name, the last one counts.
        for &(name, feature) in entries.iter().rev() {
            if let Ok(at) = columns.binary_search_by(|column| column.name.as_bytes().cmp(name)) {
                columns[at].feature(index, feature, record)?;
            }
        }
        columns.iter_mut().try_for_each(Column::end)?;
    }
    let device = crate::compute::devices::cpu();
    let named = columns.into_iter().map(|column| Ok((column.name.to_string(), column.finish(&device)?)));
    Ok(ParsedFeatures(named.collect::<Result<_>>()?))
}

/// Reads a byte at both ends of every record, so that the cache misses of shuffled records overlap instead of following each other.
fn fetch<R: AsRecord>(records: &[R]) {
    let ends = |record: &R| Some(record.as_ref().first()? ^ record.as_ref().last()?);
    std::hint::black_box(records.iter().filter_map(ends).fold(0, u8::wrapping_add));
}

/// Appends the names and features of an Example to `entries`. Returns `None` if the record is malformed.
fn read_example<'a>(record: &'a [u8], entries: &mut Vec<(&'a [u8], Wire<'a>)>) -> Option<()> {
    let mut example = Wire::new(record);
    while !example.at_end() {
        if example.expect(delimited(1)) {
            read_features(example.message()?, entries)?;
        } else {
            example.skip()?;
        }
    }
    Some(())
}

fn read_features<'a>(mut features: Wire<'a>, entries: &mut Vec<(&'a [u8], Wire<'a>)>) -> Option<()> {
    while !features.at_end() {
        let mut entry = features.expect(delimited(1)).then(|| features.message())??;
        let (mut name, mut feature) = (&[][..], Wire::new(&[]));
        for _ in 0..2 {
            if entry.expect(delimited(1)) {
                name = entry.string()?;
            } else if entry.expect(delimited(2)) {
                feature = Wire::new(entry.string()?);
            } else {
                return None;
            }
        }
        entry.at_end().then(|| entries.push((name, feature)))?;
    }
    Some(())
}

/// Values of one feature, collected from all Examples of a batch.
struct Column<'a> {
    name: &'a str,
    spec: &'a FeatureSpec,
    mode: Mode,
    batch: usize,
    /// Shape of a row. `row_size` is its number of elements.
    row: Shape,
    row_size: usize,
    default: Option<&'a Kind>,
    list: List,
    /// End of each Example's values in `list`.
    ends: Vec<usize>,
    seen: bool,
}

impl<'a> Column<'a> {
    fn new(name: &'a str, spec: &'a FeatureSpec, batch: usize, mode: Mode) -> Result<Column<'a>> {
        let (row, row_size) = spec.row()?;
        let fixed = matches!(spec, FeatureSpec::FixedLen(_));
        if matches!(spec, FeatureSpec::FixedLenSequence(feature) if !feature.allow_missing) {
            return Err(Error::message(format!(
                "feature {name:?}: Unsupported: FixedLenSequenceFeature requires allow_missing to be True."
            )));
        }
        let default = spec.default(name, if fixed { row_size } else { 1 })?;
        // Absent features need memory for their default values. Features that a record merely claims need none.
        let list = List::new(spec.feature_type(), if fixed { batch.saturating_mul(row_size).min(1 << 20) } else { batch });
        Ok(Column { name, spec, mode, batch, row, row_size, default, list, ends: Vec::new(), seen: false })
    }

    fn is_fixed(&self) -> bool {
        matches!(self.spec, FeatureSpec::FixedLen(_))
    }

    fn wrong(&self, index: usize, text: String) -> Error {
        Error::message(match self.mode {
            Mode::Single => format!("Key: {}.  {text}", self.name),
            Mode::Batch => format!("Name: <unknown>, Key: {}, Index: {index}.  {text}", self.name),
        })
    }

    /// Reads a feature of the Example at `index`, unless a later feature with the same name was read.
    #[inline]
    fn feature(&mut self, index: usize, mut feature: Wire<'_>, record: &impl AsRecord) -> Result<()> {
        let found = match feature.peek() {
            None => None,
            Some(key) => Some(feature_type(key).ok_or_else(|| self.wrong(index, "Unsupported datatype.".into()))?),
        };
        let Some(found) = found else {
            // A feature without a list hides an earlier one only in a batch, and only if it is sparse or ragged.
            self.seen |= self.mode == Mode::Batch && matches!(self.spec, FeatureSpec::VarLen(_) | FeatureSpec::Ragged(_));
            return Ok(());
        };
        if std::mem::replace(&mut self.seen, true) {
            return Ok(());
        }
        let wanted = self.list.feature_type();
        if found != wanted {
            return Err(self.wrong(index, format!("Data types don't match. {}", self.types(found, wanted))));
        }
        feature.expect(feature_key(wanted));
        let begin = self.list.len();
        let read = feature.message().and_then(|list| self.list.append(list, record));
        read.ok_or_else(|| match wanted {
            FeatureType::Strings if !self.is_fixed() => self.unparsed(index, "Could not get num elements in bytes_list"),
            _ => self.unparsed(index, &format!("Parsing {} failed", list_name(wanted))),
        })?;
        self.check(index, self.list.len() - begin)
    }

    fn types(&self, found: FeatureType, wanted: FeatureType) -> String {
        match self.spec {
            FeatureSpec::FixedLen(_) | FeatureSpec::FixedLenSequence(_) => format!("Data type: {found} but expected type: {wanted}"),
            FeatureSpec::VarLen(_) | FeatureSpec::Ragged(_) => format!("Expected type: {wanted}, Actual type: {found}"),
        }
    }

    fn unparsed(&self, index: usize, detail: &str) -> Error {
        let detail = if self.mode == Mode::Single { format!(": {detail}") } else { String::new() };
        self.wrong(index, format!("Can't parse serialized Example{detail}."))
    }

    /// Checks that the feature of an Example may have `count` values.
    #[inline]
    fn check(&self, index: usize, count: usize) -> Result<()> {
        let (row_size, row, strings) = (self.row_size, self.row, self.list.feature_type() == FeatureType::Strings);
        let right = match self.spec {
            FeatureSpec::FixedLen(_) => count == row_size,
            FeatureSpec::FixedLenSequence(_) => row_size == 0 || count.is_multiple_of(row_size),
            FeatureSpec::VarLen(_) | FeatureSpec::Ragged(_) => true,
        };
        if right {
            return Ok(());
        }
        let named = if strings { "bytes".into() } else { self.list.feature_type().to_string() };
        Err(match (self.spec, self.mode) {
            (FeatureSpec::FixedLen(_), _) if strings && count > row_size => self.unparsed(index, "Parsing bytes_list failed"),
            (FeatureSpec::FixedLen(_), Mode::Single) => {
                self.unparsed(index, &format!("Some {} slice was not parsed", list_name(self.list.feature_type())))
            }
            (FeatureSpec::FixedLen(_), Mode::Batch) => {
                self.wrong(index, format!("Number of {named} values != expected.  Values size: {count} but output shape: {row}"))
            }
            (_, Mode::Single) => Error::message(format!(
                "Error while parsing feature with key {}: number of elements should be divisible by {row_size}, found {count} instead",
                self.name
            )),
            (_, Mode::Batch) => {
                let text = format!("Number of {named} values is not a multiple of stride length. Saw {count} values but output shape is: ");
                self.wrong(index, text + &open(&row))
            }
        })
    }

    /// Ends an Example, after all of its features were read.
    #[inline]
    fn end(&mut self) -> Result<()> {
        let seen = std::mem::take(&mut self.seen);
        if !self.is_fixed() {
            self.ends.push(self.list.len());
        } else if !seen {
            match self.default.filter(|_| self.row_size > 0) {
                Some(default) => self.list.extend(default),
                None => return Err(self.missing()),
            }
        }
        Ok(())
    }

    fn missing(&self) -> Error {
        let prefix = if self.mode == Mode::Batch { "Name: <unknown>, " } else { "" };
        let feature_type = self.list.feature_type();
        Error::message(format!("{prefix}Feature: {} (data type: {feature_type}) is required but could not be found.", self.name))
    }

    fn finish(self, device: &Device) -> Result<Parsed> {
        match self.spec {
            FeatureSpec::FixedLen(_) => {
                let dims = self.dims(&[])?;
                Ok(self.list.into_values(device, &dims)?.into())
            }
            FeatureSpec::VarLen(_) => self.sparse(device).map(Parsed::Sparse),
            FeatureSpec::FixedLenSequence(_) => self.padded(device),
            FeatureSpec::Ragged(_) if self.mode == Mode::Single => Ok(vector(self.list, device)?.into()),
            FeatureSpec::Ragged(_) => {
                let splits = [0].into_iter().chain(self.ends.iter().map(|&end| end as i64)).collect();
                Ok(Parsed::Ragged(RaggedTensor::new(vector(self.list, device)?, vec![splits])?))
            }
        }
    }

    /// Returns the dimensions of the result: the batch, if there is one, then `more`, then those of a row.
    fn dims(&self, more: &[usize]) -> Result<Vec<u32>> {
        let batch = if self.mode == Mode::Batch { &[self.batch][..] } else { &[] };
        let outer = batch.iter().chain(more).map(|&dim| u32::try_from(dim).map_err(|_| Error::TooLarge));
        outer.chain(self.row.dims().iter().map(|&dim| Ok(dim))).collect()
    }

    /// Returns the number of values of each Example.
    fn counts(&self) -> impl Iterator<Item = usize> {
        self.ends.iter().scan(0, |begin, &end| Some(end - std::mem::replace(begin, end)))
    }

    fn padded(self, device: &Device) -> Result<Parsed> {
        let longest = self.counts().max().unwrap_or(0);
        let dims = self.dims(&[longest.checked_div(self.row_size).unwrap_or(0)])?;
        Shape::new(&dims)?.elements().ok_or(Error::TooLarge)?;
        let list = self.list.padded(&self.ends, longest, self.default);
        Ok(list.into_values(device, &dims)?.into())
    }

    fn sparse(self, device: &Device) -> Result<SparseTensor> {
        let longest = self.counts().max().unwrap_or(0);
        let dense_shape = Shape::new(&self.dims(&[longest])?)?;
        let mut indices = Vec::<i64>::with_capacity(self.list.len() * dense_shape.rank());
        for (example, count) in self.counts().enumerate() {
            let before = [example as i64];
            let before = if self.mode == Mode::Batch { &before[..] } else { &[] };
            (0..count as i64).for_each(|at| indices.extend(before.iter().chain(&[at])));
        }
        let count = u32::try_from(self.list.len()).map_err(|_| Error::TooLarge)?;
        let indices = Tensor::new(device, &indices, &[count, dense_shape.rank() as u32])?;
        SparseTensor::new(indices, vector(self.list, device)?, dense_shape)
    }
}

/// Returns the values as a vector.
pub(super) fn vector(list: List, device: &Device) -> Result<Values> {
    let count = u32::try_from(list.len()).map_err(|_| Error::TooLarge)?;
    list.into_values(device, &[count])
}

/// Formats the shape of an unknown number of rows of the shape `row` like TensorFlow, such as `[?,3]`.
pub(super) fn open(row: &Shape) -> String {
    let dims: String = row.dims().iter().map(|dim| format!(",{dim}")).collect();
    format!("[?{dims}]")
}

/// Returns the key of the Protobuf field that contains the list of a feature of this type.
pub(super) fn feature_key(feature_type: FeatureType) -> u8 {
    delimited(match feature_type {
        FeatureType::Strings => 1,
        FeatureType::F32 => 2,
        FeatureType::I64 => 3,
    })
}

fn feature_type(key: u8) -> Option<FeatureType> {
    [FeatureType::Strings, FeatureType::F32, FeatureType::I64].into_iter().find(|&feature_type| feature_key(feature_type) == key)
}

fn list_name(feature_type: FeatureType) -> &'static str {
    match feature_type {
        FeatureType::Strings => "bytes_list",
        FeatureType::F32 => "float_list",
        FeatureType::I64 => "int64_list",
    }
}
