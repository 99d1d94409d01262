"""Checkpoints of holdfast-train in PyTorch: into state dicts of tensors or DTensors, and to and from
torch.distributed.checkpoint (DCP).

    import holdfast.torch

    with holdfast.torch.open("/shared/runs/a") as found:        # all ranks: the same checkpoint
        holdfast.torch.load(found, model.state_dict())          # in place; each rank reads its own part only

    python3 -m holdfast.torch export-dcp PATH OUT               # a folder for torch.distributed.checkpoint.load
    python3 -m holdfast.torch import-dcp DCP OUT.safetensors    # for `holdfast ckpt import`

Names are those of Hugging Face. The moments are those of torch.optim.AdamW.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import secrets
import shutil
import sys
import warnings
from typing import Any, Dict, Iterable, List, Mapping, Optional, Tuple, Union

try:
    import torch

    from holdfast import checkpoint
    from holdfast.checkpoint import Checkpoint, CheckpointError
except ImportError as missing:
    what = f"{sys.executable or 'this Python'} cannot be used for this ({missing})"
    if __name__ == "__main__":
        sys.exit(f"holdfast.torch: {what}. Put one first in PATH that has torch and numpy?")
    raise ImportError(f"{what}. holdfast.torch needs torch and numpy: install them?") from missing

__all__ = ["export_dcp", "import_dcp", "load", "load_optimizer", "open", "state_dict"]

_TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
_MODEL, _MOMENTS = "model/", ("exp_avg", "exp_avg_sq")
_SAFETENSORS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


def open(path: Union[str, "os.PathLike[str]"]) -> Checkpoint:
    """As holdfast.checkpoint.open(). Where torch.distributed runs, rank 0 chooses, so that all ranks have the same one;
    all of them must call this."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return checkpoint.open(path)
    found: Optional[Checkpoint] = None
    said: List[Any] = [None, None]
    if torch.distributed.get_rank() == 0:
        try:
            found = checkpoint.open(path)
            said[0] = str(found.path)
        except CheckpointError as error:
            said[1] = error
    torch.distributed.broadcast_object_list(said, src=0)
    if said[1] is not None:
        raise said[1]
    return found if found is not None else checkpoint.open(said[0])


def state_dict(found: Checkpoint, family: str = "model", dtype: Optional[torch.dtype] = None) -> Dict[str, torch.Tensor]:
    """All tensors of "model", "optim/exp_avg" or "optim/exp_avg_sq", whole, on the CPU. `dtype`: else as stored."""
    begin = family.rstrip("/") + "/"
    out = {}
    for name, tensor in found.tensors.items():
        if name.startswith(begin):
            whole = torch.empty(tensor.shape, dtype=dtype or _TYPES[tensor.dtype])
            _fill(found, name, whole, ())
            out[name[len(begin):]] = whole
    if not out:
        raise KeyError(f"{found.path} has no tensors {begin}")
    return out


def load(found: Checkpoint, into: Mapping[str, Any], family: str = "model", prefix: str = "") -> int:
    """Reads into the tensors of a state dict, in place: tensors, or DTensors of any mesh and placements, of which each
    rank reads its own part; of any type and device. `prefix`: what their names have before those of the checkpoint.
    Returns how many were read. A name that the checkpoint has not is an error (KeyError), unless it is another name of
    a tensor that was read (tied weights); so is another shape (ValueError)."""
    begin = family.rstrip("/") + "/"
    tensors = {name: value for name, value in into.items() if isinstance(value, torch.Tensor)}
    stored, missing = [], []
    for name, value in tensors.items():
        bare = name[len(prefix):] if name.startswith(prefix) else name
        (stored if begin + bare in found.tensors else missing).append((name, begin + bare))
    read = {_identity(tensors[name]) for name, _ in stored}
    absent = [name for name, _ in missing if _identity(tensors[name]) not in read]
    if absent:
        raise KeyError(f"{found.path} has no {', '.join(begin + name for name in absent[:3])}"
                       + (f" and {len(absent) - 3} more" if len(absent) > 3 else ""))
    for name, theirs in stored:
        _fill_any(found, theirs, tensors[name])
    return len(stored)


