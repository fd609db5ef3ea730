"""A second reader and executor of gradlet's formats, written from SPEC.md alone. Python 3.10 and NumPy 2.

Commands: `run` and `verify` of an artifact, `checkpoint`, `slots` and `frames` (as JSON), `samples` of a folder, and `spec` for the
dumps of SPEC.md. It runs the ops in `OPS`. An artifact that needs another one is refused with error 18, as SPEC.md asks of a reader
without a kernel. Real functions have kernels in f32 only.
"""

import argparse
import json
import re
import struct
import sys
from dataclasses import dataclass, make_dataclass
from functools import partial
from itertools import combinations, product as product_of
from math import prod
from pathlib import Path
from typing import Callable

import numpy as np

NONE = 0xFFFFFFFF
F32, F64, F16, BF16, I8, U8, I32, I64, BOOL = range(1, 10)
# f16, bf16 and bool are kept as raw bits: most ops copy them whole.
NUMPY = {F32: "<f4", F64: "<f8", F16: "<u2", BF16: "<u2", I8: "<i1", U8: "<u1", I32: "<i4", I64: "<i8", BOOL: "<u1"}
F, I = {F32, F64}, {I8, U8, I32, I64}
N, SIGNED, A = F | I, {F32, F64, I8, I32, I64}, set(range(1, 10))
FLASH, SCRATCH, VARIABLE = range(3)

class GradletError(Exception):
    """An error with the code that SPEC.md gives it."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code, self.text = code, text

class Refused(Exception):
    """A shape rule refuses the inputs or the attribute words."""

def check(condition, code: int, text: str):
    if not condition:
        raise GradletError(code, text)

def need(condition):
    if not condition:
        raise Refused()

def crc_table() -> list[int]:
    table = []
    for c in range(256):
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    return table

CRC_TABLE = crc_table()

def crc32c(data: bytes) -> int:
    c = 0xFFFFFFFF
    for byte in data:
        c = (c >> 8) ^ CRC_TABLE[(c ^ byte) & 0xFF]
    return c ^ 0xFFFFFFFF

def words_of(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)

def round_up(x: int, to: int) -> int:
    return -(-x // to) * to

# ---- The records of an artifact ----------------------------------------------------------------------------------------------

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
Variable = record("Variable", "name tensor initial assigned_by trainable")
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
        check((major, minor) == (1, 0), 12, f"version {major}.{minor}")
        check(len(data) >= self.length, 13, "the artifact is cut short")
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
            check(1 <= type_[0] & 0xFF <= 9, 16, f"Types {i}: dtype")
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
            rule(1 <= k.dtype <= 9 and k.name < len(self.names), "Kernels", i)
        left = max(0, 2**31 - 1 - sum(self.tensors[v.tensor].bytes + 16 for v in self.variables))
        check(all(b.scratch < left for b in self.blocks), 6, "the arena would have 2 GiB or more")

    def good_tensor(self, t: Tensor) -> bool:
        if t.type >= len(self.types) or t.quantization != NONE or t.space > 2:
            return False
        type_ = self.types[t.type]
        if prod(d for d in type_.dims if d) >= 2**32 or t.bytes != type_.bytes:
            return False
        if t.space == VARIABLE:
            if t.location >= len(self.variables) or self.variables[t.location].tensor >= len(self.tensors):
                return False
            other = self.tensors[self.variables[t.location].tensor].type
            return other < len(self.types) and self.types[other] == type_
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

# ---- The real functions, in f32 ------------------------------------------------------------------------------------------------

def bits(x):
    return np.asarray(x, np.float32).view(np.uint32)

def number(b):
    """float(b) of SPEC.md."""
    return np.asarray(b).astype(np.uint32).view(np.float32)[()]

def exp(x):
    x0, b = x, bits(x)
    h, negative = b & 0x7FFFFFFF, (b >> 31) == 1
    huge, tiny = (h >= 0x42B17218) & ~negative, (h >= 0x42CFF1B5) & negative
    x = np.where(huge | tiny | (h > 0x7F800000), np.float32(0), x)
    one = np.where(negative, np.float32(-1), np.float32(1))
    k = np.where(h > 0x3F851592, np.trunc(number(0x3FB8AA3B) * x + one * np.float32(0.5)), one)
    k = np.where(h > 0x3EB17218, k, np.float32(0))
    hi, lo = x - k * number(0x3F317200), k * number(0x35BFBE8E)
    x = hi - lo
    xx = x * x
    c = x - xx * (number(0x3E2AAA8F) + xx * number(0xBB355215))
    y = np.ldexp(1 + ((x * c) / (2 - c) - lo + hi), k.astype(np.int32))
    y = np.where(h > 0x39000000, y, 1 + x0)
    y = np.where(tiny, np.float32(0), np.where(huge, np.float32(np.inf), y))
    return np.where(h > 0x7F800000, x0, y)

LOG_G = [number(b) for b in (0x3F2AAAAA, 0x3ECCCE13, 0x3E91E9EE, 0x3E789E26)]
LN2_HI, LN2_LO = number(0x3F317180), number(0x3717F7D1)

def log_series(s):
    z = s * s
    w = z * z
    return z * (LOG_G[0] + w * LOG_G[2]) + w * (LOG_G[1] + w * LOG_G[3])

def log(x):
    x0, b = x, bits(x)
    small = b < 0x00800000
    i = np.where(small, bits(x * np.float32(2**25)), b) + np.uint32(0x3F800000 - 0x3F3504F3)
    k = ((i >> 23).astype(np.int32) - 127 + np.where(small, -25, 0)).astype(np.float32)
    d = number((i & 0x007FFFFF) + 0x3F3504F3) - 1
    s = d / (2 + d)
    q = (np.float32(0.5) * d) * d
    y = s * (q + log_series(s)) + k * LN2_LO - q + d + k * LN2_HI
    y = np.where(b == 0x3F800000, np.float32(0), np.where(b >= 0x7F800000, x0, y))
    return np.where(x0 == 0, np.float32(-np.inf), np.where(b >> 31 == 1, np.float32(np.nan), y))

def expm1(x):
    """musl's expm1f, as in libm: SPEC.md names it, but does not give the algorithm."""
    x0, b = x, bits(x)
    h, negative = b & 0x7FFFFFFF, (b >> 31) == 1
    big = h >= 0x4195B844
    over = ~negative & (x > number(0x42B17180))
    x = np.where((big & negative) | over | (h >= 0x7F800000), np.float32(0), x)
    one = np.where(negative, np.float32(-1), np.float32(1))
    t = np.where(h < 0x3F851592, one, np.trunc(number(0x3FB8AA3B) * x + one * np.float32(0.5)))
    t = np.where(h > 0x3EB17218, t, np.float32(0))
    k = t.astype(np.int32)
    hi, lo = x - t * LN2_HI, t * LN2_LO
    x = hi - lo
    c = (hi - x) - lo
    half = np.float32(0.5) * x
    hxs = x * half
    r1 = 1 + hxs * (np.float32(-3.3333212137e-2) + hxs * np.float32(1.5807170421e-3))
    u = 3 - r1 * half
    e = hxs * ((r1 - u) / (6 - x * u))
    zero = x - (x * e - hxs)
    e = x * (e - c) - c - hxs
    plus = np.where(x < -0.25, -2 * (e - (x + np.float32(0.5))), 1 + 2 * (x - e))
    minus = np.float32(0.5) * (x - e) - np.float32(0.5)
    far = np.ldexp(x - e + 1, k) - 1
    power, inverse = np.ldexp(np.float32(1), np.clip(k, -126, 127)), np.ldexp(np.float32(1), np.clip(-k, -126, 127))
    near = np.where(k < 23, (x - e + (1 - inverse)) * power, (x - (e + inverse) + 1) * power)
    y = np.where((k < 0) | (k > 56), far, near)
    y = np.where(k == 0, zero, np.where(k == 1, plus, np.where(k == -1, minus, y)))
    y = np.where(h < 0x33000000, x0, y)
    y = np.where(over, np.float32(np.inf), np.where(big & negative, np.float32(-1), y))
    return np.where(h > 0x7F800000, x0, y)

def tanh(x):
    """musl's tanhf."""
    a, h = np.abs(x), bits(x) & 0x7FFFFFFF
    up, down = expm1(2 * a), expm1(-2 * a)
    y = np.where(h > 0x3F0C9F54, 1 - 2 / (up + 2), np.where(h > 0x3E82C578, up / (up + 2), -down / (down + 2)))
    y = np.where(h > 0x41200000, 1 + np.float32(0) / a, np.where(h < 0x00800000, a, y))
    return np.where(bits(x) >> 31 == 1, -y, y)

