"""Flat checkpoints and flash slots."""

import struct

from base import GradletError, check, crc32c, round_up, words_of
from session import Session

def read_frame(data: bytes, count: int) -> tuple[tuple[int, ...], bool, bool]:
    """The words of the frame whose two copies are in `data`, true if a copy is whole, and true if both are."""
    size = 4 * count + 4
    copies = [words_of(data[at:at + size]) for at in (0, size)]
    whole = [crc32c(struct.pack(f"<{count}I", *c[:-1])) == c[-1] for c in copies]
    return copies[0 if whole[0] and not whole[1] else 1][:-1], any(whole), all(whole)

def frame(*words: int) -> bytes:
    content = struct.pack(f"<{len(words)}I", *words)
    return 2 * (content + struct.pack("<I", crc32c(content)))

def restore(session: Session, data: bytes) -> list[int]:
    """Reads a checkpoint as a strict reader does. Returns the variables that it has."""
    a = session.artifact
    check(len(data) >= 56, 27, "the header is cut short")
    (magic, version, length, checksum, entries, total), whole, both = read_frame(data[:56], 6)
    check(magic == int.from_bytes(b"GRDC", "little"), 23, "not a checkpoint")
    check(version == 1, 24, "version")
    check(whole and total >= 56 and both, 26, "header")
    check((length, checksum) == (a.length, a.checksum), 25, "another artifact's checkpoint")
    at, found = 56, []
    try:
        for _ in range(entries):
            at += restore_entry(session, data[at:], total - at, found)
        check(at == total, 26, "bytes are left after the last entry")
    except GradletError:
        session.reset()
        raise
    return found

def restore_entry(session: Session, data: bytes, left: int, found: list[int]) -> int:
    check(len(data) >= 32, 27, "head of an entry")
    (index, kind, size), _, both = read_frame(data[:32], 3)
    check(36 + size <= left and index > max(found, default=-1) and both, 26, "head of an entry")
    check(index < len(session.artifact.variables), 21, f"variable {index}")
    type_ = session.artifact.type_of(session.artifact.variables[index].tensor)
    rank = len(type_.dims)
    check((kind & 0xFF, kind >> 8, size) == (type_.dtype, rank, 4 * rank + type_.bytes), 22, f"type of variable {index}")
    check(len(data) >= 36 + size, 27, f"body of variable {index}")
    body, (crc,) = data[32:32 + size], words_of(data[32 + size:36 + size])
    check(crc32c(data[:12] + body) == crc, 26, f"checksum of variable {index}")
    place, value = session.variable_at.get(index), body[4 * rank:]
    check(place is not None or value == session.initial_value(index), 28, f"variable {index} is in flash")
    check(words_of(body[:4 * rank]) == type_.dims, 22, f"dimensions of variable {index}")
    if place is not None:
        session.arena[place:place + len(value)] = value
    found.append(index)
    return 36 + size

def full_checkpoint(session: Session) -> bytes:
    a, entries = session.artifact, []
    for i, v in enumerate(a.variables):
        value, type_ = session.value(i), a.type_of(v.tensor)
        if value is not None:
            body = struct.pack(f"<{len(type_.dims)}I", *type_.dims) + value
            head = (i, type_.dtype | len(type_.dims) << 8, len(body))
            entries.append(frame(*head) + body + struct.pack("<I", crc32c(struct.pack("<3I", *head) + body)))
    total = 56 + sum(map(len, entries))
    magic = int.from_bytes(b"GRDC", "little")
    return frame(magic, 1, a.length, a.checksum, len(entries), total) + b"".join(entries)

def read_slots(data: bytes, block: int, slots: int, word: int) -> dict:
    """The slots of a range of flash. `newest` is the slot to restore from, and `next` the one to save into."""
    check(slots >= 2 and block and word and block % word == 0, 30, "the range cannot be divided this way")
    size = len(data) // slots // block * block
    check(size, 30, "the range cannot be divided this way")
    found = []
    for i in range(slots):
        slot = data[i * size:(i + 1) * size]
        commit = round_up(20, word)
        start = commit + word
        _, sequence, length, crc, record_crc = words_of(slot[:20].ljust(20, b"\0"))
        committed = start <= size and sequence > 0 and slot[:4] == b"GRDS" and crc32c(slot[:16]) == record_crc
        committed = committed and slot[commit:start] == bytes(word)
        whole = committed and start + length <= size and crc32c(slot[start:start + length]) == crc
        found.append({"committed": committed, "whole": whole, "sequence": sequence, "offset": i * size + start, "bytes": length})
    chosen = max((i for i in range(slots) if found[i]["whole"]), key=lambda i: (found[i]["sequence"], -i), default=None)
    check(chosen is not None or not any(s["committed"] for s in found), 26, "slots are committed and none is whole")
    return {"slots": found, "newest": chosen, "next": 0 if chosen is None else (chosen + 1) % slots}
