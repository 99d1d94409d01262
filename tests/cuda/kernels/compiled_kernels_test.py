#!/usr/bin/env python3
"""What nvcc makes of our kernels for Hopper. No GPU is needed: the compiler's PTX and the report of ptxas say it.

    compiled_kernels_test.py NVCC BUILD [--list]     with the flags in BUILD/compile_commands.json; --list: what is measured

nvcc accepts an access to a variable of the host and compiles it to a trap without a warning. The kernel then fails on a GPU only.
"""
import concurrent.futures
import fnmatch
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../.."))
KERNELS = "src/cuda/kernels"
HOPPER = "--generate-code=arch=compute_90a,code=sm_90a"

# For each size of blocks, in threads, the most registers that a thread may have: what the kernels need with CUDA 13.0. An SM has
# 65536 registers, so it runs 7 blocks of 128 threads at once, or 5 of 256, and enough loads are in flight. Threads of a block of
# 1024 cannot have more than 64 each.
REGISTERS = {128: 72, 256: 48, 1024: 64}

# The kernels that are bound by memory, with the least numbers of loads and of stores of 16 bytes: what CUDA 13.0 makes of them.
# It takes some stores of whole packs apart, into four of 4 bytes, which do not count: of dropout, embed, swiglu, swiglu_backward.
WIDE = {
    "adamw_kernel<float>": (4, 3),
    "adamw_kernel<Bf16>": (2, 1),  # moments by 8 bytes
    "add_kernel<*, true>": (2, 1),
    "amax_kernel<*, true>": (7, 0),
    "column_sums_kernel<*, true>": (5, 0),
    "convert_kernel<Bf16, float>": (2, 1),
    "convert_kernel<float, Bf16>": (1, 2),
    "cross_entropy_kernel<Bf16, true>": (16, 0),  # gradients by 8 bytes
    "cross_entropy_kernel<float, true>": (16, 9),
    "cross_entropy_kernel<void, true>": (8, 0),
    "decode_kernel<Bf16, true>": (0, 1),
    "decode_kernel<float, true>": (0, 2),
    "dropout_kernel<float, Bf16, *, true, true>": (1, 1),
    "dropout_kernel<*, float, *, false, true>": (1, 0),
    "dropout_kernel<float, float, *, true, true>": (2, 1),
    "embed_backward_kernel<Bf16, true>": (1, 1),
    "embed_backward_kernel<float, true>": (9, 1),
    "embed_kernel<*, true>": (2, 1),
    "norm_backward_kernel<Bf16, true, false>": (8, 6),
    "norm_backward_kernel<Bf16, true, true>": (10, 6),
    "norm_backward_kernel<float, true, false>": (8, 4),
    "norm_backward_kernel<float, true, true>": (10, 4),
    "norm_kernel<*, true>": (6, 4),
    "ordered_sum_kernel<Bf16, *>": (14, 2),
    "ordered_sum_kernel<float, *>": (9, 1),
    "quantize_kernel<Bf16, *>": (2, 1),
    "quantize_kernel<float, *>": (4, 1),
    "rope_kernel<Bf16, Bf16, 8>": (8, 4),
    "rope_kernel<Bf16, float, 8>": (12, 4),
    "rope_kernel<float, Bf16, 4>": (4, 4),
    "rope_kernel<float, float, 4>": (8, 4),
    "squares_kernel": (4, 0),
    "swiglu_backward_kernel<*, true>": (6, 2),
    "swiglu_kernel<Bf16, *, true>": (4, 1),
    "swiglu_kernel<float, *, true>": (4, 2),
}
# What moves little, or shorter packs, or single elements, as the instances for rows that are not whole packs do.
NARROW = ("*, false>", "head_norm_kernel<*>", "head_norm_backward_kernel<*>", "norm_backward_kernel<*, false, true>", "rope_kernel<*, 1>", "add_losses_kernel", "add_parts_kernel",
          "convert_start_kernel<*>", "digest_kernel<*>", "dropout_kernel<*, Bf16, *, false, true>", "order_kernel", "scales_kernel")

# Where another release makes less of a kernel, with words of the problems: CUDA 12.4 keeps the elements of SwiGLU's output in local
# memory, 64 bytes of a thread, and stores them singly. The kernel was measured with CUDA 13.0, and stays as it is.
WORSE = {"12.4": {"swiglu_kernel<Bf16, void, true>": ("64 bytes in local memory", "0 stores of 16 bytes"),
                  "swiglu_kernel<Bf16, void, false>": ("64 bytes in local memory",)}}

INSTRUCTION = r"^\s*(?:@!?%p\d+\s+)?"
TRAP = re.compile(INSTRUCTION + r"(?:trap|brkpt)\b", re.M)
CALL = re.compile(INSTRUCTION + r"call(?:\.uni)?\s+(?:\([^)]*\)\s*,\s*)?([\w%]+)", re.M)
FOREIGN = re.compile(r"^\.extern\s+\.func\s+(?:\([^)]*\)\s*)?(\w+)", re.M)
WIDE_ACCESS = r"\b{}\.global[\w.:]*\.(?:v4\.[buf]32|v2\.[buf]64)\b"
REPORT = re.compile(r"Compiling entry function '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
                    r"(\d+) bytes spill loads.*?Used (\d+) registers", re.S)


