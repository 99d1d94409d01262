"""holdfast.torch in one process, on the golden checkpoint. Runs in the environment HOLDFAST_TORCH_ENV, or where this
interpreter has torch; else it is skipped. scripts/proof/torch_checkpoint.sh has the rest: DTensors, and several ranks.

  torch_test.py SOURCE
"""

import importlib.util
import multiprocessing
import os
import pathlib
import sys
import tempfile
import threading
import time
import unittest

environment = os.environ.pop("HOLDFAST_TORCH_ENV", "")
if environment:
    python = f"{environment}/bin/python"
    os.execv(python, [python, "-B", "-W", "ignore", *sys.argv])
if not importlib.util.find_spec("torch"):
    print("SKIP: no torch here. Name an environment that has it in HOLDFAST_TORCH_ENV?")
    sys.exit(77)

import torch
import torch.distributed.checkpoint as dcp

import holdfast.torch
from holdfast import _buffers
from holdfast.snapshots import StateDict

SOURCE = pathlib.Path(sys.argv.pop(1))
EMBED, NORM = "model.embed_tokens.weight", "model.norm.weight"


class Golden(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)
        self.path = SOURCE / "tests/checkpoint/golden/version-5"
        self.found = holdfast.torch.open(self.path)
        self.addCleanup(self.found.close)
        self.whole = holdfast.torch.state_dict(self.found)

    def test_whole_state_dicts(self):
        self.assertEqual({name: tuple(t.shape) for name, t in self.whole.items()}, {EMBED: (7, 8), NORM: (5,)})
        self.assertEqual(self.whole[EMBED].flatten()[1 * 8 + 2].item(), self.found.read("model/" + EMBED)[1, 2])
        second = holdfast.torch.state_dict(self.found, "optim/exp_avg_sq")[EMBED]
        self.assertEqual(second.dtype, torch.bfloat16)
        bits = self.found.read("optim/exp_avg_sq/" + EMBED)
        self.assertTrue((second.float().numpy() == holdfast.checkpoint.widen(bits)).all())
        wide = holdfast.torch.state_dict(self.found, dtype=torch.float64)
        self.assertTrue(torch.equal(wide[EMBED], self.whole[EMBED].double()))
        self.assertRaises(KeyError, holdfast.torch.state_dict, self.found, "adapters")

    def test_into_tensors_of_any_type(self):
        bf16 = torch.zeros(7, 8, dtype=torch.bfloat16)
        for into in (torch.zeros(7, 8), torch.zeros(8, 7).t(), bf16, torch.zeros(7, 16)[:, ::2]):
            parameter = torch.nn.Parameter(into)
            self.assertEqual(holdfast.torch.load(self.found, {EMBED: parameter}), 1)
            self.assertTrue(torch.equal(into, self.whole[EMBED].to(into.dtype)))

    def test_names(self):
        embed = torch.zeros(7, 8)
        tied = {"_orig_mod." + EMBED: embed, "_orig_mod.lm_head.weight": embed, "extra": 3}
        self.assertEqual(holdfast.torch.load(self.found, tied, prefix="_orig_mod."), 1)
        self.assertTrue(torch.equal(embed, self.whole[EMBED]))
        with self.assertRaisesRegex(KeyError, "has no model/lm_head.weight"):
            holdfast.torch.load(self.found, {EMBED: embed, "lm_head.weight": torch.zeros(7, 8)})
        with self.assertRaisesRegex(ValueError, r"is \[7, 8\] in .*, and \[8, 7\]"):
            holdfast.torch.load(self.found, {EMBED: torch.zeros(8, 7)})

    def test_optimizer(self):
        state = {"state": {EMBED: {"exp_avg": torch.zeros(7, 8), "exp_avg_sq": torch.zeros(7, 8), "step": torch.tensor(0.0)}}}
        self.assertEqual(holdfast.torch.load_optimizer(self.found, state), 1)
        for moment in ("exp_avg", "exp_avg_sq"):
            expected = holdfast.torch.state_dict(self.found, f"optim/{moment}", torch.float32)[EMBED]
            self.assertTrue(torch.equal(state["state"][EMBED][moment], expected))
        self.assertEqual(state["state"][EMBED]["step"].item(), 3)

    def test_dcp_and_back(self):
        folder, weights = self.folder / "dcp", self.folder / "weights.safetensors"
        self.assertEqual(holdfast.torch.export_dcp(self.found, folder), 7 * 8 * 10 + 5 * 4)
        state = {"model": {name: torch.zeros_like(t) for name, t in self.whole.items()},
                 "optim": {"state": {EMBED: {"exp_avg_sq": torch.zeros(7, 8, dtype=torch.bfloat16), "step": torch.tensor(0.0)}}}}
        dcp.load(state, checkpoint_id=folder, no_dist=True)
        for name, tensor in self.whole.items():
            self.assertTrue(torch.equal(state["model"][name], tensor))
        second = holdfast.torch.state_dict(self.found, "optim/exp_avg_sq")[EMBED]
        self.assertTrue(torch.equal(state["optim"]["state"][EMBED]["exp_avg_sq"], second))
        self.assertEqual(state["optim"]["state"][EMBED]["step"].item(), 3)

        holdfast.torch.import_dcp(folder, weights)
        header = int.from_bytes(weights.read_bytes()[:8], "little")
        stored = weights.read_bytes()[8 + header :]
        self.assertEqual(stored, b"".join(self.whole[name].numpy().tobytes() for name in (EMBED, NORM)))
        self.assertEqual(sorted(os.listdir(self.folder)), ["dcp", "weights.safetensors"])
        self.assertRaises(FileExistsError, holdfast.torch.export_dcp, self.found, folder)
        self.assertRaises(FileExistsError, holdfast.torch.import_dcp, folder, weights)
        with self.assertRaisesRegex(KeyError, "has no tensors net.NAME"):
            holdfast.torch.import_dcp(folder, self.folder / "other", model="net")

    def test_names_at_the_top(self):
        holdfast.torch.export_dcp(self.found, self.folder / "dcp", model="", moments=False, dtype=torch.bfloat16)
        into = {NORM: torch.zeros(5, dtype=torch.bfloat16)}
        dcp.load(into, checkpoint_id=self.folder / "dcp", no_dist=True)
        self.assertTrue(torch.equal(into[NORM], self.whole[NORM].bfloat16()))


