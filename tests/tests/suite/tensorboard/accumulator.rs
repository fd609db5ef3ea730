//! Compares the data that TensorBoard's EventAccumulator reads from gradlet's files and from TensorFlow's.

use crate::tensorboard::python;
use gradlet::io::proto::summary_metadata::PluginData;
use gradlet::io::proto::{GraphDef, SummaryMetadata};
use gradlet::summary::{self, HParam, Run, SummaryWriter};
use gradlet::tensor::{Strings, Values};
use gradlet::{DType, Tensor, io};
use gradlet_tests::random::Random;
use prost::Message;
use serde_json::{Value, json};
use std::path::Path;

const SCRIPT: &str = include_str!("accumulator.py");

/// A summary to write.
struct Item {
    tag: String,
    what: What,
    /// Step of the summary, or `None` for the writer's step.
    step: Option<i64>,
    default_step: i64,
    scope: &'static str,
    description: &'static str,
}

enum What {
    /// A scalar tensor.
    Scalar(Tensor),
    Histogram(Tensor, u32),
    Image(Tensor, u32),
    Text(Strings),
    Audio(Tensor, u32, u32),
    /// A tensor, with the name and the content of its plugin.
    Raw(Values, &'static str, &'static [u8]),
    HParams(&'static [(&'static str, Param)]),
    Graph(GraphDef),
}

#[derive(Clone, Copy)]
enum Param {
    Number(f64),
    Text(&'static str),
    Bool(bool),
}

impl Item {
    fn new(tag: &str, what: What, step: i64) -> Item {
        Item { tag: tag.into(), what, step: Some(step), default_step: 0, scope: "", description: "" }
    }

    /// Writes the summary with gradlet.
    fn write(&self, writer: &SummaryWriter) {
        writer.set_step(self.default_step);
        let writer = if self.scope.is_empty() { writer.clone() } else { writer.name_scope(self.scope) };
        let writer = writer.described(self.description);
        let (tag, step) = (self.tag.as_str(), self.step);
        match &self.what {
            What::Scalar(value) => writer.scalar(tag, value, step),
            What::Histogram(values, buckets) => writer.histogram_with(tag, values, step, *buckets),
            What::Image(images, most) => writer.image_with(tag, images, step, *most),
            What::Text(text) => writer.text(tag, text.clone(), step),
            What::Audio(sounds, rate, most) => writer.audio_with(tag, sounds, *rate, step, *most),
            What::Raw(values, plugin, content) => {
                let plugin_data = Some(PluginData { plugin_name: plugin.to_string(), content: content.to_vec().into() });
                let tensor = match values {
                    Values::Numbers(tensor) => io::to_proto(tensor).unwrap(),
                    Values::Strings(strings) => io::strings_to_proto(strings),
                };
                writer.write(tag, tensor, Some(SummaryMetadata { plugin_data, ..SummaryMetadata::default() }), step)
            }
            What::HParams(params) => {
                let value = |param: &Param| match *param {
                    Param::Number(number) => HParam::Number(number),
                    Param::Text(text) => HParam::Text(text.into()),
                    Param::Bool(choice) => HParam::Bool(choice),
                };
                writer.hparams(params.iter().map(|(name, param)| (*name, value(param))), Some("a trial"))
            }
            What::Graph(graph) => writer.graph(graph),
        }
        .unwrap();
    }

