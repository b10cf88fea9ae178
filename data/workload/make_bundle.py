#!/usr/bin/env python3
"""Makes image.png and prompt.txt, the input of `llmprof workload`. Python's standard library alone; the same files
every time (up to the version of zlib)."""
import struct
import zlib
from pathlib import Path

WIDTH, HEIGHT, PROMPT = 640, 480, 512


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return z ^ (z >> 31)


def noise(index):
    return mix((index + 1) * 0x9E3779B97F4A7C15 & 0xFFFFFFFFFFFFFFFF) >> 56


def pixel(x, y):
    """Sky and ground as gradients, a disc, a striped board with hard edges, a patch of noise."""
    if y < 300:
        colour = [90 + x // 8, 140 + y // 5, 235 - y // 4]
    else:
        colour = [60 + (y - 300) // 2, 130 - (y - 300) // 3, 50 + x // 16]
    if (x - 470) ** 2 + (y - 110) ** 2 < 70 ** 2:
        colour = [250, 225 - (y - 40) // 2, 90]
    if 60 <= x < 300 and 180 <= y < 400:
        colour = [235, 235, 230] if ((x - 60) // 15 + (y - 180) // 20) % 2 else [35, 35, 60 + x // 3]
    if 400 <= x < 560 and 320 <= y < 420:
        grain = noise(y * WIDTH + x) % 97
        colour = [80 + grain, 70 + grain, 60 + grain // 2]
    return colour


def paeth(a, b, c):
    p = a + b - c
    pa, pb, pc = abs(p - a), abs(p - b), abs(p - c)
    return a if pa <= pb and pa <= pc else b if pb <= pc else c


def filtered(kind, row, above):
    out = bytearray([kind])
    for i, value in enumerate(row):
        left = row[i - 3] if i >= 3 else 0
        up = above[i]
        corner = above[i - 3] if i >= 3 else 0
        guess = (0, left, up, (left + up) // 2, paeth(left, up, corner))[kind]
        out.append((value - guess) & 255)
    return bytes(out)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def image():
    above, lines = bytes(3 * WIDTH), []
    for y in range(HEIGHT):
        row = bytes(value for x in range(WIDTH) for value in pixel(x, y))
        lines.append(filtered(y % 5, row, above))  # every filter of the format
        above = row
    packed = zlib.compress(b"".join(lines), 9)
    half = len(packed) // 2  # the data may lie in several chunks
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", packed[:half]) + chunk(b"IDAT", packed[half:]) + chunk(b"IEND", b""))


def prompt():
    """Token ids under 2^15, skewed as words are; a model takes them modulo its vocabulary."""
    ids = []
    for i in range(PROMPT):
        z = mix(i + 0x51F15EED)
        ids.append((z >> 49) >> ((z & 7) if z & 8 else 0))
    return "\n".join(" ".join(map(str, ids[i:i + 16])) for i in range(0, PROMPT, 16)) + "\n"


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    (folder / "image.png").write_bytes(image())
    (folder / "prompt.txt").write_text(prompt())
