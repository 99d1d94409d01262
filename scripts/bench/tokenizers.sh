#!/usr/bin/env bash
# MB/s of text to tokens on one core, ours beside Hugging Face `tokenizers` (encode_batch_fast) and `sentencepiece`, in
# documents of 10 kB, the same text and tokenizers for both, in turns, the best of three. The last line is RESULT {json}.
#   scripts/bench/tokenizers.sh BUILD [MEGABYTES=8] [MODEL...]     MODEL: more SentencePiece models
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/proof/tokenizers_env.sh
source scripts/proof/tokenizers_env.sh
encode=${1:?BUILD}/tests/tools/text/text_encode
[[ -x $encode ]] || die "$encode is missing. Build the target text_encode?"

tokenizers_env
step "text and tokenizers"
"$tokenizers_python" scripts/proof/tokenizers_compared.py prose "$aside/text" "${2:-8}"
"$tokenizers_python" scripts/proof/tokenizers_compared.py train "$aside/models" "$aside/text"
for model in "${@:3}"; do cp "$model" "$aside/models/"; done
step "speed on $(stat -c %s "$aside/text") bytes"
core=$(taskset -cp $$ | grep -oE '[0-9]+' | tail -n 1)
taskset -c "$core" "$tokenizers_python" scripts/proof/tokenizers_compared.py speed "$encode" "$aside/models" "$aside/text"
