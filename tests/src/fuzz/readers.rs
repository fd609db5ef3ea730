//! Damaged files for the readers of images, IDX, NPY, NPZ, CSV and TensorFlow Lite's models. A reader must return values or an error with a
//! message, in limited time, and with memory bounded by the file's size. The fuzz targets and the tests share this code.

use crate::random::Random;
use gradlet::io::Csv;
use gradlet::io::{idx, npy};
use gradlet::{Tensor, image, tflite};
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::Path;

/// A reader of a file format.
pub struct Reader {
    /// Name of the reader, and of its fuzz target. The target `tflite` has two readers.
    pub name: &'static str,
    /// Function that reads a complete file. The error is the reason why it refuses the file.
    pub read: fn(&[u8]) -> Result<(), String>,
    /// Function that returns valid files.
    pub samples: fn() -> Vec<Vec<u8>>,
    /// Largest number of bytes that may be allocated per byte of a file, and for any file.
    pub most: (usize, usize),
    /// Number of damaged files that the suite reads.
    pub damaged: usize,
}

impl Reader {
    /// Returns the size of the largest allocation that a file of `bytes` bytes justifies.
    pub fn allocation(&self, bytes: usize) -> usize {
        self.most.0 * bytes + self.most.1
    }
}

/// Bytes that a decoder needs for any file.
const DECODER: usize = 256 << 10;

/// All readers.
pub const READERS: [Reader; 7] = [
    // A byte of a JPEG may hold 512 pixels, a byte of a PNG 8 · 1032. A pixel has up to 4 bytes, and Vec grows by doubling.
    Reader { name: "image", read: read_image, samples: image_samples, most: (8 * 1032 * 4 * 2, DECODER), damaged: 3000 },
    Reader { name: "idx", read: read_idx, samples: idx_samples, most: (2 * 1032, DECODER), damaged: 3000 },
    Reader { name: "npy", read: read_npy, samples: npy_samples, most: (2, DECODER), damaged: 3000 },
    Reader { name: "npz", read: read_npz, samples: npz_samples, most: (2 * 1032, DECODER), damaged: 3000 },
    Reader { name: "csv", read: read_csv, samples: csv_samples, most: (64, DECODER), damaged: 3000 },
    Reader { name: "tflite", read: read_tflite, samples: tflite_samples, most: (16, 256), damaged: 100_000 },
    Reader { name: "tflite export", read: export_tflite, samples: tflite_samples, most: (16, 256), damaged: 20_000 },
];

/// Returns the reader of this name. Panics if there is none.
pub fn reader(name: &str) -> &'static Reader {
    READERS.iter().find(|reader| reader.name == name).expect("there is such a reader")
}

const NAME: &str = "file";

fn said<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, String> {
    result.map_err(|error| {
        let text = error.to_string();
        assert!(!text.is_empty());
        text
    })
}

/// Decodes an image file, which follows the first byte. The first byte selects the number of channels to decode to.
fn read_image(data: &[u8]) -> Result<(), String> {
    let Some((&channels, file)) = data.split_first() else { return Err("nothing".into()) };
    let image = said(image::decode_image(file, [0, 1, 3, 4][usize::from(channels) % 4]))?;
    let &[height, width, channels] = image.dims() else { panic!("{:?} is not the shape of an image", image.dims()) };
    assert!(height > 0 && width > 0 && (1..=4).contains(&channels));
    Ok(())
}

fn read_idx(file: &[u8]) -> Result<(), String> {
    let idx = said(idx::parse(Path::new(NAME), Cursor::new(file)))?;
    said(idx.tensor(&gradlet::cpu())).map(drop)
}

fn read_npy(file: &[u8]) -> Result<(), String> {
    let array = said(npy::parse(Path::new(NAME), file))?;
    said(array.tensor(&gradlet::cpu())).map(drop)
}

fn read_npz(file: &[u8]) -> Result<(), String> {
    let arrays = said(npy::parse_npz(Path::new(NAME), Cursor::new(file)))?;
    arrays.values().try_for_each(|array| said(array.tensor(&gradlet::cpu())).map(drop))
}

/// Reads a CSV file, which follows the first byte. The first byte selects options.
fn read_csv(data: &[u8]) -> Result<(), String> {
    let Some((&choice, file)) = data.split_first() else { return Err("nothing".into()) };
    let bit = |at: u8| choice & 1 << at != 0;
    let csv = Csv::new().header(bit(0)).use_quote_delim(bit(1)).field_delim(if bit(2) { b';' } else { b',' });
    let csv = if bit(3) { csv.select_cols(&[1, 0]) } else { csv };
    let csv = if bit(4) { csv.record_defaults(&[Some("0"), None]).na_value("NA") } else { csv };
    let content = || Cursor::new(file.to_vec());
    let mut last = Ok(());
    for row in said(csv.rows::<(i64, String)>(Path::new(NAME), content()))? {
        last = said(row).map(drop).and(last);
    }
    for row in said(csv.rows::<BTreeMap<String, f32>>(Path::new(NAME), content()))? {
        let _ = said(row);
    }
    last
}

