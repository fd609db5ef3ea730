//! The reader: verifies the bytes of a file, and checks what the schema cannot express.

use super::schema::{self, TensorMap};
use super::{Code, ElementType, Model, Operator, Place, Quantization, Signature, Subgraph, Tensor};
use flatbuffers::{Follow, Vector, VerifierOptions};

/// Version of the schema.
const VERSION: u32 = 3;
/// Identifier of the schema, at byte 4 of a file.
const IDENTIFIER: &[u8] = b"TFL3";
/// Depth of the tables of a valid file, with room for later schemas.
const MAX_DEPTH: usize = 16;
/// Bytes that the reader may allocate for each byte of the file. Tables that occur many times in a list would need more.
const ALLOCATION: usize = 16;

/// Reads and checks a model. The error names the subgraph, the operator and the tensor.
pub(crate) fn read(file: &[u8]) -> Result<Model<'_>, String> {
    match file.get(4..8) {
        None => return Err("it is shorter than the header of a model".into()),
        Some(identifier) if identifier != IDENTIFIER => {
            let text = String::from_utf8_lossy(identifier);
            return Err(format!("its identifier is {text:?}, not \"TFL3\": it is not a TensorFlow Lite model"));
        }
        Some(_) => (),
    }
    let options = VerifierOptions {
        max_depth: MAX_DEPTH,
        max_tables: file.len() / 4,
        max_apparent_size: file.len().saturating_mul(ALLOCATION),
        ignore_missing_null_terminator: true,
    };
    let root = flatbuffers::root_with_opts::<schema::Model<'_>>(&options, file);
    let root = root.map_err(|error| format!("it is damaged: {}", error.to_string().trim_end().replace('\n', " ")))?;
    if root.version() != VERSION {
        return Err(format!("it has version {} of the schema, not {VERSION}", root.version()));
    }
    if root.external_buffer_groups().is_some_and(|list| !list.is_empty()) || root.external_buffers().is_some_and(|list| !list.is_empty()) {
        return Err("its constants are in other files, which gradlet does not read".into());
    }
    let left = file.len().saturating_mul(ALLOCATION);
    Reader { root, left, subgraphs: root.subgraphs().map_or(0, |list| list.len()), warnings: Vec::new() }.model()
}

/// Returns the elements of an optional list.
fn elements<'a, T: Follow<'a> + 'a>(list: Option<Vector<'a, T>>) -> impl ExactSizeIterator<Item = T::Inner> {
    let list = list.unwrap_or_default();
    (0..list.len()).map(move |index| list.get(index))
}

struct Reader<'a> {
    root: schema::Model<'a>,
    /// Bytes that may still be allocated.
    left: usize,
    /// Number of subgraphs.
    subgraphs: usize,
    warnings: Vec<String>,
}

