#!/usr/bin/env bash
# Are our tokens those of Hugging Face `tokenizers` and of `sentencepiece`? Makes a mixed text (sources, locales, every
# code point, runs of white space, marks, scripts of all directions, special tokens), trains tokenizers in the manner of
# Llama 3, Qwen 2.5, GPT-2, DeepSeek, o200k and StarCoder and SentencePiece models on it, and compares the ids of the whole
# text; decoding must give the text back. With MODELs, folders with files beside the first of them are put beside
# transformers 4 as well (Llama 2's tokenizer.model is meant). Python's packages come into a throw-away environment, or into HOLDFAST_TORCH_ENV.
#   scripts/proof/tokenizers.sh BUILD [MEGABYTES=16] [MODEL...]     MODEL: more SentencePiece models
# A change of tests/tools/text/golden: PYTHON scripts/proof/tokenizers_compared.py golden tests/tools/text/golden
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/proof/tokenizers_env.sh
source scripts/proof/tokenizers_env.sh
encode=${1:?BUILD}/tests/tools/text/text_encode
[[ -x $encode ]] || die "$encode is missing. Build the target text_encode?"

tokenizers_env
step "text and tokenizers"
"$tokenizers_python" scripts/proof/tokenizers_compared.py text "$aside/text" "${2:-16}"
"$tokenizers_python" scripts/proof/tokenizers_compared.py train "$aside/models" "$aside/text"
for model in "${@:3}"; do cp "$model" "$aside/models/"; done
step "comparison on $(stat -c %s "$aside/text") bytes"
"$tokenizers_python" scripts/proof/tokenizers_compared.py compare "$encode" "$aside/models" "$aside/text"
if (($# > 2)); then
  step "folders, beside transformers"
  quietly "$aside/pip.log" "$tokenizers_python" -m venv "$aside/transformers"
  quietly "$aside/pip.log" "$aside/transformers/bin/pip" install --no-cache-dir 'transformers<5' sentencepiece protobuf
  "$aside/transformers/bin/python" scripts/proof/tokenizer_folders.py "$encode" "$aside/folders" "$3"
fi
