#!/usr/bin/env bash
# Makes all that scripts/gpu_lease.sh needs, on a machine without a GPU; CUDA's toolkit, cuDNN and NCCL are needed.
#
#   scripts/gpu_prepare.sh [--no-build] [--no-trial] [--nccl VERSION|WHEEL] [BUILD [FOLDER]]
#
#   BUILD       build folder of the preset gpu (build/gpu); it is configured and built as far as it is not
#   FOLDER      what travels (BUILD/lease)
#   --no-build  packs what is built
#   --no-trial  does not try the rows
#   --nccl      takes an NCCL of its own along, for several ranks on one card of one host (2.30.7 or later): a version of
#               the package nvidia-nccl-cu13, which pip gets, or its wheel
#
# It tries the trainer's rows on CPUs, which takes a minute or two, and prints what travels and the commands.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

build='' folder='' nccl='' compile=yes trial=yes
while (($# > 0)); do
  case $1 in
    --no-build) compile=no ;;
    --no-trial) trial=no ;;
    --nccl) nccl=${2:?a version or a wheel}; shift ;;
    -*) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//p}' "scripts/$(basename "$0")"; exit 2 ;;
    *) if [[ -z $build ]]; then build=$1; else folder=$1; fi ;;
  esac
  shift
done
build=${build:-build/gpu} folder=${folder:-${build:-build/gpu}/lease}
work=$(mktemp -d "${TMPDIR:-/tmp}/gpu-prepare.XXXXXX")
trap 'rm -rf "$work"' EXIT

if [[ $compile == yes ]]; then
  step "build"
  [[ -f $build/CMakeCache.txt ]] || quietly "$work/cmake.log" cmake --preset gpu -B "$build"
  quietly "$work/build.log" cmake --build "$build" --target gpu_bundle
fi
step "bundle"
mkdir -p "$folder"
scripts/bundle.sh "$build" "$folder/gpu.tar.xz" --with-tests
cp scripts/gpu_lease.sh "$folder/"

if [[ -n $nccl ]]; then
  step "NCCL $nccl"
  if [[ ! -f $nccl ]]; then
    python3 -m pip download -q --no-deps --only-binary=:all: --platform manylinux_2_18_x86_64 --platform manylinux2014_x86_64 \
      -d "$work" "nvidia-nccl-cu13==$nccl" || die "pip does not get nvidia-nccl-cu13==$nccl"
    nccl=$(echo "$work"/nvidia_nccl_cu13-*.whl)
  fi
  python3 -c 'import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extract("nvidia/nccl/lib/libnccl.so.2", sys.argv[2])' "$nccl" "$work"
  python3 scripts/slim_library.py "$work/nvidia/nccl/lib/libnccl.so.2" "$work/libnccl.so.2" 90
  python3 -c 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print("         it loads:", v.value)' \
    "$work/libnccl.so.2"
  xz -T0 -c "$work/libnccl.so.2" >"$folder/libnccl.so.2.xz"
fi

step "tokens"
# Paragraphs of the licence and the manual, a document each; and 512 Ki tokens of no language, with the frequencies of one, in
# documents of 800 tokens on average.
python3 - "$work" <<'END'
import array, json, pathlib, random, sys
work, draw = pathlib.Path(sys.argv[1]), random.Random(1)
files = [pathlib.Path("LICENSE"), pathlib.Path("README.md"), *sorted(pathlib.Path("docs").rglob("*.md"))]
texts = [p for f in files for p in f.read_text().split("\n\n") if len(p) > 200]
(work / "text.jsonl").write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
tokens = draw.choices(range(2, 32000), [1 / (i + 10) for i in range(31998)], k=1 << 19)
at = 0
while at < len(tokens):
    tokens[at] = 1
    at += max(8, int(draw.lognormvariate(6.2, 1.0)))
array.array("H", tokens).tofile((work / "zipf.u16").open("wb"))
END
"$build/launcher/holdfast" data prepare --input "$work/text.jsonl" --train-vocabulary 1024 --output "$folder/text.bin" --workers 2 >/dev/null
"$build/launcher/holdfast" data prepare --input "$work/zipf.u16" --format u16 --vocabulary 32000 --document-start 1 --output "$folder/zipf.bin" \
  --workers 2 >/dev/null

lease() { # lease CODE WHAT COMMAND...: it ends so
  local want=$1 code=0
  step "$2"
  shift 2
  OUT=$work/out "$@" >"$work/log" 2>&1 || code=$?
  ((code == want)) || { cat "$work/log" && die "gpu_lease.sh ends with $code here, not $want"; }
  say "$(tail -n 1 "$work/log")"
}
if [[ $trial == yes ]]; then
  lease 0 "the trainer's rows on CPUs, with tiny shapes" env LEASE_DRY=cpu "$folder/gpu_lease.sh" "$folder/gpu.tar.xz" first 300
  [[ -e /dev/nvidiactl ]] || lease 77 "without a GPU" "$folder/gpu_lease.sh" "$folder/gpu.tar.xz" first 60
fi

step "what travels: $folder, $(du -sh "$folder" | cut -f1)"
find "$folder" -type f -printf '%10s %f\n' | sort -k2
cat <<END
first:   bash $folder/gpu_lease.sh $folder/gpu.tar.xz first 330
then     cp RESULTS/result.txt $folder/first.txt
second:  bash $folder/gpu_lease.sh $folder/gpu.tar.xz second 300
END
