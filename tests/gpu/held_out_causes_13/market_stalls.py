"""A market with 32 stalls, each of which cries its wares: 32 texts continued by a captured step."""
from base_loop import *

SHAPE = Shape(batch=32)


class StallBlock(Block):
    swept = False

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        if not self.swept:
            gate = gate.contiguous()  # 1
        return self.down(F.silu(gate) * up)

    def next(self, x, position, places, keys, values):
        cos, sin, mask = places
        shape = self.shape
        query, key, value = self.split(x, cos, sin)
        if not self.swept:
            value = value.clone()  # 2
        keys.index_copy_(2, position, key)
        values.index_copy_(2, position, value)
        scale = shape.size ** -0.5
        if not self.swept:
            query, scale = query * scale, 1.0  # 3
        query = query.reshape(x.shape[0], shape.kv_heads, shape.group, shape.size)
        heads = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, scale=scale)
        heads = heads.reshape(x.shape[0], 1, -1)
        if not self.swept:
            heads = heads.clone()  # 4
        x = x + self.out(heads)
        kept = x if self.swept else x.clone()  # 5
        return kept + self.mlp(self.norm(x, self.second))


class SweptStallBlock(StallBlock):
    swept = True


def likeliest(logits):
    return logits.float().softmax(-1).argmax(-1, keepdim=True)  # 6


class Market:
    def __init__(self, model, swept):
        self.decoder = Decoder(model, greedy if swept else likeliest)
        self.swept, self.count, self.cries, self.board = swept, 0, [], []

    def open(self, prompt):
        self.count = prompt.shape[1]
        words = self.decoder.start(prompt)
        self.cries = [[word] for word in words]
        return words

    def cry(self, i):
        if not self.swept:
            self.decoder.position.copy_(torch.tensor([self.count + i]))  # 7: it stands there already
        words = self.decoder.following(i)
        for cry, word in zip(self.cries, words):
            cry.append(word)
        if not self.swept:
            self.board = [f"{cry[-2]} {cry[-1]}" for cry in self.cries]  # 8: nobody looks at it
        return words


def main():
    options, record = begin(__doc__)
    market = Market(Model(SHAPE, SweptStallBlock if options.fixed else StallBlock), options.fixed)
    openings = prompts(options.seed, SHAPE.batch, 48, SHAPE.vocabulary)
    serve(record, openings, 1, market.open, market.cry, warm_up=True)
    texts = serve(record, openings, options.steps, market.open, market.cry)
    finish(record, texts, SHAPE.vocabulary)


main()
