#!/usr/bin/env bash
# Checkpoints of holdfast-train in PyTorch: real ranks (2 and 4 under mpirun, sharded and replicated) train and save; then
#   - holdfast.torch loads the state on 1, 2, 4, 8 and 16 gloo processes into FSDP2 models with their AdamW, and into
#     DTensors of other placements; every tensor has the digest that the manifest names;
#   - the same state goes to torch.distributed.checkpoint (DCP), is loaded by it the same way with equal digests, and
#     comes back by import-dcp and `holdfast ckpt import` with the same bits;
#   - both load a state of some 0.5 GB on 2 processes, from memory, taking turns: the ratio of their rates.
# Python's packages come into a throw-away environment, or into HOLDFAST_TORCH_ENV. Ends with one line RESULT {json}.
#   scripts/proof/torch_checkpoint.sh BUILD       BUILD: a build tree with holdfast-tool, holdfast-train and make_tokens
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
(($# == 1)) || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

torch_throw_away='' dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-torch-checkpoint.XXXXXX")
trap 'rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
PYTHONPATH=client/python PYTHONDONTWRITEBYTECODE=1 GLOO_SOCKET_IFNAME=lo \
  timeout --foreground 1800 "$torch_python" -W ignore scripts/proof/torch_checkpoint.py "$1" "$dir"
