"""What some programs of this folder share, beside what they take from ../held_out_programs_10/parts.py: layers with grouped heads
and SwiGLU, their attention, and the loops over texts that are alone in their batch."""
import math
import os

import torch
from torch.nn import functional as F

from contract import loaded, now, split

SIZE = 128  # of a head

earlier = loaded("parts_10", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "held_out_programs_10", "parts.py"))
MADE, Decoder, answered, begun, captured = earlier.MADE, earlier.Decoder, earlier.answered, earlier.begun, earlier.captured
drawn, in_batches, prompt, served = earlier.drawn, earlier.in_batches, earlier.prompt, earlier.served
tables, turned, weight = earlier.tables, earlier.turned, earlier.weight


def layer_of(width, inner, heads, kv_heads):
    return dict(q=weight(heads * SIZE, width), k=weight(kv_heads * SIZE, width), v=weight(kv_heads * SIZE, width),
                out=weight(width, heads * SIZE), gate=weight(inner, width), up=weight(inner, width), down=weight(width, inner))


def heads_of(layer, h, cos, sin):
    """Queries, keys and values, ... x heads x count x size, of ... x count x width; the first two are turned."""
    q, k, v = [F.linear(h, layer[name]).view(*h.shape[:-1], -1, SIZE).transpose(-2, -3) for name in ("q", "k", "v")]
    return turned(q, cos, sin), turned(k, cos, sin), v


def shares_of(q, keys, hidden=None):
    """How much each query attends to each key, in fp32: ... x KV heads x heads of each x count x span."""
    *rows, heads, count, _ = q.shape
    kv_heads, span = keys.shape[-3:-1]
    q = q.reshape(*rows, kv_heads, heads // kv_heads * count, SIZE)
    scores = (q @ keys.transpose(-2, -1)).float() * SIZE ** -0.5
    scores = scores.view(*rows, kv_heads, heads // kv_heads, count, span)
    return (scores if hidden is None else scores.masked_fill(hidden, -math.inf)).softmax(-1)


def attended(shares, values):
    """... x count x heads * size."""
    *rows, kv_heads, group, count, span = shares.shape
    heads = shares.to(torch.bfloat16).view(*rows, kv_heads, group * count, span) @ values
    return heads.view(*rows, kv_heads * group, count, SIZE).transpose(-2, -3).reshape(*rows, count, kv_heads * group * SIZE)


def swiglu(layer, h):
    return F.linear(F.silu(F.linear(h, layer["gate"])) * F.linear(h, layer["up"]), layer["down"])


def alone(record, mark, words, vocabulary, prefill, decode, tokens, steps, warm_up=False, cold=False):
    """One text. `words` are those of the ranges around it, around its prefill step and around each decode step. With `cold`
    the text is a process's first, so it, its prefill step and its first decode step count as warm-up."""
    count = len(tokens)
    with mark(words[0]):
        start = now()
        with mark(words[1]):
            text = [prefill(tokens)]
        first = end = now()
        record.step("prefill", start, first, count, 1, warm_up or cold)
        for i in range(steps):
            begin = now()
            with mark(words[2]):
                text.append(decode(count + i))
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up or cold and i == 0)
    record.request(start, first, end, count, len(text), warm_up or cold)
    assert all(0 <= token < vocabulary for token in text)


def in_bands(write, chance, vocabulary, bands, steps, least, most):
    """Texts that share the decode steps, from `least` to `most`, whose prompts' lengths are drawn from these bands by turns.
    `write` gets a text's number."""
    for number, count in enumerate(split(steps, max(least, min(most, steps // 8)))):
        write(prompt(chance, vocabulary, chance.randrange(*bands[number % len(bands)])), count, number)