/// Reads a model and plans it, which reads the options of its operators.
fn read_tflite(file: &[u8]) -> Result<(), String> {
    let model = said(tflite::Model::from_bytes(file))?;
    model.unsupported().first().map_or(Ok(()), |one| Err(one.to_string()))
}

/// Reads a model and exports it, which emits its operators and plans their memory.
fn export_tflite(file: &[u8]) -> Result<(), String> {
    said(tflite::Model::from_bytes(file).and_then(|model| model.export(1))).map(drop)
}

fn image_samples() -> Vec<Vec<u8>> {
    let picture = |channels: u32| {
        let pixels: Vec<u8> = (0..40 * 23 * channels).map(|x| (x * x / 99) as u8).collect();
        Tensor::new(&gradlet::cpu(), &pixels, &[23, 40, channels])
    };
    let mut files: Vec<Vec<u8>> = (1..=4).filter_map(|channels| image::encode_png(&picture(channels).ok()?).ok()).collect();
    files.extend([1, 3].iter().filter_map(|&channels| image::encode_jpeg(&picture(channels).ok()?, 80).ok()));
    let names =
        ["progressive.jpg", "extra_422.jpg", "extra_restart.jpg", "extra_cmyk.jpg", "palette_4_alpha.png", "color2_16_interlaced.png"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/image");
    files.extend(names.iter().filter_map(|name| std::fs::read(folder.join(name)).ok()));
    files.into_iter().flat_map(|file| [0, 1].map(|channels| [&[channels], &file[..]].concat())).collect()
}

fn idx_samples() -> Vec<Vec<u8>> {
    let plain = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4][..], &[7; 24]].concat();
    let floats = [&[0, 0, 0x0d, 1, 0, 0, 0, 5][..], &[1; 20]].concat();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let packed = gzip.write_all(&plain).and_then(|()| gzip.finish()).unwrap_or_default();
    vec![plain, floats, packed]
}

/// Returns the bytes of the file that `write` writes.
fn written(write: impl Fn(&Path) -> gradlet::io::FileResult<()>) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("gradlet-readers-{}-{:?}", std::process::id(), std::thread::current().id()));
    let file = write(&path).ok().and_then(|()| std::fs::read(&path).ok());
    let _ = std::fs::remove_file(&path);
    file.unwrap_or_default()
}

fn array() -> Option<npy::Npy> {
    npy::Npy::of(&Tensor::full(&gradlet::cpu(), 0.5f32, &[3, 5]).ok()?).ok()
}

fn npy_samples() -> Vec<Vec<u8>> {
    let Some(array) = array() else { return Vec::new() };
    vec![written(|path| npy::write(path, &array))]
}

fn npz_samples() -> Vec<Vec<u8>> {
    let Some(array) = array() else { return Vec::new() };
    vec![written(|path| npy::write_npz(path, &[("x", &array), ("y", &array)]))]
}

fn csv_samples() -> Vec<Vec<u8>> {
    let table = b"number,text\n1,one\n2,\"two, or \"\"2\"\"\"\n7,NA\n-4,\r\n5,five\n";
    [0b011, 0b010, 0b11011, 0b000].map(|choice| [&[choice], &table[..]].concat()).to_vec()
}

fn tflite_samples() -> Vec<Vec<u8>> {
    let names = ["op_zoo_float32", "lstm_while_float32", "conv1d_float32", "lstm_fused_float32", "mlp_int8", "trainer_ondevice"];
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/models");
    names.iter().filter_map(|name| std::fs::read(folder.join(name).with_extension("tflite")).ok()).collect()
}

/// Makes one to four changes to a file. A change flips a bit, overwrites bytes with 0, 0xff or random values, truncates the file, or
/// removes or repeats a byte range.
pub fn mutate(file: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..random.range(1, 4) {
        let at = random.below(file.len());
        let length = random.below(9).min(file.len() - at);
        match random.below(7) {
            0 => file.truncate(at),
            1 if at < file.len() => file[at] ^= 1 << random.below(8),
            2 => file[at..at + length].fill(0xff),
            3 => file[at..at + length].fill(0),
            4 => drop(file.drain(at..at + length)),
            5 => {
                let part = file[at..at + length].to_vec();
                let to = random.below(file.len() + 1);
                file.splice(to..to, part);
            }
            _ => file[at..at + length].iter_mut().for_each(|byte| *byte = random.bits() as u8),
        }
    }
}
