#!/usr/bin/env bash
# In a mount namespace of a node's own, outside of its other namespaces:
# storage.sh HOME COMMAND... With storage=fuse, /shared becomes a file system
# that a server of this node offers; then COMMAND replaces this script.

set -euo pipefail

home=$1
shift
read -r -a shape </run/minipod/shape
declare storage=bind "${shape[@]}"

if [[ $storage == fuse ]]; then
  mount --make-rprivate /
  umount /shared
  # No time-out of names and attributes: every call comes to the server.
  setsid bindfs -f -o attr_timeout=0,entry_timeout=0,negative_timeout=0 \
    /run/minipod/shared /shared </dev/null &
  echo $! >"$home/storage"
  for ((tries = 0; tries < 100; tries++)); do
    [[ $(stat -f -c %T /shared) != fuse* ]] || exec "$@"
    sleep 0.05
  done
  echo "bindfs does not offer /shared" >&2
  exit 1
fi
exec "$@"
