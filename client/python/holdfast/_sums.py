"""The checksums of checkpoint/FORMAT.md with numpy: CRC32C of blocks, XXH3-128, and the logical digest."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, List

import numpy as np

Array = Any  # numpy.ndarray; its own annotation needs a newer numpy than this needs
_U64 = (1 << 64) - 1

# --- CRC32C ---
#
# The state of a CRC after a message is linear in the message: raw(A + B) = shift(raw(A), bytes of B) ^ raw(B). So the
# words of a block are states of 4 bytes each, and each round folds the front half of them onto the back half.

_POLYNOMIAL = 0x82F63B78  # Castagnoli, reflected


def _byte_table() -> Array:
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = (table >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (table & np.uint32(1)))
    return table


_BYTES = _byte_table()


def _table_of(columns: Array) -> Array:
    """Of a linear map, given its values for single bits: the values for all 16-bit numbers of each half."""
    halves = np.zeros((2, 65536), dtype=np.uint32)
    for half in range(2):
        for bit in range(16):
            halves[half, 1 << bit : 2 << bit] = halves[half, : 1 << bit] ^ columns[16 * half + bit]
    return halves


@functools.lru_cache(maxsize=None)
def _shift(log2_words: int) -> Array:
    """What 4 << log2_words zero bytes do to a state, as two tables of 65536."""
    bits = np.uint32(1) << np.arange(32, dtype=np.uint32)
    if log2_words == 0:
        for _ in range(4):
            bits = (bits >> np.uint32(8)) ^ _BYTES[bits & np.uint32(255)]
        return _table_of(bits)
    half = _shift(log2_words - 1)
    return _table_of(_through(half, _through(half, bits)))


def _through(tables: Array, states: Array) -> Array:
    low, high = tables
    return low[states & np.uint32(0xFFFF)] ^ high[states >> np.uint32(16)]


def _isal() -> Any:
    """ISA-L's function, which Holdfast's own programs use: some 20 times faster. None where it is not installed."""
    try:
        function = ctypes.CDLL("libisal.so.2").crc32_iscsi
    except (OSError, AttributeError):
        return None
    function.restype, function.argtypes = ctypes.c_uint32, [ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32]
    return function


_ISCSI = _isal()


def crc32c_of_blocks(data: Array, block_bytes: int, iscsi: Any = _ISCSI) -> Array:
    """CRC32C of each block of `data` (uint8); blocks have a multiple of 4 bytes, and the last one may be shorter. `iscsi`:
    None for numpy alone."""
    if iscsi is not None:
        data = np.ascontiguousarray(data)
        begin, size = data.ctypes.data, len(data)
        sums = [~iscsi(begin + at, min(block_bytes, size - at), 0xFFFFFFFF) & 0xFFFFFFFF for at in range(0, size, block_bytes)]
        return np.array(sums, dtype=np.uint32)
    whole = len(data) // block_bytes
    sums = np.empty(whole + (len(data) % block_bytes != 0), dtype=np.uint32)
    if whole:
        sums[:whole] = _crc_of_rows(data[: whole * block_bytes].view("<u4").reshape(whole, block_bytes // 4))
    if len(sums) > whole:
        last, odd = data[whole * block_bytes :], len(data) % 4
        words = last[: len(last) - odd].view("<u4").reshape(1, -1)
        sums[whole] = crc32c(last[len(last) - odd :].tobytes(), int(_crc_of_rows(words)[0]) if words.size else 0)
    return sums


def _crc_of_rows(words: Array) -> Array:
    count = words.shape[1]
    rounds = (count - 1).bit_length()
    # Zeros before a message change nothing while the state is zero; the initial ones are added to the first word.
    states = np.zeros((words.shape[0], 1 << rounds), dtype=np.uint32)
    states[:, -count:] = words
    states[:, -count] ^= np.uint32(0xFFFFFFFF)
    for level in range(rounds - 1, -1, -1):
        front, back = states[:, : 1 << level], states[:, 1 << level :]
        low, high = _shift(level)
        halves = np.ascontiguousarray(front).view("<u2").reshape(*front.shape, 2)
        states = low.take(halves[..., 0]) ^ high.take(halves[..., 1]) ^ back
    return _through(_shift(0), states[:, 0]) ^ np.uint32(0xFFFFFFFF)


def crc32c(data: bytes, before: int = 0) -> int:
    """Of a few bytes, one by one. `before`: of what comes before them."""
    state = before ^ 0xFFFFFFFF
    for byte in data:
        state = (state >> 8) ^ int(_BYTES[(state ^ byte) & 255])
    return state ^ 0xFFFFFFFF


# --- XXH3-128, seed 0, of more than 16 bytes ---

_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _fold(a: int, b: int) -> int:
    product = a * b
    return (product & _U64) ^ (product >> 64)


def _avalanche(h: int) -> int:
    h ^= h >> 37
    h = h * 0x165667919E3779F9 & _U64
    return h ^ h >> 32


def _mix(data: bytes, at: int, secret: int) -> int:
    return _fold(_word(data, at) ^ _word(_SECRET, secret), _word(data, at + 8) ^ _word(_SECRET, secret + 8))


def _middle(data: bytes) -> str:
    size = len(data)
    low, high = size * _P64[0] & _U64, 0

    def add(first: int, second: int, secret: int) -> None:
        nonlocal low, high
        low = (low + _mix(data, first, secret) & _U64) ^ (_word(data, second) + _word(data, second + 8) & _U64)
        high = (high + _mix(data, second, secret + 16) & _U64) ^ (_word(data, first) + _word(data, first + 8) & _U64)

    if size <= 128:
        for step in range((size - 1) // 32, -1, -1):
            add(16 * step, size - 16 * (step + 1), 32 * step)
    else:
        for at in range(0, 128, 32):
            add(at, at + 16, at)
        low, high = _avalanche(low), _avalanche(high)
        for at in range(128, size // 32 * 32, 32):
            add(at, at + 16, at - 125)
        add(size - 16, size - 32, 103)
    last = (low * _P64[0] + high * _P64[3] + size * _P64[1]) & _U64
    return _hex(-_avalanche(last) & _U64, _avalanche(low + high & _U64))


def _hex(high: int, low: int) -> str:
    return f"{high:016x}{low:016x}"


def _stripe_sums(stripes: Array, secrets: Array) -> Array:
    """What stripes (..., 8 words) add to the accumulators, summed over the axis before the last."""
    keys = stripes ^ secrets
    products = (keys & np.uint64(0xFFFFFFFF)) * (keys >> np.uint64(32))
    return (products + stripes[..., [1, 0, 3, 2, 5, 4, 7, 6]]).sum(axis=-2, dtype=np.uint64)


def xxh3_128(data: bytes) -> str:
    """As 32 hexadecimal digits, high half first. `data`: more than 16 bytes."""
    size = len(data)
    if size <= 16:
        raise ValueError("XXH3-128 of so few bytes is not needed here")
    if size <= 240:
        return _middle(data)
    secrets = np.stack([np.frombuffer(_SECRET, "<u8", 8, 8 * stripe) for stripe in range(16)])
    state = np.array([_P32[2], *_P64[:4], _P32[1], _P64[4], _P32[0]], dtype=np.uint64)
    scramble = np.frombuffer(_SECRET, "<u8", 8, 128)
    blocks = (size - 1) // 1024
    for start in range(0, blocks, 1024):  # a mebibyte at a time
        count = min(1024, blocks - start)
        words = np.frombuffer(data, "<u8", 128 * count, 1024 * start).reshape(count, 16, 8)
        for added in _stripe_sums(words, secrets):
            state = state + added
            state = (state ^ (state >> np.uint64(47)) ^ scramble) * np.uint64(_P32[0])
    stripes = (size - 1 - 1024 * blocks) // 64
    if stripes:
        words = np.frombuffer(data, "<u8", 8 * stripes, 1024 * blocks).reshape(stripes, 8)
        state = state + _stripe_sums(words, secrets[:stripes])
    last = np.frombuffer(data, "<u8", 8, size - 64).reshape(1, 8)
    state = state + _stripe_sums(last, np.frombuffer(_SECRET, "<u8", 8, 121).reshape(1, 8))
    lanes = [int(lane) for lane in state]

    def merged(start: int, secret: int) -> int:
        for i in range(0, 8, 2):
            start += _fold(lanes[i] ^ _word(_SECRET, secret + 8 * i), lanes[i + 1] ^ _word(_SECRET, secret + 8 * i + 8))
        return _avalanche(start & _U64)

    return _hex(merged(~(size * _P64[1]) & _U64, 117), merged(size * _P64[0] & _U64, 11))


# --- the logical digest (src/base/digest.hpp) ---

_STRIDE, _OFFSET = 0x9E3779B97F4A7C15, 0x632BE59BD9B4E019
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mix64(x: Array) -> Array:
    x ^= x >> np.uint64(30)
    x *= np.uint64(_FIRST)
    x ^= x >> np.uint64(27)
    x *= np.uint64(_SECOND)
    x ^= x >> np.uint64(31)
    return x


def digest_part(indices: Array, bits: Array) -> int:
    """Of elements with these global indices (uint64) and bit patterns. Partial digests add, modulo 2**64."""
    total = 0
    for at in range(0, len(bits), 1 << 16):  # in the processor's cache
        values = _mix64(bits[at : at + (1 << 16)].astype(np.uint64) + np.uint64(_OFFSET))
        places = (indices[at : at + (1 << 16)] + np.uint64(1)) * np.uint64(_STRIDE)
        total += int(_mix64(places ^ values).sum(dtype=np.uint64))
    return total & _U64


def _mix64_of(x: int) -> int:
    return int(_mix64(np.array([x], dtype=np.uint64))[0])


def state_digest(names: List[str], digests: List[int]) -> int:
    """Of a state: one number for the digests of its tensors."""
    total = 0
    for name, digest in zip(names, digests):
        key = 0xCBF29CE484222325
        for byte in name.encode():
            key = (key ^ byte) * 0x100000001B3 & _U64
        total += _mix64_of(key ^ _mix64_of(digest))
    return total & _U64
