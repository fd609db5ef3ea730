"""Frames of a line."""

import numpy as np

from base import crc32c, words_of

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
    """Every piece that a zero byte ends: a frame, an unknown frame or a corrupt piece."""
    found, before, version, dropped = [], None, 1, 0
    for i, piece in enumerate(stream.split(b"\0")[:-1]):
        content = cobs_decode(piece)
        good = content is not None and len(content) >= 4 and crc32c(content[:-4]) == words_of(content[-4:])[0]
        fields = Fields(content[:-4] if good else b"")
        try:
            sequence = fields.number()
        except Invalid:
            if piece and i > 0:
                found.append({"corrupt": piece.hex()})
            continue
        gap = 0 if before is None else (sequence - before - 1) % 2**32
        restarted, before = gap >= 2**31, sequence
        kind, values, version = read_fields(fields, version)
        if kind == "dropped":
            restarted, dropped = restarted or values["frames"] < dropped, values["frames"]
        elif restarted:
            dropped = 0
        lost = {"restarted": True, "lost": sequence} if restarted else {"lost": gap}
        found.append({"sequence": sequence} | lost | {"kind": kind} | values)
    return found

def read_fields(fields: Fields, version: int) -> tuple[str, dict, int]:
    """Kind and fields of a frame, and the version of the last hello after it."""
    values = {}
    try:
        kind = fields.number()
        name, form = KINDS.get(kind, ("unknown", ""))
        for part in form.split():
            key, read = part.split(":")
            values[key] = getattr(fields, read)()
            version = values[key] if (kind, key) == (0, "version") else version
        return (name, values, version) if version == 1 else ("unknown", {}, version)
    except Invalid:
        return "unknown", {}, version
