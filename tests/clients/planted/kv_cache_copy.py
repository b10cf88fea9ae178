"""Planted: keys and values of 32 sequences x 8192 tokens are joined with the new ones by torch.cat in every step.
Healthy: a cache allocated once and written in place."""
import torch

from common import Decoder, options, repeat, stage, tokens

BATCH, CONTEXT, STEPS = 32, 8192, 16
args = options(__doc__)


class Growing(Decoder):
    def block(self, x, layer, position):
        if position == CONTEXT:  # a new request starts from the same prefix
            layer["grown_k"], layer["grown_v"] = layer["k"][:, :, :CONTEXT], layer["v"][:, :, :CONTEXT]
        q, k, v = self.heads_of(torch.rms_norm(x, (self.hidden,), self.norm), layer)
        layer["grown_k"] = torch.cat((layer["grown_k"], k), 2)
        layer["grown_v"] = torch.cat((layer["grown_v"], v), 2)
        mixed = self.attention(q, layer["grown_k"], layer["grown_v"], False)
        x = x + torch.nn.functional.linear(mixed.transpose(1, 2).reshape(self.batch, 1, self.hidden), layer["out"])
        gate, up = torch.nn.functional.linear(torch.rms_norm(x, (self.hidden,), self.norm), layer["up"]).chunk(2, -1)
        return x + torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, layer["down"])


model = (Decoder if args.healthy else Growing)(hidden=1024, ffn=4096, layers=4, batch=BATCH, room=CONTEXT + STEPS)
first = tokens(BATCH, 1)


def request():
    token = first
    for i in range(STEPS):
        with stage("decode_step"):
            token = model(token, position=CONTEXT + i)
            torch.cuda.synchronize()


repeat(request, args.seconds)
