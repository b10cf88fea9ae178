#!/usr/bin/env python3
"""Makes image.rgb.zlib and prompt.txt, the input of `llmprof workload`. Python's standard library alone; the same files
every time (up to the version of zlib)."""
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


def image():
    """Rows of RGB, packed."""
    return zlib.compress(bytes(value for y in range(HEIGHT) for x in range(WIDTH) for value in pixel(x, y)), 9)


def prompt():
    """Token ids under 2^15, skewed as words are; a model takes them modulo its vocabulary."""
    ids = []
    for i in range(PROMPT):
        z = mix(i + 0x51F15EED)
        ids.append((z >> 49) >> ((z & 7) if z & 8 else 0))
    return "\n".join(" ".join(map(str, ids[i:i + 16])) for i in range(0, PROMPT, 16)) + "\n"


if __name__ == "__main__":
    folder = Path(__file__).resolve().parent
    (folder / "image.rgb.zlib").write_bytes(image())
    (folder / "prompt.txt").write_text(prompt())
