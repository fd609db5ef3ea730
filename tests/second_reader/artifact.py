"""The records of an artifact, and the checks of the file (checks 1 to 18)."""

import struct
from dataclasses import dataclass, make_dataclass
from math import prod

import numpy as np

from base import F32, FLASH, NONE, NUMPY, VARIABLE, GradletError, check, crc32c

@dataclass(frozen=True)
class Type:
    dtype: int
    dims: tuple[int, ...]

    @property
    def bytes(self) -> int:
        return prod(self.dims) * np.dtype(NUMPY[self.dtype]).itemsize

def record(name: str, fields: str):
    return make_dataclass(name, fields.split(), frozen=True)

Signature = record("Signature", "name block input_names output_names")
Block = record("Block", "first instructions inputs input_count outputs output_count scratch")
Variable = record("Variable", "name tensor initial assigned_by flags")
Tensor = record("Tensor", "type space reserved location bytes quantization")
Instruction = record("Instruction", "kernel inputs outputs operands attributes attribute_words")
Kernel = record("Kernel", "op dtype reserved name")
SECTIONS = [("signatures", "<4I"), ("blocks", "<7I"), ("variables", "<5I"), ("tensors", "<HBB3I"), ("instructions", "<HBB3I"),
            ("kernels", "<HBBI"), ("types", "<10I"), ("attributes", "<I"), ("operands", "<H"), ("names", "<B"),
            ("metadata", "<B"), ("data", "<B")]

def place_of(t: Tensor) -> tuple[int, int, int]:
    """The space (each variable is one), and where the place begins and ends."""
    if t.space == VARIABLE:
        return VARIABLE + t.location, 0, t.bytes
    return t.space, t.location, t.location + t.bytes

def overlap(a: Tensor, b: Tensor) -> bool:
    (space_a, start_a, end_a), (space_b, start_b, end_b) = place_of(a), place_of(b)
    return space_a == space_b and start_a < end_b and start_b < end_a

