//! Values of points, as short text and as JSON.

use bytes::Bytes;
use gradlet::summary::{Point, PointValue};
use gradlet::tensor::{Strings, Values};
use gradlet::{DType, Tensor};
use serde_json::{Value, json};

/// Maximum length of a text that is shown completely, in characters.
const TEXT: usize = 40;

/// Returns the type and shape of a point's value, such as `f32[]` or `string[4]`.
pub fn describe(point: &Point) -> String {
    match point.tensor() {
        Ok(Values::Numbers(tensor)) => tensor.tensor_type().to_string(),
        Ok(Values::Strings(strings)) => format!("string{}", strings.shape()),
        Err(_) => "-".into(),
    }
}

/// Formats a point's value as short text.
pub fn show(plugin: &str, point: &Point) -> String {
    if let Some(files) = media(plugin, point) {
        let bytes = files.iter().map(|file| file.len() as u64).sum();
        let (what, count) = (if plugin == "images" { "image" } else { "audio clip" }, files.len());
        return format!("{count} {what}{}, {}", if count == 1 { "" } else { "s" }, indicatif::HumanBytes(bytes));
    }
    match (point.tensor(), &point.value) {
        (Ok(Values::Numbers(tensor)), _) if plugin == "histograms" => histogram(&tensor).unwrap_or_default(),
        (Ok(Values::Numbers(tensor)), _) => match numbers(&tensor).as_slice() {
            [number] => number.clone(),
            [] => "nothing".into(),
            [first, .., last] => format!("{first} … {last}"),
        },
        (Ok(Values::Strings(strings)), _) => strings.values().first().map_or("nothing".into(), |bytes| preview(bytes)),
        (Err(_), PointValue::Histogram(histogram)) => format!("{} values, {} to {}", histogram.num, histogram.min, histogram.max),
        (Err(error), _) => error.to_string(),
    }
}

/// Formats a histogram, such as `100 values, -1 to 1`. `rows` has a row of left edge, right edge and count for each bucket.
/// Returns `None` if `rows` is not f64 or has no rows.
fn histogram(rows: &Tensor) -> Option<String> {
    let numbers = rows.to_vec::<f64>().ok()?;
    let rows = numbers.as_chunks::<3>().0;
    let count: f64 = rows.iter().map(|row| row[2]).sum();
    let (first, last) = (rows.first()?, rows.last()?);
    Some(format!("{count} values, {} to {}", first[0], last[1]))
}

fn preview(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.chars().count() <= TEXT => format!("{text:?}"),
        Ok(text) => format!("{:?} …", text.chars().take(TEXT).collect::<String>()),
        Err(_) => format!("{} bytes", bytes.len()),
    }
}

/// Formats the elements of a tensor, each with the fewest digits that identify it.
fn numbers(tensor: &Tensor) -> Vec<String> {
    fn texts<T: gradlet::tensor::Element + ToString>(tensor: &Tensor) -> Option<Vec<String>> {
        Some(tensor.to_vec::<T>().ok()?.iter().map(T::to_string).collect())
    }
    let texts = match tensor.dtype() {
        DType::F32 => texts::<f32>(tensor),
        DType::I64 => texts::<i64>(tensor),
        _ => tensor.cast(DType::F64).ok().and_then(|tensor| texts::<f64>(&tensor)),
    };
    texts.unwrap_or_default()
}

/// Formats the value of a point that is a single number. Returns `None` for any other point.
pub fn number(point: &Point) -> Option<String> {
    point.number()?;
    numbers(point.tensor().ok()?.numbers().ok()?).pop()
}

/// Converts a number to JSON. NaN and infinities become strings.
fn json_number(text: &str) -> Value {
    match text {
        "NaN" => "NaN".into(),
        "inf" => "Infinity".into(),
        "-inf" => "-Infinity".into(),
        text => serde_json::from_str(text).unwrap_or(Value::Null),
    }
}

/// Converts a point's value to JSON. Images and audio are represented by their sizes in bytes.
pub fn json(plugin: &str, point: &Point) -> Value {
    if let Some(files) = media(plugin, point) {
        return json!({ "bytes": files.iter().map(Bytes::len).collect::<Vec<_>>() });
    }
    match (point.tensor(), &point.value) {
        (Ok(Values::Numbers(tensor)), _) => {
            let data: Vec<Value> = numbers(&tensor).iter().map(|text| json_number(text)).collect();
            match data.as_slice() {
                [number] if tensor.dims().is_empty() => number.clone(),
                _ => json!({ "dtype": tensor.dtype().name(), "shape": tensor.dims(), "data": data }),
            }
        }
        (Ok(Values::Strings(strings)), _) => json_strings(&strings),
        (Err(_), PointValue::Histogram(histogram)) => {
            json!({ "min": histogram.min, "max": histogram.max, "num": histogram.num, "sum": histogram.sum,
                "sum_squares": histogram.sum_squares, "bucket_limit": histogram.bucket_limit, "bucket": histogram.bucket })
        }
        (Err(error), _) => json!({ "error": error.to_string() }),
    }
}

fn json_strings(strings: &Strings) -> Value {
    let text = |bytes: &Bytes| match std::str::from_utf8(bytes) {
        Ok(text) => json!(text),
        Err(_) => json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() }),
    };
    let data: Vec<Value> = strings.values().iter().map(text).collect();
    match data.as_slice() {
        [text] if strings.dims().is_empty() => text.clone(),
        _ => json!({ "dtype": "string", "shape": strings.dims(), "data": data }),
    }
}

/// Returns the image or audio files of a point, or `None` if its value is of another kind.
pub fn media(plugin: &str, point: &Point) -> Option<Vec<Bytes>> {
    match (&point.value, plugin) {
        (PointValue::Image(image), _) => Some(vec![image.encoded_image_string.clone()]),
        (PointValue::Audio(audio), _) => Some(vec![audio.encoded_audio_string.clone()]),
        // The first two strings are the width and height.
        (PointValue::Tensor(_), "images") => Some(point.tensor().ok()?.strings().ok()?.values().iter().skip(2).cloned().collect()),
        // Each file is followed by a label.
        (PointValue::Tensor(_), "audio") => Some(point.tensor().ok()?.strings().ok()?.values().iter().step_by(2).cloned().collect()),
        _ => None,
    }
}