    /// Returns the summary as JSON for the TensorFlow script.
    fn json(&self) -> Value {
        let mut json = match &self.what {
            What::Scalar(value) => json!({ "kind": "scalar", "value": array(value) }),
            What::Histogram(values, buckets) => json!({ "kind": "histogram", "value": array(values), "buckets": buckets }),
            What::Image(images, most) => json!({ "kind": "image", "value": array(images), "most": most }),
            What::Text(text) => json!({ "kind": "text", "value": strings(text) }),
            What::Audio(sounds, rate, most) => json!({ "kind": "audio", "value": array(sounds), "rate": rate, "most": most }),
            What::Raw(Values::Numbers(tensor), plugin, content) => {
                json!({ "kind": "raw", "value": array(tensor), "plugin": plugin, "content": hex(content) })
            }
            What::Raw(Values::Strings(text), plugin, content) => {
                json!({ "kind": "raw", "value": strings(text), "plugin": plugin, "content": hex(content) })
            }
            What::HParams(params) => {
                let value = |param: &Param| match *param {
                    Param::Number(number) => json!(number),
                    Param::Text(text) => json!(text),
                    Param::Bool(choice) => json!(choice),
                };
                let values: serde_json::Map<_, _> = params.iter().map(|(name, param)| (name.to_string(), value(param))).collect();
                json!({ "kind": "hparams", "values": values, "trial": "a trial" })
            }
            What::Graph(graph) => json!({ "kind": "graph", "graph": hex(&graph.encode_to_vec()) }),
        };
        let common = json!({ "tag": self.tag, "step": self.step, "default_step": self.default_step, "scope": self.scope,
            "description": self.description });
        json.as_object_mut().unwrap().extend(common.as_object().unwrap().clone());
        json
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn array(tensor: &Tensor) -> Value {
    let bytes = match tensor.dtype() {
        DType::F32 => bytemuck::cast_slice(&tensor.to_vec::<f32>().unwrap()).to_vec(),
        DType::F64 => bytemuck::cast_slice(&tensor.to_vec::<f64>().unwrap()).to_vec(),
        DType::I32 => bytemuck::cast_slice(&tensor.to_vec::<i32>().unwrap()).to_vec(),
        DType::I64 => bytemuck::cast_slice(&tensor.to_vec::<i64>().unwrap()).to_vec(),
        DType::U8 => tensor.to_vec::<u8>().unwrap(),
        _ => tensor.cast(DType::U8).unwrap().to_vec::<u8>().unwrap(),
    };
    json!({ "dtype": tensor.dtype().name(), "shape": tensor.dims(), "hex": hex(&bytes) })
}

fn strings(strings: &Strings) -> Value {
    json!({ "shape": strings.dims(), "strings": strings.values().iter().map(|text| hex(text)).collect::<Vec<_>>() })
}

fn tensor<T: gradlet::tensor::Element>(values: &[T], dims: &[u32]) -> Tensor {
    Tensor::new(&gradlet::cpu(), values, dims).unwrap()
}

fn scalar<T: gradlet::tensor::Element>(value: T) -> What {
    What::Scalar(tensor(&[value], &[]))
}

/// Writes the items with gradlet and with TensorFlow, and checks that EventAccumulator reads the same data from both. Returns this data.
#[track_caller]
fn agree(items: &[Item]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let (ours, theirs, spec) = (folder.path().join("gradlet"), folder.path().join("tensorflow"), folder.path().join("spec.json"));
    let writer = summary::create_file_writer(&ours).unwrap();
    items.iter().for_each(|item| item.write(&writer));
    writer.close().unwrap();
    std::fs::write(&spec, json!(items.iter().map(Item::json).collect::<Vec<_>>()).to_string()).unwrap();
    let name = |path: &Path| path.to_str().unwrap().to_string();
    python(SCRIPT, &["write", &name(&theirs), &name(&spec)]);
    let read: Value = serde_json::from_str(&python(SCRIPT, &["read", &name(&ours), &name(&theirs)])).unwrap();
    let (got, want) = (&read[0], &read[1]);
    for (tag, wanted) in want["tensors"].as_object().unwrap() {
        assert_eq!(&got["tensors"][tag], wanted, "tag {tag:?}");
    }
    assert_eq!(got, want);
    let [ours, theirs] = [ours, theirs].map(|path| Run::read(&path).unwrap());
    for (kind, tag, series) in theirs.all() {
        let (_, _, found) = ours.all().find(|(other, name, _)| (*other, *name) == (kind, tag)).unwrap();
        let told =
            |series: &summary::Series| series.points.iter().map(|point| (point.step, point.number().map(f64::to_bits))).collect::<Vec<_>>();
        assert_eq!((told(found), found.plugin()), (told(series), series.plugin()), "gradlet's own reading of {tag:?}");
    }
    want.clone()
}

#[test]
#[ignore = "needs TensorBoard: `cargo xtask test TensorBoard` installs and runs it"]
fn every_kind_of_summary() {
    let mut items = Vec::new();
    let numbers = [0.5f32, -0.0, 1e-42, f32::MAX, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 16_777_217.0];
    items.extend((0..).zip(numbers).map(|(step, number)| Item::new("numbers", scalar(number), step)));
    items.push(Item::new("double", scalar(0.1f64), 3));
    items.push(Item::new("long", scalar(16_777_217i64), i64::MAX));
    items.push(Item::new("bool", What::Scalar(tensor(&[1u8], &[]).cast(DType::Bool).unwrap()), 1));
    items.push(Item { scope: "outer/inner", description: "*why*", ..Item::new("scoped", scalar(1.0f32), 2) });
    items.push(Item { step: None, default_step: 42, ..Item::new("default step", scalar(1.0f32), 0) });
    items.extend([7i64, 3, 3, 5].map(|step| Item::new("not in order", scalar(step as f32), step)));
    items.push(Item::new("метка", scalar(2.0f32), 0));

    let normal: Vec<f32> = (0..500).map(|number| (number as f32 * 0.37).sin() * 3.0).collect();
    items.push(Item::new("weights", What::Histogram(tensor(&normal, &[20, 25]), 30), 0));
    items.push(Item::new("weights", What::Histogram(tensor(&[1.0f32, 2.0], &[2]), 30), 1));
    items.push(Item::new("same", What::Histogram(tensor(&[3i32; 9], &[9]), 5), 0));
    items.push(Item::new("none", What::Histogram(tensor(&[0f32; 0], &[0]), 4), 0));
    items.push(Item::new("one bucket", What::Histogram(tensor(&[-1.0f64, 0.1, 7.0], &[3]), 1), 0));
    items.push(Item::new("a scalar's", What::Histogram(tensor(&[2.5f32], &[]), 30), 0));

    let pixels: Vec<u8> = (0..5 * 6 * 7 * 3).map(|number| (number * 7 % 256) as u8).collect();
    items.push(Item::new("rgb", What::Image(tensor(&pixels, &[5, 6, 7, 3]), 3), 0));
    items.push(Item { description: "seen", ..Item::new("rgba", What::Image(tensor(&pixels[..96], &[2, 3, 4, 4]), 1), 0) });
    let grey: Vec<f32> = (0..24).map(|number| number as f32 / 20.0 - 0.1).collect();
    items.push(Item::new("grey", What::Image(tensor(&grey, &[1, 4, 6, 1]), 3), 4));

    items.push(Item::new("note", What::Text(Strings::scalar("# *gradlet* says: метка 标签")), 0));
    let table = ["a", "b", "", "d"].map(|text| text.as_bytes().to_vec().into());
    items.push(Item::new("table", What::Text(Strings::new(table.into(), &[2, 2]).unwrap()), 1));
    let tone: Vec<f32> = (0..2 * 100 * 2).map(|frame| (frame as f32 * 0.3).sin() * 1.0).collect();
    items.push(Item::new("tone", What::Audio(tensor(&tone, &[2, 100, 2]), 8000, 3), 0));

    items.push(Item::new("raw", What::Raw(Values::Numbers(tensor(&[1i64, -2], &[2, 1])), "mine", b"\x00how\xff"), 5));
    items.push(Item::new("raw strings", What::Raw(Values::Strings(Strings::vector(["x", "y"])), "mine", b""), 5));
    const PARAMS: &[(&str, Param)] =
        &[("rate", Param::Number(0.1)), ("units", Param::Number(16.0)), ("optimizer", Param::Text("adam")), ("deep", Param::Bool(true))];
    items.push(Item::new("", What::HParams(PARAMS), 0));
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/events/graph_def");
    let graph = Run::read(&fixture).unwrap().graph.unwrap();
    items.push(Item::new("", What::Graph(GraphDef::decode(graph).unwrap()), 0));

    let read = agree(&items);
    assert_eq!(read["tensors"].as_object().unwrap().len(), 22);
    assert_eq!(read["tensors"]["outer/inner/scoped"]["description"], "*why*");
    assert_eq!(read["tensors"]["default step"]["points"][0][0], 42);
    assert!(read["graph"].as_array().unwrap().len() > 5);
}

#[test]
#[ignore = "needs TensorBoard: `cargo xtask test TensorBoard` installs and runs it"]
fn random_content() {
    let mut random = Random::new(7);
    let items: Vec<Item> =
        (0..300i64).map(|number| Item::new(&format!("tag{}", random.below(100)), random_what(&mut random), number)).collect();
    // TensorBoard uses only the first plugin of a tag, so each tag has a single one.
    let items: Vec<Item> = items.into_iter().map(|item| Item { tag: format!("{}/{}", item.what.name(), item.tag), ..item }).collect();
    let read = agree(&items);
    let points: usize = read["tensors"].as_object().unwrap().values().map(|tag| tag["points"].as_array().unwrap().len()).sum();
    assert_eq!(points, items.len());
}

impl What {
    fn name(&self) -> &'static str {
        match self {
            What::Scalar(_) => "scalar",
            What::Histogram(..) => "histogram",
            What::Image(..) => "image",
            What::Text(_) => "text",
            What::Audio(..) => "audio",
            _ => "other",
        }
    }
}

fn random_what(random: &mut Random) -> What {
    let mut floats = |count: usize, scale: f64| (0..count).map(|_| (random.unit() * scale) as f32).collect::<Vec<f32>>();
    let (many, few) = (floats(400, 50.0), floats(400, 1.0));
    match random.below(5) {
        // Any float, but only one of the many NaNs.
        0 => scalar(Some(f32::from_bits(random.bits() as u32)).filter(|number| !number.is_nan()).unwrap_or(f32::NAN)),
        1 => {
            let count = random.below(400);
            let buckets = random.range(1, 40);
            let values = &many[..count];
            match random.below(3) {
                0 => What::Histogram(tensor(values, &[count as u32]), buckets),
                1 => What::Histogram(tensor(&values.iter().map(|&value| value as i32).collect::<Vec<_>>(), &[count as u32]), buckets),
                _ => What::Histogram(
                    tensor(&values.iter().map(|&value| f64::from(value) / 3.0).collect::<Vec<_>>(), &[count as u32]),
                    buckets,
                ),
            }
        }
        2 => {
            let dims = [random.range(1, 5), random.range(1, 9), random.range(1, 9), random.range(1, 4)];
            let count = dims.iter().product::<u32>() as usize;
            let most = random.range(1, 4);
            match random.coin() {
                true => What::Image(tensor(&(0..count).map(|_| random.bits() as u8).collect::<Vec<_>>(), &dims), most),
                false => What::Image(tensor(&few.iter().cycle().take(count).copied().collect::<Vec<_>>(), &dims), most),
            }
        }
        3 => {
            let count = random.below(4);
            let texts = (0..count).map(|_| (0..random.below(20)).map(|_| random.bits() as u8).collect::<Vec<u8>>().into()).collect();
            What::Text(Strings::new(texts, &[count as u32]).unwrap())
        }
        _ => {
            let dims = [random.range(1, 4), random.range(1, 30), random.range(1, 2)];
            let count = dims.iter().product::<u32>() as usize;
            What::Audio(tensor(&few[..count], &dims), random.range(1000, 50_000), random.range(1, 4))
        }
    }
}
