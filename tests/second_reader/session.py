"""The executor: loaded signatures with their memory."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from artifact import Artifact, Block
from base import BOOL, NONE, NUMPY, SCRATCH, VARIABLE, GradletError, check, round_up
from ops import COND, OPS, WHILE, Call, not_finite
from verify import Verifier

@dataclass(frozen=True)
class Step:
    """An instruction, ready to run: its operands are views of the arena and of flash."""
    index: int
    op: int
    call: Call
    outs: list
    # True if an output is a variable.
    changes: bool

class Session:
    """Loaded signatures, after checks 19 to 32, and their memory."""

    def __init__(self, artifact: Artifact, names: list[str] | None = None):
        self.artifact = artifact
        known = [artifact.names[s.name] for s in artifact.signatures]
        for name in names or []:
            check(name in known, 19, f"no signature {name}")
        self.loaded = {name: i for i, name in reversed(list(enumerate(known))) if names is None or name in names}
        self.mask = sum(1 << i for i in self.loaded.values())
        reached = [b for i in sorted(self.loaded.values()) for b in Verifier(artifact, self.mask, i).verify()]
        scratch = max((artifact.blocks[artifact.signatures[i].block].scratch for i in self.loaded.values()), default=0)
        end, self.variable_at = round_up(scratch, 16), {}
        for i, v in enumerate(artifact.variables):
            if v.assigned_by & self.mask:
                self.variable_at[i], end = end, end + round_up(artifact.tensors[v.tensor].bytes, 16)
        # The variables in RAM, which lie side by side, and their second copy.
        first = round_up(scratch, 16)
        kept = artifact.minor > 0 and any(v.flags & 2 for v in artifact.variables)
        self.kept = slice(first, end) if kept else None
        end += end - first if kept else 0
        self.arena = bytearray(end + 4 * (len(artifact.variables) + 1))
        self.finished = True
        self.checked = {k.dtype for k in artifact.kernels if k.op == 105}
        struct.pack_into(f"<{len(artifact.variables)}I", self.arena, end,
                         *(self.variable_at.get(i, NONE) for i in range(len(artifact.variables))))
        self.reset()
        self.plans = {b: self.plan(artifact.blocks[b]) for b in reached}

    def flash_value(self, variable: int) -> bytes | None:
        v = self.artifact.variables[variable]
        start = self.artifact.data_at + v.initial
        return None if v.initial == NONE else self.artifact.bytes[start:start + self.artifact.tensors[v.tensor].bytes]

    def initial_value(self, variable: int) -> bytes:
        """The value in flash, or zeros."""
        return self.flash_value(variable) or bytes(self.artifact.tensors[self.artifact.variables[variable].tensor].bytes)

    def reset(self):
        """Gives the variables in RAM their initial values."""
        self.finished = True
        for i, at in self.variable_at.items():
            size = self.artifact.tensors[self.artifact.variables[i].tensor].bytes
            self.arena[at:at + size] = self.initial_value(i)

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
            changes = any(a.tensors[x].space == VARIABLE for x in outs)
            steps.append(Step(i, a.kernels[n.kernel].op, call, [self.view(x) for x in outs], changes))
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
        self.finished &= not step.changes
        results = results if isinstance(results, list) else [results]
        for place, result, type_ in zip(step.outs, results, step.call.outs):
            result = np.asarray(result)
            assert result.shape == place.shape and result.dtype in (place.dtype, np.bool_), OPS[step.op].name
            place[...] = result
            odd = step.changes and type_.dtype in self.checked and np.any(not_finite(type_.dtype, place))
            check(not odd, 34, f"instruction {step.index}: a new value is not finite")

    def run(self, signature: str, inputs: list[bytes]) -> list[bytes]:
        check(signature in self.loaded, 19, f"no signature {signature}")
        number_ = self.artifact.signatures[self.loaded[signature]].block
        block = self.artifact.blocks[number_]
        check(len(inputs) == block.input_count, 21, "number of inputs")
        check(self.finished, 36, "the session is unfinished")
        for tensor, value in zip(self.artifact.inputs_of(block), inputs):
            t = self.artifact.tensors[tensor]
            check(len(value) == t.bytes, 22, "bytes of an input")
            self.arena[t.location:t.location + t.bytes] = value
        before = self.arena[self.kept] if self.kept else None
        try:
            with np.errstate(all="ignore"):
                self.run_block(number_)
        except GradletError:
            if self.kept:
                self.arena[self.kept], self.finished = before, True
            raise
        self.finished = True
        return [self.view(x).tobytes() for x in self.artifact.outputs_of(block)]

def load(path: str) -> Session:
    return Session(Artifact(Path(path).read_bytes()))
