#!/usr/bin/env bash
# Nanoseconds of a call of the client (client/), in C and in Python, with an agent that listens and without one. "nothing" is
# the loop alone. And seconds of sealing snapshot buffers of 1 GiB, and of copying as much (4 GiB of /dev/shm). Ends with one line RESULT {json}.
#   scripts/bench/client.sh BUILD
set -euo pipefail
exec "$(dirname "${BASH_SOURCE[0]}")/client.py" "$(realpath "$1")/tests/client/client_bench"
