//! Golden vectors of images, in a folder with `images.json`. A case names a function, its arguments, an input or a file, and
//! TensorFlow's output or error.

use crate::golden::case::{Tolerance, Value, compare};
use crate::golden::checks::Checks;
use crate::golden::fixtures::{Folder, text};
use anyhow::{Context, Result, bail};
use gradlet::image::{self, ResizeMethod, ResizeOptions};
use gradlet::{DType, Error, Tensor, TensorType};
use serde_json::Value as Json;
use std::path::Path;

/// Runs `images.json`: functions of images, and decoders of files.
pub fn images(path: &Path, checks: &mut Checks) -> Result<()> {
    let mut folder = Folder::open(path)?;
    for case in folder.cases("images.json")? {
        checks.check(text(&case, "id")?, || match problem(path, &mut folder, &case)? {
            None => Ok(()),
            Some(problem) => bail!(problem),
        });
    }
    Ok(())
}

/// Runs a case. Returns a description of the problem, or `None` if the result is right.
fn problem(path: &Path, folder: &mut Folder, case: &Json) -> Result<Option<String>> {
    let function = text(case, "function")?;
    let arguments = Arguments(case.get("arguments").context("no arguments")?);
    let got = match case.get("file") {
        Some(file) => {
            let path = path.join(file.as_str().context("the name of the file is not a text")?);
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            decode(function, &bytes, &arguments)?
        }
        None => {
            let key = text(case, "input")?;
            let value = folder.value("tensors.safetensors", key, "input")?;
            let input = value.context("unsupported input type")?.tensor(&gradlet::cpu())?;
            apply(function, &input, &arguments)?
        }
    };
    if case.get("error").is_some() {
        return Ok(got.ok().map(|tensor| format!("returned {}, but TensorFlow fails", tensor.tensor_type())));
    }
    let want = folder.value("tensors.safetensors", text(case, "output")?, "output")?.context("unsupported output type")?;
    let tensor = match got {
        Ok(tensor) => tensor,
        Err(error) => return Ok(Some(error.to_string())),
    };
    if tensor.tensor_type() != want.tensor_type {
        return Ok(Some(format!("is {}, not {}", tensor.tensor_type(), want.tensor_type)));
    }
    let tolerance = Tolerance::read(case);
    // With a tolerance, bytes are compared as floats.
    let [want, got] = if tolerance.atol > 0.0 { [floats(want)?, floats(value(&tensor)?)?] } else { [want, value(&tensor)?] };
    Ok(compare(&[want], &[got.bytes], tolerance).pop())
}

fn value(tensor: &Tensor) -> Result<Value> {
    Ok(Value { name: "output".into(), tensor_type: tensor.tensor_type(), bytes: tensor.bytes()?.to_vec() })
}

fn floats(value: Value) -> Result<Value> {
    if value.tensor_type.dtype != DType::U8 {
        return Ok(value);
    }
    let bytes = value.bytes.iter().flat_map(|&byte| f32::from(byte).to_le_bytes()).collect();
    Ok(Value { tensor_type: TensorType::new(DType::F32, value.tensor_type.shape), bytes, ..value })
}

fn decode(function: &str, bytes: &[u8], arguments: &Arguments<'_>) -> Result<gradlet::Result<Tensor>> {
    let channels = arguments.int("channels")? as u32;
    Ok(match function {
        "decode_image" => image::decode_image(bytes, channels),
        "decode_jpeg" => image::decode_jpeg(bytes, channels),
        "decode_png" => image::decode_png(bytes, channels),
        _ => bail!("unknown function {function:?} for a file"),
    })
}

