#!/usr/bin/env bash
# MB/s of JSON Lines to a token file on one core: `data prepare`, all of it, beside Hugging Face `tokenizers`
# (encode_batch_fast of batches that Python's json reads from the same file, nothing written), the same tokenizer for both,
# in turns, the best of three, by processor time. The last line is RESULT {json}.
#   scripts/bench/prepare.sh BUILD [MEGABYTES=24]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/proof/tokenizers_env.sh
source scripts/proof/tokenizers_env.sh
tool=${1:?BUILD}/src/tools/cli/holdfast-tool
[[ -x $tool ]] || die "$tool is missing. Build the target holdfast-tool?"

tokenizers_env
step "text and tokenizer"
"$tokenizers_python" scripts/proof/tokenizers_compared.py prose "$aside/text" "${2:-24}"
"$tokenizers_python" scripts/bench/prepare_tokenizers.py make "$aside/text" "$aside/in.jsonl" "$aside/tokenizer.json"
step "speed on $(stat -c %s "$aside/in.jsonl") bytes"
core=$(taskset -cp $$ | grep -oE '[0-9]+' | tail -n 1)
export RAYON_NUM_THREADS=1 TOKENIZERS_PARALLELISM=false
taskset -c "$core" "$tokenizers_python" scripts/bench/prepare_tokenizers.py speed "$tool" "$aside/in.jsonl" "$aside/tokenizer.json"
