"""The state of a PyTorch program in snapshot buffers: any nesting of dicts, lists and tuples of tensors, on CPUs or GPUs,
plain ones or DTensors (FSDP2), of which each rank keeps its own part.

    from holdfast.snapshots import StateDict

    snapshots = StateDict(hf, optimizer)          # every rank; all optimizers
    state = {"model": model.state_dict(), "optim": optimizer.state_dict()}
    step = snapshots.load(state)                  # tensors that are there are filled in place; the model's are its own
    if step >= 0:
        optimizer.load_state_dict(state["optim"])     # state_dict() has made new dicts; what was not there is only in them
    else:                                         # this attempt does not start from buffers
        step = max(hf.newest, 0)                  # load this checkpoint, if it is above 0
    ...
    optimizer.step()
    step += 1
    snapshots.save({"model": model.state_dict(), "optim": optimizer.state_dict()}, step)  # every rank; copies while the next step begins

After a failure only the step that was under way is done again, and the one before it if its state was not yet copied. A
thread copies and seals what is saved. Code other than step() that changes parameters, or the optimizers' state of them, has
to call wait_copied() before.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import threading
import warnings
from dataclasses import dataclass
from typing import Any, Iterator, List, Optional, Set, Tuple

import torch

from holdfast._buffers import BuffersError
from holdfast._client import Client

__all__ = ["StateDict"]

_ALIGNED = 64
_Placed = Tuple[int, torch.Tensor]  #: where it goes in the buffer


@dataclass(frozen=True)
class _Leaf:
    """Where a tensor lies in the buffer."""

    dtype: torch.dtype
    shape: Tuple[int, ...]
    offset: int


def _local(tensor: torch.Tensor) -> torch.Tensor:
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def _taken_apart(value: Any, found: List[_Placed], at: int) -> Tuple[Any, int]:
    """The same with a _Leaf for each tensor; these are appended to `found`, each with its place from `at` on."""
    if isinstance(value, torch.Tensor):
        local = _local(value)
        found.append((at, local))
        end = at + local.numel() * local.element_size()
        return _Leaf(local.dtype, tuple(local.shape), at), -(-end // _ALIGNED) * _ALIGNED
    if isinstance(value, dict):
        out = {}
        for key, inner in value.items():
            out[key], at = _taken_apart(inner, found, at)
        return out, at
    if isinstance(value, (list, tuple)):
        inside = []
        for inner in value:
            one, at = _taken_apart(inner, found, at)
            inside.append(one)
        return (tuple(inside) if isinstance(value, tuple) else inside), at
    return value, at


def _put_back(stored: Any, into: Any, data: torch.Tensor, path: str) -> Any:
    """What is to stand in the place of `into`: itself with the stored contents, where it can hold them."""
    if isinstance(stored, _Leaf):
        size = torch.empty((), dtype=stored.dtype).element_size()
        for length in stored.shape:
            size *= length
        value = data[stored.offset:stored.offset + size].view(stored.dtype).reshape(stored.shape)
        if not isinstance(into, torch.Tensor):
            return value.clone()
        local = _local(into)
        if tuple(local.shape) != stored.shape or local.dtype != stored.dtype:
            raise ValueError(f"{path or 'the state'} is {stored.dtype} {list(stored.shape)} in the buffers, and {local.dtype} "
                             f"{list(local.shape)} in the state")
        for dim, stride in enumerate(local.stride()):
            if stride == 0 and local.shape[dim] > 1:  # expanded
                first = value.narrow(dim, 0, 1)
                if not torch.equal(_bytes(first.expand_as(value)), _bytes(value)):
                    raise ValueError(f"{path or 'the state'} is one value over and over in the state, and not in the buffers")
                local, value = local.narrow(dim, 0, 1), first
        local.copy_(value)
        return into
    if isinstance(stored, dict):
        out = into if isinstance(into, dict) else {}
        absent = [key for key in out if key not in stored]
        if absent:
            raise KeyError(f"the buffers have no {path + '.' if path else ''}{absent[0]}")
        for key, inner in stored.items():
            out[key] = _put_back(inner, out.get(key), data, f"{path}.{key}" if path else str(key))
        return out
    if isinstance(stored, (list, tuple)):
        same = isinstance(into, (list, tuple)) and len(into) == len(stored)
        inside = [_put_back(inner, into[i] if same else None, data, f"{path}[{i}]") for i, inner in enumerate(stored)]
        if isinstance(into, list):
            into[:] = inside
            return into
        return tuple(inside) if isinstance(stored, tuple) else inside
    return stored


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _fill(into: torch.Tensor, found: List[_Placed]) -> None:
    with torch.no_grad():
        for at, tensor in found:
            flat = _bytes(tensor)
            into[at:at + flat.numel()].copy_(flat)


def _several_ranks() -> bool:
    there = torch.distributed.is_available() and torch.distributed.is_initialized()
    return there and torch.distributed.get_world_size() > 1


class StateDict:
    """Uses the buffers `name` and `name`.index of the client. Not for several threads at once."""

    def __init__(self, hf: Client, *optimizers: torch.optim.Optimizer, name: str = "state") -> None:
        """`optimizers`: all of them. Their parameters and what they keep of these are copied while the next step begins, and
        each step() waits for that. Everything else is copied before save() returns."""
        self._hf, self._name, self._optimizers = hf, name, optimizers
        self._works = hf.supervised
        self._thread: Optional[threading.Thread] = None
        self._now_copied, self._copied = threading.Event(), threading.Event()
        self._copied.set()
        self._stream: Optional["torch.cuda.Stream"] = None
        self._on_gpu: Optional["torch.cuda.Event"] = None
        self._pinned: Optional[torch.Tensor] = None
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(lambda *_: self.wait_copied())

    def load(self, state: Any) -> int:
        """Puts the state from which this attempt starts into `state`: in place into its tensors; everything else, and tensors
        that it does not have (the moments of an optimizer that has made no step), into its dicts and lists. An optimizer's
        state_dict() is a new dict: give it back with load_state_dict(), or set_state_dict() of DCP. Returns its step:
        optimizer steps done; hf.restored() is said. -1: there is none, and `state` is as it was: begin from hf.newest. Throws
        BuffersError, and KeyError or ValueError where `state` is another one."""
        if self._hf.sealed < 0:
            return -1
        tree = pickle.loads(self._hf.load(self._name + ".index"))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it cannot be written
            data = torch.frombuffer(self._hf.load(self._name), dtype=torch.uint8)
        with torch.no_grad():
            _put_back(tree, state, data, "")
        return self._hf.sealed

    def save(self, state: Any, step: int) -> bool:
        """Every rank, at the same step. `step`: optimizer steps done in `state`. The save before is sealed on all ranks first, so
        that they always have a state in common. False: there is no agent, or no memory for it, which is said once on stderr;
        the program goes on."""
        self.wait()
        if self._hf.supervised and _several_ranks():
            torch.distributed.barrier()
        if not self._works:
            return False
        found: List[_Placed] = []
        tree, size = _taken_apart(state, found, 0)
        stays = self._changed_by_steps()
        now = [one for one in found if _storage(one[1]) not in stays]
        later = [one for one in found if _storage(one[1]) in stays]
        pinned = self._begin_to_pin(now, later, size)
        now, later = ([one for one in part if not one[1].is_cuda] for part in (now, later))
        self._now_copied.clear()
        self._copied.clear()
        self._thread = threading.Thread(target=self._keep, args=(now, later, pinned, max(size, 1), pickle.dumps(tree), int(step)),
                                        daemon=False, name="holdfast snapshot")  # the exit waits for it
        self._thread.start()
        if now:
            with self._held_up():
                self._now_copied.wait()
        return True

    def wait_copied(self) -> None:
        """The state may change now. On GPUs it is their stream that waits."""
        if self._on_gpu is not None:
            torch.cuda.current_stream().wait_event(self._on_gpu)
        with self._held_up():
            self._copied.wait()

    def wait(self) -> None:
        """What was saved last is sealed."""
        if self._thread is not None:
            with self._held_up():
                self._thread.join()
            self._thread = None

    @contextlib.contextmanager
    def _held_up(self) -> Iterator[None]:
        """Where the thread waits for a copy, the rank does."""
        self._hf.held_up = True
        try:
            yield
        finally:
            self._hf.held_up = False

    def _changed_by_steps(self) -> Set[int]:
        """Where the tensors lie that nothing but step() changes."""
        found: List[_Placed] = []
        for optimizer in self._optimizers:
            _taken_apart([group["params"] for group in optimizer.param_groups] + list(optimizer.state.values()), found, 0)
        return {_storage(tensor) for _, tensor in found}

    def _begin_to_pin(self, now: List[_Placed], later: List[_Placed], size: int) -> List[_Placed]:
        """Copies what is on a GPU to pinned memory, beside what the GPU computes next; that waits for `now`."""
        self._on_gpu = None
        if not any(tensor.is_cuda for _, tensor in now + later):
            return []
        if self._stream is None:
            self._stream = torch.cuda.Stream()
        if self._pinned is None or self._pinned.numel() != size:
            self._pinned = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        pinned = []
        self._stream.wait_stream(torch.cuda.current_stream())
        for part in (now, later):
            with torch.cuda.stream(self._stream):
                for at, tensor in part:
                    if not tensor.is_cuda:
                        continue
                    flat = _bytes(tensor)
                    flat.record_stream(self._stream)
                    pinned.append((at, self._pinned[at:at + flat.numel()]))
                    pinned[-1][1].copy_(flat, non_blocking=True)
                self._on_gpu = torch.cuda.Event()
                self._on_gpu.record(self._stream)
            if part is now:
                torch.cuda.current_stream().wait_event(self._on_gpu)
        return pinned

    def _keep(self, now: List[_Placed], later: List[_Placed], pinned: List[_Placed], size: int, index: bytes, step: int) -> None:
        try:
            data = self._hf.buffer(self._name, size)
            words = self._hf.buffer(self._name + ".index", len(index))
            if data is None or words is None:
                return  # the client is closed
            words[:] = index
            into = torch.frombuffer(data, dtype=torch.uint8)
            _fill(into, now)
            self._now_copied.set()
            _fill(into, later)
            self._copied.set()
            if pinned and self._on_gpu is not None:
                self._on_gpu.synchronize()
                _fill(into, pinned)
            self._hf.seal(step)
        except BuffersError as error:
            self._works = False
            print(f"holdfast: this rank keeps no snapshots any more ({error})", file=sys.stderr, flush=True)
        finally:
            self._now_copied.set()
            self._copied.set()
