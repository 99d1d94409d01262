#!/usr/bin/env bash
# What the format costs a commit at scale: 1,016 writers of Llama 2 70B, fully sharded, whose shards are holes. One process adds
# all votes, commits, parses the manifest, and lets retention look at the result alone and beside 200 archives. For comparison:
# retention without commit records, and the manifest as format 4 had it. No ranks, no network; commit_votes.sh has both.
#   scripts/bench/commit_scale.sh BUILD_DIR [WRITERS=1016] [ARCHIVES=200] [FOLDER=a temporary one]
# Ends with one line RESULT {json}: bytes and seconds.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
# shellcheck source=scripts/common.sh
source "$source/scripts/common.sh"
(($# >= 1)) || die "which build? scripts/bench/commit_scale.sh build/release"
make=$(realpath "$1/tests/checkpoint/make_votes") measure=$(realpath "$1/tests/checkpoint/commit_scale")
writers=${2:-1016} archives=${3:-200}
dir=$(mktemp -d "${4:-${TMPDIR:-/tmp}}/hf-commit.XXXXXX")
trap 'rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

step "votes of $writers writers"
"$make" "$dir/checkpoints" "$dir/votes" "$source/configs/models/llama2-70b.toml" 1000 1 1 "$writers"
step "commit, readers, retention with $archives archives"
result=$("$measure" "$dir/checkpoints" "$dir/votes" 1000 1 1 "$writers" "$archives")
printf 'RESULT %s\n' "$result"