def sigmoid(x):
    return 1 / (1 + exp(-x))

POW_L = [number(b) for b in (0x3F19999A, 0x3EDB6DB7, 0x3EAAAAAB, 0x3E8BA305, 0x3E6C3255, 0x3E53F142)]
POW_P = [number(b) for b in (0x3E2AAAAB, 0xBB360B61, 0x388AB355, 0xB5DDEA0E, 0x3331BB4C)]

def polynomial(x, coefficients):
    result = coefficients[-1]
    for c in coefficients[-2::-1]:
        result = c + x * result
    return result

def top(x, mask=0xFFFFF000):
    return number(int(bits(x)) & mask)

def pow_scalar(x: np.float32, y: np.float32) -> np.float32:
    one, inf = np.float32(1), np.float32(np.inf)
    a, negative = np.abs(x), int(bits(x)) >> 31 == 1
    whole = np.isfinite(y) and np.trunc(y) == y
    odd = whole and int(y) % 2 == 1
    if y == 0 or x == 1:
        return one
    if np.isnan(x) or np.isnan(y):
        return np.float32(np.nan)
    if np.isinf(y):
        return one if a == 1 else inf if (a > 1) == (y > 0) else np.float32(0)
    if y == 1:
        return x
    if y == -1:
        return one / x
    if y == 2:
        return x * x
    if y == 0.5 and not negative:
        return np.sqrt(x)
    if a in (0, 1) or np.isinf(a):
        z = a if y > 0 else one / a
        if negative:
            if x == -1 and not whole:
                return np.float32(np.nan)
            z = -z if odd else z
        return z
    if x < 0 and not whole:
        return np.float32(np.nan)
    sign = np.float32(-1 if x < 0 and odd else 1)
    over, under = sign * inf, sign * np.float32(0)
    if np.abs(y) > 2**27:
        if bits(a) < 0x3F7FFFF8:
            return over if y < 0 else under
        if bits(a) > 0x3F800007:
            return over if y > 0 else under
        t = a - 1
        w = (t * t) * (np.float32(0.5) - t * (number(0x3EAAAAAB) - t * np.float32(0.25)))
        u = number(0x3FB8AA00) * t
        v = t * number(0x36ECA570) - w * number(0x3FB8AA3B)
        t1 = top(u + v)
        t2 = v - (t1 - u)
    else:
        t1, t2 = log2_of(a)
    y1 = top(y)
    p_l, p_h = (y - y1) * t1 + y * t2, y1 * t1
    z = p_l + p_h
    j = int(bits(z).astype(np.int32))
    i = j & 0x7FFFFFFF
    if j > 0x43000000 or (j == 0x43000000 and p_l + number(0x3338AA3C) > z - p_h):
        return over
    if i > 0x43160000 or (int(bits(z)) == 0xC3160000 and p_l <= z - p_h):
        return under
    n = 0
    if i > 0x3F000000:
        m = (j + (0x00800000 >> ((i >> 23) - 127 + 1))) & 0xFFFFFFFF
        k = ((m & 0x7FFFFFFF) >> 23) - 127
        t = number(m & ~(0x007FFFFF >> k) & 0xFFFFFFFF)
        n = ((m & 0x007FFFFF) | 0x00800000) >> (23 - k)
        n = -n if j < 0 else n
        p_h = p_h - t
    t = top(p_l + p_h, 0xFFFF8000)
    u = t * number(0x3F317200)
    v = (p_l - (t - p_h)) * number(0x3F317218) + t * number(0x35BFBE8C)
    z = u + v
    w = v - (z - u)
    t = z * z
    t1 = z - t * polynomial(t, POW_P)
    r = (z * t1) / (t1 - 2) - (w + z * w)
    return sign * np.ldexp(1 - (r - z), n)

def log2_of(a):
    """log2 of a positive f32 as two numbers, the middle part of pow."""
    n = 0
    if bits(a) < 0x00800000:
        a, n = a * np.float32(2**24), -24
    i = int(bits(a))
    n += (i >> 23) - 127
    j = i & 0x007FFFFF
    i = j | 0x3F800000
    b = 1 if 0x1CC471 < j < 0x5DB3D7 else 0
    if j >= 0x5DB3D7:
        n, i = n + 1, i - 0x00800000
    a, n = number(i), np.float32(n)
    base, dp_h, dp_l = np.float32([1, 1.5][b]), number([0, 0x3F15C000][b]), number([0, 0x35D1CFDC][b])
    u, v = a - base, 1 / (a + base)
    s = u * v
    s_h = top(s)
    t_h = number((((i >> 1) & 0xFFFFF000) | 0x20000000) + 0x00400000 + (b << 21))
    t_l = a - (t_h - base)
    s_l = v * ((u - s_h * t_h) - s_h * t_l)
    s2 = s * s
    r = (s2 * s2) * polynomial(s2, POW_L) + s_l * (s_h + s)
    s2 = s_h * s_h
    t_h = top((3 + s2) + r)
    t_l = r - ((t_h - 3) - s2)
    u, v = s_h * t_h, s_l * t_h + t_l * s
    p_h = top(u + v)
    p_l = v - (p_h - u)
    z_h = number(0x3F764000) * p_h
    z_l = number(0xB8F623C6) * p_h + p_l * number(0x3F76384F) + dp_l
    t1 = top(((z_h + z_l) + dp_h) + n)
    return t1, z_l - (((t1 - n) - dp_h) - z_h)

# ---- The ops -------------------------------------------------------------------------------------------------------------------

@dataclass
class Call:
    """What an op runs with: arrays and types of the inputs, attribute words, types of the outputs."""
    ins: list
    types: list[Type]
    words: list[int]
    outs: list[Type]

@dataclass(frozen=True)
class Op:
    name: str
    dtypes: set[int]
    shape: Callable[[list[Type], list[int]], list[Type]]
    run: Callable[[Call], object]
    in_place: set[tuple[int, int]]  # pairs of an input and an output

OPS: dict[int, Op] = {}
IN0, IN01, IN_EACH = {(0, 0)}, {(0, 0), (1, 0)}, {(0, 0), (1, 1), (2, 2)}

def op(number_, name, dtypes, shape, in_place=frozenset()):
    """Registers the function that follows."""
    def register(run):
        OPS[number_] = Op(name, set(dtypes), shape, run, set(in_place))
    return register

def broadcast(*shapes):
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise Refused() from None

def data_error(code, text, wrong):
    """Refuses the data if an element is wrong; the position is that of the first one."""
    if np.any(wrong):
        raise GradletError(code, f"{text} at position {int(np.argmax(np.ravel(wrong)))}")

def ordered_sum(terms, start):
    """start + terms[0] + terms[1] + …, from left to right: accumulate adds in this order."""
    return np.add.accumulate(np.concatenate([start[None], terms]), axis=0, dtype=start.dtype)[-1]

def is_float(x):
    return x.dtype.kind == "f"

# Elementwise

def same_shape(t, w):
    need(len(t) == 1 and not w)
    return t

def binary_shape(t, w, out=None):
    need(len(t) == 2 and not w and t[0].dtype == t[1].dtype)
    return [Type(out or t[0].dtype, broadcast(t[0].dims, t[1].dims))]

def relu_grad_shape(t, w):
    need(len(t) == 2 and not w and t[0] == t[1])
    return t[:1]

def select_shape(t, w):
    need(len(t) == 3 and not w and t[0].dtype == t[1].dtype and t[2].dtype == BOOL)
    return [Type(t[0].dtype, broadcast(t[0].dims, t[1].dims, t[2].dims))]

def truncated(a, b):
    q = a // b
    return q + ((a - q * b != 0) & ((a < 0) != (b < 0)))

def truncate_mod(a, b):
    return np.fmod(a, b) if is_float(a) else a - truncated(a, b) * b

def floor_mod(a, b):
    r = truncate_mod(a, b)
    return np.where((r != 0) & ((r < 0) != (b < 0)), r + b, r)

def divided(f):
    """f, refusing to divide an integer by zero."""
    def run(a, b):
        if not is_float(a) and np.broadcast(a, b).size:
            data_error(8, "division by zero", b == 0)
        return f(a, b)
    return run