fn apply(function: &str, x: &Tensor, arguments: &Arguments<'_>) -> Result<gradlet::Result<Tensor>> {
    let target = || -> Result<[u32; 2]> { Ok([arguments.int("target_height")? as u32, arguments.int("target_width")? as u32]) };
    let offset = || -> Result<[u32; 2]> { Ok([arguments.int("offset_height")? as u32, arguments.int("offset_width")? as u32]) };
    Ok(match function {
        "resize" => image::resize(x, arguments.size()?, arguments.resize()?),
        "resize_with_pad" => image::resize_with_pad(x, target()?, arguments.resize()?),
        "resize_with_crop_or_pad" => image::resize_with_crop_or_pad(x, target()?),
        "central_crop" => image::central_crop(x, arguments.float("central_fraction")?),
        "crop_to_bounding_box" => image::crop_to_bounding_box(x, offset()?, target()?),
        "pad_to_bounding_box" => image::pad_to_bounding_box(x, offset()?, target()?),
        "flip_left_right" => image::flip_left_right(x),
        "flip_up_down" => image::flip_up_down(x),
        "transpose" => image::transpose(x),
        "rot90" => image::rot90(x, arguments.int("k")? as i32),
        "adjust_brightness" => image::adjust_brightness(x, arguments.float("delta")?),
        "adjust_contrast" => image::adjust_contrast(x, arguments.float("contrast_factor")?),
        "adjust_gamma" => image::adjust_gamma(x, arguments.float("gamma")?, arguments.float("gain")?),
        "per_image_standardization" => image::per_image_standardization(x),
        "rgb_to_grayscale" => image::rgb_to_grayscale(x),
        "grayscale_to_rgb" => image::grayscale_to_rgb(x),
        "convert_image_dtype" => image::convert_image_dtype(x, arguments.dtype()?, arguments.flag("saturate")),
        _ => bail!("unknown function {function:?}"),
    })
}

/// Arguments of a case, under TensorFlow's names.
struct Arguments<'a>(&'a Json);

impl Arguments<'_> {
    fn int(&self, name: &str) -> Result<i64> {
        self.0.get(name).and_then(Json::as_i64).with_context(|| format!("no number {name:?}"))
    }

    fn float(&self, name: &str) -> Result<f64> {
        self.0.get(name).and_then(Json::as_f64).with_context(|| format!("no number {name:?}"))
    }

    fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Json::as_bool).unwrap_or(false)
    }

    fn size(&self) -> Result<[u32; 2]> {
        let sides = self.0.get("size").and_then(Json::as_array).context("no size")?;
        match sides.iter().map(|side| side.as_u64().map(|side| side as u32)).collect::<Option<Vec<_>>>().as_deref() {
            Some(&[height, width]) => Ok([height, width]),
            _ => bail!("a size must have two numbers"),
        }
    }

    fn dtype(&self) -> Result<DType> {
        Ok(match text(self.0, "dtype")? {
            "uint8" => DType::U8,
            "int8" => DType::I8,
            "int32" => DType::I32,
            "int64" => DType::I64,
            "float16" => DType::F16,
            "bfloat16" => DType::Bf16,
            "float32" => DType::F32,
            "float64" => DType::F64,
            name => bail!("unknown element type {name:?}"),
        })
    }

    fn resize(&self) -> Result<ResizeOptions> {
        let method = match self.0.get("method").and_then(Json::as_str).unwrap_or("bilinear") {
            "bilinear" => ResizeMethod::Bilinear,
            "nearest" => ResizeMethod::Nearest,
            "bicubic" => ResizeMethod::Bicubic,
            "area" => ResizeMethod::Area,
            "lanczos3" => ResizeMethod::Lanczos3,
            "lanczos5" => ResizeMethod::Lanczos5,
            "gaussian" => ResizeMethod::Gaussian,
            "mitchellcubic" => ResizeMethod::MitchellCubic,
            name => bail!("unknown method {name:?}"),
        };
        let options = ResizeOptions::new(method).antialias(self.flag("antialias"));
        Ok(options.preserve_aspect_ratio(self.flag("preserve_aspect_ratio")))
    }
}

/// Returns the largest difference between the bytes of two u8 tensors.
pub fn largest_difference(a: &Tensor, b: &Tensor) -> gradlet::Result<u8> {
    if a.tensor_type() != b.tensor_type() {
        return Err(Error::message(format!("{} and {} have different types", a.tensor_type(), b.tensor_type())));
    }
    Ok(a.bytes()?.iter().zip(&*b.bytes()?).map(|(a, b)| a.abs_diff(*b)).max().unwrap_or(0))
}
