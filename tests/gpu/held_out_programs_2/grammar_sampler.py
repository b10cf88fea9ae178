"""Constrained decoding: the host picks each token among those that a JSON-like grammar allows, and reads many values to do so."""
import math, os, random, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH, BATCH = 32000, 512, 3
LAYERS, HEADS, SIZE, INNER, WIDTH = 18, 8, 256, 6144, 1536
CAP, TOP, RECENT, PENALTY = 30.0, 16, 24, 0.5
PROMPTS = (64, 150, 40, 96, 220, 128)
WARM_UP_PROMPT, WARM_UP_STEPS = 50, 2
KINDS = 8
OPEN_OBJECT, CLOSE_OBJECT, OPEN_ARRAY, CLOSE_ARRAY, STRING, NUMBER, COLON, COMMA = range(KINDS)
DEEPEST = 5


class Grammar:
    """Which kinds of token may follow. A token's kind is its number modulo eight."""

    def __init__(self):
        self.stack, self.expected = [], "value"

    def allowed(self):
        if self.expected == "value":
            return {STRING, NUMBER, OPEN_OBJECT, OPEN_ARRAY} if len(self.stack) < DEEPEST else {STRING, NUMBER}
        if self.expected == "key":
            return {STRING, CLOSE_OBJECT}
        if self.expected == "colon":
            return {COLON}
        return {COMMA, CLOSE_OBJECT if self.stack[-1] == OPEN_OBJECT else CLOSE_ARRAY}

    def advance(self, kind):
        assert kind in self.allowed()
        if kind in (OPEN_OBJECT, OPEN_ARRAY):
            self.stack.append(kind)
            self.expected = "key" if kind == OPEN_OBJECT else "value"
        elif kind == COLON:
            self.expected = "value"
        elif kind == COMMA:
            self.expected = "key" if self.stack[-1] == OPEN_OBJECT else "value"
        elif kind == STRING and self.expected == "key":
            self.expected = "colon"
        else:
            if kind in (CLOSE_OBJECT, CLOSE_ARRAY):
                self.stack.pop()
            self.expected = "next" if self.stack else "value"


class Model:
    """In the manner of Gemma: norms with 1 + weight, GeGLU, one key and value head, capped logits; in fp32 with TF32 matmuls."""

    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda").mul_(columns ** -0.5)

        self.embedding = weight(VOCABULARY, WIDTH)
        self.layers = [dict(norm_1=torch.zeros(WIDTH, device="cuda"), norm_2=torch.zeros(WIDTH, device="cuda"),
                            qkv=weight((HEADS + 2) * SIZE, WIDTH), out=weight(WIDTH, HEADS * SIZE),
                            gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER),
                            keys=torch.zeros(BATCH, LENGTH, SIZE, device="cuda"),
                            values=torch.zeros(BATCH, LENGTH, SIZE, device="cuda")) for _ in range(LAYERS)]
        self.norm = torch.zeros(WIDTH, device="cuda")
        self.frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)

    @staticmethod
    def normalise(x, weight):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * (1 + weight)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def __call__(self, ids, past):
        """Logits after the last of `ids` (batch x count), the first of which is at `past`."""
        count = ids.shape[1]
        end = past + count
        angles = torch.arange(past, end, device="cuda")[:, None] * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        x = F.embedding(ids, self.embedding) * WIDTH ** 0.5
        for layer in self.layers:
            h = self.normalise(x, layer["norm_1"])
            q, k, v = F.linear(h, layer["qkv"]).split([HEADS * SIZE, SIZE, SIZE], dim=-1)
            q = self.rotate(q.view(BATCH, count, HEADS, SIZE).transpose(1, 2), cos, sin)
            layer["keys"][:, past:end] = self.rotate(k, cos, sin)
            layer["values"][:, past:end] = v
            keys, values = layer["keys"][:, None, :end], layer["values"][:, None, :end]
            scores = torch.matmul(q, keys.transpose(-1, -2)) * SIZE ** -0.5
            if count > 1:
                scores = scores + torch.full((count, end), float("-inf"), device="cuda").triu(past + 1)
            y = torch.matmul(torch.softmax(scores, dim=-1), values).transpose(1, 2).reshape(BATCH, count, HEADS * SIZE)
            x = x + F.linear(y, layer["out"])
            h = self.normalise(x, layer["norm_2"])
            gate = F.gelu(F.linear(h, layer["gate"]), approximate="tanh")
            x = x + F.linear(gate * F.linear(h, layer["up"]), layer["down"])
        logits = F.linear(self.normalise(x[:, -1], self.norm), self.embedding)
        return torch.tanh(logits / CAP) * CAP


