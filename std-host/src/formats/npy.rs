//! NPY and NPZ, NumPy's formats of one array and of several named arrays. Files are written little-endian and in C order. Both byte orders,
//! and C and Fortran order, can be read.
//!
//! `numpy.load` reads the files written here (<https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html>).

use crate::files::{FileError, FileResult, write_whole};
#[cfg(feature = "npz")]
pub use crate::formats::npz::{parse_npz, read_npz, write_npz};
use gradlet_core::{DType, Device, Result, Shape, Tensor, TensorType};
use std::path::Path;

/// Maximum size of an array in an NPZ file, in bytes. It limits the memory that a malicious compressed file can claim.
pub const LIMIT: u64 = 1 << 30;

const MAGIC: &[u8] = b"\x93NUMPY";
/// Element types and their names in a header, without the letter of the byte order.
const TYPES: [(DType, &str); 9] = [
    (DType::F32, "f4"),
    (DType::F64, "f8"),
    (DType::F16, "f2"),
    (DType::I8, "i1"),
    (DType::U8, "u1"),
    (DType::I16, "i2"),
    (DType::I32, "i4"),
    (DType::I64, "i8"),
    (DType::Bool, "b1"),
];

/// Array: its type and its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Npy {
    /// Element type and shape.
    pub tensor_type: TensorType,
    /// Elements, little-endian, in C order.
    pub bytes: Vec<u8>,
}

impl Npy {
    /// Copies the elements of a tensor. Fails in a trace.
    pub fn of(tensor: &Tensor) -> Result<Npy> {
        Ok(Npy { tensor_type: tensor.tensor_type(), bytes: tensor.bytes()?.to_vec() })
    }

    /// Converts an array from Fortran order, where the first index varies fastest, to C order.
    fn in_c_order(self) -> Result<Npy> {
        let mut reversed = self.tensor_type;
        reversed.shape.dims_mut().reverse();
        let tensor = Tensor::from_bytes(&crate::compute::devices::cpu(), reversed, &self.bytes)?;
        Npy::of(&tensor.transpose(&[])?)
    }

    /// Returns the array as a tensor on `device`.
    pub fn tensor(&self, device: &Device) -> Result<Tensor> {
        Tensor::from_bytes(device, self.tensor_type, &self.bytes)
    }
}

/// Reads an NPY file. Fails if it is damaged or has an unsupported element type. The error names the file and the position in bytes.
///
/// ```
/// use gradlet::{DType, Shape, TensorType};
/// use gradlet::io::npy;
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("x.npy");
/// let array = npy::Npy { tensor_type: TensorType::new(DType::I32, Shape::new(&[2])?), bytes: vec![1, 0, 0, 0, 2, 0, 0, 0] };
/// npy::write(&path, &array)?;
/// assert_eq!(npy::read(&path)?, array);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn read(path: &Path) -> FileResult<Npy> {
    let bytes = std::fs::read(path).map_err(|error| FileError::io(path, error))?;
    parse(path, &bytes)
}

/// Reads the content of an NPY file, like [`read`]. Errors name `path`.
pub fn parse(path: &Path, bytes: &[u8]) -> FileResult<Npy> {
    decode(bytes).map_err(|(offset, text)| FileError::at(path, offset as u64, text))
}

/// Writes an NPY file. It appears only when it is complete. Fails if the element type is bf16, which NumPy does not support.
pub fn write(path: &Path, npy: &Npy) -> FileResult<()> {
    write_whole(path, &encode(npy).map_err(|text| FileError::new(path, text))?)
}

pub(super) fn encode(npy: &Npy) -> Result<Vec<u8>, String> {
    let TensorType { dtype, shape } = npy.tensor_type;
    let known = TYPES.iter().find(|(known, _)| *known == dtype);
    let (_, kind) = known.ok_or_else(|| format!("the NPY format does not support {dtype}"))?;
    let order = if dtype.size() == 1 { '|' } else { '<' };
    let dims: String = shape.dims().iter().map(|dim| format!("{dim}, ")).collect();
    let dims = if shape.rank() == 1 { dims.trim_end() } else { dims.trim_end_matches(", ") };
    let mut header = format!("{{'descr': '{order}{kind}', 'fortran_order': False, 'shape': ({dims}), }}");
    // The elements begin at a multiple of 64 bytes.
    let length = (MAGIC.len() + 4 + header.len() + 1).next_multiple_of(64) - MAGIC.len() - 4;
    header = format!("{header:<width$}\n", width = length - 1);
    Ok([MAGIC, &[1, 0], &(length as u16).to_le_bytes(), header.as_bytes(), &npy.bytes].concat())
}

/// Position of an error in bytes, and its description.
type Wrong = (usize, String);

