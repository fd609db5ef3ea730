//! A writer of small models, for tests.

use crate::formats::tflite::operator_number;
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use gradlet_core::{DType, Tensor};

/// Field of a table of options.
#[derive(Clone)]
pub(super) enum Field {
    I8(i8),
    I32(i32),
    Bool(bool),
    F32(f32),
    List(Vec<i32>),
    Text(&'static str),
}

/// Options of an operator: the number of their table, and its fields by slot.
pub(super) type Options = Option<(u8, Vec<(u16, Field)>)>;

/// A tensor of a graph.
#[derive(Clone)]
pub(super) struct Described {
    pub kind: i8,
    pub dims: Vec<i32>,
    pub data: Option<Vec<u8>>,
    /// Scale and zero point.
    pub quantization: Option<(f32, i64)>,
}

impl Described {
    /// A tensor with the type of `tensor`, without a value.
    pub(super) fn like(tensor: &Tensor) -> Described {
        let dims = tensor.dims().iter().map(|&dim| dim as i32).collect();
        Described { kind: number(tensor.dtype()), dims, data: None, quantization: None }
    }

    /// A constant.
    pub(super) fn constant(tensor: &Tensor) -> Described {
        Described { data: Some(tensor.bytes().unwrap().to_vec()), ..Described::like(tensor) }
    }

    /// A tensor with this element type.
    pub(super) fn of(dtype: DType) -> Described {
        Described { kind: number(dtype), dims: Vec::new(), data: None, quantization: None }
    }

    pub(super) fn quantized(self, scale: f32, zero_point: i64) -> Described {
        Described { quantization: Some((scale, zero_point)), ..self }
    }
}

fn number(dtype: DType) -> i8 {
    match dtype {
        DType::F32 => 0,
        DType::F16 => 1,
        DType::I32 => 2,
        DType::U8 => 3,
        DType::I64 => 4,
        DType::Bool => 6,
        DType::I16 => 7,
        DType::I8 => 9,
        DType::F64 => 10,
        DType::Bf16 => 18,
    }
}

/// An operator: name, inputs, outputs, options. Input -1 is missing.
pub(super) type Operator = (&'static str, Vec<i32>, Vec<i32>, Options);

/// A subgraph.
#[derive(Clone, Default)]
pub(super) struct Graph {
    pub tensors: Vec<Described>,
    pub operators: Vec<Operator>,
    pub inputs: Vec<i32>,
    pub outputs: Vec<i32>,
}

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

fn table(builder: &mut Builder, slots: Vec<Slot>) -> Offset {
    let slots: Vec<Slot> = slots
        .into_iter()
        .map(|slot| match slot {
            Slot::Of(at, Field::List(list)) => Slot::At(at, builder.create_vector(&list).as_union_value()),
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
            Slot::Of(_, Field::List(_) | Field::Text(_)) => (),
        }
    }
    WIPOffset::new(builder.end_table(table).value())
}

fn list(builder: &mut Builder, tables: &[Offset]) -> Offset {
    builder.create_vector(tables).as_union_value()
}

/// Returns the bytes of a model.
pub(super) fn model(graphs: &[Graph]) -> Vec<u8> {
    let mut builder = Builder::new();
    let mut buffers = vec![table(&mut builder, Vec::new())];
    let mut codes: Vec<&str> = Vec::new();
    let mut subgraphs = Vec::new();
    for graph in graphs {
        let tensors: Vec<Offset> = graph.tensors.iter().map(|described| tensor(&mut builder, described, &mut buffers)).collect();
        let operators: Vec<Offset> = graph.operators.iter().map(|described| operator(&mut builder, described, &mut codes)).collect();
        let slots = vec![
            Slot::At(0, list(&mut builder, &tensors)),
            Slot::Of(1, Field::List(graph.inputs.clone())),
            Slot::Of(2, Field::List(graph.outputs.clone())),
            Slot::At(3, list(&mut builder, &operators)),
        ];
        subgraphs.push(table(&mut builder, slots));
    }
    let codes: Vec<Offset> = codes
        .iter()
        .map(|name| {
            let number = operator_number(name);
            table(&mut builder, vec![Slot::I8(0, number.min(127) as i8), Slot::Of(3, Field::I32(number))])
        })
        .collect();
    let slots = vec![
        Slot::U32(0, 3),
        Slot::At(1, list(&mut builder, &codes)),
        Slot::At(2, list(&mut builder, &subgraphs)),
        Slot::At(4, list(&mut builder, &buffers)),
    ];
    let root = table(&mut builder, slots);
    builder.finish(root, Some("TFL3"));
    builder.finished_data().to_vec()
}

fn tensor(builder: &mut Builder, described: &Described, buffers: &mut Vec<Offset>) -> Offset {
    let mut slots = vec![Slot::Of(0, Field::List(described.dims.clone())), Slot::I8(1, described.kind)];
    if let Some(data) = &described.data {
        let data = builder.create_vector(data).as_union_value();
        slots.push(Slot::U32(2, buffers.len() as u32));
        buffers.push(table(builder, vec![Slot::At(0, data)]));
    }
    if let Some((scale, zero_point)) = described.quantization {
        let (scale, zero) = (builder.create_vector(&[scale]).as_union_value(), builder.create_vector(&[zero_point]).as_union_value());
        slots.push(Slot::At(4, table(builder, vec![Slot::At(2, scale), Slot::At(3, zero)])));
    }
    table(builder, slots)
}

fn operator(builder: &mut Builder, (name, inputs, outputs, options): &Operator, codes: &mut Vec<&'static str>) -> Offset {
    let code = codes.iter().position(|code| code == name).unwrap_or_else(|| {
        codes.push(name);
        codes.len() - 1
    });
    let mut slots = vec![Slot::U32(0, code as u32), Slot::Of(1, Field::List(inputs.clone())), Slot::Of(2, Field::List(outputs.clone()))];
    if let Some((key, fields)) = options {
        let options = table(builder, fields.iter().map(|(slot, field)| Slot::Of(*slot, field.clone())).collect());
        slots.extend([Slot::U8(3, *key), Slot::At(4, options)]);
    }
    table(builder, slots)
}