class Text:
    def __init__(self):
        self.grammar, self.tokens, self.surprise = Grammar(), [], 0.0

    def render(self):
        signs = {OPEN_OBJECT: "{", CLOSE_OBJECT: "}", OPEN_ARRAY: "[", CLOSE_ARRAY: "]", COLON: ": ", COMMA: ", "}
        return "".join(signs.get(token % KINDS) or (f'"{token:x}"' if token % KINDS == STRING else str(token)) for token in self.tokens)


def choose(logits, texts, rng):
    """The next token of each text, chosen on the host."""
    if not torch.isfinite(logits).all().item():
        raise FloatingPointError("logits")
    for row, text in enumerate(texts):
        recent = sorted(set(text.tokens[-RECENT:]))
        if recent:
            logits[row, torch.tensor(recent, device="cuda")] -= PENALTY
    logprobs = torch.log_softmax(logits, dim=-1)
    values, candidates = logprobs.topk(TOP, dim=-1)
    values, candidates = values.cpu().tolist(), candidates.tolist()
    chosen = []
    for row, text in enumerate(texts):
        allowed = text.grammar.allowed()
        options = [(token, math.exp(value)) for token, value in zip(candidates[row], values[row]) if token % KINDS in allowed]
        if options:
            token = rng.choices([token for token, _ in options], [weight for _, weight in options])[0]
        else:
            kind = rng.choice(sorted(allowed))
            token = kind + KINDS * logits[row, kind::KINDS].argmax().item()
        text.surprise -= logprobs[row, token].item()
        text.tokens.append(token)
        text.grammar.advance(token % KINDS)
        chosen.append(token)
    return chosen


@torch.inference_mode()
def run(model, length, steps, rng, record, mark, warm_up=False):
    prompts = [[rng.randrange(VOCABULARY) for _ in range(length)] for _ in range(BATCH)]
    texts = [Text() for _ in range(BATCH)]
    start = now()
    with mark("prompt"):
        logits = model(torch.tensor(prompts, device="cuda"), 0)
        tokens = choose(logits, texts, rng)
    first = end = now()
    record.step("prefill", start, first, BATCH * length, BATCH, warm_up)
    for i in range(steps):
        step = now()
        with mark("token"):
            with mark("model"):
                logits = model(torch.tensor(tokens, device="cuda")[:, None], length + i)
            with mark("pick"):
                tokens = choose(logits, texts, rng)
        end = now()
        record.step("decode", step, end, BATCH, BATCH, warm_up)
    for _ in range(BATCH):
        record.request(start, first, end, length, 1 + steps, warm_up)
    for text in texts:
        assert len(text.tokens) == 1 + steps and all(0 <= token < VOCABULARY for token in text.tokens)
        assert text.render() and math.isfinite(text.surprise)


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    rng = random.Random(args.seed)
    torch.set_float32_matmul_precision("high")
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    torch.cuda.synchronize()
    run(model, WARM_UP_PROMPT, WARM_UP_STEPS, rng, record, mark, warm_up=True)
    for length, steps in zip(PROMPTS, split(args.steps, len(PROMPTS))):
        run(model, length, steps, rng, record, mark)
    record.finish()


if __name__ == "__main__":
    main()
