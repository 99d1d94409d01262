#!/usr/bin/env bash
# The client as `cmake --install` puts it: Python imports it, and C programs compile against it, with nothing else of Holdfast.
# installed_test.sh BUILD COMPILER
set -euo pipefail
build=$1 compiler=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/moved/prefix
cmake --install "$build/client" --prefix "$work/prefix" >/dev/null
mkdir "$work/moved"
mv "$work/prefix" "$prefix" # its place is not written into any file

cd "$work"
said=$(env -u HOLDFAST_AGENT_SOCKET PYTHONPATH="$prefix/share/holdfast/python" python3 -B -c \
  'import holdfast; print(holdfast.__file__, holdfast.open().newest)')
[[ $said == "$prefix/share/holdfast/python/holdfast/__init__.py -1" ]] || { echo "python3 has imported $said"; exit 1; }
[[ $(ls "$prefix/share/holdfast/python") == holdfast ]] || { echo "other modules would be in every rank's path"; exit 1; }

cat >program.c <<'C'
#include <holdfast.h>
int main(void) { return hf_open(); }
C
packages=$(dirname "$(find "$prefix" -name holdfast.pc)")
read -ra flags <<<"$(PKG_CONFIG_PATH=$packages pkg-config --cflags --libs holdfast)"
"$compiler" program.c "${flags[@]}" -Wl,-rpath,"$(dirname "$packages")" -o shared
env -u HOLDFAST_AGENT_SOCKET ./shared
"$compiler" -I"$prefix/include" program.c "$(dirname "$packages")/libholdfast.a" -pthread -o static
env -u HOLDFAST_AGENT_SOCKET ./static
echo "the installed client is complete"
