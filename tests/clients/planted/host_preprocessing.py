"""Planted: prompts are tokenised in Python while the GPU waits for them.
Healthy: they arrive as token ids."""
import torch

from common import Ballast, options, prefill_request, repeat, tokens

TEXT = "where does the time of a token go and what would have to change for it to go faster " * 40
args = options(__doc__)
ballast = Ballast()
ready = tokens(1, 512).cpu().pin_memory()
ids = torch.empty_like(ready, device="cuda")


def tokenize(text):
    """Joins the most frequent pair of neighbours, a few times over: byte-pair encoding in its plainest form."""
    pieces = list(text)
    for _ in range(8):
        counts = {}
        for pair in zip(pieces, pieces[1:]):
            counts[pair] = counts.get(pair, 0) + 1
        best = max(counts, key=counts.get)
        joined, at = [], 0
        while at < len(pieces):
            if at + 1 < len(pieces) and (pieces[at], pieces[at + 1]) == best:
                joined.append(pieces[at] + pieces[at + 1])
                at += 2
            else:
                joined.append(pieces[at])
                at += 1
        pieces = joined
    return [hash(piece) % 8192 for piece in pieces]


def step():
    if not args.healthy:
        ready[0] = torch.tensor(tokenize(TEXT)[:512])
    ids.copy_(ready, non_blocking=True)
    ballast(12)


repeat(prefill_request(step), args.seconds)
