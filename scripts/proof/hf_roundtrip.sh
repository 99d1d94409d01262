#!/usr/bin/env bash
# Hugging Face models through Holdfast and back, beside transformers: small random models of every family (grouped
# queries, tied and untied heads, every rope; fp32, bf16 and fp16, in several files) are imported and exported, and
#   - every tensor has the bits that it had, and its type;
#   - the exported folder loads in transformers as its class, with the same logits, bit for bit, and the same greedy text;
#   - 5 AdamW steps of holdfast-train that begins with the original folder have the losses of torch.optim.AdamW on the
#     same tokens (fp32 on CPUs; relative 1e-5), from the very first on.
# Python's packages come into a throw-away environment, or into HOLDFAST_TORCH_ENV.
#   scripts/proof/hf_roundtrip.sh BUILD       BUILD: a build tree with holdfast-tool, holdfast-train and make_tokens
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
(($# == 1)) || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

torch_throw_away='' dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-roundtrip.XXXXXX")
trap 'rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
"$torch_python" scripts/proof/hf_roundtrip.py "$1" "$dir"
