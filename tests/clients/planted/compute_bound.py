"""Planted: prompts of 2048 tokens through four layers of an 8B model: arithmetic is what is left.
Healthy: prompts of 16 tokens."""
from common import Decoder, options, prefill_request, repeat, tokens

args = options(__doc__)
model = Decoder(hidden=4096, ffn=14336, layers=4)
ids = tokens(1, 16 if args.healthy else 2048)
repeat(prefill_request(lambda: model(ids)), args.seconds)
