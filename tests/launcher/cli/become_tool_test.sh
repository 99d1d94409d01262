#!/usr/bin/env bash
# Verbs of holdfast-tool get every word as it was typed, and threads that do not spin, unless the user wants them to.
#   become_tool_test.sh HOLDFAST
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$1" "$dir/holdfast"
# shellcheck disable=SC2016 # for the script's shell
printf '%s\n' '#!/bin/sh' 'printf "%s|" "$OMP_WAIT_POLICY" "$@"' >"$dir/holdfast-tool"
chmod +x "$dir/holdfast-tool"
said=$(env -u OMP_WAIT_POLICY "$dir/holdfast" generate 'a  b' --help)
[[ $said == 'passive|generate|a  b|--help|' ]] || { echo "said: $said"; exit 1; }
said=$(OMP_WAIT_POLICY=active "$dir/holdfast" eval)
[[ $said == 'active|eval|' ]] || { echo "said: $said"; exit 1; }
