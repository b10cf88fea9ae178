"""Planted: attention written out as product, softmax, product over a long prompt.
Healthy: one fused attention kernel."""
import torch

from common import Decoder, options, prefill_request, repeat, tokens

PROMPT = 8192
args = options(__doc__)


class Unfused(Decoder):
    mask = None

    def attention(self, q, k, v, causal):
        scores = torch.matmul(q * self.head**-0.5, k.transpose(-1, -2))
        scores += self.mask
        return torch.matmul(torch.softmax(scores, -1), v)


model = (Decoder if args.healthy else Unfused)(hidden=4096, ffn=4096, layers=2)
if not args.healthy:
    model.mask = torch.full((PROMPT, PROMPT), float("-inf"), device="cuda", dtype=torch.bfloat16).triu_(1)
ids = tokens(1, PROMPT)
repeat(prefill_request(lambda: model(ids)), args.seconds)
