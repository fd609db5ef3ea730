//! TensorFlow's `TensorProto` messages, which `tf.io.serialize_tensor` writes and `tf.io.parse_tensor` reads.

use crate::formats::proto::tensor_shape_proto::Dim;
use crate::formats::proto::{DataType, TensorProto, TensorShapeProto};
use crate::values::Values;
use crate::values::strings::Strings;
use bytes::Bytes;
use gradlet_core::tensor::Bool;
use gradlet_core::{DType, Error, Result, Shape, Tensor, TensorType};
use prost::Message;

/// Maximum size in bytes of elements that repeat the last value of a message. It limits the memory that a small file can claim.
const MOST_FILLED: usize = 1 << 26;
/// Maximum size of the elements of a message, in bytes. A protobuf message has less than 2 GiB. The rest is for the type and the shape.
const MOST_BYTES: usize = (1 << 31) - 256;

const TYPES: [(DType, DataType, &str); 10] = [
    (DType::F32, DataType::DtFloat, "float"),
    (DType::F64, DataType::DtDouble, "double"),
    (DType::F16, DataType::DtHalf, "half"),
    (DType::Bf16, DataType::DtBfloat16, "bfloat16"),
    (DType::I8, DataType::DtInt8, "int8"),
    (DType::U8, DataType::DtUint8, "uint8"),
    (DType::I16, DataType::DtInt16, "int16"),
    (DType::I32, DataType::DtInt32, "int32"),
    (DType::I64, DataType::DtInt64, "int64"),
    (DType::Bool, DataType::DtBool, "bool"),
];

fn known(dtype: DType) -> &'static (DType, DataType, &'static str) {
    TYPES.iter().find(|(known, ..)| *known == dtype).unwrap_or(&TYPES[0])
}

/// Returns the number of the element type in TensorFlow's messages.
pub(crate) fn data_type(dtype: DType) -> DataType {
    known(dtype).1
}

/// Returns TensorFlow's name of the element type.
pub(crate) fn name(dtype: DType) -> &'static str {
    known(dtype).2
}

/// Serializes a tensor as a `TensorProto`. The bytes are identical to TensorFlow's. Fails in a trace.
///
/// ```
/// use gradlet::{DType, Tensor, io};
/// let x = Tensor::new(&gradlet::cpu(), &[1.5f32, -2.0], &[1, 2])?;
/// let bytes = io::serialize_tensor(&x)?;
/// assert_eq!(io::parse_tensor(&bytes, DType::F32)?.to_vec::<f32>()?, [1.5, -2.0]);
/// # Ok::<(), gradlet::Error>(())
/// ```
pub fn serialize_tensor(tensor: &Tensor) -> Result<Bytes> {
    Ok(to_proto(tensor)?.encode_to_vec().into())
}

/// Serializes strings as a `TensorProto`. The bytes are identical to TensorFlow's.
pub fn serialize_strings(strings: &Strings) -> Bytes {
    strings_to_proto(strings).encode_to_vec().into()
}

/// Converts a tensor to a message, like TensorFlow. Fails in a trace, and if the tensor has more bytes than protobuf allows.
pub fn to_proto(tensor: &Tensor) -> Result<TensorProto> {
    let bytes = tensor.bytes()?;
    if let Some(more @ 1..) = bytes.len().checked_sub(MOST_BYTES) {
        let (tensor_type, bytes) = (tensor.tensor_type(), bytes.len());
        let text = format!("a {tensor_type} tensor has {bytes} bytes, {more} more than the {MOST_BYTES} that a TensorProto can hold");
        return Err(Error::TooLarge.context(text));
    }
    let tensor_content = match tensor.dtype() {
        DType::Bool => bytes.iter().map(|&byte| u8::from(byte != 0)).collect(),
        _ => Bytes::copy_from_slice(&bytes),
    };
    Ok(message(known(tensor.dtype()).1, tensor.dims(), TensorProto { tensor_content, ..TensorProto::default() }))
}

