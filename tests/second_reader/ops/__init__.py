"""The ops. Each module registers its own in `OPS`; an op that is not there is a missing kernel (error 18)."""

from ops import control, elementwise, packed, place, products, quantized, recurrent, reduce, steps, windows  # noqa: F401
from ops.control import COND, WHILE
from ops.registry import OPS, Call, Refused, not_finite

__all__ = ["COND", "OPS", "WHILE", "Call", "Refused", "not_finite"]
