//! The writer: from descriptions of tensors and operators to the bytes of a file.

// The trait of elements in the flatbuffers crate has an unsafe method.
#![allow(unsafe_code)]

use super::{ElementType, Quantization, operator_number};
use flatbuffers::{FlatBufferBuilder, Push, PushAlignment, UnionWIPOffset, WIPOffset};
use gradlet_core::DType;
use std::collections::HashMap;

/// Field of a table of options.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Field {
    I8(i8),
    I32(i32),
    Bool(bool),
    F32(f32),
    List(Vec<i32>),
    #[cfg(test)]
    Text(&'static str),
}

/// Options of an operator: the number of their table, and its fields by slot.
pub(crate) type Options = Option<(u8, Vec<(u16, Field)>)>;

/// A tensor of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub name: String,
    pub kind: ElementType,
    pub dims: Vec<i32>,
    /// Bytes of a constant: row-major, little-endian.
    pub data: Option<Vec<u8>>,
    pub quantization: Option<Quantization>,
}

/// An operator on the tensors of its graph. Input -1 is missing.
#[derive(Clone, Debug)]
pub(crate) struct Operator {
    pub name: &'static str,
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
    pub options: Options,
}

/// A subgraph.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub name: String,
    pub tensors: Vec<Described>,
    pub operators: Vec<Operator>,
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
}

impl Graph {
    /// Removes the tensors that no operator has.
    pub(crate) fn remove_unused(&mut self) {
        let mut used = vec![false; self.tensors.len()];
        let lists = self.operators.iter().flat_map(|operator| [&operator.inputs, &operator.outputs]).chain([&self.inputs, &self.outputs]);
        lists.flatten().filter_map(|&tensor| usize::try_from(tensor).ok()).for_each(|tensor| used[tensor] = true);
        let mut count = 0;
        let number = |used: &bool| {
            count += i32::from(*used);
            count - 1
        };
        let numbers: Vec<i32> = used.iter().map(number).collect();
        let lists = self.operators.iter_mut().flat_map(|operator| [&mut operator.inputs, &mut operator.outputs]);
        for tensor in lists.chain([&mut self.inputs, &mut self.outputs]).flatten() {
            *tensor = usize::try_from(*tensor).map_or(-1, |tensor| numbers[tensor]);
        }
        let mut used = used.into_iter();
        self.tensors.retain(|_| used.next() == Some(true));
    }
}

/// A named function of the model: the names of the inputs and outputs of a subgraph.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub key: String,
    pub subgraph: u32,
    pub inputs: Vec<(String, i32)>,
    pub outputs: Vec<(String, i32)>,
}

/// Greatest number of bytes of the constants. The offsets of a file have 32 bits, one of which is a sign, and the builder doubles its
/// memory.
const MAX_BYTES: usize = 1 << 30;

type Builder = FlatBufferBuilder<'static>;
type Offset = WIPOffset<UnionWIPOffset>;

/// Field of a table: its slot and its value.
enum Slot {
    U32(u16, u32),
    I8(u16, i8),
    U8(u16, u8),
    At(u16, Offset),
    Of(u16, Field),
}

/// Byte of a constant. The first one is at a multiple of 16, as the format demands.
struct Byte(u8);

impl Push for Byte {
    type Output = u8;

    // SAFETY: it writes by reference.
    unsafe fn push(&self, bytes: &mut [u8], _: usize) {
        bytes.iter_mut().take(1).for_each(|byte| *byte = self.0);
    }

    fn alignment() -> PushAlignment {
        PushAlignment::new(16)
    }
}

/// The writer of a file. Equal constants share their bytes.
struct Writer<'g> {
    builder: Builder,
    buffers: Vec<Offset>,
    /// The buffer of each constant.
    shared: HashMap<&'g [u8], u32>,
    /// Names and versions of the kinds of operators.
    codes: Vec<(&'static str, i32)>,
}

