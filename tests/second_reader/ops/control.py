"""Branches, loops and assertions. The session runs the blocks of the first two."""

from functools import partial

from base import BF16, BOOL, F16, F32, F64, I32
from ops.registry import data_error, need, not_finite, op

def effect_shape(t, w, accept):
    need(len(t) == 1 and accept(t[0], w))
    return []

COND, WHILE = 101, 102
op(COND, "cond", {BOOL, I32}, partial(
    effect_shape, accept=lambda t, w: t.dims == () and (len(w) == 2 if t.dtype == BOOL else w)))(None)
op(WHILE, "while_loop", {BOOL}, partial(effect_shape, accept=lambda t, w: t.dims == () and len(w) == 3))(None)
op(104, "assert", {BOOL}, partial(effect_shape, accept=lambda t, w: True))(
    lambda c: data_error(10, "assertion", c.ins[0] == 0) or [])
op(105, "check_numerics", {F32, F64, F16, BF16}, partial(effect_shape, accept=lambda t, w: t.dtype in {F32, F64, F16, BF16}))(
    lambda c: data_error(34, "not finite", not_finite(c.types[0].dtype, c.ins[0])) or [])