def load_optimizer(found: Checkpoint, into: Mapping[str, Any], prefix: str = "") -> int:
    """Reads the moments into an optimizer's state dict, in place, as torch.distributed.checkpoint.state_dict's
    get_optimizer_state_dict() gives it: {"state": {name: {"exp_avg", "exp_avg_sq", "step"}}}. An optimizer has this
    state after its first step, which get_optimizer_state_dict() sees to. Returns how many parameters have it now."""
    state = into["state"]
    for moment in _MOMENTS:
        load(found, {name: of[moment] for name, of in state.items()}, f"optim/{moment}", prefix)
    for of in state.values():
        if isinstance(of.get("step"), torch.Tensor):
            of["step"].fill_(found.step)
        else:
            of["step"] = found.step
    return len(state)


def _identity(tensor: torch.Tensor) -> Tuple[int, int]:
    local = _local(tensor)
    return local.untyped_storage().data_ptr() if local.numel() else id(local), local.storage_offset()


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()


def _fill_any(found: Checkpoint, name: str, tensor: torch.Tensor) -> None:
    shape = found.tensors[name].shape
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} is {list(shape)} in {found.path}, and {list(tensor.shape)} in the state dict")
    local = _local(tensor)
    if not hasattr(tensor, "to_local"):
        _fill(found, name, local, ())
        return
    if local.numel() == 0:
        return
    chunks = tensor.__create_chunk_list__()  # what torch.distributed.checkpoint asks, too
    if len(chunks) != 1 or tuple(chunks[0].sizes) != tuple(local.shape):
        raise ValueError(f"{name}: the part of this rank is not one rectangle ({tensor.placements})")
    _fill(found, name, local, tuple(slice(at, at + size) for at, size in zip(chunks[0].offsets, chunks[0].sizes)))


def _fill(found: Checkpoint, name: str, local: torch.Tensor, index: Tuple[slice, ...]) -> None:
    local = local.detach()
    stored = _TYPES[found.tensors[name].dtype]
    if local.device.type == "cpu" and local.dtype == stored and (local.is_contiguous() or local.dim() == 2):
        words = local.view(torch.int16).numpy().view("<u2") if stored == torch.bfloat16 else local.numpy()
        found.read(name, index, out=words)
        return
    values = found.read(name, index)
    if stored == torch.bfloat16:
        local.copy_(torch.from_numpy(values.view("<i2")).view(torch.bfloat16))
    else:
        local.copy_(torch.from_numpy(values))


# --- torch.distributed.checkpoint ---


def _under(key: str, values: Dict[str, Any]) -> Dict[str, Any]:
    return {key: values} if key else values