/// Converts strings to a message, like TensorFlow.
pub fn strings_to_proto(strings: &Strings) -> TensorProto {
    message(DataType::DtString, strings.dims(), TensorProto { string_val: strings.values().to_vec(), ..TensorProto::default() })
}

fn message(dtype: DataType, dims: &[u32], values: TensorProto) -> TensorProto {
    let dim = dims.iter().map(|&size| Dim { size: size.into(), name: String::new() }).collect();
    let tensor_shape = Some(TensorShapeProto { dim, unknown_rank: false });
    TensorProto { dtype: dtype.into(), tensor_shape, ..values }
}

/// Parses a serialized `TensorProto` of the element type `dtype` to a tensor.
///
/// Fails if the bytes are not a `TensorProto` of this type, or if its values do not fill its shape.
pub fn parse_tensor(serialized: &[u8], dtype: DType) -> Result<Tensor> {
    let (_, data_type, name) = *known(dtype);
    numbers(&parse(serialized, data_type, name)?, dtype)
}

/// Parses a serialized `TensorProto` of strings. Fails if the bytes are not a `TensorProto` of strings, or if its values do not fill its
/// shape.
pub fn parse_strings(serialized: &[u8]) -> Result<Strings> {
    texts(parse(serialized, DataType::DtString, "string")?)
}

/// Returns the numbers or strings of a message. Fails if gradlet does not support its type, or if its values do not fill its shape.
pub fn from_proto(proto: &TensorProto) -> Result<Values> {
    if proto.dtype == DataType::DtString as i32 {
        return texts(proto.clone()).map(Values::Strings);
    }
    let dtype = TYPES.iter().find(|(_, known, _)| *known as i32 == proto.dtype).map(|(dtype, ..)| *dtype);
    let unknown = || Error::message(format!("tensors of type {} are not supported", spelled(proto.dtype)));
    numbers(proto, dtype.ok_or_else(unknown)?).map(Values::Numbers)
}

fn numbers(proto: &TensorProto, dtype: DType) -> Result<Tensor> {
    let tensor_type = TensorType::new(dtype, shape(proto)?);
    let size = tensor_type.bytes().ok_or(Error::TooLarge)?;
    if !proto.tensor_content.is_empty() {
        if proto.tensor_content.len() != size {
            let text = format!("{tensor_type} has {size} bytes of elements, but the TensorProto has {}", proto.tensor_content.len());
            return Err(Error::message(text));
        }
        return Tensor::from_bytes(&crate::compute::devices::cpu(), tensor_type, &proto.tensor_content);
    }
    let mut bytes = values(proto, dtype);
    let last = bytes.len().checked_sub(dtype.size()).map_or(vec![0; dtype.size()], |at| bytes[at..].to_vec());
    fillable(size, bytes.len())?;
    bytes.truncate(size);
    bytes.extend(last.iter().copied().cycle().take(size - bytes.len()));
    Tensor::from_bytes(&crate::compute::devices::cpu(), tensor_type, &bytes)
}

fn texts(proto: TensorProto) -> Result<Strings> {
    if !proto.tensor_content.is_empty() {
        return Err(Error::message("strings in tensor_content are not supported, only in string_val"));
    }
    let shape = shape(&proto)?;
    let (count, mut values) = (shape.elements().ok_or(Error::TooLarge)?, proto.string_val);
    fillable(count.saturating_mul(size_of::<Bytes>()), values.len().saturating_mul(size_of::<Bytes>()))?;
    let last = values.last().cloned().unwrap_or_default();
    values.resize(count, last);
    Strings::new(values, shape.dims())
}

fn fillable(size: usize, there: usize) -> Result<()> {
    if size <= there.max(MOST_FILLED) {
        return Ok(());
    }
    Err(Error::message(format!("{there} bytes of values cannot be repeated to {size} bytes: the limit is {MOST_FILLED}")))
}

fn parse(serialized: &[u8], wanted: DataType, name: &str) -> Result<TensorProto> {
    let proto = TensorProto::decode(serialized).map_err(|error| Error::message(format!("Could not parse TensorProto: {error}")))?;
    if proto.dtype != wanted as i32 {
        let found = spelled(proto.dtype);
        return Err(Error::message(format!("Type mismatch between parsed tensor ({found}) and dtype ({name})")));
    }
    Ok(proto)
}

