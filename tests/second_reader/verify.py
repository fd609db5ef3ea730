"""The checks of the signatures to load (checks 20 to 32)."""

from itertools import combinations, product

from artifact import Artifact, Instruction, Tensor, Type, overlap, place_of
from base import FLASH, NONE, SCRATCH, U8, VARIABLE, check
from ops import COND, OPS, WHILE, Refused

class Verifier:
    """Checks one signature. `loaded` has the bits of all signatures to load."""

    def __init__(self, artifact: Artifact, loaded: int, signature: int):
        self.artifact, self.loaded, self.signature = artifact, loaded, signature
        self.number = artifact.signatures[signature].block
        self.scratch = artifact.blocks[self.number].scratch
        self.before: int | None = None  # the block that an instruction named last

    def in_bounds(self, t: Tensor) -> bool:
        """Rules 3 and 4."""
        if t.space == VARIABLE:
            v = self.artifact.variables[t.location]
            return v.initial != NONE or v.assigned_by & self.loaded != 0
        return t.space == FLASH or t.location + t.bytes <= self.scratch

    def verify(self) -> list[int]:
        """Makes the checks. Returns the numbers of the blocks that the signature runs."""
        a = self.artifact
        block = a.blocks[self.number]
        ins, outs = ([a.tensors[i] for i in part] for part in (a.inputs_of(block), a.outputs_of(block)))
        fine = all(t.space == SCRATCH for t in ins) and all(map(self.in_bounds, ins + outs))
        check(fine and not any(overlap(t, u) for t, u in combinations(ins, 2)), 16, f"Blocks {self.signature}")
        level, depth, reached = [self.number], 0, []
        while level:
            check(depth <= 16, 16, f"Blocks {level[0]}: nested too deep")
            reached += level
            level = [b for at in level for i, n in a.instructions_of(a.blocks[at]) for b in self.instruction(i, n)]
            depth += 1
        return reached

    def instruction(self, i: int, n: Instruction) -> list[int]:
        """Checks an instruction. Returns the blocks that it names."""
        a = self.artifact
        rule = lambda condition, text: check(condition, 17, f"instruction {i}: {text}")
        kernel = a.kernels[n.kernel] if n.kernel < len(a.kernels) else None
        check(kernel and kernel.op in OPS and kernel.dtype in OPS[kernel.op].dtypes, 18, f"instruction {i}: no kernel {kernel}")
        rule(n.operands + n.inputs + n.outputs <= len(a.operands) and n.attributes + n.attribute_words <= len(a.attributes)
             and n.outputs <= 3, "Operands")
        ins, outs = ([a.tensors[x] for x in part] for part in a.operands_of(n))
        words, op = a.words_of(n), OPS[kernel.op]
        rule(all(map(self.in_bounds, ins[:9])), "Bounds")
        rule(n.inputs <= 8, "Operands")
        rule(all(map(self.in_bounds, outs)), "Bounds")
        in_types, out_types = [a.types[t.type] for t in ins], [a.types[t.type] for t in outs]
        try:
            expected = op.shape(in_types, words)
        except Refused:
            expected = None
        rule(expected is not None and all(len(t.dims) <= 8 and max(t.dims, default=0) <= NONE for t in expected), "Inputs")
        rule(expected == out_types, "Outputs")
        rule((in_types + out_types + [Type(U8, ())])[0].dtype == kernel.dtype, "Kernel")
        rule(not any(t.space == FLASH for t in outs) and not any(overlap(t, u) for t, u in combinations(outs, 2)), "Alias")
        for (x, t), (y, u) in product(enumerate(ins), enumerate(outs)):
            rule(not overlap(t, u) or (place_of(t) == place_of(u) and (x, y) in op.in_place), "Alias")
        rule(all(t.space != VARIABLE or a.variables[t.location].assigned_by >> self.signature & 1 for t in outs), "Assigns")
        named = words if kernel.op == COND else words[:2] if kernel.op == WHILE else []
        for b in named:
            rule(len(a.signatures) <= b < len(a.blocks) and self.before in (None, b - 1), "Blocks")
            first, self.before = a.blocks[named[0]], b
            rule((a.blocks[b].outputs, a.blocks[b].output_count) == (first.outputs, first.output_count), "Blocks")
        return named
