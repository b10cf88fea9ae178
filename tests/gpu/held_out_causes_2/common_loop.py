"""What the programs of this folder share around the model: arguments, loops over steps and the check at the end."""
import argparse
import gc
import os
import sys
import zlib

import torch

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from contract import Record, now  # noqa: E402


def begin(description):
    """The arguments and an empty record; PyTorch is seeded and set up for inference."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=20, help="steps to run after one warm-up step, 5 to 300")
    parser.add_argument("--fixed", action="store_true", help="run the repaired twin")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not 5 <= options.steps <= 300:
        parser.error("--steps: 5 to 300")
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    torch.backends.cuda.enable_cudnn_sdp(False)  # it would build a plan for each new length
    gc.freeze()  # each capture of a graph collects garbage, which would look through all of PyTorch every time
    return options, Record()


def need_gpus(count):
    """Ends the program where there are too few GPUs."""
    found = torch.cuda.device_count()
    if found < count:
        sys.exit(f"{os.path.basename(sys.argv[0])} needs {count} GPUs, but PyTorch sees {found}.")


def prompts(seed, batch, count, vocabulary):
    """Random prompts, the same for the same seed whatever else has drawn random numbers."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (batch, count), generator=generator).cuda()


def serve(record, prompt, steps, start, following, warm_up=False):
    """One batch of requests: `start` yields the first tokens as a list, `following` those of decode step i."""
    torch.cuda.synchronize()
    begun = now()
    texts = [[token] for token in start(prompt)]
    first = end = now()
    record.step("prefill", begun, first, prompt.numel(), len(texts), warm_up)
    for i in range(steps):
        before = now()
        for text, token in zip(texts, following(i)):
            text.append(token)
        end = now()
        record.step("decode", before, end, len(texts), len(texts), warm_up)
    for text in texts:
        record.request(begun, first, end, prompt.shape[1], len(text), warm_up)
    return texts


def serve_prefills(record, steps, read, batch, count):
    """A warm-up step and `steps` more: `read` takes the number of the step and yields a token for each of its `batch`
    texts of `count` tokens."""
    torch.cuda.synchronize()
    texts = []
    for i in range(steps + 1):
        before = now()
        tokens = read(i)
        end = now()
        record.step("prefill", before, end, batch * count, batch, warm_up=i == 0)
        for _ in tokens:
            record.request(before, end, end, count, 1, warm_up=i == 0)
        texts.append(tokens)
    return texts


def finish(record, texts, vocabulary):
    """Checks the tokens, prints a sum over them and then the record."""
    assert all(0 <= token < vocabulary for text in texts for token in text)
    print(f"tokens {zlib.crc32(repr(texts).encode()):08x}, the first ones {texts[0][:8]}")
    record.finish()
