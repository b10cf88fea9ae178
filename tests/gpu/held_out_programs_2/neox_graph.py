"""A GPT-NeoX whose decode step, sampling included, is one CUDA graph captured by hand; the host waits by reading the tokens."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from types import SimpleNamespace

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 50304, 640, 6
LAYERS, HEADS, SIZE, INNER, ROTARY = 24, 32, 80, 10240, 20
WIDTH = HEADS * SIZE
TEMPERATURE = 0.9
PROMPTS = (90, 48, 200, 130, 64, 256)
WARM_UP_PROMPT, WARM_UP_STEPS = 32, 4


def normal(*shape, scale):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16).mul_(scale)


def make_layer():
    return SimpleNamespace(
        norm_1=torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16), norm_1_bias=normal(WIDTH, scale=0.02),
        norm_2=torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16), norm_2_bias=normal(WIDTH, scale=0.02),
        qkv=normal(3 * WIDTH, WIDTH, scale=WIDTH ** -0.5), qkv_bias=normal(3 * WIDTH, scale=0.02),
        out=normal(WIDTH, WIDTH, scale=WIDTH ** -0.5), out_bias=normal(WIDTH, scale=0.02),
        up=normal(INNER, WIDTH, scale=WIDTH ** -0.5), up_bias=normal(INNER, scale=0.02),
        down=normal(WIDTH, INNER, scale=INNER ** -0.5), down_bias=normal(WIDTH, scale=0.02))


class NeoX:
    def __init__(self):
        self.embedding = normal(VOCABULARY, WIDTH, scale=1.0)
        self.layers = [make_layer() for _ in range(LAYERS)]
        self.norm, self.norm_bias = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16), normal(WIDTH, scale=0.02)
        self.head = normal(VOCABULARY, WIDTH, scale=WIDTH ** -0.5)
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 10000.0 ** (-torch.arange(0, ROTARY, 2, device="cuda", dtype=torch.float32) / ROTARY)
        angles = torch.outer(self.order.float(), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)
        # What the graph works on. All sequences of a batch are at one position.
        self.tokens = torch.zeros(BATCH, device="cuda", dtype=torch.int64)
        self.position = torch.zeros(1, device="cuda", dtype=torch.int64)
        self.keys = [torch.zeros(BATCH, LENGTH, HEADS, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
        self.values = [torch.zeros_like(keys) for keys in self.keys]

    @staticmethod
    def rotate(x, cos, sin):
        a, b, rest = x.split([ROTARY // 2, ROTARY // 2, SIZE - ROTARY], dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], dim=-1)

    @staticmethod
    def mlp(layer, x):
        h = F.layer_norm(x, (WIDTH,), layer.norm_2, layer.norm_2_bias)
        return F.linear(F.gelu(F.linear(h, layer.up, layer.up_bias)), layer.down, layer.down_bias)

    def sample(self, x):
        logits = F.linear(F.layer_norm(x, (WIDTH,), self.norm, self.norm_bias), self.head)
        probabilities = torch.softmax(logits.float() / TEMPERATURE, dim=-1)
        # The same as drawing by multinomial, in operators that a graph can hold.
        self.tokens.copy_((probabilities / torch.empty_like(probabilities).exponential_(1.0)).argmax(-1))

    def prefill(self, prompts):
        length = prompts.shape[1]
        cos, sin = self.cos[:length], self.sin[:length]
        x = F.embedding(prompts, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (WIDTH,), layer.norm_1, layer.norm_1_bias)
            qkv = F.linear(h, layer.qkv, layer.qkv_bias).view(BATCH, length, 3, HEADS, SIZE)
            q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
            q, k = self.rotate(q, cos, sin), self.rotate(k, cos, sin)
            self.keys[i][:, :length] = k.transpose(1, 2)
            self.values[i][:, :length] = v.transpose(1, 2)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(BATCH, length, WIDTH)
            x = x + F.linear(y, layer.out, layer.out_bias) + self.mlp(layer, x)
        self.sample(x[:, -1])
        self.position.fill_(length)

    def step(self):
        cos, sin = self.cos[self.position], self.sin[self.position]
        visible = (self.order <= self.position).view(1, 1, 1, LENGTH).expand(BATCH, 1, 1, LENGTH)
        x = F.embedding(self.tokens, self.embedding)
        for i, layer in enumerate(self.layers):
            h = F.layer_norm(x, (WIDTH,), layer.norm_1, layer.norm_1_bias)
            q, k, v = F.linear(h, layer.qkv, layer.qkv_bias).view(BATCH, 3, HEADS, SIZE).unbind(1)
            self.keys[i].index_copy_(1, self.position, self.rotate(k, cos, sin)[:, None])
            self.values[i].index_copy_(1, self.position, v[:, None])
            q = self.rotate(q, cos, sin)[:, :, None]
            y = F.scaled_dot_product_attention(q, self.keys[i].transpose(1, 2), self.values[i].transpose(1, 2), attn_mask=visible)
            x = x + F.linear(y.reshape(BATCH, WIDTH), layer.out, layer.out_bias) + self.mlp(layer, x)
        self.sample(x)
        self.position.add_(1)

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()


def serve(model, length, steps, record, mark, warm_up=False):
    prompts = torch.randint(0, VOCABULARY, (BATCH, length))
    outputs = []
    start = now()
    with mark("encode prompts"):
        model.prefill(prompts.cuda())
        outputs.append(model.tokens.tolist())
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for _ in range(steps):
        step = now()
        with mark("replay"):
            model.graph.replay()
            tokens = model.tokens.tolist()
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
        outputs.append(tokens)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    texts = [" ".join(f"{row[i]:x}" for row in outputs) for i in range(BATCH)]
    assert all(0 <= value < VOCABULARY for row in outputs for value in row) and all(texts)
    assert model.position.item() == length + steps


@torch.no_grad()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = NeoX()
    model.capture()
    torch.cuda.synchronize()
    with mark("warmup"):
        serve(model, WARM_UP_PROMPT, WARM_UP_STEPS, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        serve(model, length, steps, record, mark)
    assert torch.isfinite(model.keys[-1]).all().item()
    record.finish()


if __name__ == "__main__":
    main()
