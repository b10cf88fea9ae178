"""Planted: norms, activation and residuals written out element by element, replayed as a CUDA graph.
Healthy: one kernel for each norm and each activation, the residual added by the matrix product."""
import torch
import torch.nn.functional as F

from common import decode_request, graph_of, options, random, repeat

HIDDEN, INNER, LAYERS, BATCH = 2048, 8192, 24, 8
args = options(__doc__)
layers = [(random(HIDDEN, INNER), random(INNER, HIDDEN)) for _ in range(LAYERS)]
scale, shift = torch.ones(HIDDEN, device="cuda", dtype=torch.bfloat16), random(HIDDEN)
x = random(BATCH, HIDDEN)


def norm_written_out(h):
    h = h.float()
    centred = h - h.mean(-1, keepdim=True)
    variance = centred.pow(2).mean(-1, keepdim=True)
    return (centred * torch.rsqrt(variance + 1e-5)).to(torch.bfloat16) * scale + shift


def gelu_written_out(h):
    return 0.5 * h * (1.0 + torch.tanh(0.7978845608 * (h + 0.044715 * h * h * h)))


def step():
    y = x
    for up, down in layers:
        if args.healthy:
            y = torch.addmm(y, F.gelu(F.layer_norm(y, (HIDDEN,), scale, shift) @ up, approximate="tanh"), down)
        else:
            y = y + gelu_written_out(norm_written_out(y) @ up) @ down
    x.copy_(norm_written_out(y))


repeat(decode_request(graph_of(step).replay, steps=32, wait_each_step=False), args.seconds)
