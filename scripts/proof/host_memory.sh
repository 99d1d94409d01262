#!/usr/bin/env bash
# Prints what the plan says of host memory beside what the kernel counts of real ranks, on the CPU and on the simulated GPU,
# in every strategy and with every level of snapshots. A larger scale makes the models wider: the memory grows with its
# square (scale 1: up to 1 GB, 2: 4 GB).
# usage: scripts/proof/host_memory.sh BUILD [SCALE]
set -euo pipefail
build=${1:?usage: scripts/proof/host_memory.sh BUILD [SCALE]}
HOLDFAST_MEMORY_SCALE=${2:-2} "$build/tests/launcher/measured_memory_test" | grep -E '^(CPU|GPU|\[ +(OK|FAILED))'
