"""Numbers and errors that every part needs: element types, error codes, CRC-32C."""

import struct

NONE = 0xFFFFFFFF
F32, F64, F16, BF16, I8, U8, I32, I64, BOOL, I16 = range(1, 11)
# f16, bf16 and bool are kept as raw bits: most ops copy them whole.
NUMPY = {F32: "<f4", F64: "<f8", F16: "<u2", BF16: "<u2", I8: "<i1", U8: "<u1", I32: "<i4", I64: "<i8", BOOL: "<u1", I16: "<i2"}
FLASH, SCRATCH, VARIABLE = range(3)

class GradletError(Exception):
    """An error with the code that SPEC.md gives it."""

    def __init__(self, code: int, text: str):
        super().__init__(text)
        self.code, self.text = code, text

def check(condition, code: int, text: str):
    if not condition:
        raise GradletError(code, text)

def crc_table() -> list[int]:
    table = []
    for c in range(256):
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    return table

CRC_TABLE = crc_table()

def crc32c(data: bytes) -> int:
    c = 0xFFFFFFFF
    for byte in data:
        c = (c >> 8) ^ CRC_TABLE[(c ^ byte) & 0xFF]
    return c ^ 0xFFFFFFFF

def words_of(data: bytes) -> tuple[int, ...]:
    return struct.unpack(f"<{len(data) // 4}I", data)

def signed(word: int) -> int:
    return word - 2**32 if word >= 2**31 else word

def round_up(x: int, to: int) -> int:
    return -(-x // to) * to
