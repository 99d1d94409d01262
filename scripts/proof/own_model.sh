#!/usr/bin/env bash
# A model of one's own, from text to transformers: Holdfast trains a tokenizer and a small model on this project's documents, and
# exports it; then, with nothing but the name of the folder,
#   - AutoTokenizer gives the tokens of `holdfast generate` for text that the tokenizer knows and does not know, and the same
#     text back from them;
#   - AutoModelForCausalLM.generate() continues prompts with the tokens of `holdfast generate`, greedily, and ends texts at the
#     same token, for a model that has learned to end them.
# Python's packages come into a throw-away environment, or into HOLDFAST_TORCH_ENV.
#   scripts/proof/own_model.sh BUILD          BUILD: a build tree with holdfast-tool and holdfast-train
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
(($# == 1)) || { sed -n '2,9s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

torch_throw_away='' dir=$(mktemp -d "${TMPDIR:-/tmp}/own-model.XXXXXX")
trap 'rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
"$torch_python" scripts/proof/own_model.py "$1" "$dir"
