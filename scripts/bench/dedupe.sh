#!/usr/bin/env bash
# What finding duplicates costs, per second of one core: MB of text into MinHash fingerprints (14 bands of 8), shingles by the
# width of vectors, documents through the removal of duplicates and the packing into rows of 4096 tokens; and the memory that
# the removal takes beside the fingerprints.
#   scripts/bench/dedupe.sh BUILD_DIR [FILE] [DOCUMENTS=1000000]     FILE: text to hash; else generated words
# Ends with one line RESULT {json}.
set -euo pipefail
(($# >= 1)) || { echo "which build? scripts/bench/dedupe.sh build/release" >&2; exit 2; }
echo "RESULT $("$1/tests/tools/corpus/dedupe_bench" "${2:-}" "${3:-1000000}")"
