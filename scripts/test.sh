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
  HOLDFAST_MINIPOD_DIR=$scratch/pod scripts/minipod down --purge >/dev/null 2>&1 || true
  as_root rm -rf "$scratch"
  # What the cluster tests wrote as root is ours again.
  ((EUID == 0)) || as_root chown -R "$(id -u):$(id -g)" build/ci/Testing 2>/dev/null || true
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
tests=(ctest --test-dir build/ci --output-on-failure --no-tests=error)
status=0

step "tests of one process and of several ranks"
"${settings[@]}" "${tests[@]}" -LE '^(slurm|fault|bench)$' -j $(($(nproc) + 1)) || status=1 # some of them wait

# Each has a cluster of its own and mostly waits. With the small model several of them leave time to each other on two cores.
step "tests on real SLURM clusters in namespaces, four at a time"
as_root "${settings[@]}" HOLDFAST_TEST_FAST=1 "${tests[@]}" -L '^(slurm|fault)$' -LE '^bench$' -j 4 || status=1

if ((status == 0)); then
  step "all tests passed"
else
  step "some tests FAILED (see above, or build/ci/Testing/Temporary/LastTest.log)"
fi
exit "$status"