class Kernel:
    """One instance: `ptx` from its name on, and what ptxas said of it."""

    def __init__(self, name, ptx, report):
        self.name, self.ptx = name, ptx
        self.stack, self.spilled, self.refilled, self.registers = report
        bound = re.search(r"^\.maxntid (\d+), 1, 1$", ptx, re.M)
        self.threads = int(bound[1]) if bound else None
        self.wide = tuple(len(re.findall(WIDE_ACCESS.format(what), ptx)) for what in ("ld", "st"))

    def problems(self, wide):
        if TRAP.search(self.ptx):
            yield ("has a trap: it does what a GPU cannot, such as reading a variable of the host; give it a copy inside of the "
                   "function, or the value as an argument?")
        for function in sorted(set(CALL.findall(self.ptx))):
            yield f"calls {function}: have it inlined (HOLDFAST_DEVICE), or do without printf, assert and recursion?"
        if self.stack:
            yield (f"keeps {self.stack} bytes in local memory, on its stack: let the compiler know the indices of its arrays "
                   "(unroll the loops)?")
        if self.spilled or self.refilled:
            yield (f"spills registers ({self.spilled} bytes stored, {self.refilled} loaded): keep fewer values at once, or launch "
                   "smaller blocks?")
        if self.threads not in REGISTERS:
            said = f"has __launch_bounds__({self.threads})" if self.threads else "has no __launch_bounds__"
            yield f"{said}: state one of {', '.join(map(str, REGISTERS))}, or add a limit to REGISTERS?"
        elif self.registers > REGISTERS[self.threads]:
            yield (f"needs {self.registers} registers, more than the {REGISTERS[self.threads]} for blocks of {self.threads} "
                   "threads: keep fewer values at once, or raise the limit in REGISTERS after a measurement?")
        patterns = matching(self.name, wide)
        for pattern in patterns:
            for count, least, what in zip(self.wide, wide[pattern], ("loads", "stores")):
                if count < least:
                    yield (f"has {count} {what} of 16 bytes, and needs {least}: use Pack::load and Pack::store where all is "
                           "aligned, or correct WIDE after a measurement?")
        if not patterns and not matching(self.name, NARROW):
            yield "is neither in WIDE nor in NARROW: add it?"


def matching(name, patterns):
    return [pattern for pattern in patterns if fnmatch.fnmatchcase(name, pattern)]


def release_of(nvcc):
    """13.0, for example."""
    said = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    return re.search(r"release (\d+\.\d+)", said)[1]


def unexpected(kernel, worse):
    """The problems of a kernel but those that this release is known for, and what it is known for and does not have."""
    words = worse.get(kernel.name, ())
    problems = list(kernel.problems(WIDE))
    yield from (problem for problem in problems if not any(word in problem for word in words))
    yield from (f"has no problem with {word!r} any more: take that out of WORSE?" for word in words
                if not any(word in problem for problem in problems))


def short(names):
    """As the source has them: without namespaces and parameters."""
    said = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout
    said = re.sub(r"\bholdfast::|\bcuda::|\(anonymous namespace\)::|^void ", "", said, flags=re.M)
    return [re.sub(r"\(.*", "", name) for name in said.splitlines()]


