"""The table of ops, and helpers that several ops share."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from artifact import Type
from base import BF16, F16, F32, F64, I8, I16, I32, I64, U8, GradletError

F, I, Q = {F32, F64}, {I8, U8, I16, I32, I64}, {I8, I16}
N, SIGNED, A = F | I, {F32, F64, I8, I16, I32, I64}, set(range(1, 11))

class Refused(Exception):
    """A shape rule refuses the inputs or the attribute words."""

def need(condition):
    if not condition:
        raise Refused()

@dataclass
class Call:
    """A run of an op: arrays and types of the inputs, attribute words, types of the outputs."""
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

def not_finite(dtype, x):
    """True for each element that is infinite or NaN."""
    exponents = {F16: 0x7C00, BF16: 0x7F80}
    if dtype in exponents:
        return x & exponents[dtype] == exponents[dtype]
    return ~np.isfinite(x)

def ordered_sum(terms, start):
    """start + terms[0] + terms[1] + …, from left to right: accumulate adds in this order."""
    return np.add.accumulate(np.concatenate([start[None], terms]), axis=0, dtype=start.dtype)[-1]