/// Returns the bytes of a model, or `None` if it is too large for the format.
pub(crate) fn write(graphs: &[Graph], signatures: &[Named]) -> Option<Vec<u8>> {
    // The other parts of a file are small.
    let constants = graphs.iter().flat_map(|graph| &graph.tensors).filter_map(|tensor| tensor.data.as_ref());
    let distinct: HashMap<&[u8], ()> = constants.map(|data| (data.as_slice(), ())).collect();
    if distinct.keys().map(|data| data.len() + 64).sum::<usize>() > MAX_BYTES {
        return None;
    }
    let mut writer = Writer { builder: Builder::new(), buffers: Vec::new(), shared: HashMap::new(), codes: Vec::new() };
    let empty = writer.table(Vec::new());
    writer.buffers.push(empty);
    let subgraphs: Vec<Offset> = graphs.iter().map(|graph| writer.graph(graph)).collect();
    let signatures: Vec<Offset> = signatures.iter().map(|signature| writer.signature(signature)).collect();
    let codes = std::mem::take(&mut writer.codes);
    let codes: Vec<Offset> = codes.into_iter().map(|(name, version)| writer.code(name, version)).collect();
    let buffers = std::mem::take(&mut writer.buffers);
    let description = writer.text("gradlet");
    let slots = vec![
        Slot::U32(0, 3),
        Slot::At(1, writer.list(&codes)),
        Slot::At(2, writer.list(&subgraphs)),
        Slot::At(3, description),
        Slot::At(4, writer.list(&buffers)),
        Slot::At(7, writer.list(&signatures)),
    ];
    let root = writer.table(slots);
    writer.builder.finish(root, Some("TFL3"));
    Some(writer.builder.finished_data().to_vec())
}

impl<'g> Writer<'g> {
    fn table(&mut self, slots: Vec<Slot>) -> Offset {
        let builder = &mut self.builder;
        let slots: Vec<Slot> = slots
            .into_iter()
            .map(|slot| match slot {
                Slot::Of(at, Field::List(list)) => Slot::At(at, builder.create_vector(&list).as_union_value()),
                #[cfg(test)]
                Slot::Of(at, Field::Text(text)) => Slot::At(at, builder.create_string(text).as_union_value()),
                other => other,
            })
            .collect();
        let table = builder.start_table();
        for slot in slots {
            let position = |slot: u16| 4 + 2 * slot;
            match slot {
                Slot::U32(at, value) => builder.push_slot_always(position(at), value),
                Slot::I8(at, value) | Slot::Of(at, Field::I8(value)) => builder.push_slot_always(position(at), value),
                Slot::U8(at, value) => builder.push_slot_always(position(at), value),
                Slot::At(at, value) => builder.push_slot_always(position(at), value),
                Slot::Of(at, Field::I32(value)) => builder.push_slot_always(position(at), value),
                Slot::Of(at, Field::Bool(value)) => builder.push_slot_always(position(at), value),
                Slot::Of(at, Field::F32(value)) => builder.push_slot_always(position(at), value),
                Slot::Of(..) => (),
            }
        }
        WIPOffset::new(builder.end_table(table).value())
    }

    fn list(&mut self, tables: &[Offset]) -> Offset {
        self.builder.create_vector(tables).as_union_value()
    }

    fn text(&mut self, text: &str) -> Offset {
        self.builder.create_string(text).as_union_value()
    }

    fn graph(&mut self, graph: &'g Graph) -> Offset {
        let tensors: Vec<Offset> = graph.tensors.iter().map(|described| self.tensor(described)).collect();
        let operators: Vec<Offset> = graph.operators.iter().map(|operator| self.operator(graph, operator)).collect();
        let slots = vec![
            Slot::At(0, self.list(&tensors)),
            Slot::Of(1, Field::List(graph.inputs.clone())),
            Slot::Of(2, Field::List(graph.outputs.clone())),
            Slot::At(3, self.list(&operators)),
            Slot::At(4, self.text(&graph.name)),
        ];
        self.table(slots)
    }

    fn tensor(&mut self, described: &'g Described) -> Offset {
        let name = self.text(&described.name);
        let mut slots = vec![Slot::Of(0, Field::List(described.dims.clone())), Slot::I8(1, described.kind.0), Slot::At(3, name)];
        if let Some(data) = &described.data {
            slots.push(Slot::U32(2, self.buffer(data)));
        }
        if let Some(Quantization { scales, zero_points, axis }) = &described.quantization {
            let scales = self.builder.create_vector(scales).as_union_value();
            let zero_points = self.builder.create_vector(zero_points).as_union_value();
            let quantization = vec![Slot::At(2, scales), Slot::At(3, zero_points), Slot::Of(6, Field::I32(*axis as i32))];
            slots.push(Slot::At(4, self.table(quantization)));
        }
        self.table(slots)
    }

