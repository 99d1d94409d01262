"""Leave the device code of one architecture in a CUDA library, so that it is small enough to travel.

  slim_library.py IN OUT ARCH      ARCH as in sm_90: 90

The code of the others is zeroed in place (headers stay, so that the loader finds what is left), as is code for linking, and
debug information is stripped: zeros compress to nothing. libnccl.so.2 of 2.30.7 shrinks from 252 MB to 13.4 MB in xz; it has run
on an H100.
"""
import re
import struct
import subprocess
import sys

CONTAINER = struct.pack("<I", 0xBA55ED50)  # of device code
MACHINE_CODE = 2  # 1 is PTX


def slim(data, keep):
    """Zeroes the code of other architectures than `keep`; the bytes that are left."""
    at = kept = 0
    while (at := data.find(CONTAINER, at)) >= 0:
        header, size = struct.unpack_from("<HQ", data, at + 6)
        end = at + header + size
        if header != 16 or end > len(data):
            at += 4
            continue
        entry = at + header
        while entry < end:
            kind, _, entry_header, code = struct.unpack_from("<HHIQ", data, entry)
            (arch,) = struct.unpack_from("<I", data, entry + 28)
            if kind == MACHINE_CODE and arch == keep:
                kept += code
            else:
                data[entry + entry_header : entry + entry_header + code] = bytes(code)
            entry += entry_header + code
        at = end
    return kept


def main():
    source, target, keep = sys.argv[1], sys.argv[2], int(sys.argv[3])
    subprocess.check_call(["strip", "--strip-unneeded", "-o", target, source])
    sections = subprocess.run(["readelf", "-S", "-W", target], capture_output=True, text=True, check=True).stdout
    with open(target, "rb") as file:
        data = bytearray(file.read())
    for_linking = re.search(r"__nv_relfatbin\s+PROGBITS\s+[0-9a-f]+\s+([0-9a-f]+)\s+([0-9a-f]+)", sections)
    if for_linking:
        at, size = (int(x, 16) for x in for_linking.groups())
        data[at : at + size] = bytes(size)
    kept = slim(data, keep)
    if kept == 0:
        sys.exit(f"slim_library.py: {source} has no code for sm_{keep}")
    with open(target, "wb") as file:
        file.write(data)
    print(f"kept {kept} bytes for sm_{keep}")


if __name__ == "__main__":
    main()
