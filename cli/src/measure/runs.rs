//! The runs of the signatures: their inputs, and the outputs that the host computes for them.

use anyhow::Result;
use gradlet::artifact::describe::{OperandInfo, SignatureInfo};
use gradlet::device::AlignedBytes;
use gradlet::{DType, Program, Session, ops};

/// A run of a signature.
pub struct Run {
    /// Name of the signature.
    pub signature: String,
    /// The bytes of each input.
    pub inputs: Vec<Vec<u8>>,
    /// The hash of each output.
    pub outputs: Vec<u32>,
    /// Size of the arena, in bytes.
    pub arena: usize,
    /// Number of words that have room for the counts of all ops.
    pub ops: usize,
}

impl Run {
    /// Runs a signature of the artifact on the host, from its initial state.
    pub fn on_host(artifact: &AlignedBytes, signature: &SignatureInfo) -> Result<Run> {
        let program = Program::load(artifact, ops::KERNELS, &[&signature.name])?;
        let mut arena = AlignedBytes::zeroed(program.arena_bytes());
        let mut session = Session::new(&program, &mut arena)?;
        let id = program.signature(&signature.name)?;
        let mut random = Random(1);
        let inputs: Vec<Vec<u8>> = signature.inputs.iter().map(|(_, info)| random.input(info)).collect();
        for (index, input) in inputs.iter().enumerate() {
            session.input_bytes_mut(id, index)?.copy_from_slice(input);
        }
        session.run(id)?;
        let outputs = (0..signature.outputs.len()).map(|index| Ok(hash(session.output_bytes(id, index)?))).collect::<Result<_>>()?;
        let indices = signature.walk().into_iter().map(|(_, one)| one.index as usize);
        let ops = indices.clone().max().unwrap_or(0) + 1 - indices.min().unwrap_or(0);
        Ok(Run { signature: signature.name.clone(), inputs, outputs, arena: program.arena_bytes(), ops })
    }
}

/// Pseudo-random numbers: the high bits of a linear congruential generator.
struct Random(u32);

impl Random {
    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.0 >> 8
    }

    /// Returns the bytes of an input: any small integers, floats from 0 to 1, and zeros for other types, which may be classes or indices.
    fn input(&mut self, info: &OperandInfo) -> Vec<u8> {
        let bytes = info.bytes as usize;
        let mut unit = || self.next() as f32 / (1 << 24) as f32;
        match info.tensor_type.dtype {
            DType::F32 => (0..bytes / 4).flat_map(|_| unit().to_le_bytes()).collect(),
            DType::F64 => (0..bytes / 8).flat_map(|_| f64::from(unit()).to_le_bytes()).collect(),
            DType::I8 | DType::U8 | DType::I16 => (0..bytes).map(|_| (self.next() >> 16) as u8).collect(),
            _ => vec![0; bytes],
        }
    }
}

/// The hash FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