def compiled(nvcc, flags, source, folder):
    """The kernels of a source, and the functions outside of it that it calls."""
    os.makedirs(folder, exist_ok=True)
    stem = os.path.join(folder, os.path.splitext(os.path.basename(source))[0])
    outputs = ["-Xptxas=-v", "--keep", "--keep-dir", folder, "-cubin", "-o", stem + ".cubin"]
    done = subprocess.run([nvcc, *flags, HOPPER, *outputs, source], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{source} cannot be compiled:\n{done.stdout}{done.stderr}")
    with open(stem + ".ptx") as file:
        ptx = file.read()
    reports = {name: tuple(map(int, numbers)) for name, *numbers in REPORT.findall(done.stdout + done.stderr)}
    parts = {re.match(r"\w+", part)[0]: part for part in ptx.split(".entry ")[1:]}
    if set(parts) != set(reports):
        sys.exit(f"{source}: ptxas reports other kernels than its PTX has: {', '.join(sorted(set(parts) ^ set(reports)))}")
    kernels = [Kernel(name, part, reports[mangled]) for name, (mangled, part) in zip(short(parts), parts.items())]
    return kernels, FOREIGN.findall(ptx)


def sources_of(nvcc, build):
    """Each source of the kernels with the flags that the build compiles it with, less those of outputs and of GPUs."""
    with open(os.path.join(build, "compile_commands.json")) as file:
        entries = json.load(file)
    for entry in entries:
        words = shlex.split(entry["command"])
        source = os.path.realpath(os.path.join(entry["directory"], entry["file"]))
        if nvcc not in words or os.path.dirname(source) != os.path.join(ROOT, KERNELS):
            continue
        words = words[words.index(nvcc) + 1:]  # without a launcher
        del words[words.index("-o"):words.index("-o") + 2]
        del words[words.index("-c"):words.index("-c") + 2]
        yield source, [word for word in words if not re.match(r"--generate-code=|-arch=", word)]


# The checks themselves are checked. Each of these kernels but the first has a fault, which a message has to name by these words.
PLANTED = {
    "sound": ("__launch_bounds__(256) sound(float4* to, const float4* from) { to[threadIdx.x] = from[threadIdx.x]; }", None),
    "looks": ("__launch_bounds__(256) looks(float* to) { to[threadIdx.x] = look(threadIdx.x % 4); }", "trap"),
    "prints": ("__launch_bounds__(256) prints(float*) { printf(\"here\"); }", "calls vprintf"),
    "indexes": ("__launch_bounds__(256) indexes(float* to, int at) { float x[64]; for (int i = 0; i < 64; ++i) x[i] = to[i]; "
                "for (int i = 0; i < at; ++i) x[x[i] > 0 ? i : at] += 1; to[0] = x[at]; }", "on its stack"),
    "spills": ("__launch_bounds__(1024) spills(float* to, float* from) { turn<96>(to, from); }", "spills"),
    "holds": ("__launch_bounds__(256) holds(float* to, float* from) { turn<64>(to, from); }", "registers, more than"),
    "unbound": ("unbound(float* to) { *to = 1; }", "__launch_bounds__"),
    "single": ("__launch_bounds__(256) single(float* to, const float* from) { to[threadIdx.x] = from[threadIdx.x]; }",
               "of 16 bytes"),
    "unknown": ("__launch_bounds__(256) unknown(float* to) { *to = 1; }", "neither in WIDE"),
}
PLANTED_HEAD = """
#include <array>
#include <cstdio>
constexpr std::array<float, 4> table = {1, 2, 3, 4};
constexpr float look(int at) { return table[at]; }
template <int n> __device__ void turn(float* to, const float* from) {
  float x[n];
#pragma unroll
  for (int i = 0; i < n; ++i) x[i] = from[i * 1024 + threadIdx.x];
#pragma unroll
  for (int i = 0; i < n; ++i) to[i * 1024 + threadIdx.x] = x[n - 1 - i];
}
"""


def missed(nvcc, flags, folder):
    """The planted faults that are not found, and what is found where there is no fault."""
    source = os.path.join(folder, "planted.cu")
    with open(source, "w") as file:
        file.write(PLANTED_HEAD + "".join(f"__global__ void {code}\n" for code, _ in PLANTED.values()))
    kernels, foreign = compiled(nvcc, flags, source, os.path.join(folder, "planted"))
    wide = {name: (1, 1) if name in ("sound", "single") else (0, 0) for name in PLANTED if name != "unknown"}
    found = {kernel.name: list(kernel.problems(wide)) for kernel in kernels}
    for name, (_, word) in PLANTED.items():
        if not found[name] if word is None else any(word in problem for problem in found[name]):
            continue
        yield f"a planted kernel, {name}, should have a problem with {word!r}, and has: {'; '.join(found[name]) or 'none'}"
    if "vprintf" not in foreign:
        yield "vprintf of a planted kernel is not seen"


def main():
    nvcc, build = sys.argv[1:3]
    sources = dict(sources_of(nvcc, build))
    there = {os.path.join(ROOT, KERNELS, name) for name in os.listdir(os.path.join(ROOT, KERNELS)) if name.endswith(".cu")}
    found = [f"{os.path.relpath(source, ROOT)} is not checked, since the build does not compile it: add it to kernel_sources?"
             for source in sorted(there - set(sources))]
    measured, worse = [], WORSE.get(release_of(nvcc), {})
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(2) as pool:
        flags = next(iter(sources.values()), [])
        planted = pool.submit(lambda: list(missed(nvcc, flags, folder)))
        work = [(source, pool.submit(compiled, nvcc, own_flags, source, os.path.join(folder, os.path.basename(source))))
                for source, own_flags in sources.items()]
        found += planted.result()
        for source, job in work:
            kernels, foreign = job.result()
            source = os.path.relpath(source, ROOT)
            found += [f"{source}: {kernel.name} {problem}" for kernel in kernels for problem in unexpected(kernel, worse)]
            found += [f"{source} calls {name}, which it does not have: do without it?" for name in foreign]
            measured += kernels
    found += [f"no kernel has the name {pattern}, which WIDE or NARROW has: correct it?" for pattern in (*WIDE, *NARROW)
              if not any(matching(kernel.name, [pattern]) for kernel in measured)]
    if "--list" in sys.argv:
        for kernel in measured:
            print(f"{kernel.name}: {kernel.threads} threads, {kernel.registers} registers, "
                  f"{kernel.wide[0]} loads and {kernel.wide[1]} stores of 16 bytes")
    print("\n".join(found) or f"{len(measured)} kernels are as they should be")
    return 1 if found or not measured else 0


if __name__ == "__main__":
    sys.exit(main())