def export_dcp(found: Checkpoint, folder: Union[str, "os.PathLike[str]"], *, model: str = "model", optim: str = "optim",
               moments: bool = True, dtype: Optional[torch.dtype] = None) -> int:
    """Writes what torch.distributed.checkpoint.load() reads: the state dict {model: {name: weight}, optim: {"state":
    {name: {"exp_avg", "exp_avg_sq", "step"}}}}, whose keys are "model.NAME" and "optim.state.NAME.exp_avg"; with "" for
    `model` its names have nothing before them. `dtype`: of the weights, else as they are. One process writes, and holds
    one tensor at a time. Returns the bytes of all tensors. Throws FileExistsError."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

    target = pathlib.Path(folder).absolute()
    if target.exists():
        raise FileExistsError(f"{target} is there already")
    weights: Dict[str, Any] = {}
    state: Dict[str, Dict[str, Any]] = {}
    source: Dict[int, str] = {}  # of placeholders, by identity
    size = 0
    for name, tensor in found.tensors.items():
        weight = name.startswith(_MODEL)
        if not weight and not moments:
            continue
        placeholder = torch.empty(tensor.shape, dtype=dtype if weight and dtype else _TYPES[tensor.dtype], device="meta")
        source[id(placeholder)] = name
        size += placeholder.numel() * placeholder.element_size()
        if weight:
            weights[name[len(_MODEL):]] = placeholder
        else:
            _, moment, bare = name.split("/", 2)
            state.setdefault(bare, {"step": torch.tensor(float(found.step))})[moment] = placeholder
    if not weights:
        raise KeyError(f"{found.path} has no tensors {_MODEL}")

    class Planner(DefaultSavePlanner):
        """Reads a tensor when it is written."""

        def resolve_data(self, write_item: Any) -> Any:
            value = self.lookup_object(write_item.index)
            if id(value) not in source:
                return super().resolve_data(write_item)
            whole = torch.empty(value.shape, dtype=value.dtype)
            _fill(found, source[id(value)], whole, ())
            return whole

    contents = {**_under(model, weights), **(_under(optim, {"state": state}) if state else {})}
    partial = target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled")  # one process is what is meant
            dcp.save(contents, storage_writer=dcp.FileSystemWriter(partial, thread_count=1), planner=Planner(), no_dist=True)
        _sync(partial)
        os.rename(partial, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return size


def import_dcp(folder: Union[str, "os.PathLike[str]"], out: Union[str, "os.PathLike[str]"], *, model: str = "model") -> int:
    """Writes the weights of a checkpoint of torch.distributed.checkpoint, those with keys "model.NAME" ("" for `model`:
    NAME, but for what belongs to an optimizer), to a safetensors file, which `holdfast ckpt import OUT CHECKPOINT`
    takes. Holds one tensor at a time. Returns the bytes of all tensors. Throws FileExistsError, KeyError, ValueError."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    target = pathlib.Path(out).absolute()
    if target.exists():
        raise FileExistsError(f"{target} is there already")
    begin = f"{model}." if model else ""
    entries: Dict[str, Any] = {}
    for key, entry in dcp.FileSystemReader(folder).read_metadata().state_dict_metadata.items():
        mine = key.startswith(begin) and (model or not key.startswith(("optim.", "optimizer.")))
        if mine and isinstance(entry, TensorStorageMetadata):
            entries[key] = entry
    if not entries:
        raise KeyError(f"{folder} has no tensors {begin}NAME. Say with --model what their keys begin with?")
    header: Dict[str, Any] = {"__metadata__": {"format": "pt"}}
    size = 0
    for key, entry in entries.items():
        dtype = entry.properties.dtype
        if dtype not in _SAFETENSORS:
            raise ValueError(f"{key} is {dtype}, which is no type of weights here")
        count = entry.size.numel() * dtype.itemsize
        header[key[len(begin):]] = {"dtype": _SAFETENSORS[dtype], "shape": list(entry.size), "data_offsets": [size, size + count]}
        size += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    partial = target.with_name(f".{target.name}.tmp-{secrets.token_hex(4)}")
    try:
        with partial.open("xb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for key, entry in entries.items():
                whole = torch.empty(entry.size, dtype=entry.properties.dtype)
                dcp.load({key: whole}, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
                file.write(memoryview(whole.reshape(-1).view(torch.uint8).numpy()))
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, target)
        _sync(target.parent)
    finally:
        partial.unlink(missing_ok=True)
    return size


def _sync(folder: pathlib.Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _main(words: Optional[Iterable[str]] = None) -> int:
    what = "Checkpoints to and from torch.distributed.checkpoint"
    parser = argparse.ArgumentParser("python3 -m holdfast.torch", description=what)
    verbs = parser.add_subparsers(dest="verb", required=True)
    export = verbs.add_parser("export-dcp", help="a folder that torch.distributed.checkpoint.load reads")
    export.add_argument("path", help="a run directory, a folder of checkpoints, or a checkpoint")
    export.add_argument("out", help="the folder to write")
    export.add_argument("--model", default="model", help='key of the weights ("model"); "": none')
    export.add_argument("--optim", default="optim", help='key of the optimizer ("optim")')
    export.add_argument("--weights-only", action="store_true", help="without the moments")
    export.add_argument("--dtype", choices=("fp32", "bf16", "fp16"), help="of the weights; else as they are")
    taken = verbs.add_parser("import-dcp", help="the weights of a DCP folder as safetensors, for holdfast ckpt import")
    taken.add_argument("folder", help="the folder of torch.distributed.checkpoint")
    taken.add_argument("out", help="the .safetensors file to write")
    taken.add_argument("--model", default="model", help='what the keys of the weights begin with ("model"); "": nothing')
    asked = parser.parse_args(None if words is None else list(words))
    try:
        if asked.verb == "import-dcp":
            size = import_dcp(asked.folder, asked.out, model=asked.model)
            print(f"{asked.out}: {size} bytes of weights")
            return 0
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.get(asked.dtype)
        with checkpoint.open(asked.path) as found:
            size = export_dcp(found, asked.out, model=asked.model, optim=asked.optim, moments=not asked.weights_only, dtype=dtype)
            print(f"{asked.out}: step {found.step}, {size} bytes of tensors")
        return 0
    except (CheckpointError, OSError, ValueError) as error:
        print(f"holdfast.torch: {error}", file=sys.stderr)
    except KeyError as error:
        print(f"holdfast.torch: {error.args[0]}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(_main())