class Artifact:
    """The records of an artifact, after checks 1 to 18."""

    def __init__(self, data: bytes, address: int = 0):
        check(address % 16 == 0, 14, "the artifact is not at a multiple of 16")
        check(len(data) < 4 or data[:4] == b"GRDL", 11, "not an artifact")
        check(len(data) >= 112, 13, "the header is cut short")
        major, minor, self.length, self.checksum = struct.unpack("<HHII", data[4:16])
        self.minor = minor
        check(major == 1 and minor <= 2, 12, f"version {major}.{minor}")
        check(112 <= self.length <= len(data), 13, "the artifact is cut short")
        self.bytes = data[:self.length]
        sections = {}
        for i, (name, form) in enumerate(SECTIONS):
            offset, count = struct.unpack("<II", data[16 + 8 * i:24 + 8 * i])
            size = count * struct.calcsize(form)
            check(offset % 16 == 0 and size <= NONE and offset + size <= self.length, 16, f"Header {i + 1}: section {name}")
            sections[name] = offset, size, form
        raw = {name: list(struct.iter_unpack(form, self.bytes[offset:offset + size]))
               for name, (offset, size, form) in sections.items() if name not in ("names", "metadata", "data")}
        for i, type_ in enumerate(raw["types"]):
            check(1 <= type_[0] & 0xFF <= 10, 16, f"Types {i}: dtype")
        check(crc32c(self.bytes[16:]) == self.checksum, 15, "checksum")
        cut = lambda name: self.bytes[sections[name][0]:sum(sections[name][:2])]
        self.names = read_names(cut("names"))
        self.data_at, self.data_bytes, _ = sections["data"]
        self.signatures = [Signature(*r) for r in raw["signatures"]]
        self.blocks = [Block(*r) for r in raw["blocks"]]
        self.variables = [Variable(*r) for r in raw["variables"]]
        self.tensors = [Tensor(*r) for r in raw["tensors"]]
        self.instructions = [Instruction(*r) for r in raw["instructions"]]
        self.kernels = [Kernel(*r) for r in raw["kernels"]]
        self.attributes = [r[0] for r in raw["attributes"]]
        self.operands = [r[0] for r in raw["operands"]]
        self.types = [Type(r[0] & 0xFF, r[2:2 + r[1]]) for r in raw["types"]]
        self.check_records(raw["types"])

    def check_records(self, raw_types: list[tuple]):
        rule = lambda condition, table, i: check(condition, 16, f"{table} {i}")
        rule(len(self.signatures) <= 32, "Signatures", 32)
        for i, s in enumerate(self.signatures):
            rule(s.block < len(self.blocks) and s.name < len(self.names), "Signatures", i)
            block = self.blocks[s.block]
            rule(max(s.input_names + block.input_count, s.output_names + block.output_count) <= len(self.names), "Signatures", i)
        for i, b in enumerate(self.blocks):
            rule(b.first + b.instructions <= len(self.instructions)
                   and max(b.inputs + b.input_count, b.outputs + b.output_count) <= len(self.operands), "Blocks", i)
        for i, operand in enumerate(self.operands):
            rule(operand < len(self.tensors), "Operands", i)
        for i, (_, rank, *dims) in enumerate(raw_types):
            rule(rank <= 8 and not any(dims[rank:]), "Types", i)
        for i, t in enumerate(self.tensors):
            rule(self.good_tensor(t), "Tensors", i)
        for i, v in enumerate(self.variables):
            rule(v.tensor < len(self.tensors) and v.name < len(self.names), "Variables", i)
            t = self.tensors[v.tensor]
            rule(t.space == VARIABLE and t.location == i, "Variables", i)
            rule(v.initial == NONE or (v.initial % 16 == 0 and v.initial + t.bytes <= self.data_bytes), "Variables", i)
        for i, k in enumerate(self.kernels):
            rule(1 <= k.dtype <= 10 and k.name < len(self.names), "Kernels", i)
        left = max(0, 2**31 - 1 - sum(self.tensors[v.tensor].bytes + 16 for v in self.variables))
        check(all(b.scratch < left for b in self.blocks), 6, "the arena would have 2 GiB or more")

    def good_tensor(self, t: Tensor) -> bool:
        if t.type >= len(self.types) or t.space > 2:
            return False
        if t.quantization != NONE and (t.quantization % 16 != 0 or t.quantization + 16 > self.data_bytes):
            return False
        type_ = self.types[t.type]
        if prod(d for d in type_.dims if d) >= 2**32 or t.bytes != type_.bytes:
            return False
        if t.space == VARIABLE:
            if t.location >= len(self.variables) or self.variables[t.location].tensor >= len(self.tensors):
                return False
            other = self.tensors[self.variables[t.location].tensor].type
            return (self.types[other] if other < len(self.types) else Type(F32, ())) == type_
        end = t.location + t.bytes
        return t.location % 16 == 0 and end <= (self.data_bytes if t.space == FLASH else NONE)

    def type_of(self, tensor: int) -> Type:
        return self.types[self.tensors[tensor].type]

    def inputs_of(self, block: Block) -> list[int]:
        return self.operands[block.inputs:block.inputs + block.input_count]

    def outputs_of(self, block: Block) -> list[int]:
        return self.operands[block.outputs:block.outputs + block.output_count]

    def instructions_of(self, block: Block) -> list[tuple[int, Instruction]]:
        return list(enumerate(self.instructions))[block.first:block.first + block.instructions]

    def operands_of(self, n: Instruction) -> tuple[list[int], list[int]]:
        middle = n.operands + n.inputs
        return self.operands[n.operands:middle], self.operands[middle:middle + n.outputs]

    def words_of(self, n: Instruction) -> list[int]:
        return self.attributes[n.attributes:n.attributes + n.attribute_words]

def read_names(data: bytes) -> list[str]:
    names, at = [], 0
    while at < len(data):
        text = f"Names {len(names)}"
        length = 0
        for i in range(3):
            check(at < len(data), 16, text)
            byte, at = data[at], at + 1
            length |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                break
        else:
            raise GradletError(16, text)
        check(at + length <= len(data), 16, text)
        names.append(data[at:at + length].decode(errors="replace"))
        at += length
    return names