impl<'a> Reader<'a> {
    fn model(mut self) -> Result<Model<'a>, String> {
        let subgraphs = elements(self.root.subgraphs()).enumerate();
        let mut read = self.room(self.subgraphs)?;
        for (index, subgraph) in subgraphs {
            let name = subgraph.name().unwrap_or("");
            read.push(self.subgraph(subgraph).map_err(|problem| format!("{}: {problem}", Place("subgraph", index, &name)))?);
        }
        if read.is_empty() {
            return Err("it has no subgraph".into());
        }
        let defs = elements(self.root.signature_defs());
        let mut signatures = self.room(defs.len())?;
        for def in defs {
            let key = def.signature_key().unwrap_or("");
            signatures.push(self.signature(key, def, &read).map_err(|problem| format!("signature {key:?}: {problem}"))?);
        }
        let description = self.root.description().unwrap_or("");
        Ok(Model { description, subgraphs: read, signatures, warnings: self.warnings })
    }

    fn subgraph(&mut self, subgraph: schema::SubGraph<'a>) -> Result<Subgraph<'a>, String> {
        let list = elements(subgraph.tensors());
        let mut tensors = self.room(list.len())?;
        for (index, tensor) in list.enumerate() {
            let place = Place("tensor", index, &tensor.name().unwrap_or(""));
            tensors.push(self.tensor(tensor, &place).map_err(|problem| format!("{place}: {problem}"))?);
        }
        let count = tensors.len();
        let inputs = self.indices("input", subgraph.inputs(), |index| tensor_index(index, count))?;
        let outputs = self.indices("output", subgraph.outputs(), |index| tensor_index(index, count))?;
        let list = elements(subgraph.operators());
        let mut operators = self.room(list.len())?;
        for (index, operator) in list.enumerate() {
            let code = self.code(operator).map_err(|problem| format!("operator {index}: {problem}"))?;
            let read = self.operator(operator, code, &tensors);
            operators.push(read.map_err(|problem| format!("{}: {problem}", Place("operator", index, &code.0)))?);
        }
        Ok(Subgraph { name: subgraph.name().unwrap_or(""), tensors, inputs, outputs, operators })
    }

    fn tensor(&mut self, tensor: schema::Tensor<'a>, place: &Place<'_>) -> Result<Tensor<'a>, String> {
        if tensor.sparsity().is_some() {
            return Err("it is sparse, which gradlet does not read".into());
        }
        if tensor.external_buffer() != 0 {
            return Err("its bytes are in another file, which gradlet does not read".into());
        }
        let dims = self.indices("dimension", tensor.shape(), |dim| u32::try_from(dim).map_err(|_| format!("{dim}, which is negative")))?;
        let signature = self.indices("dimension", tensor.shape_signature(), dimension)?;
        if !signature.is_empty() && signature.len() != dims.len() {
            return Err(format!("it has {} dimensions, but {} in its signature", dims.len(), signature.len()));
        }
        let kind = ElementType(tensor.kind());
        let elements = match dims.contains(&0) {
            true => Some(0),
            false => dims.iter().try_fold(1usize, |product, &dim| product.checked_mul(dim as usize)),
        };
        let bytes = elements.and_then(|elements| elements.checked_mul(kind.size().unwrap_or(1)));
        let bytes = bytes.filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or_else(|| format!("{kind}{dims:?} has more bytes than a machine can address"))?;
        let data = self.buffer(tensor.buffer())?.filter(|data| !data.is_empty());
        if let (Some(data), Some(_)) = (data, kind.size())
            && data.len() != bytes
        {
            return Err(format!("it has {} bytes, but {kind}{dims:?} needs {bytes}", data.len()));
        }
        let quantization =
            tensor.quantization().map(|quantization| self.quantization(quantization, (kind, &dims), place)).transpose()?.flatten();
        let is_variable = tensor.is_variable();
        Ok(Tensor { name: tensor.name().unwrap_or(""), kind, dims, signature, data, quantization, is_variable })
    }

    /// Returns the bytes of a buffer.
    fn buffer(&self, index: u32) -> Result<Option<&'a [u8]>, String> {
        let buffers = self.root.buffers().unwrap_or_default();
        let Some(buffer) = usize::try_from(index).ok().filter(|&index| index < buffers.len()).map(|index| buffers.get(index)) else {
            return if index == 0 { Ok(None) } else { Err(format!("it is in buffer {index} of {}", buffers.len())) };
        };
        if buffer.offset() > 1 || buffer.size() > 1 {
            return Err(format!("its bytes are behind the model, at byte {} of the file, which gradlet does not read", buffer.offset()));
        }
        Ok(buffer.data().map(|data| data.bytes()))
    }

    fn quantization(
        &mut self,
        quantization: schema::QuantizationParameters<'a>,
        (kind, dims): (ElementType, &[u32]),
        place: &Place<'_>,
    ) -> Result<Option<Quantization>, String> {
        if quantization.details_type() != 0 {
            return Err("it is quantized in blocks or by a custom rule, which gradlet does not read".into());
        }
        let (scales, zero_points) = (elements(quantization.scale()), elements(quantization.zero_point()));
        if scales.len() == 0 {
            return Ok(None);
        }
        if scales.len() != zero_points.len() {
            return Err(format!("it has {} scales, but {} zero points", scales.len(), zero_points.len()));
        }
        let scales = self.list(scales)?;
        let zero_points = self.list(zero_points)?;
        if let Some((index, scale)) = scales.iter().enumerate().find(|(_, scale)| !scale.is_finite() || **scale <= 0.0) {
            return Err(format!("its scale {index} is {scale}, not a positive number"));
        }
        let range = kind.integers();
        if let Some((index, zero_point)) = zero_points.iter().enumerate().find(|(_, zero_point)| !range.contains(zero_point)) {
            return Err(format!("its zero point {index} is {zero_point}, which is not a value of {kind}"));
        }
        if scales.len() == 1 {
            return Ok(Some(Quantization { scales, zero_points, axis: 0 }));
        }
        let axis = usize::try_from(quantization.quantized_dimension()).ok().filter(|&axis| axis < dims.len());
        let axis = match (axis, dims) {
            (Some(axis), _) => axis,
            (None, [_]) => {
                let wrong = quantization.quantized_dimension();
                self.warn(format!("{place}: its scales are for axis {wrong}, but it has one axis: they are taken for axis 0"))?;
                0
            }
            _ => return Err(format!("its scales are for axis {}, but it has {} axes", quantization.quantized_dimension(), dims.len())),
        };
        match dims.get(axis) {
            Some(&dim) if dim as usize == scales.len() => Ok(Some(Quantization { scales, zero_points, axis })),
            _ => Err(format!("it has {} scales for axis {axis} of {dims:?}", scales.len())),
        }
    }

    /// Returns the kind of an operator, and the version of the kind.
    fn code(&self, operator: schema::Operator<'a>) -> Result<(Code<'a>, i32), String> {
        let codes = self.root.operator_codes().unwrap_or_default();
        let index = operator.opcode_index() as usize;
        if index >= codes.len() {
            return Err(format!("it has code {index} of {}", codes.len()));
        }
        let code = codes.get(index);
        let number = code.builtin_code().max(code.deprecated_builtin_code().into());
        Ok((Code::new(number, code.custom_code()), code.version()))
    }

    fn operator(
        &mut self,
        operator: schema::Operator<'a>,
        (code, version): (Code<'a>, i32),
        tensors: &[Tensor<'a>],
    ) -> Result<Operator<'a>, String> {
        if operator.large_custom_options_offset() > 1 {
            return Err("its options are behind the model, which gradlet does not read".into());
        }
        let optional = |index| if index == -1 { Ok(None) } else { tensor_index(index, tensors.len()).map(Some) };
        let inputs = self.indices("input", operator.inputs(), optional)?;
        let outputs = self.indices("output", operator.outputs(), |index| tensor_index(index, tensors.len()))?;
        let intermediates = self.indices("intermediate", operator.intermediates(), optional)?;
        if let Some((at, tensor, name)) = outputs.iter().enumerate().find_map(|(at, &index)| {
            let tensor = tensors.get(index)?;
            tensor.data.map(|_| (at, index, tensor.name))
        }) {
            return Err(format!("output {at} is {}, which is a constant", Place("tensor", tensor, &name)));
        }
        Ok(Operator { code, version, inputs, outputs, intermediates, options: operator.options() })
    }

    fn signature(&mut self, key: &'a str, def: schema::SignatureDef<'a>, read: &[Subgraph<'a>]) -> Result<Signature<'a>, String> {
        let subgraph = def.subgraph_index() as usize;
        let Some(graph) = read.get(subgraph) else {
            return Err(format!("it is of subgraph {subgraph} of {}", read.len()));
        };
        let inputs = self.named(elements(def.inputs()), &graph.inputs).map_err(|problem| format!("input {problem}"))?;
        let outputs = self.named(elements(def.outputs()), &graph.outputs).map_err(|problem| format!("output {problem}"))?;
        Ok(Signature { key, subgraph, inputs, outputs })
    }

    /// Returns the tensors of a signature by name. Each must be in `among`.
    fn named(&mut self, maps: impl ExactSizeIterator<Item = TensorMap<'a>>, among: &[usize]) -> Result<Vec<(&'a str, usize)>, String> {
        let mut named = self.room(maps.len())?;
        for map in maps {
            let (name, index) = (map.name().unwrap_or(""), map.tensor_index() as usize);
            if !among.contains(&index) {
                return Err(format!("{name:?} is tensor {index}, which is none of the subgraph's {among:?}"));
            }
            named.push((name, index));
        }
        Ok(named)
    }

    /// Reads a list of numbers. The error names the number by `what` and its position.
    fn indices<T>(&mut self, what: &str, list: Option<Vector<'a, i32>>, read: impl Fn(i32) -> Result<T, String>) -> Result<Vec<T>, String> {
        let list = elements(list);
        let mut numbers = self.room(list.len())?;
        for (at, number) in list.enumerate() {
            numbers.push(read(number).map_err(|problem| format!("{what} {at} is {problem}"))?);
        }
        Ok(numbers)
    }

    fn list<T>(&mut self, elements: impl ExactSizeIterator<Item = T>) -> Result<Vec<T>, String> {
        let mut list = self.room(elements.len())?;
        list.extend(elements);
        Ok(list)
    }

    fn warn(&mut self, text: String) -> Result<(), String> {
        self.take(text.len() + size_of::<String>())?;
        self.warnings.push(text);
        Ok(())
    }

    /// Returns an empty list with room for `count` elements.
    fn room<T>(&mut self, count: usize) -> Result<Vec<T>, String> {
        self.take(count.saturating_mul(size_of::<T>()))?;
        Ok(Vec::with_capacity(count))
    }

    /// Takes bytes from those that may be allocated.
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        self.left = self.left.checked_sub(bytes).ok_or("it is damaged: its tables need more memory than a model of its size")?;
        Ok(())
    }
}

fn tensor_index(index: i32, count: usize) -> Result<usize, String> {
    usize::try_from(index).ok().filter(|&index| index < count).ok_or_else(|| format!("tensor {index}, but there are {count}"))
}

fn dimension(dim: i32) -> Result<Option<u32>, String> {
    match dim {
        -1 => Ok(None),
        _ => u32::try_from(dim).map(Some).map_err(|_| format!("{dim}, which is neither -1 nor a size")),
    }
}
