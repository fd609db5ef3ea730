//! The features of Examples in records, as a table.

use gradlet::io::example::{Example, Feature, FeatureType};
use indicatif::HumanCount;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of different values that are shown for a feature. Also the maximum number of elements that are shown of a list.
const SHOWN: usize = 3;
/// Maximum length of a text that is shown completely, in bytes.
const TEXT: usize = 32;

/// Features of all records that are Examples.
#[derive(Default)]
pub struct Table {
    examples: u64,
    features: BTreeMap<String, Column>,
}

#[derive(Default)]
struct Column {
    records: u64,
    kinds: BTreeSet<&'static str>,
    /// Lowest and highest count of values that the feature has in a record.
    values: Option<(usize, usize)>,
    shown: Vec<String>,
}

/// Decodes a record as an Example. Returns `None` if the record is not an Example, or if it has no features.
fn example(record: &[u8]) -> Option<Example> {
    let example = Example::from_bytes(record.to_vec()).ok()?;
    example.features.as_ref().is_some_and(|features| !features.feature.is_empty()).then_some(example)
}

impl Table {
    pub fn add(&mut self, record: &[u8]) {
        let Some(example) = example(record) else { return };
        self.examples += 1;
        for (name, feature) in example.features.into_iter().flat_map(|features| features.feature) {
            self.features.entry(name).or_default().add(&feature);
        }
    }

    /// Formats the table, with a line for each feature.
    pub fn text(&self) -> String {
        if self.examples == 0 {
            return "no record is an Example\n".into();
        }
        let mut rows = vec![["feature", "kind", "records", "values", "for example"].map(String::from)];
        for (name, column) in &self.features {
            rows.push([name.clone(), column.kind(), HumanCount(column.records).to_string(), column.range(), column.shown.join("  ")]);
        }
        let width = |index: usize| rows.iter().map(|row| row[index].chars().count()).max().unwrap_or(0);
        let widths = [0, 1, 2, 3].map(width);
        let mut text = format!("{} of the records are Examples\n", HumanCount(self.examples));
        for [name, kind, records, values, shown] in &rows {
            let [a, b, c, d] = widths;
            let line = format!("  {name:a$}  {kind:b$}  {records:>c$}  {values:>d$}  {shown}");
            text += line.trim_end();
            text.push('\n');
        }
        text
    }

    pub fn json(&self) -> Value {
        let features = self.features.iter().map(|(name, column)| {
            let (fewest, most) = column.values.unwrap_or_default();
            let kinds: Vec<_> = column.kinds.iter().collect();
            json!({ "name": name, "kinds": kinds, "records": column.records, "values": [fewest, most], "examples": column.shown })
        });
        json!({ "examples": self.examples, "features": features.collect::<Vec<_>>() })
    }
}

impl Column {
    fn add(&mut self, feature: &Feature) {
        self.records += 1;
        let (kind, count) = feature.list().map_or(("none", 0), |(kind, count)| (name(kind), count));
        self.kinds.insert(kind);
        let (fewest, most) = self.values.unwrap_or((count, count));
        self.values = Some((fewest.min(count), most.max(count)));
        if self.shown.len() < SHOWN {
            let text = show(feature);
            if !self.shown.contains(&text) {
                self.shown.push(text);
            }
        }
    }

    fn kind(&self) -> String {
        self.kinds.iter().copied().collect::<Vec<_>>().join(", ")
    }

    fn range(&self) -> String {
        match self.values {
            Some((fewest, most)) if fewest < most => format!("{fewest} to {most}"),
            Some((count, _)) => count.to_string(),
            None => String::new(),
        }
    }
}

fn name(kind: FeatureType) -> &'static str {
    match kind {
        FeatureType::Strings => "bytes",
        FeatureType::F32 => "float",
        FeatureType::I64 => "int64",
    }
}

/// Formats the values of a feature, or the first of them.
fn show(feature: &Feature) -> String {
    let texts: Vec<String> = if let Some(strings) = feature.strings() {
        strings.iter().take(SHOWN).map(|bytes| preview(bytes)).collect()
    } else if let Some(floats) = feature.f32s() {
        floats.iter().take(SHOWN).map(f32::to_string).collect()
    } else {
        feature.i64s().unwrap_or_default().iter().take(SHOWN).map(i64::to_string).collect()
    };
    let count = feature.list().map_or(0, |(_, count)| count);
    match (count, texts.as_slice()) {
        (1, [text]) => text.clone(),
        (count, texts) if count > texts.len() => format!("[{}, …]", texts.join(", ")),
        (_, texts) => format!("[{}]", texts.join(", ")),
    }
}

/// Formats short text in quotes. Other bytes are represented by their count, such as `784 bytes`.
fn preview(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= TEXT && !text.chars().any(char::is_control) => format!("{text:?}"),
        _ => format!("{} bytes", bytes.len()),
    }
}

/// Formats a record on one line: the features of an Example, text, or the first bytes.
pub fn line(record: &[u8]) -> String {
    if let Some(example) = example(record) {
        let features = example.features.into_iter().flat_map(|features| features.feature);
        return features.map(|(name, feature)| format!("{name}: {}", show(&feature))).collect::<Vec<_>>().join(", ");
    }
    match preview(record) {
        text if text.starts_with('"') => text,
        _ => {
            let hex: Vec<String> = record.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            hex.join(" ") + if record.len() > 16 { " …" } else { "" }
        }
    }
}
