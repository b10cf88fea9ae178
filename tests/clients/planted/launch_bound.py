"""Planted: eager decode of small layers; the host needs longer to launch a kernel than the GPU to run it.
Healthy: the same step replayed as one CUDA graph."""
from common import Decoder, decode_request, graph_of, options, repeat, tokens

CONTEXT = 128
args = options(__doc__)
model = Decoder(hidden=1024, ffn=4096, layers=24, room=CONTEXT + 1)
token = tokens(1, 1)


def step():
    token.copy_(model(token, position=CONTEXT))


if args.healthy:
    step = graph_of(step).replay
# Nothing waits inside a request: only the rate of launches is left to limit it.
repeat(decode_request(step, steps=32, wait_each_step=False), args.seconds)
