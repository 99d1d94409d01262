"""Reads the checkpoints of holdfast-train with numpy: any part of any tensor, from whatever layout wrote it.

    import holdfast.checkpoint

    with holdfast.checkpoint.open("/shared/runs/a") as found:     # a run, a folder of checkpoints, or one checkpoint
        print(found.step, found.tensors["model/lm_head.weight"].shape)
        rows = found.read("model/lm_head.weight", (slice(0, 128), slice(None)))

What checkpoint/FORMAT.md says of readers holds: the manifest is believed when its digest is right, and each block that
is read is checked before one byte of it is used. Only the blocks around what is asked for are read. HDF5 is not needed.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import secrets
import struct
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple, Union

try:
    import numpy as np
except ImportError as error:
    raise ImportError("holdfast.checkpoint reads with numpy. Install it (pip install numpy)?") from error

from holdfast import _sums

__all__ = ["Checkpoint", "CheckpointError", "Damaged", "NewerFormat", "Tensor", "Unreadable", "open"]

Array = Any  # numpy.ndarray
Index = Union[slice, int, Tuple[Union[slice, int], ...]]

_VERSION = 5
_PAGE, _BLOCK, _RUN = 4096, 65536, 1 << 20  # bytes; of a run: read and checked at once
_THREADS = 4
_LEASE_S = 60.0
_FIRST_LINE = re.compile(rb'\{"schema_version":(\d{1,7}),"digest":"([0-9a-f]{32})",\n')
_STEP = re.compile(r"step-(\d{8,})")
_FIELDS = {"schema_version", "digest", "generation", "point", "facts", "tensors", "state_digest", "layout", "shards"}


class CheckpointError(Exception):
    """A checkpoint cannot be used."""


class Damaged(CheckpointError):
    """A digest, a checksum or a size does not hold: that is proof."""


class Unreadable(CheckpointError):
    """A file is missing, or a system call failed: it may be readable later or elsewhere."""


class NewerFormat(CheckpointError):
    """It was written by a Holdfast that this package is older than."""


@dataclass(frozen=True)
class Tensor:
    """A logical tensor."""

    name: str
    shape: Tuple[int, ...]
    dtype: str  #: "f32" or "bf16"
    digest: str  #: 16 hexadecimal digits

    @property
    def elements(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True)
class _Piece:
    """Elements [first, first + count) of a tensor, from `offset` of the file of a writer on."""

    first: int
    count: int
    writer: int
    offset: int


def open(path: Union[str, "os.PathLike[str]"]) -> "Checkpoint":
    """The checkpoint in `path`; of a run, or of a folder of checkpoints, the newest sound one. Holds a lease, which the
    run's retention respects, until close(). Throws Damaged, Unreadable or NewerFormat."""
    folder = pathlib.Path(path).absolute()
    if not (folder / "manifest.json").exists() and (folder / "checkpoints").is_dir():
        folder = folder / "checkpoints"
    if (folder / "manifest.json").exists() or _STEP.fullmatch(folder.name):
        return Checkpoint(folder)
    try:
        steps = sorted((int(m[1]) for m in map(_STEP.fullmatch, os.listdir(folder)) if m), reverse=True)
    except OSError as error:
        raise Unreadable(f"{folder} cannot be listed ({error.strerror})") from error
    for step in steps:
        try:
            return Checkpoint(folder / f"step-{step:08d}")
        except Damaged as error:
            warnings.warn(f"passed over: {error}", stacklevel=2)
    raise Unreadable(f"{folder} has no sound checkpoint")


