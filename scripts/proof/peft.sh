#!/usr/bin/env bash
# Low-rank adapters beside peft, in fp32 on CPUs: small random Llama and Qwen 2 models (grouped queries, biases), several
# target modules, ranks and alphas. holdfast-train begins with adapters that peft wrote, and
#   - `ckpt export` of adapters that no step has changed writes peft's tensors bit for bit;
#   - 5 AdamW steps have the losses of peft with torch.optim.AdamW on the same tokens (relative 1e-5);
#   - the exported adapters load in peft and give the logits of those that torch trained;
#   - `ckpt export --merge` gives the weights and the logits of peft's merge_and_unload(), from a run as from a folder of
#     peft, in the type of the base (fp32, bf16); the largest differences are printed;
#   - adapters for another base, with other settings, or of a kind that is not computed here are refused with exit code 2.
# Python's packages come into a throw-away environment, or into HOLDFAST_TORCH_ENV.
#   scripts/proof/peft.sh BUILD       BUILD: a build tree with holdfast-tool, holdfast-train and make_tokens
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
(($# == 1)) || { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

torch_throw_away='' dir=$(mktemp -d "${TMPDIR:-/tmp}/peft.XXXXXX")
trap 'rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
"$torch_python" -c 'import peft' 2>/dev/null ||
  quietly "$dir/pip.log" "$torch_python" -m pip install --no-cache-dir peft
"$torch_python" -W ignore::FutureWarning scripts/proof/peft_compared.py "$1" "$dir"
