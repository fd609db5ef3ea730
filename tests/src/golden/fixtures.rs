//! Reader of a folder of golden vectors: JSON files that index tensors in safetensors files.

use crate::golden::case::Value;
use anyhow::{Context, Result, bail};
use gradlet_core::{DType, Shape, Tensor, TensorType};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder, with the tensor files that were already read.
pub struct Folder {
    path: PathBuf,
    files: HashMap<String, HashMap<String, Array>>,
}

/// A tensor of a file. gradlet may not support its element type.
struct Array {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl Folder {
    /// Opens the folder at `path`. Fails if it does not exist.
    pub fn open(path: &Path) -> Result<Folder> {
        if !path.is_dir() {
            bail!("{} is not a folder", path.display());
        }
        Ok(Folder { path: path.into(), files: HashMap::new() })
    }

    /// Reads the list `cases` of a JSON file. The list is empty if the file does not exist.
    pub fn cases(&self, file: &str) -> Result<Vec<Json>> {
        let mut index = self.json(file)?;
        match index.get_mut("cases").map(Json::take) {
            Some(Json::Array(cases)) => Ok(cases),
            _ if index.is_null() => Ok(Vec::new()),
            _ => bail!("{} has no list \"cases\"", self.path.join(file).display()),
        }
    }

    /// Returns the folder's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads a JSON file of the folder. Returns null if it does not exist.
    pub fn json(&self, file: &str) -> Result<Json> {
        let path = self.path.join(file);
        if !path.exists() {
            return Ok(Json::Null);
        }
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        serde_json::from_slice(&text).with_context(|| path.display().to_string())
    }

    /// True if a safetensors file has the tensor `key`. Fails if the file cannot be read.
    pub fn has(&mut self, file: &str, key: &str) -> Result<bool> {
        Ok(self.arrays(file)?.contains_key(key))
    }

    fn arrays(&mut self, file: &str) -> Result<&HashMap<String, Array>> {
        if !self.files.contains_key(file) {
            let path = self.path.join(file);
            let arrays = read_arrays(&path).with_context(|| path.display().to_string())?;
            self.files.insert(file.into(), arrays);
        }
        Ok(&self.files[file])
    }

    /// Reads the tensor `key` of a safetensors file as a value with the name `name`. Returns `Ok(None)` if gradlet does not
    /// support its element type.
    ///
    /// Fails if the file cannot be read or has no such tensor.
    pub fn value(&mut self, file: &str, key: &str, name: &str) -> Result<Option<Value>> {
        let Some(array) = self.arrays(file)?.get(key) else { bail!("{file} has no tensor {key:?}") };
        let Some(dtype) = dtype(array.dtype) else { return Ok(None) };
        let dims = array.shape.iter().map(|&dim| Ok(u32::try_from(dim)?)).collect::<Result<Vec<_>>>()?;
        let tensor_type = TensorType::new(dtype, Shape::new(&dims)?);
        Ok(Some(Value { name: name.into(), tensor_type, bytes: array.bytes.clone() }))
    }
}

/// Reads all tensors of a safetensors file. gradlet has no 16-bit integers, so these become i32. Other unsupported
/// element types are errors.
pub fn tensors(path: &Path) -> Result<HashMap<String, Tensor>> {
    let tensor = |(name, mut array): (String, Array)| {
        if array.dtype == Dtype::I16 {
            let wide = |two: &[u8]| i32::from(i16::from_le_bytes([two[0], two[1]])).to_le_bytes();
            array = Array { dtype: Dtype::I32, bytes: array.bytes.chunks_exact(2).flat_map(wide).collect(), ..array };
        }
        let dims = array.shape.iter().map(|&dim| Ok(u32::try_from(dim)?)).collect::<Result<Vec<_>>>()?;
        let tensor_type = TensorType::new(dtype(array.dtype).context("unsupported element type")?, Shape::new(&dims)?);
        Ok((name, Tensor::from_bytes(&gradlet::cpu(), tensor_type, &array.bytes)?))
    };
    let arrays = read_arrays(path).with_context(|| path.display().to_string())?;
    arrays.into_iter().map(tensor).collect()
}

fn read_arrays(path: &Path) -> Result<HashMap<String, Array>> {
    let bytes = fs::read(path)?;
    let tensors = SafeTensors::deserialize(&bytes)?;
    let array = |(name, view): (String, safetensors::tensor::TensorView<'_>)| {
        (name, Array { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() })
    };
    Ok(tensors.tensors().into_iter().map(array).collect())
}

fn dtype(dtype: Dtype) -> Option<DType> {
    Some(match dtype {
        Dtype::F32 => DType::F32,
        Dtype::F64 => DType::F64,
        Dtype::F16 => DType::F16,
        Dtype::BF16 => DType::Bf16,
        Dtype::I8 => DType::I8,
        Dtype::U8 => DType::U8,
        Dtype::I16 => DType::I16,
        Dtype::I32 => DType::I32,
        Dtype::I64 => DType::I64,
        Dtype::BOOL => DType::Bool,
        _ => return None,
    })
}

/// Returns field `name` of an object, which must be a text. Fails if it is missing.
pub fn text<'a>(object: &'a Json, name: &str) -> Result<&'a str> {
    object.get(name).and_then(Json::as_str).with_context(|| format!("no text {name:?}"))
}

/// Returns the members of object `name`, in the order of the file. The iterator is empty if the object is missing.
pub fn members<'a>(object: &'a Json, name: &str) -> impl Iterator<Item = (&'a String, &'a Json)> + use<'a> {
    object.get(name).and_then(Json::as_object).into_iter().flatten()
}

/// Returns a number, or `None` if `value` is not one. The texts `NaN`, `Infinity` and `-Infinity` are numbers too.
pub fn number(value: &Json) -> Option<f64> {
    match value.as_str() {
        Some("NaN") => Some(f64::NAN),
        Some("Infinity") => Some(f64::INFINITY),
        Some("-Infinity") => Some(f64::NEG_INFINITY),
        _ => value.as_f64(),
    }
}
