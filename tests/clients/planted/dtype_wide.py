"""Planted: weights in fp32 (TF32 tensor cores allowed, so only the width is at fault).
Healthy: bf16."""
import torch

from common import Decoder, decode_request, options, repeat, tokens

BATCH, CONTEXT = 64, 64
args = options(__doc__)
torch.set_float32_matmul_precision("high")
model = Decoder(hidden=8192, ffn=16384, layers=4, batch=BATCH, room=CONTEXT + 1,
                dtype=torch.bfloat16 if args.healthy else torch.float32)
token = tokens(BATCH, 1)
repeat(decode_request(lambda: model(token, position=CONTEXT)), args.seconds)
