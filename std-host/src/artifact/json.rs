//! Description of an artifact as JSON.

use crate::artifact::costs::{Measured, multiply_accumulates};
use gradlet_core::Quantization;
use gradlet_core::artifact::describe::{Description, InstructionInfo, OperandInfo, SignatureInfo, VariableInfo};
use gradlet_core::runtime::program::Space;
use serde_json::{Map, Value, json};

/// Converts the description of an artifact to JSON.
pub(crate) fn value(description: &Description, measured: &[Measured]) -> Value {
    let Description { version: (major, minor), length, checksum: _, data_bytes, metadata, variables, signatures, kernels } = description;
    let metadata: Map<String, Value> = metadata.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let kernels: Vec<Value> = kernels.iter().map(|(op, dtype)| json!({ "op": op, "dtype": dtype.name() })).collect();
    json!({
        "version": [major, minor],
        "bytes": length,
        "data_bytes": data_bytes,
        "metadata": metadata,
        "kernels": kernels,
        "variables": variables.iter().map(variable).collect::<Vec<_>>(),
        "signatures": signatures.iter().map(|one| signature(description, one, Measured::find(measured, one))).collect::<Vec<_>>(),
    })
}

fn variable(variable: &VariableInfo) -> Value {
    let VariableInfo { name, tensor_type, trainable, bytes, assigned_by } = variable;
    json!({ "name": name, "type": tensor_type.to_string(), "trainable": trainable, "bytes": bytes, "assigned_by": assigned_by })
}

fn signature(description: &Description, signature: &SignatureInfo, measured: Option<&Measured>) -> Value {
    let SignatureInfo { name, doc, inputs, outputs, instructions: all, arena_bytes, variable_bytes, copy_bytes, scratch } = signature;
    let one = |(name, operand): &(String, OperandInfo)| {
        let mut one = json!({ "name": name, "type": operand.tensor_type.to_string() });
        if let Some(Quantization { scale, zero_point }) = operand.quantization {
            one["quantization"] = json!({ "scale": scale, "zero_point": zero_point });
        }
        one
    };
    let named = |named: &[(String, OperandInfo)]| named.iter().map(one).collect::<Vec<_>>();
    json!({
        "name": name,
        "doc": doc,
        "inputs": named(inputs),
        "outputs": named(outputs),
        "arena_bytes": arena_bytes,
        "variable_bytes": variable_bytes,
        "copy_bytes": copy_bytes,
        "scratch_bytes": scratch,
        "longest_slice": signature.longest_slice().and_then(|longest| longest.part),
        "instructions": instructions(description, all),
        "measured": measured.map(self::measured),
    })
}

fn measured(Measured { signature: _, processor, instructions, stack, ops }: &Measured) -> Value {
    json!({ "processor": processor, "instructions": instructions, "stack_bytes": stack, "ops": ops })
}

fn instructions(description: &Description, all: &[InstructionInfo]) -> Vec<Value> {
    let operands = |operands: &[OperandInfo]| operands.iter().map(|one| operand(description, one)).collect::<Vec<_>>();
    let instruction = |one: &InstructionInfo| {
        let InstructionInfo { index, op, dtype, attributes, inputs, outputs, blocks, part } = one;
        let (dtype, inputs, outputs) = (dtype.name(), operands(inputs), operands(outputs));
        let mut value = json!({
            "index": index,
            "op": op,
            "dtype": dtype,
            "attributes": attributes,
            "inputs": inputs,
            "outputs": outputs,
            "part": part,
            "macs": multiply_accumulates(one),
        });
        if !blocks.is_empty() {
            let blocks =
                blocks.iter().map(|block| json!({ "when": block.when, "instructions": instructions(description, &block.instructions) }));
            value["blocks"] = blocks.collect();
        }
        value
    };
    all.iter().map(instruction).collect()
}

fn operand(description: &Description, operand: &OperandInfo) -> Value {
    let OperandInfo { tensor_type, space, location, .. } = operand;
    let tensor_type = tensor_type.to_string();
    match space {
        Space::Scratch => json!({ "type": tensor_type, "scratch": location }),
        Space::Flash => json!({ "type": tensor_type, "constant": location }),
        Space::Variable => json!({ "type": tensor_type, "variable": description.variables.get(*location as usize).map(|one| &one.name) }),
    }
}
