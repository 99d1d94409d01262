"""Reads the checkpoints of holdfast-train with numpy: any part of any tensor, from whatever layout wrote it.

    import holdfast.checkpoint

    with holdfast.checkpoint.open("/shared/runs/a") as found:     # a run, a folder of checkpoints, or one checkpoint
        print(found.step, found.tensors["model/lm_head.weight"].shape)
        rows = found.read("model/lm_head.weight", (slice(0, 128), slice(None)))

What checkpoint/FORMAT.md says of readers holds: the manifest is believed when its digest is right, and each block that
is read is checked before one byte of it is used. Only the blocks around what is asked for are read. HDF5 is not needed.
"""

from __future__ import annotations

import bisect
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

__all__ = ["Checkpoint", "CheckpointError", "Damaged", "NewerFormat", "OtherKind", "Tensor", "Unreadable", "open"]

Array = Any  # numpy.ndarray
Index = Union[slice, int, Tuple[Union[slice, int], ...]]

_VERSION, _FILES_VERSION = 5, 6
_PAGE, _RECORD, _RUN = 4096, 128, 1 << 20  # bytes; of a run: read and checked at once
_BLOCK, _BLOCK_TO_3 = 65536, 4 << 20  # bytes under one checksum; up to format 3
_THREADS = 4
_LEASE_S = 60.0
_FIRST_LINE = re.compile(rb'\{"schema_version":(\d{1,7}),"digest":"([0-9a-f]{32})",\n')
_STEP = re.compile(r"step-(\d{8,})")
_FIELDS = {"schema_version", "digest", "generation", "point", "facts", "tensors", "state_digest", "shards"}


class CheckpointError(Exception):
    """A checkpoint cannot be used."""


class Damaged(CheckpointError):
    """A digest, a checksum or a size does not hold: that is proof."""


class Unreadable(CheckpointError):
    """A file is missing, or a system call failed: it may be readable later or elsewhere."""


class NewerFormat(CheckpointError):
    """It was written by a Holdfast that this package is older than."""


