"""What some programs of this folder share, beside what they take from ../held_out_programs_11/parts.py: modules made on the GPU,
graphs captured on streams of their own, and the loop over one text with the host's work between its steps."""
import os

import torch

from contract import loaded, now

earlier = loaded("parts_11", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "held_out_programs_11", "parts.py"))
MADE, SIZE, Decoder, begun, captured = earlier.MADE, earlier.SIZE, earlier.Decoder, earlier.begun, earlier.captured
drawn, in_batches, in_bands, prompt, served = earlier.drawn, earlier.in_batches, earlier.in_bands, earlier.prompt, earlier.served
tables, turned, weight, shares_of, attended = earlier.tables, earlier.turned, earlier.weight, earlier.shares_of, earlier.attended

SYLLABLES = ("an", "be", "co", "di", "el", "fo", "ga", "hu", "in", "ju", "ko", "le", "mi", "no", "or", "pa")


def word(token):
    """How a token is written."""
    return (" " if token % 3 else "") + SYLLABLES[token % 16] + SYLLABLES[token // 16 % 16]


def on_gpu(make):
    """A module whose parameters are made on the GPU in bf16."""
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        module = make()
    torch.set_default_dtype(torch.float32)
    return module.eval()


def captured_on(stream, step, runs=3):
    """A graph of `step`, captured on this stream after `runs` eager ones on it, with memory of its own."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(runs):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    torch.cuda.synchronize()
    return graph


def told(record, mark, words, vocabulary, prefill, decode, tokens, steps, warm_up=False, cold=False):
    """One text, which the host writes down word by word between its steps. `words` are those of the ranges around it, around its
    prefill step and around each decode step. With `cold` the text is a process's first, so it, its prefill step and its first
    decode step count as warm-up."""
    count = len(tokens)
    with mark(words[0]):
        start = now()
        with mark(words[1]):
            text = [prefill(tokens)]
        first = end = now()
        record.step("prefill", start, first, count, 1, warm_up or cold)
        written = word(text[0])
        for i in range(steps):
            begin = now()
            with mark(words[2]):
                text.append(decode(count + i))
            end = now()
            record.step("decode", begin, end, 1, 1, warm_up or cold and i == 0)
            written += word(text[-1])
    record.request(start, first, end, count, len(text), warm_up or cold)
    assert all(0 <= token < vocabulary for token in text) and len(written.split()) <= len(text)
