"""Fixed point: the functions of SPEC.md on integers of 64 bits, and on Python's where those do not suffice."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from base import signed

def wrap(x, bits=32):
    """The signed number with the low bits of x."""
    return ((x + 2**(bits - 1)) & (2**bits - 1)) - 2**(bits - 1)

def near(x, n):
    """x / 2^n, ties away from zero."""
    n = np.asarray(n)
    half = np.where(n == 0, 0, (x * 0 + 1) << np.maximum(n - 1, 0)) - ((x < 0) & (n > 0))
    return (x + half) >> n

def high(a, b):
    least = -2**31
    return np.where((a == least) & (b == least), 2**31 - 1, (a * b + 2**30) >> 31)

@dataclass(frozen=True)
class Multiplier:
    """Multipliers v / 2^31 · 2^e: two numbers, or two arrays."""
    v: np.ndarray
    e: np.ndarray

    @staticmethod
    def of(words):
        return Multiplier(*np.array([signed(w) for w in words], np.int64))

    def valid(self):
        return (self.v >= 0) & (self.e >= -31) & (self.e <= 30)

    def twice(self, x):
        return near(high(wrap(x << np.maximum(self.e, 0)), self.v), np.maximum(-self.e, 0))

    def once(self, x):
        # The product can have 94 bits.
        x, v, n = (np.asarray(part).astype(object) for part in (x, self.v, 31 - self.e))
        return np.asarray(wrap((x * v + (1 << (n - 1)) - np.where(np.asarray(x < 0, bool), 1, 0)) >> n)).astype(np.int64)

    def wide(self, x):
        r = np.where(self.v < 0x7FFF0000, (self.v + 2**15) >> 16, 0x7FFF)
        n = np.where(self.e <= 15, 15 - self.e, 79 - self.e)
        # Arrays of int64 keep the low 64 bits.
        return wrap((x * r + np.where(n == 0, 0, np.int64(1) << np.maximum(n - 1, 0))) >> n)

@dataclass(frozen=True)
class Result:
    """Zero point and limits of a result."""
    z: int
    least: int
    greatest: int

    def __call__(self, x):
        return np.clip(wrap(x + self.z), self.least, self.greatest)
