//! NPY, NumPy's format of one array: version 1.0, little-endian, in C order.
//!
//! `numpy.load` reads what is written here (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use crate::file_error::{FileError, FileResult};
use crate::files::write_whole;
use gradlet_core::{DType, Device, Result, Shape, Tensor, TensorType};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY";
const TYPES: [(DType, &str); 8] = [
    (DType::F32, "<f4"),
    (DType::F64, "<f8"),
    (DType::F16, "<f2"),
    (DType::I8, "|i1"),
    (DType::U8, "|u1"),
    (DType::I32, "<i4"),
    (DType::I64, "<i8"),
    (DType::Bool, "|b1"),
];

/// An array: its type and its bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Npy {
    /// The element type and the shape.
    pub tensor_type: TensorType,
    /// The elements: little-endian, in C order.
    pub bytes: Vec<u8>,
}

impl Npy {
    /// The array that a tensor is. Fails in a trace.
    pub fn of(tensor: &Tensor) -> Result<Npy> {
        Ok(Npy { tensor_type: tensor.tensor_type(), bytes: tensor.bytes()?.to_vec() })
    }

    /// The array as a tensor on `device`.
    pub fn tensor(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(device, self.tensor_type, &self.bytes)
    }
}

/// Reads an array. Fails, naming file and byte, where it is damaged or of a kind that is not read.
///
/// ```
/// use gradlet::{DType, Shape, TensorType, npy};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.npy");
/// let array = npy::Npy { tensor_type: TensorType::new(DType::I32, Shape::new(&[2])?), bytes: vec![1, 0, 0, 0, 2, 0, 0, 0] };
/// npy::write(&path, &array)?;
/// assert_eq!(npy::read(&path)?, array);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: &Path) -> FileResult<Npy> {
    let bytes = std::fs::read(path).map_err(|error| FileError::io(path, error))?;
    parse(&bytes).map_err(|(offset, text)| FileError::at(path, offset as u64, text))
}

/// Writes an array, whole or not at all. Fails where its element type is bf16, which NumPy does not have.
pub fn write(path: &Path, npy: &Npy) -> FileResult<()> {
    let TensorType { dtype, shape } = npy.tensor_type;
    let known = TYPES.iter().find(|(known, _)| *known == dtype);
    let (_, descr) = known.ok_or_else(|| FileError::new(path, format!("{dtype} is not written as NPY, which does not have it")))?;
    let dims: String = shape.dims().iter().map(|dim| format!("{dim}, ")).collect();
    let dims = if shape.rank() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The elements begin at a multiple of 64.
    let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    header = format!("{header:<width$}\n", width = length - 1);
    write_whole(path, &[MAGIC, &[1, 0], &(length as u16).to_le_bytes(), header.as_bytes(), &npy.bytes].concat())
}

/// What is wrong, and at which byte.
type Wrong = (usize, String);

fn parse(bytes: &[u8]) -> Result<Npy, Wrong> {
    let rest = bytes.strip_prefix(MAGIC).ok_or((0, "not an NPY file".to_string()))?;
    let cut = || (bytes.len(), "the file is cut short".to_string());
    let ([major, _], rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(length, rest)| (u16::from_le_bytes(*length).into(), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => return Err((MAGIC.len(), format!("NPY version {major} is not read, only 1 to 3"))),
    }
    .ok_or_else(cut)?;
    let start = bytes.len() - rest.len();
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| (start, "the header is not text".to_string()))?;
    let tensor_type = tensor_type(header).map_err(|text| (start, text))?;
    let needed = tensor_type.bytes().ok_or((start, "the array would be larger than 4 GiB".to_string()))? as usize;
    if data.len() != needed {
        return Err((bytes.len(), format!("{tensor_type} has {needed} bytes of elements, not {}", data.len())));
    }
    Ok(Npy { tensor_type, bytes: data.to_vec() })
}

