"""holdfast.checkpoint by itself: known sums, the golden checkpoint, random layouts that are written here by the text of
checkpoint/FORMAT.md, and damage of every kind. Needs numpy.

  checkpoint_test.py SOURCE
"""

import json
import os
import pathlib
import random
import shutil
import struct
import sys
import tempfile
import unittest
import warnings

try:
    import numpy
except ImportError:
    print("SKIP: this interpreter has no numpy")
    sys.exit(77)

import holdfast.checkpoint
from holdfast import _sums
from holdfast.checkpoint import CheckpointError, Damaged, NewerFormat, OtherKind, Unreadable

SOURCE = pathlib.Path(sys.argv.pop(1))
GOLDEN = SOURCE / "tests/checkpoint/golden"
PAGE, BLOCK = 4096, 65536


def with_digest(body, version=5):
    head = f'{{"schema_version":{version},"digest":"'.encode()
    rest = b'",\n' + body
    return head + _sums.xxh3_128(head + rest).encode() + rest


def up(size):
    return -(-size // PAGE) * PAGE


def bits_of(values):
    return values.reshape(-1).view("<u4" if values.dtype.itemsize == 4 else "<u2")


def write(folder, tensors, members, replicas, cuts, step=7):
    """A checkpoint of {name: array}. bf16 is uint16."""
    folder.mkdir(parents=True)
    listed, digests = [], []
    for name, values in tensors.items():
        rows, cols = values.shape if values.ndim == 2 else (values.size, 1) if name.endswith(".bias") else (1, values.size)
        digest = _sums.digest_part(numpy.arange(values.size, dtype=numpy.uint64), bits_of(values))
        digests.append(digest)
        listed.append({"name": name, "rows": rows, "cols": cols, "dtype": "f32" if values.dtype.itemsize == 4 else "bf16",
                       "digest": f"{digest:016x}"})
    shards = []
    for writer in range(members * replicas):
        replica, member = divmod(writer, members)
        payload = {4: b"", 2: b""}
        left = list(tensors.values())
        for count, stride, part in cuts:
            at = 0
            for values in left[:count]:
                low, high = member * stride + replica * part, min(member * stride + (replica + 1) * part, (member + 1) * stride)
                a, b = max(low - at, 0), min(high - at, values.size)
                if a < b:
                    payload[values.dtype.itemsize] += bits_of(values)[a:b].tobytes()
                at += values.size
            left = left[count:]
        data = payload[4] + payload[2]
        data += bytes(up(len(data)) - len(data))
        table = _sums.crc32c_of_blocks(numpy.frombuffer(data, numpy.uint8), BLOCK).tobytes() if data else b""
        offset = PAGE + up(128 + len(table))
        size = offset + len(data)
        record = struct.pack("<8s14q", b"HOLDFAST", 5, step, 1, 2, writer,
                             members * replicas, 70, 71, size, PAGE, offset, 0, 0, 0)
        head = record + struct.pack("<q", _sums.crc32c(record)) + table
        extents = struct.pack("<QQQI", size, PAGE, offset, 0xABCD)
        shards.append({"bytes": size, "data_offset": PAGE, "payload_offset": offset, "metadata_crc32c": "0000abcd",
                       "root": _sums.xxh3_128(extents + table)})
        (folder / f"shard-{writer:05d}.h5").write_bytes(bytes(PAGE) + head + bytes(offset - PAGE - len(head)) + data)
    manifest = {
        "generation": {"step": step, "epoch": 1, "attempt": 2},
        "point": {"tokens": 70, "samples": 71, "detector": "", "scaling": ""},
        "facts": {"model_toml": "", "world": members * replicas},
        "tensors": listed,
        "state_digest": f"{_sums.state_digest(list(tensors), digests):016x}",
        "layout": {"members": members, "replicas": replicas, "cuts": cuts},
        "shards": shards,
    }
    save(folder, manifest)
    return manifest


def save(folder, manifest, version=5):
    (folder / "manifest.json").write_bytes(with_digest(json.dumps(manifest).encode()[1:], version))


def drawn(draw):
    """Tensors, members, replicas and cuts."""
    tensors = {}
    for number in range(draw.randint(1, 6)):
        shape = (draw.randint(1, 3000),) if draw.random() < 0.3 else (draw.randint(2, 300), draw.randint(1, 900))
        wide = draw.random() < 0.6
        bits = numpy.frombuffer(draw.randbytes(int(numpy.prod(shape)) * (4 if wide else 2)), "<u4" if wide else "<u2")
        ending = "" if len(shape) == 2 else draw.choice([".bias", "norm.weight"])
        tensors[f"model/t{number}{ending}"] = (bits.view("<f4") if wide else bits).reshape(shape)
    members, replicas, cuts, sizes = draw.randint(1, 4), draw.randint(1, 3), [], [v.size for v in tensors.values()]
    while sizes:
        count = draw.randint(1, len(sizes))
        n, sizes = sum(sizes[:count]), sizes[count:]
        stride = max(-(-n // members), draw.randint(1, n))
        cuts.append([count, stride, max(-(-min(n, stride) // replicas), draw.randint(1, stride))])
    return tensors, members, replicas, cuts


def part_of(draw, size):
    first = draw.randint(0, size)
    return slice(first, draw.randint(first, size))


class Sums(unittest.TestCase):
    def test_known_sums(self):
        self.assertEqual(_sums.crc32c(b"123456789"), 0xE3069283)
        # Of libxxhash: XXH3_128bits over bytes (7 i + 3) mod 256, for each way in which lengths are hashed.
        known = {
            17: "bfd327edcc2fbd12eeed7654312a26d7",
            32: "4f130f27ab6baf45d761fd22e8ad5262",
            33: "d15b272993d9830f4193c535612ac940",
            64: "fed953fe6a8b2b63aa549d72c69cd267",
            97: "3ffe2e0f781d623c8d17d1afec22619e",
            128: "1b1962a096bac78bc580008b6c92ac53",
            129: "293e4968c4619023bd91ce7ace4d385b",
            160: "d71519a37cb75ab60e298e02860a8fd0",
            240: "ad46c1021b076bc704e0b5f034bee80b",
            241: "ac6c3492c3d6b45d8beadd3a8874fe17",
            1024: "18bc0eaca9a336369b81661c641c72b1",
            1025: "bf447251cfa98d7c806c2072ed713576",
            1100: "c4e76aef8365bdfa8e7ec0c060bbe423",
            5000: "c98ae385d09887cc799aaddd7339581d",
        }
        for size, digest in known.items():
            self.assertEqual(_sums.xxh3_128(bytes((7 * i + 3) % 256 for i in range(size))), digest, size)

    def test_blocks_have_the_sums_of_their_bytes(self):
        data = random.Random(1).randbytes(2 * BLOCK + 3 * PAGE)
        for size in (1, 4, 6, 12, PAGE, BLOCK, BLOCK + 2, BLOCK + PAGE, len(data)):
            expected = [_sums.crc32c(data[i : min(i + BLOCK, size)]) for i in range(0, size, BLOCK)]
            for by in (None, _sums._ISCSI):  # numpy alone, and ISA-L where it is installed
                found = _sums.crc32c_of_blocks(numpy.frombuffer(data, numpy.uint8, size), BLOCK, by)
                self.assertEqual(found.tolist(), expected)


class Reading(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name)
        self.addCleanup(self.scratch.cleanup)

    def small(self, name="one", step=7):
        values = numpy.arange(60000, dtype="<f4").reshape(300, 200)
        manifest = write(self.folder / name, {"model/w": values}, 2, 1, [[1, 30000, 30000]], step)
        return self.folder / name, manifest, values

    def test_golden(self):
        with holdfast.checkpoint.open(SOURCE / "tests/checkpoint/golden/version-5") as found:
            self.assertEqual((found.step, found.tokens, found.samples), (3, 12288, 24))
            self.assertEqual(found.tensors["model/model.norm.weight"].shape, (5,))
            self.assertEqual(found.tensors["optim/exp_avg_sq/model.embed_tokens.weight"].dtype, "bf16")
            found.verify()

    def test_every_format(self):
        with holdfast.checkpoint.open(GOLDEN / "version-5") as found:
            wanted = {name: found.read(name) for name in found.tensors}
        for version in range(1, 5):
            with holdfast.checkpoint.open(GOLDEN / f"version-{version}") as found:
                self.assertEqual((found.format, found.step, found.tokens, found.samples), (version, 3, 12288, 24))
                found.verify()
                self.assertEqual(list(found.tensors), list(wanted))
                for name, values in wanted.items():
                    if version == 1 and values.dtype.itemsize == 2:
                        self.assertEqual(found.tensors[name].dtype, "f32")  # it had no bf16: other values
                        continue
                    self.assertTrue(numpy.array_equal(bits_of(found.read(name)), bits_of(values)), (version, name))
                embed = "model/model.embed_tokens.weight"
                part = numpy.ascontiguousarray(wanted[embed][2:6, 3:5])
                self.assertTrue(numpy.array_equal(found.read(embed, (slice(2, 6), slice(3, 5))), part))

    def test_any_flipped_byte_of_an_older_format_is_found(self):
        for version in (1, 3, 4):
            path = self.folder / f"version-{version}"
            shutil.copytree(GOLDEN / f"version-{version}", path)
            for name in ("shard-00000.h5", "shard-00001.h5", "manifest.json"):
                whole = (path / name).read_bytes()
                places = range(0, len(whole), 53)
                if name != "manifest.json":
                    # Neither metadata nor what a head has left are read.
                    places = [*range(PAGE, PAGE + 128, 7), *range(2 * PAGE if version == 4 else PAGE + 128, len(whole), 7)]
                for place in places:
                    (path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
                    with self.assertRaises(CheckpointError, msg=f"{version} {name} {place}"):
                        with holdfast.checkpoint.open(path) as found:
                            found.verify()
                (path / name).write_bytes(whole)

    def test_pieces_that_are_not_possible_are_damage(self):
        path = self.folder / "pieces"
        shutil.copytree(GOLDEN / "version-4", path)
        manifest = json.loads((path / "manifest.json").read_bytes())
        for number, piece in enumerate(([0, 0, 28, 4096], [9, 0, 28, 8192], [0, 0, 27, 8192], [0, 0, 28, 8194],
                                        [0, 0, 28, 8196], [0, 1, 28, 8192], [0, 0, 28, 12288], [-4, 0, 28, 8192])):
            changed = json.loads(json.dumps(manifest))
            changed["shards"][0]["pieces"][0] = piece
            del changed["schema_version"], changed["digest"]
            save(path, changed, 4)
            with self.assertRaises(Damaged, msg=number):
                holdfast.checkpoint.open(path)

    def test_any_part_of_any_layout(self):
        for seed in range(25):
            draw = random.Random(seed)
            tensors, members, replicas, cuts = drawn(draw)
            write(self.folder / str(seed), tensors, members, replicas, cuts)
            with holdfast.checkpoint.open(self.folder / str(seed)) as found:
                found.verify()
                for name, values in tensors.items():
                    self.assertTrue(numpy.array_equal(bits_of(found.read(name)), bits_of(values)), (seed, name))
                    for _ in range(4):
                        index = tuple(part_of(draw, size) for size in values.shape)
                        expected = numpy.ascontiguousarray(values[index])
                        have = found.read(name, index)
                        self.assertEqual(have.shape, expected.shape)
                        self.assertTrue(numpy.array_equal(bits_of(have), bits_of(expected)), (seed, name, index))

    def test_only_the_blocks_around_a_part_are_read(self):
        values = numpy.arange(2 << 20, dtype="<f4").reshape(2048, 1024)
        write(self.folder / "large", {"model/w": values}, 2, 1, [[1, 1 << 20, 1 << 20]])
        with holdfast.checkpoint.open(self.folder / "large") as found:
            self.assertTrue(numpy.array_equal(found.read("model/w", slice(100, 110)), values[100:110]))
            self.assertLessEqual(found.bytes_read, 2 * BLOCK)

    def test_indices_and_out(self):
        path, _, values = self.small()
        with holdfast.checkpoint.open(path) as found:
            self.assertTrue(numpy.array_equal(found.read("model/w", (3, slice(-5, None))), values[3, -5:]))
            out = numpy.zeros((300, 10), "<f4")
            self.assertIs(found.read("model/w", (slice(None), slice(10, 20)), out), out)
            self.assertTrue(numpy.array_equal(out, values[:, 10:20]))
            into = numpy.zeros((300, 400), "<f4")[:, ::2]
            found.read("model/w", out=into)
            self.assertTrue(numpy.array_equal(into, values))
            with self.assertRaises(ValueError):
                found.read("model/w", out=numpy.zeros((300, 200), "<f8"))
            with self.assertRaises(IndexError):
                found.read("model/w", slice(0, 4, 2))
            with self.assertRaises(KeyError):
                found.read("model/v")
        self.assertEqual(holdfast.checkpoint.widen(numpy.array([0x3FC0], "<u2"))[0], 1.5)

    def test_any_flipped_byte_is_found(self):
        path, _, _ = self.small()
        for name in ("shard-00000.h5", "shard-00001.h5", "manifest.json"):
            whole = (path / name).read_bytes()
            # Metadata are not read: 4096 is where the head begins. What the head has left is zero and not read either.
            head, payload = range(PAGE, PAGE + 136, 3), range(2 * PAGE, len(whole), 16001)
            places = range(0, len(whole), 97) if name == "manifest.json" else [*head, *payload]
            for place in places:
                (path / name).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
                with self.assertRaises(CheckpointError, msg=f"{name} {place}"):
                    with holdfast.checkpoint.open(path) as found:
                        found.verify()
            (path / name).write_bytes(whole)

    def test_three_outcomes(self):
        path, manifest, _ = self.small()
        shard = path / "shard-00001.h5"
        whole = shard.read_bytes()
        shard.write_bytes(whole[:-PAGE])
        self.assertRaises(Damaged, holdfast.checkpoint.open, path)
        shard.unlink()
        self.assertRaises(Unreadable, holdfast.checkpoint.open, path)
        shard.write_bytes(whole)
        save(path, manifest, 7)
        self.assertRaises(NewerFormat, holdfast.checkpoint.open, path)
        save(path, manifest, 0)
        self.assertRaises(Damaged, holdfast.checkpoint.open, path)
        self.assertRaises(OtherKind, holdfast.checkpoint.open, GOLDEN / "version-6")
        (path / "manifest.json").unlink()
        self.assertRaises(Unreadable, holdfast.checkpoint.open, path)

    def test_a_manifest_that_is_not_possible_is_damaged(self):
        path, manifest, _ = self.small()
        for change in (
            {"layout": {"members": 2, "replicas": 1, "cuts": [[1, 20000, 20000]]}},
            {"layout": {"members": 3, "replicas": 1, "cuts": [[1, 30000, 30000]]}},
            {"layout": {"members": 2, "replicas": 1, "cuts": [[2, 30000, 30000]]}},
            {"state_digest": "0123456789abcdef"},
            {"tensors": []},
            {"tensors": 2 * manifest["tensors"]},
            {"shards": 3},
            {"more": 1},
        ):
            save(path, {**manifest, **change})
            with self.assertRaises(Damaged, msg=change):
                holdfast.checkpoint.open(path)

    def test_newest_sound_of_a_run(self):
        for step in (7, 100):
            self.small(f"run/checkpoints/step-{step:08d}", step)
        with holdfast.checkpoint.open(self.folder / "run") as found:
            self.assertEqual(found.step, 100)
            leases = [name for name in os.listdir(self.folder / "run/checkpoints") if ".lease-" in name]
            self.assertEqual([name.split(".lease-")[0] for name in leases], ["step-00000100"])
            self.assertRegex(leases[0], r"lease-[0-9a-f]{16}$")
        self.assertFalse([name for name in os.listdir(self.folder / "run/checkpoints") if ".lease-" in name])
        shard = self.folder / "run/checkpoints/step-00000100/shard-00000.h5"
        shard.write_bytes(b"short")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            with holdfast.checkpoint.open(self.folder / "run") as found:
                self.assertEqual(found.step, 7)
        self.assertIn("shard-00000.h5 has 5 bytes", str(said[0].message))
        shard.unlink()  # nothing older is taken while it may come back
        self.assertRaises(Unreadable, holdfast.checkpoint.open, self.folder / "run")


if __name__ == "__main__":
    unittest.main()