class OtherKind(CheckpointError):
    """It consists of files that another program has written (kind `files`), and only that program reads them."""


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
class _File:
    """The file of a writer, as the manifest has it."""

    name: str
    bytes: int
    data_offset: int
    first: int  #: where its blocks begin
    block: int  #: bytes of each; the last one may be shorter
    metadata_crc32c: int
    root: str
    table: Optional[Array]  #: checksums of the blocks, up to format 3; None: they stand in the file's head

    @property
    def has_head(self) -> bool:
        return self.table is None

    @property
    def blocks(self) -> int:
        return -(-(self.bytes - self.first) // self.block)


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
            self.format: int = manifest["schema_version"]
            point = manifest["point"]
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
            self._prove_tensors(len(manifest["tensors"]))
            self._shards = [_file_of(shard, writer, self.format) for writer, shard in enumerate(manifest["shards"])]
            if self.format < 5:
                self._prove_pieces([shard["pieces"] for shard in manifest["shards"]])
            else:
                layout = manifest["layout"]
                self._members, self._replicas = layout["members"], layout["replicas"]
                self._prove_layout(layout["cuts"])
            for shard in self._shards:
                _check_size(self.path / shard.name, shard.bytes)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise Damaged(f"{self.path}: the manifest is not usable ({type(error).__name__}: {error})") from error

    def _prove_tensors(self, listed: int) -> None:
        digests = [int(tensor.digest, 16) for tensor in self.tensors.values()]
        sizes = {"f32": 4, "bf16": 2}
        self._item = [sizes[tensor.dtype] for tensor in self.tensors.values()]
        self._numbers = {name: number for number, name in enumerate(self.tensors)}
        if listed != len(self.tensors):
            raise ValueError("a tensor is named twice")
        if _sums.state_digest(list(self.tensors), digests) != int(self.state_digest, 16):
            raise ValueError("the state digest does not follow from those of the tensors")

    def _prove_pieces(self, lists: Sequence[Sequence[Sequence[int]]]) -> None:
        """Up to format 4 each writer lists its pieces: every element has exactly one place."""
        self._listed: List[List[_Piece]] = [[] for _ in self.tensors]
        for writer, (file, pieces) in enumerate(zip(self._shards, lists)):
            begin = file.first + (0 if file.has_head else _RECORD)
            for at, number, count, first in sorted((at, number, count, first) for number, first, count, at in pieces):
                item = self._item[number]
                if number < 0 or count < 1 or at < begin or at % item or at + count * item > file.bytes:
                    raise ValueError(f"{file.name}: a piece lies outside the data, or in another one")
                self._listed[number].append(_Piece(first, count, writer, at))
                begin = at + count * item
        for (rows, cols), of_tensor in zip(self._rows_cols, self._listed):
            of_tensor.sort(key=lambda piece: piece.first)
            ends = [0] + [piece.first + piece.count for piece in of_tensor]
            if [piece.first for piece in of_tensor] != ends[:-1] or ends[-1] != rows * cols:
                raise ValueError("an element is stored nowhere, or twice")
        self._firsts = [[piece.first for piece in of_tensor] for of_tensor in self._listed]

    def _prove_layout(self, cuts: Sequence[Sequence[int]]) -> None:
        """Every element has exactly one place, in files of the right sizes."""
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
        if len(self._places) != len(self.tensors):
            raise ValueError("a tensor is stored nowhere")

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
        if self.format < 5:
            listed, at = self._listed[number], bisect.bisect_right(self._firsts[number], first) - 1
            while at < len(listed) and listed[at].first < end:
                yield listed[at]
                at += 1
            return
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
        offset = shard.first
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
        if -(-offset // _PAGE) * _PAGE != shard.bytes:
            raise Damaged(f"{self.path / shard.name} has not the bytes that its pieces need")
        with self._lock:
            return self._of_writer.setdefault(writer, pieces)

    def _runs(self, piece: _Piece, part: "_Part", item: int) -> Iterator[Tuple[_Piece, int, int]]:
        """Of a piece the runs of whole blocks, as bytes from the first block on, around what is asked for."""
        shard = self._shards[piece.writer]
        base, block, run = piece.offset - shard.first, shard.block, max(_RUN, shard.block)
        firsts, ends = part.ranges(piece.first, piece.first + piece.count)
        starts = (base + (firsts - piece.first) * item) // block
        stops = -(-(base + (ends - piece.first) * item) // block)
        apart = np.flatnonzero(starts[1:] > stops[:-1]) + 1
        for start, stop in zip(starts[np.r_[0, apart]], stops[np.r_[apart - 1, len(stops) - 1]]):
            for at in range(int(start) * block, int(stop) * block, run):
                yield piece, at, min(at + run, int(stop) * block, shard.bytes - shard.first)

    def _read_run(self, piece: _Piece, start: int, end: int, part: "_Part", target: Array) -> None:
        data = self._file(piece.writer).blocks(start, end)
        with self._lock:
            self.bytes_read += len(data)
        item = target.dtype.itemsize
        base = piece.offset - self._shards[piece.writer].first
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
                self._files[writer] = _Shard(self.path, self._shards[writer], writer, self._manifest)
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

    def __init__(self, folder: pathlib.Path, at: _File, writer: int, manifest: Dict[str, Any]) -> None:
        self._path = folder / at.name
        self._at = at
        self._fd = -1
        try:
            self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise Unreadable(f"{self._path} cannot be opened ({error.strerror})") from error
        head = self._read(at.data_offset, at.first if at.has_head else at.data_offset + _RECORD)
        generation, point = manifest["generation"], manifest["point"]
        record = struct.pack("<8s14q", b"HOLDFAST", manifest["schema_version"], generation["step"], generation["epoch"],
                             generation["attempt"], writer, len(manifest["shards"]), point["tokens"], point["samples"],
                             at.bytes, at.data_offset, at.first if at.has_head else 0, 0, 0, 0)
        if head[:_RECORD].tobytes() != record + struct.pack("<q", _sums.crc32c(record)):
            raise Damaged(f"{self._path} is not the file that the manifest names")
        self._table = head[_RECORD : _RECORD + 4 * at.blocks].view("<u4") if at.table is None else at.table
        if at.has_head and _root_of(at, self._table) != at.root:
            raise Damaged(f"{self._path}: the table of checksums does not hold")

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def blocks(self, start: int, end: int) -> Array:
        """Bytes from the first block on; both are at borders of blocks, or `end` is the end of the file."""
        first, block = self._at.first, self._at.block
        data = self._read(first + start, first + end)
        sums = _sums.crc32c_of_blocks(data, block)
        if not np.array_equal(sums, self._table[start // block : start // block + len(sums)]):
            raise Damaged(f"{self._path}: a block between bytes {first + start} and {first + end} is damaged")
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


def _file_of(shard: Dict[str, Any], writer: int, version: int) -> _File:
    """Throws ValueError when there can be no such file."""
    name = f"shard-{writer:05d}.h5"
    if version < 5 and shard["file"] != name:
        raise ValueError(f"what writer {writer} has written is called {shard['file']}")
    table = np.frombuffer(bytes.fromhex(shard["block_crc32c"]), ">u4").astype("<u4") if version < 4 else None
    first, block = (shard["data_offset"], _BLOCK_TO_3) if version < 4 else (shard["payload_offset"], _BLOCK)
    file = _File(name, shard["bytes"], shard["data_offset"], first, block, int(shard["metadata_crc32c"], 16), shard["root"], table)
    if file.data_offset < 1 or file.data_offset % _PAGE or file.blocks < 0:
        raise ValueError(f"{name} cannot have such extents")
    if table is not None:
        if file.bytes < first + _RECORD or len(table) != file.blocks or _root_of(file, table) != file.root:
            raise ValueError(f"{name}: the table of checksums does not hold")
    elif file.bytes % _PAGE or first - file.data_offset != -(-(_RECORD + 4 * file.blocks) // _PAGE) * _PAGE:
        raise ValueError(f"{name}: the payload cannot start there")
    return file


def _root_of(at: _File, table: Array) -> str:
    offsets = struct.pack("<QQQ", at.bytes, at.data_offset, at.first) if at.has_head else struct.pack("<QQ", at.bytes, at.data_offset)
    return _sums.xxh3_128(offsets + struct.pack("<I", at.metadata_crc32c) + table.tobytes())


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
    if version > _FILES_VERSION:
        raise NewerFormat(f"{path} is of format {version}, and this package reads up to {_FILES_VERSION}. Install a newer one?")
    if version == _FILES_VERSION:
        raise OtherKind(f"{folder} consists of files that another program has written. Load them with that program "
                        "(holdfast ckpt show names them)?")
    if version < 1:
        raise Damaged(f"{path} is of format {version}, which never existed")
    try:
        manifest = json.loads(text)
    except ValueError as error:
        raise Damaged(f"{path} is not JSON") from error
    fields = _FIELDS | {"layout" if version >= 5 else "index"}
    if set(manifest) != fields:
        raise Damaged(f"{path} has other fields than a manifest has ({sorted(set(manifest) ^ fields)})")
    return manifest
