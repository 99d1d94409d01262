#!/usr/bin/env bash
# Chat templates beside transformers: every template of tests/tools/chat/golden over every conversation there, and a table of
# small templates, byte for byte; and which tokens are the assistant's, where a template marks them.
#
#   scripts/proof/chat_templates.sh BUILD [--update]   BUILD: a build tree with chat_render; --update writes
#                                                      tests/tools/chat/golden/expected.jsonl
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=scripts/torch_env.sh
source scripts/torch_env.sh
(($# >= 1)) || { sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 2; }
build=$1
shift
torch_throw_away=''
trap 'rm -rf ${torch_throw_away:+"$torch_throw_away"}' EXIT
trap 'exit 130' INT TERM HUP
torch_env
"$torch_python" scripts/proof/chat_templates.py "$build/tests/tools/chat/chat_render" tests/tools/chat/golden "$@"
