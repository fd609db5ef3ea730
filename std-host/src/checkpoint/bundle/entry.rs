//! The index entry of a tensor.

use crate::formats::proto::{BundleEntryProto, DataType};
use gradlet_core::DType;

/// The index entry of a tensor, or of a slice of a tensor.
#[derive(Clone, Debug)]
pub struct Entry {
    proto: BundleEntryProto,
    dtype: DataType,
    dims: Vec<u64>,
}

impl Entry {
    /// Checks an entry. Fails if it contradicts itself or names a data file that does not exist.
    pub(super) fn new(proto: BundleEntryProto, shards: u32) -> Result<Entry, String> {
        let dtype = DataType::try_from(proto.dtype).map_err(|_| format!("its element type {} is unknown", proto.dtype))?;
        let shape = proto.shape.clone().unwrap_or_default();
        if shape.unknown_rank {
            return Err("its shape is unknown".into());
        }
        let dims: Result<Vec<u64>, _> = shape.dim.iter().map(|dim| u64::try_from(dim.size)).collect();
        let dims = dims.map_err(|_| "it has a negative dimension".to_string())?;
        let entry = Entry { proto, dtype, dims };
        let (Ok(offset), Ok(size)) = (u64::try_from(entry.proto.offset), u64::try_from(entry.proto.size)) else {
            return Err("its offset or size in the data file is negative".into());
        };
        if offset.checked_add(size).is_none() {
            return Err("its end in the data file exceeds the range of file offsets".into());
        }
        let elements = entry.elements().ok_or("its number of elements overflows")?;
        if !entry.proto.slices.is_empty() {
            return Ok(entry);
        }
        if u32::try_from(entry.proto.shard_id).map_or(true, |shard| shard >= shards) {
            return Err(format!("it names data file {}, but the number of data files is {shards}", entry.proto.shard_id));
        }
        match element_bytes(dtype) {
            Some(bytes) if elements.checked_mul(bytes as u64) != Some(size) => {
                Err(format!("elements {} {:?} do not have {size} bytes", dtype_name(dtype), entry.dims))
            }
            // Each string has at least one byte for its length.
            None if elements > size => Err(format!("{elements} elements do not fit into {size} bytes")),
            _ => Ok(entry),
        }
    }

    /// Returns TensorFlow's element type.
    pub fn dtype(&self) -> DataType {
        self.dtype
    }

    /// Returns the dimensions, outermost first. For a tensor that is stored in slices, these are the dimensions of the whole tensor.
    pub fn dims(&self) -> &[u64] {
        &self.dims
    }

    /// Returns the number of elements, or `None` if it exceeds a `u64`.
    pub(super) fn elements(&self) -> Option<u64> {
        match self.dims.contains(&0) {
            true => Some(0),
            false => self.dims.iter().try_fold(1u64, |all, dim| all.checked_mul(*dim)),
        }
    }

    /// Returns the size of all elements in bytes. For strings, and other elements without a fixed size, returns their size in the file.
    pub fn bytes(&self) -> u64 {
        let fixed = element_bytes(self.dtype).and_then(|bytes| self.elements()?.checked_mul(bytes as u64));
        fixed.unwrap_or(self.proto.size as u64)
    }

    /// Returns the Protobuf message of the entry.
    pub fn proto(&self) -> &BundleEntryProto {
        &self.proto
    }
}

/// Returns the size of an element in bytes, or `None` for a type without a fixed size, such as strings.
pub fn element_bytes(dtype: DataType) -> Option<usize> {
    use DataType::*;
    Some(match dtype {
        DtBool | DtInt8 | DtUint8 | DtQint8 | DtQuint8 => 1,
        DtFloat8E5m2 | DtFloat8E4m3fn | DtFloat8E4m3fnuz | DtFloat8E4m3b11fnuz | DtFloat8E5m2fnuz => 1,
        DtInt2 | DtInt4 | DtUint2 | DtUint4 | DtFloat4E2m1fn => 1,
        DtHalf | DtBfloat16 | DtInt16 | DtUint16 | DtQint16 | DtQuint16 => 2,
        DtFloat | DtInt32 | DtUint32 | DtQint32 => 4,
        DtDouble | DtInt64 | DtUint64 | DtComplex64 => 8,
        DtComplex128 => 16,
        _ => return None,
    })
}

/// Returns Python's name of the element type, such as `float32`.
pub fn dtype_name(dtype: DataType) -> String {
    match dtype {
        DataType::DtFloat => "float32".into(),
        DataType::DtDouble => "float64".into(),
        DataType::DtHalf => "float16".into(),
        other => other.as_str_name().trim_start_matches("DT_").to_lowercase(),
    }
}

/// Returns gradlet's element type with the same representation, if there is one.
pub(super) fn own_dtype(dtype: DataType) -> Option<DType> {
    Some(match dtype {
        DataType::DtFloat => DType::F32,
        DataType::DtDouble => DType::F64,
        DataType::DtHalf => DType::F16,
        DataType::DtBfloat16 => DType::Bf16,
        DataType::DtInt8 => DType::I8,
        DataType::DtUint8 => DType::U8,
        DataType::DtInt16 => DType::I16,
        DataType::DtInt32 => DType::I32,
        DataType::DtInt64 => DType::I64,
        DataType::DtBool => DType::Bool,
        _ => return None,
    })
}