class Checkpoint:
    """A checkpoint that is open for reading, by any number of threads. open() makes it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.path = folder
        self._lease = _Lease(folder)
        self._files: Dict[int, _Shard] = {}
        self._lock = threading.Lock()
        self._of_writer: Dict[int, Dict[int, _Piece]] = {}
        self.bytes_read = 0  #: of files, so far
        try:
            self._manifest = _read_manifest(folder)
            self._take(self._manifest)
        except BaseException:
            self.close()
            raise

    def _take(self, manifest: Dict[str, Any]) -> None:
        try:
            point, layout = manifest["point"], manifest["layout"]
            self.step: int = manifest["generation"]["step"]
            self.tokens: int = point["tokens"]
            self.samples: int = point["samples"]
            self.facts: Dict[str, Any] = manifest["facts"]
            self.state_digest: str = manifest["state_digest"]
            self.tensors: Dict[str, Tensor] = {}
            self._rows_cols: List[Tuple[int, int]] = []
            for entry in manifest["tensors"]:
                rows, cols = entry["rows"], entry["cols"]
                name = entry["name"]
                # As checkpoint/index/state.cpp has it: a matrix may have one row, too.
                vector = (rows == 1 and name.endswith("norm.weight")) or (cols == 1 and name.endswith(".bias"))
                shape = (rows * cols,) if vector else (rows, cols)
                self.tensors[name] = Tensor(name, shape, entry["dtype"], entry["digest"])
                self._rows_cols.append((rows, cols))
            self._members, self._replicas = layout["members"], layout["replicas"]
            self._shards: List[Dict[str, Any]] = manifest["shards"]
            self._prove(layout["cuts"], len(manifest["tensors"]))
        except (KeyError, TypeError, ValueError) as error:
            raise Damaged(f"{self.path}: the manifest is not usable ({type(error).__name__}: {error})") from error

    def _prove(self, cuts: Sequence[Sequence[int]], listed: int) -> None:
        """Every element has exactly one place, in files of the right sizes."""
        digests = [int(tensor.digest, 16) for tensor in self.tensors.values()]
        sizes = {"f32": 4, "bf16": 2}
        self._item = [sizes[tensor.dtype] for tensor in self.tensors.values()]
        self._numbers = {name: number for number, name in enumerate(self.tensors)}
        if listed != len(self.tensors):
            raise ValueError("a tensor is named twice")
        if _sums.state_digest(list(self.tensors), digests) != int(self.state_digest, 16):
            raise ValueError("the state digest does not follow from those of the tensors")
        if self._members < 1 or self._replicas < 1 or self._members * self._replicas != len(self._shards):
            raise ValueError("the layout has not as many writers as there are shards")
        #: Of each tensor its cut's stride and part, its first element there, and the elements of the whole cut.
        self._places: List[Tuple[int, int, int, int]] = []
        for tensors, stride, part in cuts:
            held = self._rows_cols[len(self._places) : len(self._places) + tensors]
            n = sum(rows * cols for rows, cols in held)
            if tensors < 1 or len(held) != tensors or stride < 1 or part < 1:
                raise ValueError("a cut is not possible")
            if -(-n // stride) > self._members or -(-min(n, stride) // part) > self._replicas:
                raise ValueError("a cut leaves elements that are stored nowhere")
            at = 0
            for rows, cols in held:
                self._places.append((stride, part, at, n))
                at += rows * cols
        if len(self._places) != listed:
            raise ValueError("a tensor is stored nowhere")
        for writer, shard in enumerate(self._shards):
            if shard["data_offset"] < 1 or any(shard[key] % _PAGE for key in ("data_offset", "payload_offset", "bytes")):
                raise ValueError(f"{_shard_name(writer)} cannot have such extents")
            blocks = -(-(shard["bytes"] - shard["payload_offset"]) // _BLOCK)
            head = -(-(128 + 4 * blocks) // _PAGE) * _PAGE
            if blocks < 0 or shard["payload_offset"] - shard["data_offset"] != head:
                raise ValueError(f"{_shard_name(writer)}: the payload cannot start there")
            _check_size(self.path / _shard_name(writer), shard["bytes"])

    def close(self) -> None:
        """Gives the lease back."""
        self._lease.close()
        with self._lock:
            for file in self._files.values():
                file.close()
            self._files.clear()

    def __enter__(self) -> "Checkpoint":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    # --- reading ---

    def read(self, name: str, index: Index = (), out: Optional[Array] = None) -> Array:
        """A part of a tensor: `index` has ints and slices of step 1, as of numpy; left out, the whole. f32 comes as
        float32, bf16 as uint16 with its bits: widen() makes float32 of them. `out`: an array of that type and shape to
        read into."""
        number = self._number(name)
        bounds, shape = self._bounds(self.tensors[name].shape, index)
        dtype = np.dtype("<f4" if self._item[number] == 4 else "<u2")
        if out is None:
            out = np.empty(shape, dtype)
        elif out.shape != shape or out.dtype != dtype:
            raise ValueError(f"{name}: out is {out.dtype}{list(out.shape)}, not {dtype}{list(shape)}")
        target = out.reshape([end - first for first, end in bounds][-2:])
        if target.size == 0:
            return out
        if not np.shares_memory(target, out):
            raise ValueError(f"{name}: out has strides that cannot be read into")
        (row, row_end), (col, col_end) = bounds if len(bounds) == 2 else ((0, 1), bounds[0])
        part = _Part(row, row_end, col, col_end, self.tensors[name].shape[-1])
        target = target.reshape(part.row_end - part.row, part.col_end - part.col)
        # Bits, not numbers: a signalling NaN stays what it is.
        target = target.view("<u4" if dtype.itemsize == 4 else "<u2")
        jobs = [job for piece in self._pieces(number, part.first, part.end)
                for job in self._runs(piece, part, dtype.itemsize)]

        def carry_out(job: Tuple["_Piece", int, int]) -> None:
            piece, start, end = job
            self._read_run(piece, start, end, part, target)

        if len(jobs) > 1:
            with ThreadPoolExecutor(min(_THREADS, len(jobs))) as pool:
                list(pool.map(carry_out, jobs))
        else:
            for job in jobs:
                carry_out(job)
        return out

    def digest(self, name: str) -> str:
        """The logical digest of what is stored, which should be that of the manifest. Reads the whole tensor."""
        bits = self.read(name).reshape(-1)
        bits = bits.view("<u4" if bits.dtype.itemsize == 4 else "<u2")
        return f"{_sums.digest_part(np.arange(len(bits), dtype=np.uint64), bits):016x}"

    def verify(self) -> None:
        """Reads and checks all tensors. Throws Damaged or Unreadable."""
        for name, tensor in self.tensors.items():
            if self.digest(name) != tensor.digest:
                raise Damaged(f"{self.path}: {name} has not the digest that the manifest names")

    def _number(self, name: str) -> int:
        if name not in self._numbers:
            raise KeyError(f"{self.path} has no tensor {name}")
        return self._numbers[name]

    @staticmethod
    def _bounds(shape: Tuple[int, ...], index: Index) -> Tuple[List[Tuple[int, int]], Tuple[int, ...]]:
        index = index if isinstance(index, tuple) else (index,)
        if len(index) > len(shape):
            raise IndexError(f"{len(index)} indices for {len(shape)} dimensions")
        bounds, left = [], []
        for size, asked in zip(shape, index + (slice(None),) * (len(shape) - len(index))):
            if isinstance(asked, slice):
                first, end, step = asked.indices(size)
                if step != 1:
                    raise IndexError("slices have step 1")
                end = max(first, end)
                left.append(end - first)
            else:
                first = int(asked) + (size if asked < 0 else 0)
                end = first + 1
                if not 0 <= first < size:
                    raise IndexError(f"index {asked} of {size}")
            bounds.append((first, end))
        return bounds, tuple(left)

    def _pieces(self, number: int, first: int, end: int) -> Iterator[_Piece]:
        """Those that hold elements [first, end) of a tensor."""
        stride, part, at, _ = self._places[number]
        first, end = first + at, end + at
        while first < end:
            member, inside = divmod(first, stride)
            replica = inside // part
            yield self._written_by(replica * self._members + member)[number]
            first = min(member * stride + (replica + 1) * part, (member + 1) * stride)

    def _written_by(self, writer: int) -> Dict[int, _Piece]:
        with self._lock:
            if writer in self._of_writer:
                return self._of_writer[writer]
        replica, member = divmod(writer, self._members)
        pieces: Dict[int, _Piece] = {}
        shard = self._shards[writer]
        offset = shard["payload_offset"]
        for item in (4, 2):
            for number, (stride, part, at, n) in enumerate(self._places):
                if self._item[number] != item:
                    continue
                rows, cols = self._rows_cols[number]
                first = max(at, member * stride + replica * part)
                end = min(at + rows * cols, member * stride + (replica + 1) * part, (member + 1) * stride, n)
                if first < end:
                    pieces[number] = _Piece(first - at, end - first, writer, offset)
                    offset += (end - first) * item
        if -(-offset // _PAGE) * _PAGE != shard["bytes"]:
            raise Damaged(f"{self.path / _shard_name(writer)} has not the bytes that its pieces need")
        with self._lock:
            return self._of_writer.setdefault(writer, pieces)

    def _runs(self, piece: _Piece, part: "_Part", item: int) -> Iterator[Tuple[_Piece, int, int]]:
        """Of a piece the runs of whole blocks, as bytes of the payload, around what is asked for."""
        base = piece.offset - self._shards[piece.writer]["payload_offset"]
        firsts, ends = part.ranges(piece.first, piece.first + piece.count)
        starts = (base + (firsts - piece.first) * item) // _BLOCK
        stops = -(-(base + (ends - piece.first) * item) // _BLOCK)
        apart = np.flatnonzero(starts[1:] > stops[:-1]) + 1
        payload = self._shards[piece.writer]["bytes"] - self._shards[piece.writer]["payload_offset"]
        for start, stop in zip(starts[np.r_[0, apart]], stops[np.r_[apart - 1, len(stops) - 1]]):
            for at in range(int(start) * _BLOCK, int(stop) * _BLOCK, _RUN):
                yield piece, at, min(at + _RUN, int(stop) * _BLOCK, payload)

    def _read_run(self, piece: _Piece, start: int, end: int, part: "_Part", target: Array) -> None:
        data = self._file(piece.writer).blocks(start, end)
        with self._lock:
            self.bytes_read += len(data)
        item = target.dtype.itemsize
        base = piece.offset - self._shards[piece.writer]["payload_offset"]
        # Pieces begin on a multiple of their item, and blocks, too: no element lies across two runs.
        skip = max(0, base - start)
        first = piece.first + (start + skip - base) // item
        count = min((len(data) - skip) // item, piece.first + piece.count - first)
        part.take(first, data[skip : skip + count * item].view(target.dtype), target)

    def _file(self, writer: int) -> "_Shard":
        with self._lock:
            if writer not in self._files:
                if len(self._files) >= 64:
                    self._files.pop(next(iter(self._files)))  # closed with its last reader
                self._files[writer] = _Shard(self.path, writer, self._manifest)
            return self._files[writer]


def widen(bits: Array) -> Array:
    """float32 of the bits of bf16, exactly."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


