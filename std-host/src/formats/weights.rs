//! Weights as safetensors files. A file has a tensor for each variable of a model. Its name is the path of the variable, such as
//! `dense_1/kernel`.

use crate::files::{FileError, FileResult, write_whole};
use crate::formats::safetensors::{Stored, parse, serialize};
use gradlet_core::layers::Module;
use gradlet_core::{Scope, Shape, Tensor, TensorType};
use std::path::Path;

/// Metadata key of the model's name.
const MODEL: &str = "model";

/// File name endings of other formats. Weights are not written in these formats.
const FOREIGN: [&str; 10] = ["h5", "hdf5", "keras", "npy", "npz", "onnx", "pb", "pt", "pth", "tflite"];

/// Fails unless the file name ends in `.safetensors`, the only format of weights.
pub fn check_name(path: &Path) -> FileResult<()> {
    match ending(path).is_some_and(|ending| ending == "safetensors") {
        true => Ok(()),
        false => {
            let text =
                "weights are saved as safetensors: the name must end in .safetensors; checkpoint::Checkpoint saves TensorFlow checkpoints";
            Err(FileError::new(path, text))
        }
    }
}

/// Fails if the name of a file, or the prefix of a checkpoint, has the ending of an unsupported format, such as `.h5`, `.keras` or `.npz`.
pub fn check_foreign(path: &Path) -> FileResult<()> {
    match ending(path).filter(|ending| FOREIGN.contains(&ending.as_str())) {
        None => Ok(()),
        Some(ending) => {
            let ways = "use a name that ends in .safetensors for weights, or a prefix without an ending for a checkpoint";
            Err(FileError::new(path, format!("models cannot be saved as .{ending}: {ways}")))
        }
    }
}

fn ending(path: &Path) -> Option<String> {
    Some(path.extension()?.to_str()?.to_lowercase())
}

/// Writes the variables of `model` to `path`. The file appears only when it is complete. `name` describes the model in the file's metadata.
///
/// Fails if the file name does not end in `.safetensors`, if a variable has no value yet, or if the file cannot be written.
///
/// ```
/// use gradlet::layers::Module;
/// use gradlet::{Eager, Scope};
/// use gradlet::applications::ModelSpec;
/// use gradlet::io::weights;
/// let scope = Eager::new(&gradlet::cpu());
/// let spec: ModelSpec = "mlp:4-2".parse()?;
/// let (one, other) = (spec.build(&scope)?, spec.build(&scope)?);
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("mlp.safetensors");
/// weights::save(&scope, &one, "mlp:4-2", &path)?;
/// weights::load(&scope, &other, &path)?;
/// let kernel = |model: &dyn Module| scope.read(&model.variables()[0])?.to_vec::<f32>();
/// assert_eq!(kernel(&one)?, kernel(&other)?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn save(scope: &dyn Scope, model: &dyn Module, name: &str, path: &Path) -> FileResult<()> {
    check_name(path)?;
    let mut values = Vec::new();
    for (name, variable) in model.named_variables() {
        let value = scope.read(&variable).map_err(|error| FileError::model(path, error.context(format!("variable {name:?}"))))?;
        values.push((name, value.tensor_type(), value.bytes().map_err(|error| FileError::model(path, error))?.to_vec()));
    }
    let items = values.iter().map(|(name, tensor_type, bytes)| (&name[..], tensor_type.dtype, tensor_type.shape.dims(), &bytes[..]));
    write_whole(path, &serialize(items.collect(), &[(MODEL, name)]))
}

/// First bytes of other formats' files, with a description of each.
const KINDS: [(&[u8], &str); 3] = [
    (b"\x89HDF\r\n\x1a\n", "it is an HDF5 file, like Keras's .h5"),
    (b"PK\x03\x04", "it is a ZIP file, like Keras's .keras and NumPy's .npz"),
    (b"\x93NUMPY", "it is a NumPy array"),
];

/// Sets the variables of `model` to the values in `path`. The variables must already exist.
///
/// Fails if the file is damaged, if it lacks a variable or has one that the model does not have, or if an element type or shape differs. In
/// these cases no variable is changed.
pub fn load(scope: &dyn Scope, model: &dyn Module, path: &Path) -> FileResult<()> {
    let file = std::fs::read(path).map_err(|error| FileError::io(path, error))?;
    let stored = parse(&file).map_err(|error| {
        let kind = KINDS.iter().find(|(begin, _)| file.starts_with(begin)).map_or(String::new(), |(_, kind)| format!("{kind}: "));
        FileError::new(path, format!("not a safetensors file, which is the only format for weights: {kind}{error}"))
    })?;
    let variables = model.named_variables();
    let made_for = stored.metadata.get(MODEL).map_or(String::new(), |model| format!("; it was saved from {model}"));
    if let Some(name) = stored.tensors.keys().find(|name| variables.iter().all(|(known, _)| known != *name)) {
        return Err(FileError::new(path, format!("it holds a tensor {name:?}, which the model does not have{made_for}")));
    }
    let missing = |name: &str| FileError::new(path, format!("it holds no tensor {name:?}, which the model has{made_for}"));
    let tensors = variables.iter().map(|(name, _)| stored.tensors.get(name).ok_or_else(|| missing(name)));
    let tensors = tensors.collect::<FileResult<Vec<_>>>()?;
    let mut values = Vec::new();
    for ((name, variable), tensor) in variables.iter().zip(tensors) {
        let wanted = variable.tensor_type().map_err(|error| FileError::model(path, error))?;
        values.push(value(scope, tensor, wanted).map_err(|text| FileError::new(path, format!("tensor {name:?} {text}")))?);
    }
    for ((_, variable), value) in variables.iter().zip(&values) {
        scope.assign(variable, value).map_err(|error| FileError::model(path, error))?;
    }
    Ok(())
}

fn value(scope: &dyn Scope, stored: &Stored<'_>, wanted: TensorType) -> Result<Tensor, String> {
    let dims: Option<Vec<u32>> = stored.dims.iter().map(|&dim| dim.try_into().ok()).collect();
    let shape = dims.and_then(|dims| Shape::new(&dims).ok());
    let got = stored.dtype.zip(shape).map(|(dtype, shape)| TensorType::new(dtype, shape));
    match got {
        Some(got) if got == wanted => Tensor::from_bytes(&scope.device(), wanted, stored.bytes).map_err(|error| error.to_string()),
        Some(got) => Err(format!("is {got}, but the model's is {wanted}")),
        None => Err(format!("is {}{:?}, but the model's is {wanted}", stored.kind, stored.dims)),
    }
}
