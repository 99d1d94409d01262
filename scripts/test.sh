#!/usr/bin/env bash
# The second command of the README: install the packages, build with warnings as errors, run all tests. As root, or as a user with sudo
# (the tests that bring up a cluster need root). Leaves build/ci and nothing else behind.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/common.sh
source scripts/common.sh

scratch=$(mktemp -d /tmp/hf-XXXXXX) # short: Unix sockets live in it
# shellcheck disable=SC2317 # the trap calls it
clean_up() {
  [[ -z ${computing-} ]] || kill "$computing" 2>/dev/null || true
  HOLDFAST_MINIPOD_DIR=$scratch/pod scripts/minipod down --purge >/dev/null 2>&1 || true
  as_root rm -rf "$scratch"
  # What the cluster tests wrote as root is ours again.
  ((EUID == 0)) || as_root chown -R "$(id -u):$(id -g)" build/ci/tests/Testing 2>/dev/null || true
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

step "packages"
scripts/setup.sh

step "build (preset ci: release, warnings are errors)"
cmake --preset ci
cmake --build --preset ci

chmod 0755 "$scratch" # the cluster's own user comes by
settings=(env "TMPDIR=$scratch" "HOLDFAST_MINIPOD_DIR=$scratch/pod")
say_why=(--output-on-failure --no-tests=error)
status=0

# The tests of one process and of several ranks compute. Those on clusters mostly wait, each for a cluster of its own with the
# small model. So both run at the same time, and what computes gives way. A part of the tree has a record of its own.
step "tests of one process and of several ranks; beside them those on real SLURM clusters in namespaces, five at a time"
ctest --test-dir build/ci -N >/dev/null # makes the list of all tests, which both would write
nice -n 10 "${settings[@]}" ctest --test-dir build/ci "${say_why[@]}" -LE '^(slurm|fault|bench)$' -j $(($(nproc) + 1)) >"$scratch/computing.log" 2>&1 &
computing=$!
as_root "${settings[@]}" HOLDFAST_TEST_FAST=1 ctest --test-dir build/ci/tests "${say_why[@]}" -L '^(slurm|fault)$' -LE '^bench$' -j 5 || status=1

step "tests of one process and of several ranks"
wait "$computing" || status=1
computing=""
cat "$scratch/computing.log"

if ((status == 0)); then
  step "all tests passed"
else
  step "some tests FAILED (see above, or build/ci/Testing/Temporary/LastTest.log and build/ci/tests/Testing/Temporary/LastTest.log)"
fi
exit "$status"