def cast_to(x, source, target):
    x = x != 0 if source == BOOL else x
    if target == BOOL:
        return x != 0
    if is_float(x) and target not in F:
        x, least = x.astype(np.float64), -2.0 ** (63 if target == I64 else 31)
        x = np.where((x >= least) & (x < -least), np.trunc(x), least).astype(np.int64)
    return x.astype(NUMPY[target])

def cast_shape(t, w):
    need(len(t) == 1 and len(w) == 1 and w[0] in N | {BOOL})
    return [Type(w[0], t[0].dims)]

def maximum(a, b):
    return np.where(a <= b, b, np.where(b < a, a, a + b))

def minimum(a, b):
    return np.where(a >= b, b, np.where(b > a, a, a + b))

ELEMENTWISE = [
    (2, "relu", F, IN0, lambda x: np.where(x <= 0, 0, x)), (7, "neg", SIGNED, IN0, np.negative), (29, "identity", A, IN0, np.copy),
    (31, "exp", {F32}, IN0, exp), (32, "log", {F32}, IN0, log), (33, "sqrt", F, IN0, np.sqrt),
    (34, "rsqrt", F, IN0, lambda x: 1 / np.sqrt(x)), (35, "abs", SIGNED, IN0, np.abs),
    (36, "sign", SIGNED, IN0, lambda x: np.where(x < 0, -1, np.where(x > 0, 1, np.where(x == 0, 0, x)))),
    (37, "floor", F, IN0, np.floor), (38, "ceil", F, IN0, np.ceil), (39, "round", F, IN0, np.rint), (42, "tanh", {F32}, IN0, tanh),
    (43, "sigmoid", {F32}, IN0, sigmoid), (46, "expm1", {F32}, IN0, expm1),
    (52, "logical_not", {BOOL}, IN0, lambda x: x == 0)]