/// From `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
fn tensor_type(header: &str) -> Result<TensorType, String> {
    let after = |key: &str| {
        let at = header.find(&format!("'{key}':")).ok_or(format!("the header has no {key:?}"))?;
        Ok::<_, String>(header[at + key.len() + 3..].trim_start())
    };
    let descr = after("descr")?;
    let descr = descr.strip_prefix('\'').and_then(|descr| descr.split_once('\'')).map_or(descr, |(descr, _)| descr);
    let known = TYPES.iter().find(|(_, name)| *name == descr);
    let (dtype, _) = known.ok_or(format!("elements of type {descr:?} are not read, only {}", TYPES.map(|(_, name)| name).join(", ")))?;
    if !after("fortran_order")?.starts_with("False") {
        return Err("arrays in Fortran order are not read: save numpy.ascontiguousarray(x)".into());
    }
    let shape = after("shape")?;
    let inner = shape.strip_prefix('(').and_then(|shape| shape.split_once(')')).ok_or("the header's shape is no tuple")?.0;
    let dims = inner.split(',').map(str::trim).filter(|dim| !dim.is_empty()).map(|dim| dim.parse::<u32>());
    let dims = dims.collect::<Result<Vec<u32>, _>>().map_err(|_| format!("the shape ({inner}) is not one of numbers below 2^32"))?;
    let shape = Shape::new(&dims).map_err(|_| format!("the array has {} dimensions, at most 8 are read", dims.len()))?;
    Ok(TensorType::new(*dtype, shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `numpy.save` of `numpy.float32([[1.0]])`.
    fn numpy() -> Vec<u8> {
        let header =
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }                                                          \n";
        [MAGIC, &[1, 0, header.len() as u8, 0], header.as_bytes(), &1f32.to_le_bytes()].concat()
    }

    #[test]
    fn reads_numpy() {
        let npy = parse(&numpy()).unwrap();
        assert_eq!(npy.tensor_type.to_string(), "f32[1,1]");
        assert_eq!(npy.bytes, 1f32.to_le_bytes());
    }

    #[test]
    fn writes_any_rank() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for dims in [&[][..], &[1], &[1, 1], &[0, 4_000_000_000]] {
            let tensor_type = TensorType::new(DType::F32, Shape::new(dims).unwrap());
            let npy = Npy { tensor_type, bytes: vec![0; tensor_type.bytes().unwrap() as usize] };
            write(&path, &npy).unwrap();
            assert_eq!(read(&path).unwrap(), npy);
            assert_eq!(std::fs::read(&path).unwrap().len() % 64, npy.bytes.len() % 64);
        }
    }

    #[test]
    fn every_type_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        for (dtype, _) in TYPES {
            let path = folder.path().join(dtype.name());
            let npy = Npy { tensor_type: TensorType::new(dtype, Shape::new(&[2]).unwrap()), bytes: vec![1; 2 * dtype.size()] };
            write(&path, &npy).unwrap();
            assert_eq!(read(&path).unwrap(), npy);
        }
        let bf16 = Npy { tensor_type: TensorType::new(DType::Bf16, Shape::SCALAR), bytes: vec![0; 2] };
        assert!(write(&folder.path().join("no"), &bf16).is_err());
    }

    #[test]
    fn refuses_damage() {
        let good = numpy();
        (0..good.len()).for_each(|length| assert!(parse(&good[..length]).is_err()));
        let with = |from: &str, to: &str| {
            let at = good.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            let mut bytes = good.clone();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            parse(&bytes).unwrap_err().1
        };
        assert!(with("<f4", "<c8").contains("elements of type \"<c8\" are not read"));
        assert!(with("False", "True ").contains("Fortran"));
        assert!(with("(1, 1)", "(1, 2)").contains("has 8 bytes of elements, not 4"));
        assert!(with("(1, 1)", "(1, a)").contains("numbers below"));
    }
}
