#!/usr/bin/env python3
"""A spool file with a folder renamed: recordings that are kept as inputs name no folder of the machine they come from.

    python3 tests/golden/renamed_paths.py IN.spool OUT.spool OLD=NEW [OLD=NEW ...]

OLD and NEW have the same number of bytes, so that no length in the file changes; checksums of blocks are made anew
(docs/formats/spool.md). Needs libxxhash.
"""
import ctypes
import ctypes.util
import struct
import sys

HEAD, BLOCK, MAGIC, CHECKSUMMED_FROM = 64, 32, 0x424C504C, 16


def main():
    if len(sys.argv) < 4 or not all(pair.count("=") == 1 for pair in sys.argv[3:]):
        sys.exit(__doc__)
    xxh64 = ctypes.CDLL(ctypes.util.find_library("xxhash")).XXH64
    xxh64.argtypes, xxh64.restype = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_uint64], ctypes.c_uint64
    try:
        with open(sys.argv[1], "rb") as file:
            data = file.read()
    except OSError as error:
        sys.exit(f"{sys.argv[1]}: {error.strerror}")
    for pair in sys.argv[3:]:
        old, new = (word.encode() for word in pair.split("="))
        if len(old) != len(new):
            sys.exit(f"{pair}: {len(old)} bytes for {len(new)}")
        data = data.replace(old, new)
    out, at = bytearray(data), HEAD
    while at < len(out):
        magic, payload = struct.unpack_from("<II", out, at) if at + BLOCK <= len(out) else (0, 0)
        if magic != MAGIC or at + BLOCK + payload > len(out):
            sys.exit(f"byte {at} of {sys.argv[1]}: expected a whole block")
        rest = bytes(out[at + CHECKSUMMED_FROM:at + BLOCK + payload])
        struct.pack_into("<Q", out, at + 8, xxh64(rest, len(rest), payload))
        at += BLOCK + payload
    with open(sys.argv[2], "wb") as file:
        file.write(out)


if __name__ == "__main__":
    main()