/// Reads the content of an NPY file.
pub(super) fn decode(bytes: &[u8]) -> Result<Npy, Wrong> {
    let rest = bytes.strip_prefix(MAGIC).ok_or((0, "not an NPY file".to_string()))?;
    let cut = || (bytes.len(), "the file is cut short".to_string());
    let ([major, _], rest) = rest.split_first_chunk().ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk().map(|(length, rest)| (u16::from_le_bytes(*length).into(), rest)),
        2 | 3 => rest.split_first_chunk().map(|(length, rest)| (u32::from_le_bytes(*length) as usize, rest)),
        _ => return Err((MAGIC.len(), format!("NPY version {major} is not supported, only 1 to 3"))),
    }
    .ok_or_else(cut)?;
    let start = bytes.len() - rest.len();
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| (start, "the header is not text".to_string()))?;
    let Header { tensor_type, big_endian, fortran_order } = Header::parse(header).map_err(|text| (start, text))?;
    let needed = tensor_type.bytes().ok_or((start, "the array would be larger than memory can be".to_string()))?;
    if data.len() != needed {
        return Err((bytes.len(), format!("{tensor_type} has {needed} bytes of elements, not {}", data.len())));
    }
    let mut bytes = data.to_vec();
    if big_endian && tensor_type.dtype.size() > 1 {
        bytes.chunks_exact_mut(tensor_type.dtype.size()).for_each(<[u8]>::reverse);
    }
    let npy = Npy { tensor_type, bytes };
    if fortran_order { npy.in_c_order().map_err(|error| (start, error.to_string())) } else { Ok(npy) }
}

/// Description of an array: `{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }`.
struct Header {
    tensor_type: TensorType,
    big_endian: bool,
    fortran_order: bool,
}

impl Header {
    fn parse(header: &str) -> Result<Header, String> {
        let after = |key: &str| {
            let at = header.find(&format!("'{key}':")).ok_or(format!("the header has no {key:?}"))?;
            Ok::<_, String>(header[at + key.len() + 3..].trim_start())
        };
        let descr = after("descr")?;
        let descr = descr.strip_prefix('\'').and_then(|descr| descr.split_once('\'')).map_or(descr, |(descr, _)| descr);
        let kind = descr.strip_prefix(['<', '>', '|', '=']).unwrap_or(descr);
        let known = TYPES.iter().find(|(_, name)| *name == kind);
        let all = || TYPES.map(|(_, name)| name).join(", ");
        let (dtype, _) = known.ok_or_else(|| format!("elements of type {descr:?} are not supported, only {}", all()))?;
        let fortran_order = match after("fortran_order")? {
            order if order.starts_with("False") => false,
            order if order.starts_with("True") => true,
            _ => return Err("the header's fortran_order is neither True nor False".into()),
        };
        let shape = after("shape")?;
        let inner = shape.strip_prefix('(').and_then(|shape| shape.split_once(')')).ok_or("the header's shape is not a tuple")?.0;
        let dims = inner.split(',').map(str::trim).filter(|dim| !dim.is_empty()).map(|dim| dim.parse::<u32>());
        let dims = dims.collect::<Result<Vec<u32>, _>>().map_err(|_| format!("the shape ({inner}) is not a list of numbers below 2^32"))?;
        let shape = Shape::new(&dims).map_err(|_| format!("the array has {} dimensions, more than 8", dims.len()))?;
        Ok(Header { tensor_type: TensorType::new(*dtype, shape), big_endian: descr.starts_with('>'), fortran_order })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes that `numpy.save` writes for `numpy.float32([[1.0]])`.
    fn numpy() -> Vec<u8> {
        let header =
            "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1), }                                                          \n";
        [MAGIC, &[1, 0, header.len() as u8, 0], header.as_bytes(), &1f32.to_le_bytes()].concat()
    }

    #[test]
    fn reads_numpy() {
        let npy = decode(&numpy()).unwrap();
        assert_eq!(npy.tensor_type.to_string(), "f32[1,1]");
        assert_eq!(npy.bytes, 1f32.to_le_bytes());
    }

    #[test]
    fn writes_any_rank() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        for dims in [&[][..], &[1], &[1, 1], &[0, 4_000_000_000]] {
            let tensor_type = TensorType::new(DType::F32, Shape::new(dims).unwrap());
            let npy = Npy { tensor_type, bytes: vec![0; tensor_type.bytes().unwrap()] };
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
        (0..good.len()).for_each(|length| assert!(decode(&good[..length]).is_err()));
        let with = |from: &str, to: &str| {
            let at = good.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            let mut bytes = good.clone();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            decode(&bytes).unwrap_err().1
        };
        assert!(with("<f4", "<c8").contains("elements of type \"<c8\" are not supported"));
        assert!(with("False", "Maybe").contains("neither True nor False"));
        assert!(with("(1, 1)", "(1, 2)").contains("has 8 bytes of elements, not 4"));
        assert!(with("(1, 1)", "(1, a)").contains("numbers below"));
    }

    #[test]
    fn reads_other_orders() {
        // The bytes that numpy.save writes for numpy.asfortranarray([[1, 2, 3], [4, 5, 6]], dtype=">i4").
        let header = "{'descr': '>i4', 'fortran_order': True, 'shape': (2, 3), }\n";
        let elements = [1i32, 4, 2, 5, 3, 6].map(i32::to_be_bytes).concat();
        let file = [MAGIC, &[1, 0, header.len() as u8, 0], header.as_bytes(), &elements].concat();
        let tensor = decode(&file).unwrap().tensor(&crate::compute::devices::cpu()).unwrap();
        assert_eq!((tensor.dims(), tensor.to_vec::<i32>().unwrap()), (&[2, 3][..], vec![1, 2, 3, 4, 5, 6]));
    }
}
