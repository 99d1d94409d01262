# Sourced by tests that need an image: a root of its own made of files of this machine, and stand-ins for pyxis and
# Apptainer that really change the root file system.
# shellcheck shell=bash
image_source=$(dirname "${BASH_SOURCE[0]}")

# make_image FOLDER: bash, coreutils and the C library, a file that the node does not have, and nothing of SLURM, MPI or
# Holdfast.
make_image() {
  local root=$1 program library
  mkdir -p "$root"/{bin,etc,lib64,proc,sys,dev,tmp,mnt,run,var/tmp}
  for program in bash cat chmod cp env false id ls mkdir nice readlink rm sh sleep test touch true uname; do
    cp -L "$(type -P "$program")" "$root/bin/"
  done
  ln -s bin "$root/sbin" && mkdir "$root/usr" && ln -s ../bin "$root/usr/bin" && ln -s ../sbin "$root/usr/sbin"
  # Of the C library also what a bundle leaves to the machine.
  while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done < <({
    ldd "$root"/bin/* | grep -oE '/[^ ]+'
    for library in m dl rt pthread resolv util anl; do find /lib/x86_64-linux-gnu -name "lib$library.so.*"; done
  } | grep -E '^/lib' | sort -u)
  cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
  printf '%s\n' root:x:0:0:root:/root:/bin/bash holdfast:x:61000:61000::/:/bin/bash >"$root/etc/passwd"
  printf '%s\n' root:x:0: holdfast:x:61000: >"$root/etc/group"
  printf '%s: files\n' passwd group hosts >"$root/etc/nsswitch.conf"
  echo "the image of the test" >"$root/etc/image-name"
}

# make_spank FILE: the plug-in, for `minipod up --spank`. make_apptainer FILE: the program.
make_spank() { cc -O1 -D_GNU_SOURCE -Wall -Wextra -Werror -shared -fPIC -o "$1" "$image_source/pyxis.c"; }
make_apptainer() { cc -O1 -D_GNU_SOURCE -Wall -Wextra -Werror -o "$1" "$image_source/apptainer.c"; }
