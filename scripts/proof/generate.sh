#!/usr/bin/env bash
# What models write through Holdfast, beside transformers: small random models of the families (grouped queries,
# ropes) with byte-level BPE tokenizers of their own, and
#   - prompts have the tokens that transformers' tokenizer gives;
#   - `holdfast generate`, all prompts in one batch, greedily, in fp32, writes the tokens of transformers'
#     generate(do_sample=False), token by token, and ends where it ends; with --chat too, by the model's template;
#   - the loss of `holdfast eval` is that of torch's cross entropy on the same samples (fp32, relative 1e-6).
# Python's packages come into a throw-away environment, or into HOLDFAST_TORCH_ENV.
#   scripts/proof/generate.sh BUILD [speed]   BUILD: a build tree with holdfast-tool and make_tokens. speed: also a model
#                                             of 100M parameters, tokens per second of both
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
(($# == 1)) || { (($# == 2)) && [[ $2 == speed ]]; } || { sed -n '2,11s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }

torch_throw_away='' dir=$(mktemp -d "${TMPDIR:-/tmp}/generate-proof.XXXXXX")
trap 'rm -rf "$dir" ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
"$torch_python" scripts/proof/generate.py "$1" "$dir" "${2-}"
