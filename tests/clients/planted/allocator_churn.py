"""Planted: PyTorch's caching allocator is switched off; every tensor is a cudaMalloc and a cudaFree.
Healthy: the allocator keeps what it has."""
import os
import sys

if "--healthy" not in sys.argv:
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # read when torch starts

from common import Decoder, options, prefill_request, repeat, tokens

args = options(__doc__)
model = Decoder(hidden=2048, ffn=4096, layers=8)
ids = tokens(1, 8192)
repeat(prefill_request(lambda: model(ids)), args.seconds)
