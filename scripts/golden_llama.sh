#!/usr/bin/env bash
# Makes tests/model/golden anew with current PyTorch and transformers in a throw-away environment (some 5 GB, removed at
# the end; HOLDFAST_TORCH_ENV=DIR keeps it in DIR and uses it again). The tests read the files and need no Python.
# The same versions on the same kind of processor write the same bytes; `git diff --stat` tells.
#   scripts/golden_llama.sh [OUTPUT_FOLDER=tests/model/golden]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
out=${1:-tests/model/golden}

torch_throw_away=''
trap 'rm -rf ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
"$torch_python" scripts/golden_llama.py "$out"
