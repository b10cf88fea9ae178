"""Chats of several turns over one cache that grows: each turn's prompt is prefilled on top of what was said before."""
import os, random, sys, time; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 32000, 2048
LAYERS, HEADS, KV_HEADS, SIZE, INNER = 26, 16, 8, 128, 6656
WIDTH, GROUP = HEADS * SIZE, HEADS // KV_HEADS
ROOM = 256
TEMPERATURE, MIN_P = 0.7, 0.05
CHATS = ((210, 34, 58, 21), (150, 70, 16, 41))
WARM_UP_PROMPT, WARM_UP_STEPS = 24, 3


class Cache:
    """Keys and values of one chat, with room for a multiple of 256 positions."""

    def __init__(self):
        self.length = 0
        self.store = torch.empty(LAYERS, 2, KV_HEADS, 0, SIZE, device="cuda", dtype=torch.bfloat16)

    def grow(self, length):
        if length > self.store.shape[3]:
            room = -(-length // ROOM) * ROOM
            larger = torch.zeros(LAYERS, 2, KV_HEADS, room, SIZE, device="cuda", dtype=torch.bfloat16)
            larger[:, :, :, :self.length] = self.store[:, :, :, :self.length]
            self.store = larger


class Model:
    """In the manner of OLMo 2: norms behind attention and MLP, a norm over all queries and one over all keys, grouped heads."""

    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)

        def ones(size):
            return torch.ones(size, device="cuda", dtype=torch.bfloat16)

        self.embedding = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [dict(q=weight(WIDTH, WIDTH), k=weight(KV_HEADS * SIZE, WIDTH), v=weight(KV_HEADS * SIZE, WIDTH),
                            out=weight(WIDTH, WIDTH), gate=weight(INNER, WIDTH), up=weight(INNER, WIDTH), down=weight(WIDTH, INNER),
                            norm_q=ones(WIDTH), norm_k=ones(KV_HEADS * SIZE), norm_1=ones(WIDTH), norm_2=ones(WIDTH))
                       for _ in range(LAYERS)]
        self.norm, self.head = ones(WIDTH), weight(VOCABULARY, WIDTH)
        self.order = torch.arange(LENGTH, device="cuda")
        frequencies = 500000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(self.order.float(), frequencies).repeat(1, 2)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return x * cos + torch.cat([-b, a], dim=-1) * sin

    def __call__(self, ids, cache):
        """Logits after the last of `ids`, which go behind all that is in the cache."""
        past, count = cache.length, ids.shape[0]
        end = past + count
        cache.grow(end)
        cos, sin = self.cos[past:end], self.sin[past:end]
        mask = self.order[None, :end] <= self.order[past:end, None] if count > 1 else None
        x = F.embedding(ids, self.embedding)
        for i, layer in enumerate(self.layers):
            q = F.rms_norm(F.linear(x, layer["q"]), (WIDTH,), layer["norm_q"]).view(count, HEADS, SIZE).transpose(0, 1)
            k = F.rms_norm(F.linear(x, layer["k"]), (KV_HEADS * SIZE,), layer["norm_k"]).view(count, KV_HEADS, SIZE).transpose(0, 1)
            v = F.linear(x, layer["v"]).view(count, KV_HEADS, SIZE).transpose(0, 1)
            cache.store[i, 0, :, past:end] = self.rotate(k, cos, sin)
            cache.store[i, 1, :, past:end] = v
            keys = cache.store[i, 0, :, :end].repeat_interleave(GROUP, dim=0)
            values = cache.store[i, 1, :, :end].repeat_interleave(GROUP, dim=0)
            y = F.scaled_dot_product_attention(self.rotate(q, cos, sin)[None], keys[None], values[None], attn_mask=mask)
            y = F.linear(y[0].transpose(0, 1).reshape(count, WIDTH), layer["out"])
            x = x + F.rms_norm(y, (WIDTH,), layer["norm_1"])
            y = F.linear(F.silu(F.linear(x, layer["gate"])) * F.linear(x, layer["up"]), layer["down"])
            x = x + F.rms_norm(y, (WIDTH,), layer["norm_2"])
        cache.length = end
        return F.linear(F.rms_norm(x[-1], (WIDTH,), self.norm), self.head)


def sample(logits):
    """Min-p: only tokens that are at least a twentieth as likely as the likeliest."""
    probabilities = torch.softmax(logits.float() / TEMPERATURE, dim=-1)
    probabilities = probabilities.masked_fill(probabilities < MIN_P * probabilities.max(), 0.0)
    return torch.multinomial(probabilities, 1).item()


class Stream:
    """What the user sees: pieces of text, held back until a word is complete."""

    def __init__(self):
        self.shown, self.held = [], ""

    def put(self, token):
        self.held += chr(97 + token % 26) + chr(97 + token // 26 % 26)
        if token % 3 == 0:
            self.shown.append(self.held)
            self.held = ""

    def close(self):
        if self.held:
            self.shown.append(self.held)
        return " ".join(self.shown)


def turn(model, cache, prompt, steps, record, mark, warm_up=False):
    """One question and its answer. Returns the answer; its last token is not yet in the cache."""
    stream = Stream()
    past = cache.length
    start = now()
    with mark("user turn"):
        token = sample(model(torch.tensor(prompt, device="cuda"), cache))
    first = end = now()
    record.step("prefill", start, first, len(prompt), 1, warm_up)
    answer = [token]
    stream.put(token)
    for _ in range(steps):
        step = now()
        with mark("assistant token"):
            logits = model(torch.tensor([token], device="cuda"), cache)
            token = sample(logits)
        end = now()
        record.step("decode", step, end, 1, 1, warm_up)
        answer.append(token)
        stream.put(token)
    record.request(start, first, end, len(prompt), 1 + steps, warm_up)
    assert all(0 <= token < VOCABULARY for token in answer) and stream.close()
    assert cache.length == past + len(prompt) + steps and torch.isfinite(logits).all().item()
    return answer


@torch.inference_mode()
def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    torch.backends.cuda.enable_cudnn_sdp(False)
    rng = random.Random(args.seed)
    mark = ranges(args.ranges)
    record = Record()
    model = Model()
    torch.cuda.synchronize()

    def question(length):
        return [rng.randrange(VOCABULARY) for _ in range(length)]

    with mark("warm up"):
        turn(model, Cache(), question(WARM_UP_PROMPT), WARM_UP_STEPS, record, mark, warm_up=True)
    steps = split(args.steps, sum(len(chat) for chat in CHATS))
    for chat in CHATS:
        cache, unseen = Cache(), []
        for length in chat[:len(steps)]:
            answer = turn(model, cache, unseen + question(length), steps.pop(0), record, mark)
            unseen = answer[-1:]
            # The user reads the answer and types.
            time.sleep(0.03 + 0.001 * length)
    record.finish()


if __name__ == "__main__":
    main()
