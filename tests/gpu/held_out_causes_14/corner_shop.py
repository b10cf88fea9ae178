"""A corner shop that reads eight lists of 1024 words at a time and says what comes next on each."""
import json

from base_loop import *

BATCH, COUNT = 8, 1024
SHAPE = Shape(layers=10, kv_heads=16, room=COUNT, batch=BATCH)
NEAR = 64


class ShopBlock(Block):
    tidy = False

    def mlp(self, x):
        gate, up = self.gate_up(x).chunk(2, -1)
        if not self.tidy:
            gate = gate.contiguous()  # 1
        made = self.down(F.silu(gate) * up)
        return made if self.tidy else torch.nan_to_num(made)  # 2

    def whole(self, x, cos, sin, keep=None):
        query, key, value = self.split(x, cos, sin)
        scale = self.shape.size ** -0.5
        if not self.tidy:
            query, scale = query * scale, 1.0  # 3
        heads = F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scale)
        x = x + self.out(heads.transpose(1, 2).reshape(x.shape[0], x.shape[1], -1))
        kept = x if self.tidy else x.clone()  # 4
        return kept + self.mlp(self.norm(x, self.second))


class TidyShopBlock(ShopBlock):
    tidy = True


class Shop:
    def __init__(self, model, lists, tidy):
        self.model, self.lists, self.tidy = model, lists, tidy
        self.on_host = [ids.tolist() for ids in lists]
        self.slips = []

    def scores(self, ids):
        model = self.model
        x = model.embedding(ids)
        for layer, block in enumerate(model.blocks):
            x = block.whole(x, model.cos[:COUNT], model.sin[:COUNT])
            if not self.tidy and layer % 2:
                torch.cuda.synchronize()  # 5: for a display of how far it is, which is no more
        if self.tidy:
            return model.logits(x)
        return model.head(model.blocks[0].norm(x[:, -NEAR:], model.last))[:, -1]  # 6

    def best(self, scores):
        if self.tidy:
            return scores.argmax(-1)
        return scores.float().sort(dim=-1, descending=True, stable=True)[1][:, 0]  # 7

    def serve_customers(self, i):
        i %= len(self.lists)
        words = self.best(self.scores(self.lists[i])).tolist()
        if not self.tidy:
            self.slips = [json.dumps(dict(list=row[-400:], word=word)) for row, word in zip(self.on_host[i], words)]  # 8
        return words


def main():
    options, record = begin(__doc__)
    lists = [prompts(options.seed + i, BATCH, COUNT, SHAPE.vocabulary) for i in range(4)]
    shop = Shop(Model(SHAPE, TidyShopBlock if options.fixed else ShopBlock), lists, options.fixed)
    texts = serve_prefills(record, options.steps, shop.serve_customers, BATCH, COUNT)
    finish(record, texts, SHAPE.vocabulary)


main()
