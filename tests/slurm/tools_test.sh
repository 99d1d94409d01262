#!/usr/bin/env bash
# shellcheck disable=SC2317 # check calls passed
# Run every command line of Holdfast with the installed SLURM: tools_test.sh REAL_TOOLS (real_tools.cpp).
# Speaks TAP; exits 77 when there is no SLURM here to test with.

set -uo pipefail

program=$(realpath "$1")
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
pod=$source/scripts/minipod
# shellcheck source=tests/support/tap.sh
source "$source/tests/support/tap.sh"
need_cluster "$program"

dir=$(mktemp -d /var/tmp/tools-test.XXXXXX)
export HOLDFAST_MINIPOD_DIR=$dir
trap '"$pod" down --purge 2>/dev/null; rm -rf "$dir"' EXIT
trap 'exit 130' INT TERM HUP

mini() { timeout 120 "$pod" "$@"; }

mini up --nodes 4 --node-conf CPUs=32,ThreadsPerCore=2,CoreSpecCount=2,MemSpecLimit=4096 ||
  { echo "Bail out! no minipod"; exit 1; }
mini exec --root scontrol create PartitionName=hidden Nodes='dgx[001-004]' Hidden=YES
mini exec --root scontrol create PartitionName=two Nodes='dgx[003-004]'
mkdir -p "$dir/shared/opt/holdfast/bin"
install -s -m 0755 "$program" "$dir/shared/opt/holdfast/bin/real_tools"

passed() { # TEST, or what was said in it
  grep -qF "[       OK ] $1 (" <<<"$reply" || { sed -n "/RUN .*$1\$/,/FAILED/p" <<<"$reply" | grep . || echo "$reply"; false; }
}
# each_of SUITE [--root]: every test of it, a line of TAP each.
each_of() {
  local suite=$1 name
  shift
  reply=$(mini exec "$@" real_tools --gtest_filter="$suite.*" 2>&1)
  for name in $("$program" --gtest_list_tests --gtest_filter="$suite.*" | sed -n 's/^  //p'); do
    check "$suite.$name" passed "$suite.$name"
  done
}
each_of Owner
each_of Administrator --root

conclude