class OneRank:
    """As a client whose agent has given it buffers."""

    supervised = True

    def __init__(self, folder, attempt, sealed=""):
        self.buffers = _buffers.Buffers({"HOLDFAST_BUFFERS": str(folder), "HOLDFAST_BUFFERS_LIMIT": "100000", "HOLDFAST_ATTEMPT": attempt,
                                         "HOLDFAST_WORLD": "1", "HOLDFAST_SEALED": sealed})
        self.seal, self.load = self.buffers.seal, self.buffers.load
        self.room = threading.Event()  # buffer() waits for it, as for a copy
        self.room.set()

    def buffer(self, name, size):
        self.room.wait()
        return self.buffers.buffer(name, size)

    @property
    def sealed(self):
        return self.buffers.sealed.step if self.buffers.sealed else -1


class Snapshots(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name) / "rank-00000"

    @staticmethod
    def begin():
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Linear(16, 3))
        return model, torch.optim.AdamW(model.parameters(), lr=1e-2)

    @staticmethod
    def step(model, optimizer, number):
        batch = torch.randn(4, 8, generator=torch.Generator().manual_seed(number))
        optimizer.zero_grad()
        model(batch).pow(2).sum().backward()
        optimizer.step()

    def test_a_run_goes_on_in_the_same_bits(self):
        model, optimizer = self.begin()
        snapshots = StateDict(OneRank(self.folder, "1"), optimizer)
        for number in range(5):
            self.step(model, optimizer, number)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "more": (1, "a", [2.5])}
            self.assertTrue(snapshots.save(state, number + 1))
        # The update waits until what is saved is copied.
        for number in range(5, 8):
            self.step(model, optimizer, number)
        snapshots.wait()
        undisturbed = [parameter.clone() for parameter in model.parameters()]

        model, optimizer = self.begin()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        snapshots = StateDict(OneRank(self.folder, "2", "5 1 local"), optimizer)
        self.assertEqual(snapshots.load(state), 5)
        self.assertEqual(state["more"], (1, "a", [2.5]))
        optimizer.load_state_dict(state["optimizer"])
        for number in range(5, 8):
            self.step(model, optimizer, number)
        for ours, theirs in zip(model.parameters(), undisturbed):
            self.assertTrue(torch.equal(ours, theirs))

    def saved(self, into):
        self.assertEqual(StateDict(OneRank(self.folder, "2", "1 1 local")).load(into), 1)
        return into

    def test_what_no_optimizer_changes_is_copied_at_once(self):
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
        scale = torch.ones(())
        hf = OneRank(self.folder, "1")
        snapshots = StateDict(hf, torch.optim.SGD(model.parameters()))
        hf.room.clear()
        threading.Timer(0.05, hf.room.set).start()
        snapshots.save({"model": model.state_dict(), "scale": scale}, 1)
        model(torch.arange(8.0).reshape(4, 2))  # changes the running statistics
        scale.fill_(2)
        snapshots.wait()
        state = self.saved({})
        self.assertEqual(state["model"]["1.num_batches_tracked"].item(), 0)
        self.assertEqual(state["model"]["1.running_mean"].tolist(), [0, 0])
        self.assertEqual(state["scale"].item(), 1)

    def test_the_steps_of_all_optimizers_wait(self):
        first, second = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
        optimizers = [torch.optim.AdamW([parameter]) for parameter in (first, second)]
        for parameter in (first, second):
            parameter.grad = torch.ones(2)
        for optimizer in optimizers:
            optimizer.step()
        hf = OneRank(self.folder, "1")
        snapshots = StateDict(hf, *optimizers)
        before = [first.tolist(), second.tolist()]
        hf.room.clear()
        snapshots.save({"parameters": [first, second], "optim": [optimizer.state_dict() for optimizer in optimizers]}, 1)
        threading.Timer(0.05, hf.room.set).start()
        optimizers[1].step()
        snapshots.wait()
        state = self.saved({})
        self.assertEqual([one.tolist() for one in state["parameters"]], before)
        self.assertEqual([one["state"][0]["step"].item() for one in state["optim"]], [1, 1])

    def test_the_exit_waits_for_the_seal(self):
        def program():
            hf = OneRank(self.folder, "1")
            hf.seal = lambda step: (time.sleep(0.2), hf.buffers.seal(step))
            StateDict(hf).save([torch.ones(2)], 1)
            sys.exit(75)

        process = multiprocessing.get_context("fork").Process(target=program)
        process.start()
        process.join()
        self.assertEqual(process.exitcode, 75)
        self.assertEqual(self.saved([torch.zeros(2)])[0].tolist(), [1, 1])

    def test_tensors_of_any_kind(self):
        state = [torch.zeros(3, 0), torch.arange(7)[::2], torch.tensor(3.0, dtype=torch.bfloat16), torch.ones(2, 3).t(), None]
        snapshots = StateDict(OneRank(self.folder, "1"))
        self.assertTrue(snapshots.save(state, 1))
        snapshots.wait()
        into = [torch.ones(3, 0), torch.zeros(8, dtype=torch.int64)[::2], torch.tensor(0.0, dtype=torch.bfloat16), torch.zeros(3, 2), 4]
        self.assertEqual(StateDict(OneRank(self.folder, "2", "1 1 local")).load(into), 1)
        for ours, theirs in zip(into[:4], state[:4]):
            self.assertTrue(torch.equal(ours, theirs))
        self.assertIsNone(into[4])

    def test_expanded_tensors(self):
        snapshots = StateDict(OneRank(self.folder, "1"))
        snapshots.save([torch.arange(2.0).reshape(2, 1).expand(2, 3), torch.arange(6.0).reshape(2, 3)], 1)
        snapshots.wait()
        into = [torch.zeros(2, 1).expand(2, 3), torch.zeros(2, 3)]
        self.saved(into)
        self.assertEqual(into[0].tolist(), [[0, 0, 0], [1, 1, 1]])
        again = StateDict(OneRank(self.folder, "2", "1 1 local"))
        with self.assertRaisesRegex(ValueError, r"\[1\] is one value over and over in the state"):
            again.load([torch.zeros(2, 3), torch.zeros(2, 1).expand(2, 3)])

    def test_another_state_is_refused(self):
        snapshots = StateDict(OneRank(self.folder, "1"))
        snapshots.save({"a": torch.zeros(3)}, 1)
        snapshots.wait()
        again = StateDict(OneRank(self.folder, "2", "1 1 local"))
        self.assertRaisesRegex(ValueError, "a is torch.float32", again.load, {"a": torch.zeros(4)})
        self.assertRaisesRegex(ValueError, "a is torch.float32", again.load, {"a": torch.zeros(3, dtype=torch.float64)})
        self.assertRaisesRegex(KeyError, "the buffers have no b", again.load, {"a": torch.zeros(3), "b": torch.zeros(3)})

    def test_what_does_not_fit_is_said_and_the_program_goes_on(self):
        snapshots = StateDict(OneRank(self.folder, "1"))
        self.assertTrue(snapshots.save(torch.zeros(1 << 20), 1))
        snapshots.wait()
        self.assertFalse(snapshots.save(torch.zeros(1), 2))
        self.assertEqual(StateDict(OneRank(self.folder, "2")).load({}), -1)


if __name__ == "__main__":
    unittest.main()