BROADCAST = [
    (1, "add", N, IN01, np.add), (4, "sub", N, IN01, np.subtract), (5, "mul", N, IN01, np.multiply), (6, "div", F, IN01, np.divide),
    (48, "multiply_no_nan", F, IN01, lambda a, b: np.where(b == 0, 0, a * b)),
    (67, "divide_no_nan", F, IN0, lambda a, b: np.where(b == 0, 0, a / b)),
    (53, "maximum", N, IN01, maximum), (54, "minimum", N, IN01, minimum),
    (56, "floordiv", N, IN0, divided(lambda a, b: np.floor(a / b) if is_float(a) else a // b)),
    (57, "floormod", N, IN0, divided(floor_mod)),
    (58, "truncatediv", N, IN0, divided(lambda a, b: np.trunc(a / b) if is_float(a) else truncated(a, b))),
    (59, "truncatemod", N, IN0, divided(truncate_mod)),
    (63, "logical_and", {BOOL}, IN01, lambda a, b: (a != 0) & (b != 0)),
    (64, "logical_or", {BOOL}, IN01, lambda a, b: (a != 0) | (b != 0)),
    (65, "logical_xor", {BOOL}, IN01, lambda a, b: (a != 0) ^ (b != 0))]
COMPARISONS = [(22, "equal", N | {BOOL}, np.equal), (60, "not_equal", N | {BOOL}, np.not_equal), (61, "less", N, np.less),
               (62, "less_equal", N, np.less_equal)]
for n, name, dtypes, in_place, f in ELEMENTWISE:
    op(n, name, dtypes, same_shape, in_place)(lambda c, f=f: f(*c.ins))
for n, name, dtypes, in_place, f in BROADCAST:
    op(n, name, dtypes, binary_shape, in_place)(lambda c, f=f: f(*c.ins))
for n, name, dtypes, f in COMPARISONS:
    op(n, name, dtypes, partial(binary_shape, out=BOOL))(
        lambda c, f=f: f(*(x != 0 if c.types[0].dtype == BOOL else x for x in c.ins)))
op(55, "pow", {F32}, binary_shape, IN0)(lambda c: np.array(
    [pow_scalar(a, b) for a, b in np.broadcast(*c.ins)], np.float32).reshape(c.outs[0].dims))
op(3, "relu_grad", F, relu_grad_shape, IN0)(lambda c: np.where(c.ins[1] > 0, c.ins[0], 0))
op(66, "select", A, select_shape, IN01)(lambda c: np.where(c.ins[2] != 0, c.ins[0], c.ins[1]))
op(23, "cast", N | {BOOL}, cast_shape)(lambda c: cast_to(c.ins[0], c.types[0].dtype, c.words[0]))

# Shape and place

def reshape_shape(t, w):
    need(len(t) == 1 and len(w) <= 8 and prod(w) == prod(t[0].dims))
    return [Type(t[0].dtype, tuple(w))]

def broadcast_to_shape(t, w):
    need(len(t) == 1 and len(w) <= 8 and broadcast(t[0].dims, tuple(w)) == tuple(w))
    return [Type(t[0].dtype, tuple(w))]

def transpose_shape(t, w):
    need(len(t) == 1 and sorted(w) == list(range(len(t[0].dims))))
    return [Type(t[0].dtype, tuple(t[0].dims[k] for k in w))]

def concat_shape(t, w):
    need(1 <= len(t) <= 8 and len(w) == 1 and w[0] < len(t[0].dims))
    rest = lambda x: (x.dtype, len(x.dims), x.dims[:w[0]], x.dims[w[0] + 1:])
    need(all(rest(x) == rest(t[0]) for x in t))
    return [Type(t[0].dtype, t[0].dims[:w[0]] + (sum(x.dims[w[0]] for x in t),) + t[0].dims[w[0] + 1:])]

def signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word

def check_slice(w, inner, outer):
    """Elements of `inner`, one after the other, lie in `outer` at begin, begin + step, …"""
    for begin, step, n, size in zip(w[0::3], map(signed, w[1::3]), inner, outer):
        need(step != 0 and (n == 0 or (begin < size and 0 <= begin + (n - 1) * step < size)))

def places(w, dims):
    return np.ix_(*[begin + np.arange(n) * signed(step) for begin, step, n in zip(w[0::3], w[1::3], dims)])

def strided_slice_shape(t, w):
    need(len(t) == 1 and len(w) == 3 * len(t[0].dims))
    check_slice(w, w[2::3], t[0].dims)
    return [Type(t[0].dtype, tuple(w[2::3]))]

def pad_shape(t, w):
    need(len(t) == 2 and t[1] == Type(t[0].dtype, ()) and len(w) == 3 * len(t[0].dims))
    check_slice(w, t[0].dims, w[2::3])
    return [Type(t[0].dtype, tuple(w[2::3]))]

op(24, "reshape", A, reshape_shape, IN0)(lambda c: c.ins[0].reshape(c.words).copy())
op(25, "transpose", A, transpose_shape)(lambda c: c.ins[0].transpose(c.words))
op(26, "broadcast_to", A, broadcast_to_shape)(lambda c: np.broadcast_to(c.ins[0], c.words))
op(80, "concat", A, concat_shape)(lambda c: np.concatenate(c.ins, axis=c.words[0]))
op(81, "strided_slice", A, strided_slice_shape)(lambda c: c.ins[0][places(c.words, c.outs[0].dims)])

@op(82, "pad", A, pad_shape)
def pad(c):
    y = np.full(c.outs[0].dims, c.ins[1])
    y[places(c.words, c.ins[0].shape)] = c.ins[0]
    return y

def gather_shape(t, w):
    need(len(t) == 2 and len(w) == 3 and t[1].dtype in (I32, I64) and w[2] <= 1)
    (x, indices), (axis, batch, _) = (t[0].dims, t[1].dims), w
    need(batch <= axis < len(x) and batch <= len(indices) and x[:batch] == indices[:batch])
    return [Type(t[0].dtype, x[:axis] + indices[batch:] + x[axis + 1:])]

@op(83, "gather", A, gather_shape)
def gather(c):
    (x, index), (axis, batch, zeros) = c.ins, c.words
    n, b = x.shape[axis], prod(x.shape[:batch])
    data_error(7, "index out of range", (index >= n) | ((index < 0) & (zeros == 0)))
    x = x.reshape(b, prod(x.shape[batch:axis]), n, prod(x.shape[axis + 1:]))
    flat = index.reshape(b, prod(index.shape[batch:]))
    x = np.concatenate([x, np.zeros_like(x, shape=(b, x.shape[1], 1, x.shape[3]))], axis=2)  # the row for negative indices
    y = x[np.arange(b)[:, None], :, np.where(flat < 0, n, flat)]
    return y.transpose(0, 2, 1, 3).reshape(c.outs[0].dims)

def gather_grad_shape(t, w):
    need(len(t) == 2 and len(w) == 3 and t[1].dtype in (I32, I64))
    (dy, indices), (axis, batch, n) = (t[0].dims, t[1].dims), w
    after = axis + len(indices) - batch
    need(batch <= axis and batch <= len(indices) and after <= len(dy))
    need(dy[:batch] == indices[:batch] and dy[axis:after] == indices[batch:])
    return [Type(t[0].dtype, dy[:axis] + (n,) + dy[after:])]

@op(84, "gather_grad", N, gather_grad_shape)
def gather_grad(c):
    (dy, index), (axis, batch, n), out = c.ins, c.words, c.outs[0].dims
    data_error(7, "index out of range", index >= n)
    b = prod(out[:batch])
    flat = index.reshape(b, prod(index.shape[batch:]))
    dx = np.zeros((b, prod(out[batch:axis]), n, prod(out[axis + 1:])), dy.dtype)
    dy = dy.reshape(b, dx.shape[1], flat.shape[1], dx.shape[3])
    for i in range(flat.shape[1]):
        rows = np.flatnonzero(flat[:, i] >= 0)
        dx[rows, :, flat[rows, i]] += dy[rows, :, i]
    return dx.reshape(out)

def scatter_update_shape(t, w):
    need(len(t) == 3 and not w and t[2].dtype in (I32, I64) and t[2].dims and t[2].dims[-1] <= len(t[0].dims))
    need(t[1] == Type(t[0].dtype, t[2].dims[:-1] + t[0].dims[t[2].dims[-1]:]))
    return t[:1]

@op(87, "tensor_scatter_update", A, scatter_update_shape, IN0)
def tensor_scatter_update(c):
    x, updates, index = c.ins
    d = index.shape[-1]
    data_error(7, "index out of range", (index < 0) | (index >= np.array(x.shape[:d], np.int64)))
    y = x.copy()
    for place in np.ndindex(index.shape[:-1]):
        y[tuple(index[place])] = updates[place]
    return y

# Reductions

def reduce_shape(t, w):
    need(len(t) == 1 and w and w[0] <= 1)
    (keep, *axes), dims = w, t[0].dims
    need(axes == sorted(set(axes)) and all(a < len(dims) for a in axes))
    return [Type(t[0].dtype, tuple(1 if i in axes else d for i, d in enumerate(dims) if keep or i not in axes))]

def reduce_op(c, start, step, end=lambda acc, n: acc):
    x, axes = c.ins[0], c.words[1:]
    kept = [i for i in range(x.ndim) if i not in axes]
    n = prod(x.shape[a] for a in axes)
    lanes = x.transpose(axes + kept).reshape([n] + [x.shape[i] for i in kept])
    acc = np.full(lanes.shape[1:], start(x.dtype), x.dtype)
    for lane in lanes:
        acc = step(acc, lane)
    return np.asarray(end(acc, n)).reshape(c.outs[0].dims)

def least(dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min

def greatest(dtype):
    return np.inf if dtype.kind == "f" else np.iinfo(dtype).max

either, both = lambda a, b: ((a != 0) | (b != 0)).astype(np.uint8), lambda a, b: ((a != 0) & (b != 0)).astype(np.uint8)
for n, name, dtypes, *steps in [
        (19, "sum", N, lambda _: 0, np.add), (20, "mean", F, lambda _: 0, np.add, lambda acc, n: acc / acc.dtype.type(n)),
        (70, "max", N, least, maximum), (71, "min", N, greatest, minimum), (72, "prod", N, lambda _: 1, np.multiply),
        (73, "any", {BOOL}, lambda _: 0, either), (74, "all", {BOOL}, lambda _: 1, both)]:
    op(n, name, dtypes, reduce_shape)(lambda c, steps=steps: reduce_op(c, *steps))

def arg_shape(t, w):
    need(len(t) == 1 and len(w) == 2 and w[0] < len(t[0].dims) and t[0].dims[w[0]] and w[1] in (I32, I64))
    return [Type(w[1], t[0].dims[:w[0]] + t[0].dims[w[0] + 1:])]

def arg_op(c, start, better):
    lanes = np.moveaxis(c.ins[0], c.words[0], 0)
    best, position = np.full(lanes.shape[1:], start(lanes.dtype), lanes.dtype), np.zeros(lanes.shape[1:], NUMPY[c.words[1]])
    for i, x in enumerate(lanes):
        change = better(x, best)
        best, position = np.where(change, x, best), np.where(change, position.dtype.type(i), position)
    return position

op(21, "argmax", N, arg_shape)(partial(arg_op, start=least, better=np.greater))
op(75, "argmin", N, arg_shape)(partial(arg_op, start=greatest, better=np.less))

def softmax_shape(t, w):
    need(len(t) == 1 and len(w) == 1 and w[0] < len(t[0].dims))
    return t

def shifted(x, axis):
    """x − shift, exp(x − shift), and its sum, in lanes along axis 0."""
    lanes = np.moveaxis(x, axis, 0)
    shift = np.full(lanes.shape[1:], -np.inf, lanes.dtype)
    for x in lanes:
        shift = np.where(x > shift, x, shift)
    e = exp(lanes - shift)
    return lanes - shift, e, ordered_sum(e, np.zeros(shift.shape, e.dtype))

@op(15, "softmax", {F32}, softmax_shape, IN0)
def softmax(c):
    _, e, total = shifted(c.ins[0], c.words[0])
    return np.moveaxis(e / total, 0, c.words[0])

@op(16, "log_softmax", {F32}, softmax_shape, IN0)
def log_softmax(c):
    x, _, total = shifted(c.ins[0], c.words[0])
    return np.moveaxis(x - log(total), 0, c.words[0])

def entropy_shape(t, w, inputs):
    need(len(t) == inputs and not w and t[0].dims and t[1].dtype in (I32, I64) and t[1].dims == t[0].dims[:-1])
    losses = Type(t[0].dtype, t[1].dims)
    need(inputs == 2 or t[2] == losses)
    return [losses] if inputs == 2 else t[:1]

def of_label(logits, labels):
    """Whether a class is the label, with the classes in axis 0."""
    data_error(7, "label out of range", (labels < 0) | (labels >= logits.shape[-1]))
    return np.moveaxis(labels[..., None] == np.arange(logits.shape[-1]), -1, 0)

@op(17, "sparse_softmax_cross_entropy", {F32}, partial(entropy_shape, inputs=2))
def entropy(c):
    hit = of_label(*c.ins)
    x, _, total = shifted(c.ins[0], -1)
    return log(total) - np.take_along_axis(x, np.argmax(hit, axis=0)[None], 0)[0]

@op(18, "sparse_softmax_cross_entropy_grad", {F32}, partial(entropy_shape, inputs=3), IN0)
def entropy_grad(c):
    hit = of_label(*c.ins[:2])
    _, e, total = shifted(c.ins[0], -1)
    p = e / total
    return np.moveaxis(np.where(hit, p - 1, p) * c.ins[2], 0, -1)

# Products and windows

def product(a, b):
    """a · b over the last axis of a and the last but one of b, summed in order."""
    dims = broadcast(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1])
    acc, term = np.zeros(dims, a.dtype), np.empty(dims, a.dtype)
    for k in range(a.shape[-1]):
        np.multiply(a[..., :, k, None], b[..., k, None, :], out=term)
        acc += term
    return acc

def turned(x, flag):
    return np.swapaxes(x, -1, -2) if flag else x

def turned_dims(dims, flag):
    return dims[:-2] + (dims[-1], dims[-2]) if flag else dims

def matmul_shape(t, w):
    need(len(t) == 2 and len(w) == 2 and max(w) <= 1 and t[0].dtype == t[1].dtype and min(len(x.dims) for x in t) >= 2)
    a, b = turned_dims(t[0].dims, w[0]), turned_dims(t[1].dims, w[1])
    need(a[-1] == b[-2])
    return [Type(t[0].dtype, broadcast(a[:-2], b[:-2]) + (a[-2], b[-1]))]

op(8, "matmul", F | {I32}, matmul_shape)(lambda c: product(turned(c.ins[0], c.words[0]), turned(c.ins[1], c.words[1])))

def dense_shape(t, w):
    need(len(t) in (2, 3) and len(w) == 1 and w[0] <= 1 and t[0].dims and len(t[1].dims) == 2)
    k, n = turned_dims(t[1].dims, w[0])
    need(all(x.dtype == t[0].dtype for x in t) and t[0].dims[-1] == k and (len(t) == 2 or t[2].dims == (n,)))
    return [Type(t[0].dtype, t[0].dims[:-1] + (n,))]

@op(9, "dense", F, dense_shape)
def dense(c):
    x = c.ins[0].reshape(prod(c.ins[0].shape[:-1]), c.ins[0].shape[-1])
    y = product(x, turned(c.ins[1], c.words[0])).reshape(c.outs[0].dims)
    return y + c.ins[2] if len(c.ins) == 3 else y

@dataclass(frozen=True)
class Window:
    """A window that slides along one axis of an image."""
    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    out: int

    def span(self, tap):
        """The output positions whose tap is inside of the image, and the image positions that it is on."""
        at = tap * self.dilation - self.before
        low = max(0, -(at // self.stride))
        high = max(low, min(self.out, (self.size - 1 - at) // self.stride + 1))
        first = low * self.stride + at
        return slice(low, high), slice(first, first + (high - low) * self.stride, self.stride) if high > low else slice(0, 0)

def window(size, taps, stride, dilation, padding, before, after):
    need(min(taps, stride, dilation) >= 1 and padding <= 2 and (padding == 2 or before == after == 0))
    w = (taps - 1) * dilation + 1
    if padding == 1:
        out = -(-size // stride)
        reach = (max(out, 1) - 1) * stride + w
        before = max(reach - size, 0) // 2
    else:
        need(before + size + after + stride - w >= 0)
        out, reach = (before + size + after + stride - w) // stride, 0
    need(max(stride, w, before + size + after, reach) < 2**31)
    return Window(size, taps, stride, dilation, before, out)

def conv_windows(image, taps, w):
    need(len(image) == 4 and len(w) == 9)
    return [window(image[1 + i], taps[i], w[i], w[2 + i], w[4], w[5 + 2 * i], w[6 + 2 * i]) for i in (0, 1)]

def pool_windows(image, w):
    need(len(w) == 5 and w[4] <= 1)
    return conv_windows(image, w[:2], [*w[2:4], 1, 1, w[4], 0, 0, 0, 0])

def taps(windows):
    """For each tap, in row-major order: the tap, and the places that it pairs in the output and in the image."""
    v, h = windows
    for i in range(v.taps):
        for j in range(h.taps):
            (out_v, in_v), (out_h, in_h) = v.span(i), h.span(j)
            yield (i, j), (slice(None), out_v, out_h), (slice(None), in_v, in_h)

def conv2d_shape(t, w):
    need(len(t) in (2, 3) and all(x.dtype == t[0].dtype for x in t) and len(t[1].dims) == 4 and len(t[0].dims) == 4)
    (n, _, _, c), (kh, kw, ci, co) = t[0].dims, t[1].dims
    need(ci == c and (len(t) == 2 or t[2].dims == (co,)))
    v, h = conv_windows(t[0].dims, (kh, kw), w)
    return [Type(t[0].dtype, (n, v.out, h.out, co))]

@op(10, "conv2d", F, conv2d_shape)
def conv2d(c):
    x, f = c.ins[:2]
    y = np.zeros(c.outs[0].dims, x.dtype)
    for tap, out, inside in taps(conv_windows(x.shape, f.shape, c.words)):
        for i in range(x.shape[3]):
            y[out] += x[inside][..., i, None] * f[tap][i]
    return y + c.ins[2] if len(c.ins) == 3 else y

def conv2d_input_grad_shape(t, w):
    need(len(t) == 2 and t[0].dtype == t[1].dtype and len(w) == 11 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    x = Type(t[0].dtype, (t[1].dims[0], w[9], w[10], t[0].dims[2]))
    need(conv2d_shape([x, t[0]], w[:9]) == [t[1]])
    return [x]

@op(11, "conv2d_input_grad", F, conv2d_input_grad_shape)
def conv2d_input_grad(c):
    f, dy = c.ins
    dx = np.zeros(c.outs[0].dims, f.dtype)
    for tap, out, inside in taps(conv_windows(dx.shape, f.shape, c.words[:9])):
        for i in range(dy.shape[3]):
            dx[inside] += dy[out][..., i, None] * f[tap][:, i]
    return dx

def conv2d_filter_grad_shape(t, w):
    need(len(t) == 2 and t[0].dtype == t[1].dtype and len(w) == 11 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    f = Type(t[0].dtype, (w[9], w[10], t[0].dims[3], t[1].dims[3]))
    need(conv2d_shape([t[0], f], w[:9]) == [t[1]])
    return [f]

@op(12, "conv2d_filter_grad", F, conv2d_filter_grad_shape)
def conv2d_filter_grad(c):
    x, dy = c.ins
    df = np.zeros(c.outs[0].dims, x.dtype)
    for tap, out, inside in taps(conv_windows(x.shape, df.shape, c.words[:9])):
        for images, steps in zip(x[inside], dy[out]):
            terms = images[..., :, None] * steps[..., None, :]
            df[tap] = ordered_sum(terms.reshape(-1, *df.shape[2:]), df[tap])
    return df

def pool_shape(t, w):
    need(len(t) == 1)
    v, h = pool_windows(t[0].dims, w)
    return [Type(t[0].dtype, (t[0].dims[0], v.out, h.out, t[0].dims[3]))]

def pool_grad_shape(t, w):
    need(len(t) == 2 and pool_shape(t[:1], w) == t[1:])
    return t[:1]

def max_pool(x, w, out):
    """The maxima, and the winners' positions in the image."""
    y, winner = np.full(out, -np.inf, x.dtype), np.full(out, -1)
    position = np.arange(x.shape[1] * x.shape[2]).reshape(1, *x.shape[1:3], 1)
    for _, at, inside in taps(pool_windows(x.shape, w)):
        change = ~(x[inside] <= y[at]) & ~np.isnan(y[at])
        winner[at] = np.where(change | (winner[at] < 0), position[inside], winner[at])
        y[at] = np.where(change, x[inside], y[at])
    return y, winner

op(13, "max_pool2d", F, pool_shape)(lambda c: max_pool(c.ins[0], c.words, c.outs[0].dims)[0])

@op(14, "max_pool2d_grad", F, pool_grad_shape)
def max_pool2d_grad(c):
    x, dy = c.ins
    n, h, w, channels = x.shape
    winner = max_pool(x, c.words, dy.shape)[1]
    dx = np.zeros((n, h * w, channels), x.dtype)
    np.add.at(dx, (np.arange(n)[:, None, None, None], winner, np.arange(channels)), dy)
    return dx.reshape(x.shape)

@op(90, "avg_pool2d", F, pool_shape)
def avg_pool2d(c):
    total, count = np.zeros(c.outs[0].dims, c.ins[0].dtype), np.zeros(c.outs[0].dims, c.ins[0].dtype)
    for _, at, inside in taps(pool_windows(c.ins[0].shape, c.words)):
        total[at] += c.ins[0][inside]
        count[at] += 1
    return total / count

# Optimizers and effects

def gradient_shape(t, products):
    """The type of the gradient: of the input itself, or of the product of x and dy."""
    if not products:
        return t[0]
    need(len(t[0].dims) == 2 and len(t[1].dims) == 2 and t[0].dtype == t[1].dtype and t[0].dims[0] == t[1].dims[0])
    return Type(t[0].dtype, (t[0].dims[1], t[1].dims[1]))

def sgd_shape(t, w, products):
    need(len(t) == 3 + products and not w)
    need(t[0] == gradient_shape(t[1:], products) and t[-1] == Type(t[0].dtype, ()))
    return t[:1]

def adam_shape(t, w, products):
    need(len(t) == 6 + products and len(w) == 5 and t[0] == t[1] == t[2] == gradient_shape(t[3:], products))
    need(t[-2] == Type(t[0].dtype, ()) and t[-1] == Type(I64, ()))
    b1, b2, epsilon, r1, r2 = map(number, w)
    need(0 <= b1 < 1 and 0 <= b2 < 1 and 0 <= epsilon < np.inf and 0 <= r1 <= 1 and 0 <= r2 <= 1)
    return t[:3]

def adam(variable, m, v, g, rate, iterations, w):
    b1, b2, epsilon, r1, r2 = map(number, w)
    t = int(iterations) + 1
    t = np.float32(t if 0 <= t < 2**32 else 2**32 - 1)
    alpha = rate * (np.sqrt(1 - pow_scalar(b2, t)) / (1 - pow_scalar(b1, t)))
    m = m + (g - m) * r1
    v = v + (g * g - v) * r2
    return [variable - (m * alpha) / (np.sqrt(v) + epsilon), m, v]

op(27, "sgd_step", F, partial(sgd_shape, products=0), IN0)(lambda c: c.ins[0] - c.ins[2] * c.ins[1])
op(30, "matmul_sgd", F, partial(sgd_shape, products=1), IN0)(lambda c: c.ins[0] - c.ins[3] * product(c.ins[1].T, c.ins[2]))
op(28, "adam_step", {F32}, partial(adam_shape, products=0), IN_EACH)(lambda c: adam(*c.ins, c.words))
op(111, "matmul_adam", {F32}, partial(adam_shape, products=1), IN_EACH)(
    lambda c: adam(*c.ins[:3], product(c.ins[3].T, c.ins[4]), *c.ins[5:], c.words))

def effect_shape(t, w, accept):
    need(len(t) == 1 and accept(t[0], w))
    return []

COND, WHILE = 101, 102
op(COND, "cond", {BOOL, I32}, partial(
    effect_shape, accept=lambda t, w: t.dims == () and (len(w) == 2 if t.dtype == BOOL else w)))(None)
op(WHILE, "while_loop", {BOOL}, partial(effect_shape, accept=lambda t, w: t.dims == () and len(w) == 3))(None)
op(104, "assert", {BOOL}, partial(effect_shape, accept=lambda t, w: True))(
    lambda c: data_error(10, "assertion", c.ins[0] == 0) or [])

# ---- Execution -----------------------------------------------------------------------------------------------------------------

@dataclass(frozen=True)
class Step:
    """An instruction, ready to run: its operands are views of the arena and of flash."""
    index: int
    op: int
    call: Call
    outs: list

class Session:
    """Loaded signatures, after checks 19 to 31, and their memory."""

    def __init__(self, artifact: Artifact, names: list[str] | None = None):
        self.artifact = artifact
        known = [artifact.names[s.name] for s in artifact.signatures]
        for name in names or []:
            check(name in known, 19, f"no signature {name}")
        self.loaded = {name: i for i, name in reversed(list(enumerate(known))) if names is None or name in names}
        self.mask = sum(1 << i for i in self.loaded.values())
        reached = [b for i in sorted(self.loaded.values()) for b in self.verify(i)]
        scratch = max((artifact.blocks[artifact.signatures[i].block].scratch for i in self.loaded.values()), default=0)
        end, self.variable_at = round_up(scratch, 16), {}
        for i, v in enumerate(artifact.variables):
            if v.assigned_by & self.mask:
                self.variable_at[i], end = end, end + round_up(artifact.tensors[v.tensor].bytes, 16)
        self.arena = bytearray(end + 4 * len(artifact.variables))
        struct.pack_into(f"<{len(artifact.variables)}I", self.arena, end,
                         *(self.variable_at.get(i, NONE) for i in range(len(artifact.variables))))
        self.reset()
        self.plans = {b: self.plan(artifact.blocks[b]) for b in reached}

    def in_bounds(self, t: Tensor, scratch: int) -> bool:
        """Rules 3 and 4."""
        if t.space == VARIABLE:
            v = self.artifact.variables[t.location]
            return v.initial != NONE or v.assigned_by & self.mask != 0
        return t.space == FLASH or t.location + t.bytes <= scratch

    def verify(self, signature: int) -> list[int]:
        """Checks 20 to 31 of a signature; the numbers of the blocks that it runs."""
        a = self.artifact
        number_ = a.signatures[signature].block
        block = a.blocks[number_]
        ins, outs = ([a.tensors[i] for i in part] for part in (a.inputs_of(block), a.outputs_of(block)))
        fine = all(t.space == SCRATCH and self.in_bounds(t, block.scratch) for t in ins)
        fine = fine and not any(overlap(t, u) for t, u in combinations(ins, 2))
        check(fine and all(self.in_bounds(t, block.scratch) for t in outs), 16, f"Blocks {signature}")
        level, reached, depth = [number_], [], 0
        while level:
            named = []
            for b in level:
                check(depth <= 16, 16, f"Blocks {b}: nested too deep")
                for i, n in a.instructions_of(a.blocks[b]):
                    before = (reached + level + named)[-1] if depth or named else None
                    named += self.verify_instruction(i, n, signature, block.scratch, before)
            level, reached, depth = named, reached + level, depth + 1
        return reached

    def verify_instruction(self, i: int, n: Instruction, signature: int, scratch: int, before: int | None) -> list[int]:
        a = self.artifact
        rule = lambda condition, text: check(condition, 17, f"instruction {i}: {text}")
        kernel = a.kernels[n.kernel] if n.kernel < len(a.kernels) else None
        check(kernel and kernel.op in OPS and kernel.dtype in OPS[kernel.op].dtypes, 18, f"instruction {i}: no kernel {kernel}")
        rule(n.operands + n.inputs + n.outputs <= len(a.operands) and n.attributes + n.attribute_words <= len(a.attributes)
             and n.outputs <= 3, "Operands")
        ins, outs = ([a.tensors[x] for x in part] for part in a.operands_of(n))
        words, op_ = a.words_of(n), OPS[kernel.op]
        rule(all(self.in_bounds(t, scratch) for t in ins + outs), "Bounds")
        rule(n.inputs <= 8, "Operands")
        in_types, out_types = [a.types[t.type] for t in ins], [a.types[t.type] for t in outs]
        try:
            expected = op_.shape(in_types, words)
        except Refused:
            expected = None
        rule(expected is not None, "Inputs")
        rule(expected == out_types, "Outputs")
        rule((in_types + out_types + [Type(U8, ())])[0].dtype == kernel.dtype, "Kernel")
        rule(not any(t.space == FLASH for t in outs) and not any(overlap(t, u) for t, u in combinations(outs, 2)), "Alias")
        for (x, t), (y, u) in product_of(enumerate(ins), enumerate(outs)):
            rule(not overlap(t, u) or (place_of(t) == place_of(u) and (x, y) in op_.in_place), "Alias")
        rule(all(t.space != VARIABLE or a.variables[t.location].assigned_by >> signature & 1 for t in outs), "Assigns")
        named = words if kernel.op == COND else words[:2] if kernel.op == WHILE else []
        for b in named:
            rule(len(a.signatures) <= b < len(a.blocks) and before in (None, b - 1), "Blocks")
            first, before = a.blocks[named[0]], b
            rule((a.blocks[b].outputs, a.blocks[b].output_count) == (first.outputs, first.output_count), "Blocks")
        return named

    def flash_value(self, variable: int) -> bytes | None:
        v = self.artifact.variables[variable]
        start = self.artifact.data_at + v.initial
        return None if v.initial == NONE else self.artifact.bytes[start:start + self.artifact.tensors[v.tensor].bytes]

    def reset(self):
        """Gives the variables in RAM their initial values."""
        for i, at in self.variable_at.items():
            size = self.artifact.tensors[self.artifact.variables[i].tensor].bytes
            self.arena[at:at + size] = self.flash_value(i) or bytes(size)

    def value(self, variable: int) -> bytes | None:
        at = self.variable_at.get(variable)
        if at is None:
            return self.flash_value(variable)
        return bytes(self.arena[at:at + self.artifact.tensors[self.artifact.variables[variable].tensor].bytes])

    def variables(self) -> dict[str, str]:
        named = {self.artifact.names[v.name]: self.value(i) for i, v in enumerate(self.artifact.variables)}
        return {name: value.hex() for name, value in named.items() if value is not None}

    def view(self, tensor: int) -> np.ndarray:
        t, type_ = self.artifact.tensors[tensor], self.artifact.type_of(tensor)
        if t.space == VARIABLE and t.location in self.variable_at:
            buffer, at = self.arena, self.variable_at[t.location]
        elif t.space == SCRATCH:
            buffer, at = self.arena, t.location
        else:
            at = self.artifact.variables[t.location].initial if t.space == VARIABLE else t.location
            buffer, at = self.artifact.bytes, self.artifact.data_at + at
        return np.ndarray(type_.dims, NUMPY[type_.dtype], buffer, at if type_.bytes else 0)

    def plan(self, block: Block) -> list[Step]:
        a, steps = self.artifact, []
        for i, n in a.instructions_of(block):
            ins, outs = a.operands_of(n)
            call = Call([self.view(x) for x in ins], [a.type_of(x) for x in ins], a.words_of(n), [a.type_of(x) for x in outs])
            steps.append(Step(i, a.kernels[n.kernel].op, call, [self.view(x) for x in outs]))
        return steps

    def run_block(self, block: int):
        for step in self.plans[block]:
            words = step.call.words
            if step.op == COND:
                chosen = int(step.call.ins[0])
                chosen = (0 if chosen else 1) if step.call.types[0].dtype == BOOL else chosen
                self.run_block(words[chosen if 0 <= chosen < len(words) else -1])
            elif step.op == WHILE:
                self.run_block(words[0])
                left = min(words[2], 2**32 - 3)
                while step.call.ins[0] and left:
                    self.run_block(words[1])
                    left -= 1
            else:
                self.run_op(step)

    def run_op(self, step: Step):
        try:
            results = OPS[step.op].run(step.call)
        except GradletError as e:
            raise GradletError(e.code, f"instruction {step.index}: {e.text}") from None
        for place, result in zip(step.outs, results if isinstance(results, list) else [results]):
            result = np.asarray(result)
            assert result.shape == place.shape and result.dtype in (place.dtype, np.bool_), OPS[step.op].name
            place[...] = result

    def run(self, signature: str, inputs: list[bytes]) -> list[bytes]:
        check(signature in self.loaded, 19, f"no signature {signature}")
        number_ = self.artifact.signatures[self.loaded[signature]].block
        block = self.artifact.blocks[number_]
        check(len(inputs) == block.input_count, 21, "number of inputs")
        for tensor, value in zip(self.artifact.inputs_of(block), inputs):
            t = self.artifact.tensors[tensor]
            check(len(value) == t.bytes, 22, "bytes of an input")
            self.arena[t.location:t.location + t.bytes] = value
        with np.errstate(all="ignore"):
            self.run_block(number_)
        return [self.view(x).tobytes() for x in self.artifact.outputs_of(block)]

# ---- Flat checkpoints ----------------------------------------------------------------------------------------------------------

def read_frame(data: bytes, count: int) -> tuple[tuple[int, ...], bool, bool]:
    """The words of a frame of the two copies in `data`; whether a copy is whole, and whether both are."""
    size = 4 * count + 4
    copies = [words_of(data[at:at + size]) for at in (0, size)]
    whole = [crc32c(struct.pack(f"<{count}I", *c[:-1])) == c[-1] for c in copies]
    return copies[0 if whole[0] and not whole[1] else 1][:-1], any(whole), all(whole)

def frame(*words: int) -> bytes:
    content = struct.pack(f"<{len(words)}I", *words)
    return 2 * (content + struct.pack("<I", crc32c(content)))

def restore(session: Session, data: bytes) -> list[int]:
    """Reads a checkpoint as a strict reader does; the variables that it holds."""
    a = session.artifact
    check(len(data) >= 56, 27, "the header is cut short")
    (magic, version, length, checksum, entries, total), whole, both = read_frame(data[:56], 6)
    check(magic == int.from_bytes(b"GRDC", "little"), 23, "not a checkpoint")
    check(version == 1, 24, "version")
    check(whole and total >= 56 and both, 26, "header")
    check((length, checksum) == (a.length, a.checksum), 25, "another artifact's checkpoint")
    at, found = 56, []
    try:
        for _ in range(entries):
            at += restore_entry(session, data[at:], total - at, found)
        check(at == total, 26, "bytes are left after the last entry")
    except GradletError:
        session.reset()
        raise
    return found

def restore_entry(session: Session, data: bytes, left: int, found: list[int]) -> int:
    check(len(data) >= 32, 27, "head of an entry")
    (index, kind, size), _, both = read_frame(data[:32], 3)
    check(36 + size <= left and index > max(found, default=-1) and both, 26, "head of an entry")
    check(index < len(session.artifact.variables), 21, f"variable {index}")
    type_ = session.artifact.type_of(session.artifact.variables[index].tensor)
    rank = len(type_.dims)
    check((kind & 0xFF, kind >> 8, size) == (type_.dtype, rank, 4 * rank + type_.bytes), 22, f"type of variable {index}")
    check(len(data) >= 36 + size, 27, f"body of variable {index}")
    body, (crc,) = data[32:32 + size], words_of(data[32 + size:36 + size])
    check(crc32c(data[:12] + body) == crc, 26, f"checksum of variable {index}")
    place, value = session.variable_at.get(index), body[4 * rank:]
    check(place is not None or value == session.flash_value(index), 28, f"variable {index} is in flash")
    check(words_of(body[:4 * rank]) == type_.dims, 22, f"dimensions of variable {index}")
    if place is not None:
        session.arena[place:place + len(value)] = value
    found.append(index)
    return 36 + size

def full_checkpoint(session: Session) -> bytes:
    a, entries = session.artifact, []
    for i, v in enumerate(a.variables):
        value, type_ = session.value(i), a.type_of(v.tensor)
        if value is not None:
            body = struct.pack(f"<{len(type_.dims)}I", *type_.dims) + value
            head = (i, type_.dtype | len(type_.dims) << 8, len(body))
            entries.append(frame(*head) + body + struct.pack("<I", crc32c(struct.pack("<3I", *head) + body)))
    total = 56 + sum(map(len, entries))
    magic = int.from_bytes(b"GRDC", "little")
    return frame(magic, 1, a.length, a.checksum, len(entries), total) + b"".join(entries)

# ---- Flash slots ---------------------------------------------------------------------------------------------------------------

def read_slots(data: bytes, block: int, slots: int, word: int) -> dict:
    """What a range of flash holds; `newest` is the slot to restore from."""
    size = len(data) // max(slots, 1) // block * block
    check(slots >= 2 and size and block % word == 0, 30, "the range cannot be divided this way")
    found = []
    for i in range(slots):
        slot = data[i * size:(i + 1) * size]
        commit = round_up(20, word)
        start = commit + word
        _, sequence, length, crc, record_crc = words_of(slot[:20].ljust(20, b"\0"))
        committed = start <= size and slot[:4] == b"GRDS" and crc32c(slot[:16]) == record_crc and slot[commit:start] == bytes(word)
        whole = committed and start + length <= size and crc32c(slot[start:start + length]) == crc
        found.append({"committed": committed, "whole": whole, "sequence": sequence, "offset": i * size + start, "bytes": length})
    chosen = max((i for i in range(slots) if found[i]["whole"] and found[i]["sequence"]),
                 key=lambda i: (found[i]["sequence"], -i), default=None)
    check(chosen is not None or not any(s["committed"] for s in found), 26, "slots are committed and none is whole")
    return {"slots": found, "newest": chosen, "next": 0 if chosen is None else (chosen + 1) % slots}

# ---- Telemetry -----------------------------------------------------------------------------------------------------------------

class Invalid(Exception):
    """The fields of a frame are cut short or not valid."""

def cobs_decode(piece: bytes) -> bytes | None:
    content, at = bytearray(), 0
    while at < len(piece):
        code = piece[at]
        if at + code > len(piece):
            return None
        content += piece[at + 1:at + code]
        at += code
        if at < len(piece) and code < 0xFF:
            content.append(0)
    return bytes(content)

def cobs_encode(content: bytes) -> bytes:
    encoded, at = bytearray(), 0
    while True:
        zero = content.find(0, at)
        run = content[at:min(len(content) if zero < 0 else zero, at + 254)]
        encoded += bytes([len(run) + 1]) + run
        at += len(run) + (len(run) < 254)
        if at > len(content) or (at == len(content) and len(run) == 254):
            return bytes(encoded)

class Fields:
    """Reads the fields of a frame, one after the other."""

    def __init__(self, data: bytes):
        self.data, self.at = data, 0

    def take(self, count: int) -> bytes:
        if self.at + count > len(self.data):
            raise Invalid()
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self) -> int:
        value = 0
        for i in range(5):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80 and (i < 4 or byte <= 0x0F):
                return value
        raise Invalid()

    def f32(self) -> float | str:
        value = np.frombuffer(self.take(4), "<f4")[0]
        return float(value) if np.isfinite(value) else str(value)

    def text(self) -> str:
        try:
            return self.take(self.number()).decode()
        except UnicodeDecodeError:
            raise Invalid() from None

    def bytes(self) -> str:
        return self.take(self.number()).hex()

    def artifact(self) -> dict | None:
        some = self.take(1)[0]
        if some > 1:
            raise Invalid()
        return {"length": self.number(), "checksum": self.number()} if some else None

KINDS = {
    0: ("hello", "version:number name:text unit:text units_in_a_second:number artifact:artifact"),
    1: ("scalar", "tag:text step:number value:f32"),
    2: ("statistics", "tag:text step:number minimum:f32 maximum:f32 mean:f32 variance:f32 elements:number not_finite:number"),
    3: ("text", "tag:text step:number text:text"),
    4: ("progress", "done:number steps:number epoch:number"),
    5: ("counts", "signature:text step:number counts:number first:number instructions:number before:number each:bytes"),
    6: ("dropped", "frames:number")}

def read_frames(stream: bytes) -> list[dict]:
    """Every piece between two zero bytes: a frame, an unknown frame or a corrupt piece."""
    found, before, version = [], None, 1
    for piece in filter(None, stream.split(b"\0")[1:-1]):
        content = cobs_decode(piece)
        good = content is not None and len(content) >= 4 and crc32c(content[:-4]) == words_of(content[-4:])[0]
        fields = Fields(content[:-4] if good else b"")
        try:
            sequence = fields.number()
        except Invalid:
            found.append({"corrupt": piece.hex()})
            continue
        entry, gap = {"sequence": sequence}, 0 if before is None else (sequence - before - 1) % 2**32
        entry |= {"lost": gap} if gap < 2**31 else {"restarted": True, "lost": sequence}
        before = sequence
        try:
            kind = fields.number()
            name, form = KINDS.get(kind, ("unknown", ""))
            values = {}
            for part in form.split():
                key, read = part.split(":")
                values[key] = getattr(fields, read)()
                version = values[key] if (kind, key) == (0, "version") else version
                if version != 1:
                    raise Invalid()
            found.append(entry | {"kind": name} | values)
        except Invalid:
            found.append(entry | {"kind": "unknown"})
    return found

# ---- Commands ------------------------------------------------------------------------------------------------------------------

def load(path: str) -> Session:
    return Session(Artifact(Path(path).read_bytes()))

def error_of(e: GradletError) -> dict:
    return {"error": e.code, "text": e.text}

def run_command(args):
    session = load(args.artifact)
    for line in filter(str.strip, sys.stdin):
        request = json.loads(line)
        try:
            if request.get("variables"):
                answer = {"variables": session.variables()}
            else:
                outputs = session.run(request["signature"], [bytes.fromhex(x) for x in request["inputs"]])
                answer = {"outputs": [x.hex() for x in outputs]}
        except GradletError as e:
            answer = error_of(e)
        print(json.dumps(answer), flush=True)

def checkpoint_command(args):
    session = load(args.artifact)
    found = restore(session, Path(args.file).read_bytes())
    names = session.artifact.names
    print(json.dumps({"variables": {names[session.artifact.variables[i].name]: session.value(i).hex() for i in found}}))

def sample_inputs(session: Session, signature: int) -> list[bytes]:
    a, values = session.artifact, []
    for tensor in a.inputs_of(a.blocks[a.signatures[signature].block]):
        type_ = a.type_of(tensor)
        n = prod(type_.dims)
        values.append((np.full(n, 2, "<i4") if type_.dtype == I32 else (np.arange(n, dtype="<f4") + 1) / np.float32(16)).tobytes())
    return values

def ordered(x):
    """Floats as integers in the order of their values, so that neighbours differ by 1."""
    b = x.view(np.int32).astype(np.int64)
    return np.where(b < 0, -2**31 - b, b)

def sample_result(session: Session, expected: bytes) -> str:
    """Runs each signature once and compares with the recorded results."""
    a, pieces = session.artifact, []
    for i, s in enumerate(a.signatures):
        outputs = session.run(a.names[s.name], sample_inputs(session, i))
        pieces.append((a.type_of(a.outputs_of(a.blocks[s.block])[0]), outputs[0]))
    pieces += [(a.type_of(v.tensor), session.value(i)) for i, v in enumerate(a.variables)]
    if sum(len(x) for _, x in pieces) != len(expected):
        return f"{sum(len(x) for _, x in pieces)} bytes of results, {len(expected)} recorded"
    at, worst, differ = 0, 0, 0
    for type_, got in pieces:
        want, at = expected[at:at + len(got)], at + len(got)
        differ += got != want
        if type_.dtype == F32 and got != want:
            worst = max(worst, int(np.abs(ordered(np.frombuffer(got, "<f4")) - ordered(np.frombuffer(want, "<f4"))).max()))
    found = "bits equal" if not differ else f"{differ} tensors differ, greatest distance {worst} ulp"
    return f"{len(a.signatures)} steps, {len(pieces)} tensors: {found}"

def samples_command(args):
    results = {}
    for path in sorted(Path(args.folder).glob("*.grdl")):
        if path.with_suffix(".out").exists():
            try:
                results[path.stem] = sample_result(load(path), path.with_suffix(".out").read_bytes())
            except GradletError as e:
                results[path.stem] = f"error {e.code}: {e.text}"
            print(f"{path.stem}: {results[path.stem]}")
    return all(r.endswith("bits equal") for r in results.values())

def spec_command(args):
    text, dumps = Path(args.spec).read_text(), {}
    for name, body in re.findall(r"```hex (\S+)\n(.*?)```", text, re.S):
        data = bytearray()
        for offset, row in re.findall(r"^([0-9a-f]{4}):((?: [0-9a-f]{2})+)", body, re.M):
            assert int(offset, 16) == len(data), f"{name}: offset {offset}"
            data += bytes.fromhex(row)
        dumps[name] = bytes(data)
    session = Session(Artifact(dumps["artifact"]))
    slot = struct.pack("<4s3I", b"GRDS", 1, len(dumps["checkpoint"]), crc32c(dumps["checkpoint"]))
    slot += struct.pack("<I", crc32c(slot)) + b"\xff" * 4 + bytes(8) + dumps["checkpoint"]
    content = b"\0\1\4loss\1" + dumps["train.loss"]
    results = {
        "crc check value": crc32c(b"123456789") == 0xE3069283,
        "infer.y": session.run("infer", [dumps["infer.x"]]) == [dumps["infer.y"]],
        "train.loss": session.run("train", [dumps["train.x"], dumps["train.t"]]) == [dumps["train.loss"]],
        "train.kernel": session.value(0) == dumps["train.kernel"], "train.bias": session.value(1) == dumps["train.bias"],
        "infer.y.trained": session.run("infer", [dumps["infer.x"]]) == [dumps["infer.y.trained"]],
        "checkpoint written": full_checkpoint(session) == dumps["checkpoint"],
        "checkpoint read": restore(Session(session.artifact), dumps["checkpoint"]) == [0, 1],
        "slot": slot.startswith(dumps["slot"]),
        "slot read": read_slots(slot.ljust(256, b"\xff") + 256 * b"\xff", 256, 2, 8)["newest"] == 0,
        "frame": content + struct.pack("<I", crc32c(content)) == dumps["frame"],
        "line": b"\0" + cobs_encode(dumps["frame"]) + b"\0" == dumps["line"],
        "line read": [f["kind"] for f in read_frames(dumps["line"])] == ["scalar"]}
    for name, fine in results.items():
        print(f"{name}: {'ok' if fine else 'DIFFERS'}")
    return all(results.values())

def main():
    parser = argparse.ArgumentParser(description="A second reader of gradlet's formats, from SPEC.md alone.")
    commands = parser.add_subparsers(required=True)
    for name, arguments, function in [
            ("run", ["artifact"], run_command),
            ("verify", ["artifact"], lambda a: load(a.artifact) and print("ok")),
            ("checkpoint", ["file", "--artifact"], checkpoint_command),
            ("slots", ["file", "--block", "--slots", "--word"],
             lambda a: print(json.dumps(read_slots(Path(a.file).read_bytes(), a.block, a.slots, a.word)))),
            ("frames", ["file"], lambda a: print(json.dumps(read_frames(Path(a.file).read_bytes())))),
            ("samples", ["folder"], samples_command), ("spec", ["spec"], spec_command)]:
        command = commands.add_parser(name)
        for argument in arguments:
            optional = {"required": True, "type": str if argument == "--artifact" else int} if argument.startswith("-") else {}
            command.add_argument(argument, **optional)
        command.set_defaults(function=function)
    args = parser.parse_args()
    try:
        sys.exit(args.function(args) is False)
    except GradletError as e:
        print(json.dumps(error_of(e)))
        sys.exit(1)

if __name__ == "__main__":
    main()
