"""Planted: decode of one sequence, a CUDA graph per step: all weights are read for one token.
Healthy: 512 sequences a step share each reading."""
from common import Decoder, decode_request, graph_of, options, repeat, tokens

CONTEXT = 32
args = options(__doc__)
batch = 512 if args.healthy else 1
model = Decoder(hidden=8192, ffn=28672, layers=4, batch=batch, room=CONTEXT + 1)
token = tokens(batch, 1)


def step():
    token.copy_(model(token, position=CONTEXT))


repeat(decode_request(graph_of(step).replay), args.seconds)
