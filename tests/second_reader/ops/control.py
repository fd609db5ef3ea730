"""Branches, loops and assertions. The session runs the blocks of the first two."""

from functools import partial

from base import BOOL, I32
from ops.registry import data_error, need, op

def effect_shape(t, w, accept):
    need(len(t) == 1 and accept(t[0], w))
    return []

COND, WHILE = 101, 102
op(COND, "cond", {BOOL, I32}, partial(
    effect_shape, accept=lambda t, w: t.dims == () and (len(w) == 2 if t.dtype == BOOL else w)))(None)
op(WHILE, "while_loop", {BOOL}, partial(effect_shape, accept=lambda t, w: t.dims == () and len(w) == 3))(None)
op(104, "assert", {BOOL}, partial(effect_shape, accept=lambda t, w: True))(
    lambda c: data_error(10, "assertion", c.ins[0] == 0) or [])