    /// Returns the number of the buffer with these bytes.
    fn buffer(&mut self, data: &'g [u8]) -> u32 {
        if let Some(&buffer) = self.shared.get(data) {
            return buffer;
        }
        let bytes: Vec<Byte> = data.iter().map(|&byte| Byte(byte)).collect();
        let bytes = self.builder.create_vector(&bytes).as_union_value();
        let table = self.table(vec![Slot::At(0, bytes)]);
        self.buffers.push(table);
        let buffer = self.buffers.len() as u32 - 1;
        self.shared.insert(data, buffer);
        buffer
    }

    fn operator(&mut self, graph: &Graph, operator: &Operator) -> Offset {
        let Operator { name, inputs, outputs, options } = operator;
        let code = (*name, version(graph, operator));
        let at = self.codes.iter().position(|other| *other == code).unwrap_or_else(|| {
            self.codes.push(code);
            self.codes.len() - 1
        });
        let mut slots = vec![Slot::U32(0, at as u32), Slot::Of(1, Field::List(inputs.clone())), Slot::Of(2, Field::List(outputs.clone()))];
        if let Some((key, fields)) = options {
            let options = self.table(fields.iter().map(|(slot, field)| Slot::Of(*slot, field.clone())).collect());
            slots.extend([Slot::U8(3, *key), Slot::At(4, options)]);
        }
        self.table(slots)
    }

    fn code(&mut self, name: &str, version: i32) -> Offset {
        let number = operator_number(name);
        self.table(vec![Slot::I8(0, number.min(127) as i8), Slot::Of(2, Field::I32(version)), Slot::Of(3, Field::I32(number))])
    }

    fn signature(&mut self, Named { key, subgraph, inputs, outputs }: &Named) -> Offset {
        let [inputs, outputs] = [inputs, outputs].map(|list| {
            let maps: Vec<Offset> = list
                .iter()
                .map(|(name, tensor)| {
                    let name = self.text(name);
                    self.table(vec![Slot::At(0, name), Slot::U32(1, *tensor as u32)])
                })
                .collect();
            self.list(&maps)
        });
        let key = self.text(key);
        self.table(vec![Slot::At(0, inputs), Slot::At(1, outputs), Slot::At(2, key), Slot::U32(4, *subgraph)])
    }
}

/// Returns the oldest version of an operator that has its types and options, as TensorFlow's converter writes it.
fn version(graph: &Graph, operator: &Operator) -> i32 {
    let kind = |at: usize| {
        let index = operator.inputs.get(at).and_then(|&index| usize::try_from(index).ok());
        index.and_then(|index| graph.tensors.get(index)).map_or(ElementType(0), |tensor| tensor.kind)
    };
    let has = |slot: u16| operator.options.iter().flat_map(|(_, fields)| fields).any(|field| *field == (slot, Field::Bool(true)));
    let small = matches!(kind(0).dtype(), Some(DType::I8 | DType::I16));
    match operator.name {
        "FULLY_CONNECTED" if operator.inputs.get(2).is_none_or(|&bias| bias < 0) => 6,
        "FULLY_CONNECTED" if has(2) => 5,
        "FULLY_CONNECTED" if small => 4,
        "CONV_2D" | "DEPTHWISE_CONV_2D" if small => 3,
        "TRANSPOSE_CONV" if operator.inputs.len() > 3 => 3,
        "RESIZE_BILINEAR" if has(3) => 3,
        "RESIZE_NEAREST_NEIGHBOR" if has(1) => 3,
        "IF" | "WHILE" | "SELECT_V2" | "RESHAPE" | "HARD_SWISH" | "CAST" | "ELU" | "DYNAMIC_UPDATE_SLICE" | "SCATTER_ND" => 1,
        "FLOOR_DIV" if kind(0).dtype() == Some(DType::F32) => 2,
        "BROADCAST_TO" => 2,
        _ if small => 2,
        _ => 1,
    }
}
