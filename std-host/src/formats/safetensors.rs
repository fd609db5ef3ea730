//! Safetensors files: the length of the header, the header as JSON, and the bytes of the tensors.

use gradlet_core::DType;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum length of a header, in bytes. The format's own library has the same limit.
const MAX_HEADER: u64 = 1 << 24;
const METADATA: &str = "__metadata__";

/// Names of the element types in a header.
const NAMES: [(&str, DType); 10] = [
    ("F32", DType::F32),
    ("F64", DType::F64),
    ("F16", DType::F16),
    ("BF16", DType::Bf16),
    ("I8", DType::I8),
    ("U8", DType::U8),
    ("I16", DType::I16),
    ("I32", DType::I32),
    ("I64", DType::I64),
    ("BOOL", DType::Bool),
];

/// Parsed file.
pub(super) struct SafeTensors<'a> {
    /// Tensors by name.
    pub tensors: BTreeMap<String, Stored<'a>>,
    /// Texts by key.
    pub metadata: BTreeMap<String, String>,
}

/// Tensor of a file.
pub(super) struct Stored<'a> {
    /// Element type, as the header names it.
    pub kind: String,
    /// The same as gradlet's, if it has this one.
    pub dtype: Option<DType>,
    pub dims: Vec<u64>,
    /// Elements in row-major order, little-endian.
    pub bytes: &'a [u8],
}

/// Tensor to write: name, element type, dimensions and bytes.
pub(super) type Item<'a> = (&'a str, DType, &'a [u32], &'a [u8]);

/// Parses a file. The tensors must cover the bytes after the header without gaps or overlaps.
///
/// The error names the violated rule of the format.
pub(super) fn parse(file: &[u8]) -> Result<SafeTensors<'_>, String> {
    let (length, rest) = file.split_first_chunk().ok_or("it is shorter than the length of a header")?;
    let length = u64::from_le_bytes(*length);
    if length > MAX_HEADER {
        return Err(format!("its header claims {length} bytes, which is more than {MAX_HEADER}"));
    }
    let (header, data) = rest.split_at_checked(length as usize).ok_or(format!("its header of {length} bytes is cut short"))?;
    let header: Map<String, Value> = serde_json::from_slice(header).map_err(|error| format!("its header is not a JSON object: {error}"))?;
    let mut metadata = BTreeMap::new();
    let mut ranges = Vec::new();
    let mut tensors = BTreeMap::new();
    for (name, value) in header {
        if name == METADATA {
            metadata = serde_json::from_value(value).map_err(|_| format!("{METADATA} has values that are not texts"))?;
            continue;
        }
        let (stored, range) = tensor(&value, data).map_err(|problem| format!("tensor {name:?} {problem}"))?;
        ranges.push(range);
        tensors.insert(name, stored);
    }
    ranges.sort_unstable();
    let end = ranges.iter().try_fold(0, |end, &[from, to]| (from == end).then_some(to));
    match end == Some(data.len() as u64) {
        true => Ok(SafeTensors { tensors, metadata }),
        false => Err(format!("its tensors do not cover the {} bytes after the header exactly once", data.len())),
    }
}

fn tensor<'a>(value: &Value, data: &'a [u8]) -> Result<(Stored<'a>, [u64; 2]), String> {
    let numbers = |key: &str| value[key].as_array().and_then(|numbers| numbers.iter().map(Value::as_u64).collect::<Option<Vec<u64>>>());
    let kind = value["dtype"].as_str().ok_or("has no dtype")?;
    let dtype = NAMES.iter().find(|(name, _)| *name == kind).map(|(_, dtype)| *dtype);
    let dims = numbers("shape").ok_or("has no shape")?;
    let Some(&[from, to]) = numbers("data_offsets").as_deref() else {
        return Err("has no data_offsets".into());
    };
    let range = usize::try_from(from).ok().zip(usize::try_from(to).ok());
    let bytes = range.and_then(|(from, to)| data.get(from..to));
    let bytes = bytes.ok_or_else(|| format!("ends at byte {to} of {}: the file is cut short or damaged", data.len()))?;
    if let Some(dtype) = dtype {
        let elements = dims.iter().try_fold(1u64, |product, &dim| product.checked_mul(dim));
        if elements.and_then(|elements| elements.checked_mul(dtype.size() as u64)) != Some(bytes.len() as u64) {
            return Err(format!("is {kind}{dims:?}, but has {} bytes", bytes.len()));
        }
    }
    Ok((Stored { kind: kind.into(), dtype, dims, bytes }, [from, to]))
}

