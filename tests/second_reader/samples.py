"""The samples: artifacts with recorded results."""

from math import prod
from pathlib import Path

import numpy as np

from base import F32, I8, I16, I32, NUMPY, GradletError
from session import Session, load

def sample_inputs(session: Session, signature: int) -> list[bytes]:
    a, values = session.artifact, []
    for tensor in a.inputs_of(a.blocks[a.signatures[signature].block]):
        type_ = a.type_of(tensor)
        k = np.arange(prod(type_.dims))
        whole = k * 0 + 2 if type_.dtype == I32 else 4133 * k
        is_whole = type_.dtype in (I8, I16, I32)
        values.append((whole if is_whole else (k + 1) / 16).astype(NUMPY[type_.dtype]).tobytes())
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