/// Returns TensorFlow's name of the type with this number.
fn spelled(dtype: i32) -> String {
    DataType::try_from(dtype).unwrap_or_default().as_str_name().trim_start_matches("DT_").to_lowercase()
}

fn shape(proto: &TensorProto) -> Result<Shape> {
    let shape = proto.tensor_shape.clone().unwrap_or_default();
    if shape.unknown_rank {
        return Err(Error::message("the TensorProto has a shape of unknown rank"));
    }
    let dims = shape.dim.iter().map(|dim| {
        u32::try_from(dim.size)
            .map_err(|_| Error::message(format!("the TensorProto has a dimension of {}, not of 0 to 2^32 - 1", dim.size)))
    });
    Shape::new(&dims.collect::<Result<Vec<u32>>>()?)
}

/// Returns the bytes of the values, from the message field of their type.
fn values(proto: &TensorProto, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::F32 => bytemuck::cast_slice(&proto.float_val).to_vec(),
        DType::F64 => bytemuck::cast_slice(&proto.double_val).to_vec(),
        DType::I64 => bytemuck::cast_slice(&proto.int64_val).to_vec(),
        DType::I32 => bytemuck::cast_slice(&proto.int_val).to_vec(),
        DType::I8 | DType::U8 => proto.int_val.iter().map(|&value| value as u8).collect(),
        DType::I16 => proto.int_val.iter().flat_map(|&value| (value as i16).to_le_bytes()).collect(),
        DType::F16 | DType::Bf16 => proto.half_val.iter().flat_map(|&value| (value as u16).to_le_bytes()).collect(),
        DType::Bool => proto.bool_val.iter().map(|&value| Bool::from(value).0).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_comes_back() {
        for dtype in DType::ALL {
            let tensor_type = TensorType::new(dtype, Shape::new(&[2, 1]).unwrap());
            let tensor = Tensor::from_bytes(&crate::compute::devices::cpu(), tensor_type, &vec![1; 2 * dtype.size()]).unwrap();
            let again = parse_tensor(&serialize_tensor(&tensor).unwrap(), dtype).unwrap();
            assert_eq!((again.tensor_type(), again.bytes().unwrap()), (tensor_type, tensor.bytes().unwrap()));
        }
        let strings = Strings::new(vec![Bytes::from_static(b"a"), Bytes::new()], &[1, 2]).unwrap();
        assert_eq!(parse_strings(&serialize_strings(&strings)).unwrap(), strings);
    }

    fn floats(float_val: &[f32], dims: &[u32]) -> Result<Vec<f32>> {
        parse_tensor(
            &message(DataType::DtFloat, dims, TensorProto { float_val: float_val.into(), ..TensorProto::default() }).encode_to_vec(),
            DType::F32,
        )?
        .to_vec()
    }

    #[test]
    fn the_last_value_stands_for_the_rest() {
        assert_eq!(floats(&[1.0, 2.0], &[4]).unwrap(), [1.0, 2.0, 2.0, 2.0]);
        assert_eq!(floats(&[], &[2]).unwrap(), [0.0, 0.0]);
        assert_eq!(floats(&[1.0, 2.0], &[]).unwrap(), [1.0]);
        assert!(floats(&[1.0], &[1_000_000_000]).unwrap_err().to_string().contains("the limit is"));
        assert!(floats(&[1.0], &[u32::MAX, 0]).is_ok());
    }

    #[test]
    fn refuses_other_types_and_damage() {
        let bytes = serialize_tensor(&Tensor::scalar(&crate::compute::devices::cpu(), 1.0f32)).unwrap();
        let error = parse_tensor(&bytes, DType::I32).unwrap_err().to_string();
        assert!(error.contains("Type mismatch between parsed tensor (float) and dtype (int32)"), "{error}");
        assert!(parse_strings(&bytes).is_err());
        assert!(parse_tensor(&bytes[..bytes.len() - 1], DType::F32).is_err());
    }
}
