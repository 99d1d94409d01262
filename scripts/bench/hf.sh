#!/usr/bin/env bash
# What it costs to bring a Hugging Face model in and out: `ckpt import` and `ckpt export` (as it came, and as fp32) of a
# random Llama-shaped model in bf16, beside raw direct reads and writes of as many bytes at the same time, ROUNDS times;
# ratios are medians. With the largest memory that each took, and what beginning with such files (of 2 layers) takes of
# each of 4 ranks beyond what a run from random weights takes: not more than the largest tensor.
#   scripts/bench/hf.sh BUILD [LAYERS=8] [ROUNDS=3] [FOLDER]     FOLDER: on the disk to measure, default $TMPDIR
# A layer takes 0.1 GB, and the rest 0.26 GB; needs ten times that room, and 14 GB of memory. Ends with one line RESULT {json}.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 1)) || { sed -n '2,7s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
tool=$(realpath "$1/src/tools/cli/holdfast-tool") train=$(realpath "$1/src/train/holdfast-train")
for program in "$tool" "$train"; do [[ -x $program ]] || die "there is no $program. Build it?"; done
dir=$(mktemp -d "${4:-${TMPDIR:-/tmp}}/hf-bench.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP
python3 "$source/scripts/bench/hf_bench.py" "$tool" "$train" "$dir" "${2:-8}" "${3:-3}"
