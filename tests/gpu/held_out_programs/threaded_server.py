"""A server of two threads: one takes in texts at fixed times and tokenises them, the other runs the model, one text at a time."""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import queue
import random
import threading
import time
import zlib

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split

VOCABULARY, LENGTH = 32000, 1024
LAYERS, HEADS, SIZE, INNER = 20, 16, 128, 5504
WIDTH = HEADS * SIZE
TOKENS_PER_REQUEST = 12
SPACING = 0.3                   # seconds from one arrival to the next
WORDS = (90, 140)               # of a text
WARM_UP_TOKENS = 4


class Tokeniser:
    """The cheapest way to cut a text into pieces (as unigram tokenisers do it), in plain Python; prices made up by a checksum."""

    longest = 8

    @staticmethod
    def price(piece):
        return 4.0 + len(piece) + zlib.crc32(piece.encode()) % 1000 * 0.01

    def encode(self, text):
        text = "_" + text.replace(" ", "_")
        costs, begins = [0.0], [0]
        for end in range(1, len(text) + 1):
            cost, begin = min((costs[begin] + self.price(text[begin:end]), begin) for begin in range(max(0, end - self.longest), end))
            costs.append(cost)
            begins.append(begin)
        pieces, end = [], len(text)
        while end:
            pieces.append(text[begins[end]:end])
            end = begins[end]
        return [zlib.crc32(piece.encode()) % VOCABULARY for piece in reversed(pieces)]


class Model:
    def __init__(self):
        def weight(rows, columns):
            return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16).mul_(columns ** -0.5)

        self.embedding, self.head = torch.randn(VOCABULARY, WIDTH, device="cuda", dtype=torch.bfloat16), weight(VOCABULARY, WIDTH)
        self.norm = torch.ones(WIDTH, device="cuda", dtype=torch.bfloat16)
        self.layers = [(weight(3 * WIDTH, WIDTH), weight(WIDTH, WIDTH), weight(2 * INNER, WIDTH), weight(WIDTH, INNER))
                       for _ in range(LAYERS)]
        self.keys, self.values = ([torch.zeros(1, HEADS, LENGTH, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(LAYERS)]
                                  for _ in range(2))
        frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2, device="cuda", dtype=torch.float32) / SIZE)
        angles = torch.outer(torch.arange(LENGTH, device="cuda", dtype=torch.float32), frequencies)
        self.cos, self.sin = angles.cos().to(torch.bfloat16), angles.sin().to(torch.bfloat16)

    @staticmethod
    def rotate(x, cos, sin):
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)

    def __call__(self, ids, past):
        """Logits after the last of `ids` (1 x count), the first of which is at `past`; several only at 0."""
        count = ids.shape[1]
        end = past + count
        cos, sin = self.cos[past:end], self.sin[past:end]
        x = F.embedding(ids, self.embedding)
        for (qkv, out, gate_up, down), keys, values in zip(self.layers, self.keys, self.values):
            h = F.rms_norm(x, (WIDTH,), self.norm)
            q, k, v = F.linear(h, qkv).view(1, count, 3, HEADS, SIZE).permute(2, 0, 3, 1, 4).unbind(0)
            q = self.rotate(q, cos, sin)
            keys[:, :, past:end] = self.rotate(k, cos, sin)
            values[:, :, past:end] = v
            y = F.scaled_dot_product_attention(q, keys[:, :, :end], values[:, :, :end], is_causal=count > 1)
            x = x + F.linear(y.transpose(1, 2).reshape(1, count, WIDTH), out)
            gate, up = F.linear(F.rms_norm(x, (WIDTH,), self.norm), gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, down)
        return F.linear(F.rms_norm(x[:, -1], (WIDTH,), self.norm), self.head)


class Server:
    def __init__(self, model, mark, record, plan, rng):
        self.model, self.mark, self.record, self.plan, self.rng = model, mark, record, plan, rng
        self.tokeniser = Tokeniser()
        self.inbox = queue.Queue()
        self.ready = threading.Event()      # the engine has served the warm-up, or failed
        self.failure = None

    def text(self):
        return " ".join("".join(self.rng.choice("etaoinshrdlu") for _ in range(self.rng.randint(2, 9)))
                        for _ in range(self.rng.randint(*WORDS)))

    def accept(self, text, tokens, warm_up):
        arrival = now()
        with self.mark("tokenize"):
            ids = self.tokeniser.encode(text)
        self.inbox.put((arrival, ids, tokens, warm_up))

    def frontend(self):
        try:
            texts = [self.text() for _ in self.plan]
            self.accept(self.text(), WARM_UP_TOKENS, True)
            self.ready.wait()
            begin = time.monotonic() + SPACING
            for i, (text, tokens) in enumerate(zip(texts, self.plan)):
                time.sleep(max(0.0, begin + i * SPACING - time.monotonic()))
                if self.failure:
                    return
                self.accept(text, tokens, False)
        except BaseException as failure:
            self.failure = self.failure or failure
        finally:
            self.inbox.put(None)

    @torch.inference_mode()
    def engine(self):
        try:
            while (request := self.inbox.get()) is not None:
                self.serve(*request)
                self.ready.set()
        except BaseException as failure:
            self.failure = self.failure or failure
        finally:
            self.ready.set()

    def serve(self, arrival, ids, tokens, warm_up):
        start = now()
        with self.mark("model.prompt"):
            logits = self.model(torch.tensor([ids], device="cuda"), 0)
            token = logits.argmax(-1, keepdim=True)
            output = [token.item()]
        first = end = now()
        self.record.step("prefill", start, first, len(ids), 1, warm_up)
        for i in range(tokens):
            step = now()
            with self.mark("model.next_token"):
                logits = self.model(token, len(ids) + i)
                token = logits.argmax(-1, keepdim=True)
                output.append(token.item())
            end = now()
            self.record.step("decode", step, end, 1, 1, warm_up)
        self.record.request(arrival, first, end, len(ids), len(output), warm_up)
        assert all(0 <= value < VOCABULARY for value in output)
        assert torch.isfinite(logits).all().item()


def main():
    args = arguments(__doc__)
    torch.manual_seed(args.seed)
    torch.backends.cuda.enable_cudnn_sdp(False)
    record = Record()
    plan = split(args.steps, max(2, round(args.steps / TOKENS_PER_REQUEST)))
    model = Model()
    torch.cuda.synchronize()
    server = Server(model, ranges(args.ranges), record, plan, random.Random(args.seed))
    threads = [threading.Thread(target=server.engine, name="engine"), threading.Thread(target=server.frontend, name="frontend")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if server.failure:
        raise server.failure
    assert len(record.requests) == len(plan) + 1
    record.finish()


if __name__ == "__main__":
    main()
