"""The dumps in SPEC.md: reads, runs and writes them."""

import re
import struct
from pathlib import Path

from artifact import Artifact
from base import crc32c
from flat import full_checkpoint, read_slots, restore
from session import Session
from telemetry import cobs_encode, read_frames

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