@dataclass(frozen=True)
class _Part:
    """Rows [row, row_end) and columns [col, col_end) of a tensor with `cols` columns."""

    row: int
    row_end: int
    col: int
    col_end: int
    cols: int

    @property
    def first(self) -> int:
        return self.row * self.cols + self.col

    @property
    def end(self) -> int:
        return (self.row_end - 1) * self.cols + self.col_end

    def ranges(self, first: int, end: int) -> Tuple[Array, Array]:
        """Elements of the part within [first, end), as ranges [a, b) in order; one at least."""
        first, end = max(first, self.first), min(end, self.end)
        if self.col_end - self.col == self.cols:
            return np.array([first]), np.array([end])
        rows = np.arange(first // self.cols, (end - 1) // self.cols + 1, dtype=np.int64) * self.cols
        firsts, ends = np.maximum(rows + self.col, first), np.minimum(rows + self.col_end, end)
        some = firsts < ends
        if not some.any():  # only columns between those of two rows
            return np.array([first]), np.array([first])
        return firsts[some], ends[some]

    def take(self, first: int, values: Array, target: Array) -> None:
        """Copies what belongs to the part from `values`, elements from `first` on, to `target`, which is the part."""
        end = first + len(values)
        if self.col_end - self.col == self.cols:
            a, b = max(first, self.first), min(end, self.end)
            if a < b:
                _copy_flat(target, a - self.first, values[a - first : b - first])
            return
        row, last = max(first // self.cols, self.row), min((end - 1) // self.cols, self.row_end - 1)
        while row <= last:
            whole = min(end // self.cols, last + 1) - row
            if row * self.cols >= first and whole > 0:  # whole rows at once
                at = row * self.cols - first
                block = values[at : at + whole * self.cols].reshape(whole, self.cols)
                target[row - self.row : row - self.row + whole] = block[:, self.col : self.col_end]
                row += whole
                continue
            a, b = max(row * self.cols + self.col, first), min(row * self.cols + self.col_end, end)
            if a < b:
                at = a - row * self.cols - self.col
                target[row - self.row, at : at + b - a] = values[a - first : b - first]
            row += 1


def _copy_flat(target: Array, at: int, values: Array) -> None:
    if target.flags.c_contiguous:
        target.reshape(-1)[at : at + len(values)] = values
    else:
        target.flat[at : at + len(values)] = values


class _Shard:
    """The file of a writer; its head is checked when it is opened, and each block when it is read."""

    def __init__(self, folder: pathlib.Path, writer: int, manifest: Dict[str, Any]) -> None:
        self._path = folder / _shard_name(writer)
        self._at = manifest["shards"][writer]
        self._fd = -1
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"{self._path} cannot be opened ({error.strerror})") from error
        at = self._at
        head = self._read(at["data_offset"], at["payload_offset"])
        generation, point = manifest["generation"], manifest["point"]
        record = struct.pack("<8s14q", b"HOLDFAST", _VERSION, generation["step"], generation["epoch"],
                             generation["attempt"], writer, len(manifest["shards"]), point["tokens"], point["samples"],
                             at["bytes"], at["data_offset"], at["payload_offset"], 0, 0, 0)
        if head[:128].tobytes() != record + struct.pack("<q", _sums.crc32c(record)):
            raise Damaged(f"{self._path} is not the file that the manifest names")
        blocks = -(-(at["bytes"] - at["payload_offset"]) // _BLOCK)
        self._table = head[128 : 128 + 4 * blocks].view("<u4")
        extents = struct.pack("<QQQI", at["bytes"], at["data_offset"], at["payload_offset"], int(at["metadata_crc32c"], 16))
        if _sums.xxh3_128(extents + self._table.tobytes()) != at["root"]:
            raise Damaged(f"{self._path}: the table of checksums does not hold")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def blocks(self, start: int, end: int) -> Array:
        """Bytes of the payload; both are at borders of blocks, or `end` is its end."""
        data = self._read(self._at["payload_offset"] + start, self._at["payload_offset"] + end)
        sums = _sums.crc32c_of_blocks(data, _BLOCK)
        if not np.array_equal(sums, self._table[start // _BLOCK : start // _BLOCK + len(sums)]):
            raise Damaged(f"{self._path}: a block between bytes {self._at['payload_offset'] + start} and "
                          f"{self._at['payload_offset'] + end} is damaged")
        return data

    def _read(self, start: int, end: int) -> Array:
        data = np.empty(end - start, np.uint8)
        done = 0
        while done < len(data):
            try:
                count = os.preadv(self._fd, [memoryview(data)[done:]], start + done)
            except OSError as error:
                raise Unreadable(f"{self._path} cannot be read ({error.strerror})") from error
            if count == 0:
                raise Damaged(f"{self._path} ends too early")
            done += count
        return data


class _Lease:
    """A file beside a committed checkpoint, renewed once a minute, which retention respects. Where it cannot be
    written, the checkpoint is read at its reader's risk."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._over = threading.Event()
        self._path: Optional[pathlib.Path] = None
        if not _STEP.fullmatch(folder.name):
            return
        path = folder.with_name(f"{folder.name}.lease-{secrets.token_hex(8)}")
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        except OSError:
            return
        self._path = path
        threading.Thread(target=self._renew, name="holdfast-lease", daemon=True).start()

    def _renew(self) -> None:
        while not self._over.wait(_LEASE_S):
            try:
                os.utime(self._path)  # type: ignore[arg-type]
            except OSError:
                pass  # the next minute

    def close(self) -> None:
        self._over.set()
        if self._path:
            try:
                os.unlink(self._path)
            except OSError:
                pass  # it expires
            self._path = None


def _shard_name(writer: int) -> str:
    return f"shard-{writer:05d}.h5"


def _check_size(path: pathlib.Path, size: int) -> None:
    try:
        found = os.stat(path).st_size
    except OSError as error:
        raise Unreadable(f"{path} cannot be looked at ({error.strerror})") from error
    if found != size:
        raise Damaged(f"{path} has {found} bytes, not {size}")


def _read_manifest(folder: pathlib.Path) -> Dict[str, Any]:
    path = folder / "manifest.json"
    try:
        text = path.read_bytes()
    except OSError as error:
        raise Unreadable(f"{path} cannot be read ({error.strerror})") from error
    first = _FIRST_LINE.match(text)
    if not first:
        raise Damaged(f"{path} does not begin as a manifest does")
    if _sums.xxh3_128(text[: first.start(2)] + text[first.end(2) :]) != first[2].decode():
        raise Damaged(f"{path} has another digest than it names")
    version = int(first[1])
    if version > _VERSION:
        raise NewerFormat(f"{path} is of format {version}, and this package reads {_VERSION}. Install a newer one?")
    if version < _VERSION:
        raise CheckpointError(f"{path} is of format {version}, and this package reads {_VERSION} (an older Holdfast wrote "
                              "it). Export it with `holdfast ckpt export`?")
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise Damaged(f"{path} is not JSON") from error
    if set(manifest) != _FIELDS:
        raise Damaged(f"{path} has other fields than a manifest has ({sorted(set(manifest) ^ _FIELDS)})")
    return manifest