/// Returns the bytes of a file. Larger element types come first, so that all tensors are aligned.
pub(super) fn serialize(mut items: Vec<Item<'_>>, metadata: &[(&str, &str)]) -> Vec<u8> {
    items.sort_by_key(|&(name, dtype, ..)| (std::cmp::Reverse(dtype.size()), name));
    let quoted = |text: &str| Value::from(text).to_string();
    let texts: Vec<String> = metadata.iter().map(|(key, text)| format!("{}:{}", quoted(key), quoted(text))).collect();
    let mut header = format!("{{{}:{{{}}}", quoted(METADATA), texts.join(","));
    let mut at = 0;
    for (name, dtype, dims, bytes) in &items {
        let kind = NAMES.iter().find(|(_, other)| other == dtype).map_or("", |(name, _)| name);
        let end = at + bytes.len();
        header += &format!(",{}:{{\"dtype\":\"{kind}\",\"shape\":{},\"data_offsets\":[{at},{end}]}}", quoted(name), Value::from(*dims));
        at = end;
    }
    header.push('}');
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    let mut file = Vec::with_capacity(8 + header.len() + at);
    file.extend((header.len() as u64).to_le_bytes());
    file.extend(header.as_bytes());
    items.iter().for_each(|(.., bytes)| file.extend_from_slice(bytes));
    file
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::tensor::{Dtype, SafeTensors as Theirs, TensorView};
    use std::collections::HashMap;

    const ITEMS: [Item<'static>; 4] = [
        ("b", DType::U8, &[3], &[1, 2, 3]),
        ("a/\"kernel\"", DType::F32, &[1, 2], &[0, 0, 128, 63, 0, 0, 0, 64]),
        ("c", DType::Bf16, &[], &[128, 63]),
        ("empty", DType::I64, &[0, 7], &[]),
    ];

    #[test]
    fn the_format_s_own_library_reads_the_same() {
        let file = serialize(ITEMS.to_vec(), &[("model", "mlp \"1\"")]);
        let theirs = Theirs::deserialize(&file).unwrap();
        assert_eq!(theirs.len(), ITEMS.len());
        for (name, dtype, dims, bytes) in ITEMS {
            let view = theirs.tensor(name).unwrap();
            let wanted: Vec<usize> = dims.iter().map(|&dim| dim as usize).collect();
            assert_eq!((view.data(), view.shape()), (bytes, &wanted[..]));
            assert_eq!(format!("{:?}", view.dtype()).to_lowercase(), format!("{dtype:?}").to_lowercase());
        }
        let (_, header) = Theirs::read_metadata(&file).unwrap();
        assert_eq!(header.metadata().as_ref().unwrap()["model"], "mlp \"1\"");
        let own = parse(&file).unwrap();
        assert_eq!(own.tensors["c"].bytes, [128, 63]);
        assert_eq!(own.metadata["model"], "mlp \"1\"");
    }

    #[test]
    fn files_of_the_format_s_own_library_are_read() {
        let bytes = [[0u8; 4], [1; 4]].concat();
        let file = |dtype, shape| {
            let view = TensorView::new(dtype, shape, &bytes).unwrap();
            safetensors::serialize([("x", view)], Some(HashMap::from([("k".to_string(), "v".to_string())]))).unwrap()
        };
        let known = file(Dtype::F32, vec![2]);
        let own = parse(&known).unwrap();
        assert_eq!(
            (own.tensors["x"].dtype.unwrap(), &own.tensors["x"].dims[..], own.tensors["x"].bytes),
            (DType::F32, &[2][..], &bytes[..])
        );
        assert_eq!(own.metadata["k"], "v");
        let foreign = file(Dtype::U16, vec![2, 2]);
        let own = parse(&foreign).unwrap();
        assert_eq!((own.tensors["x"].dtype, &own.tensors["x"].kind[..]), (None, "U16"));
    }

    /// Damages a file bit by bit, and truncates it at each byte. A file that the format's own library rejects must be rejected here too.
    #[test]
    fn damaged_files_are_refused() {
        let file = serialize(ITEMS.to_vec(), &[]);
        for length in 0..file.len() {
            assert!(parse(&file[..length]).is_err(), "cut to {length}");
        }
        for at in 0..file.len() {
            for bit in 0..8 {
                let mut damaged = file.clone();
                damaged[at] ^= 1 << bit;
                let known = |own: SafeTensors<'_>| own.tensors.values().all(|stored| stored.dtype.is_some());
                if Theirs::deserialize(&damaged).is_err() && parse(&damaged).is_ok_and(known) {
                    let header = String::from_utf8_lossy(&damaged[8..]);
                    panic!("bit {bit} of byte {at}: {header}");
                }
            }
        }
        let problem = |header: &str, data: &[u8]| {
            let file = [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat();
            parse(&file).err().unwrap_or_default()
        };
        let text = problem(r#"{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}}"#, &[0; 4]);
        assert_eq!(text, r#"tensor "x" is F32[2], but has 4 bytes"#);
        let text = problem(r#"{"x":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}"#, &[0; 4]);
        assert_eq!(text, "its tensors do not cover the 4 bytes after the header exactly once");
        let text = problem(r#"{"x":{"dtype":"F32","shape":[18446744073709551615,2],"data_offsets":[0,4]}}"#, &[0; 4]);
        assert!(text.contains("but has 4 bytes"), "{text}");
        let text = problem(r#"{"x":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}}"#, &[0; 4]);
        assert_eq!(text, r#"tensor "x" ends at byte 9 of 4: the file is cut short or damaged"#);
        assert!(parse(&u64::MAX.to_le_bytes()).err().unwrap().contains("more than 16777216"));
    }
}
