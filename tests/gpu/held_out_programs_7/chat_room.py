"""A room of six chats on asyncio: each keeps its cache and asks when it likes, all answers go on together.

A step is one pass through the model, made by a thread of its own, from its first call until the next tokens are in
a list on the host: a prefill step takes in one chat's question, behind all that was said in that chat before, a
decode step one token of each answer under way. A request is one question, from when its chat asks. With --ranges
the thread has "hear" around a prefill step and "speak", with the number of answers, around a decode step, with
"model" and "draw" inside.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import asyncio
import collections
import concurrent.futures
import json
import math
import random
import tempfile

import torch
from torch import nn
from torch.nn import functional as F

from contract import Record, arguments, now, ranges

VOCABULARY, LENGTH, CHATS = 32000, 768, 6
WIDTH, INNER, LAYERS, HEADS, KV_HEADS, SIZE = 2048, 8192, 16, 16, 4, 128
GROUP = HEADS // KV_HEADS
MADE = dict(device="cuda", dtype=torch.bfloat16)


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH, bias=False, **MADE), nn.LayerNorm(WIDTH, bias=False, **MADE)
        self.query = nn.Linear(WIDTH, HEADS * SIZE, bias=False, **MADE)
        self.key = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False, **MADE)
        self.value = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False, **MADE)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False, **MADE)
        self.gate, self.up = nn.Linear(WIDTH, INNER, bias=False, **MADE), nn.Linear(WIDTH, INNER, bias=False, **MADE)
        self.down = nn.Linear(INNER, WIDTH, bias=False, **MADE)
        self.keys = torch.zeros(CHATS, LENGTH, KV_HEADS, SIZE, **MADE)
        self.values = torch.zeros_like(self.keys)

    def forward(self, x, chats, places, cos, sin, hidden):
        """`chats` and `places` (rows x tokens) say where in the cache each token of `x` belongs."""
        rows, count, _ = x.shape
        longest = hidden.shape[-1]
        y = self.before(x)
        q = turned(self.query(y).view(rows, count, HEADS, SIZE), cos, sin)
        self.keys[chats, places] = turned(self.key(y).view(rows, count, KV_HEADS, SIZE), cos, sin)
        self.values[chats, places] = self.value(y).view(rows, count, KV_HEADS, SIZE)
        keys = self.keys[:, :longest].index_select(0, chats[:, 0]).transpose(1, 2)
        values = self.values[:, :longest].index_select(0, chats[:, 0]).transpose(1, 2)
        q = q.reshape(rows, count, KV_HEADS, GROUP, SIZE).permute(0, 2, 3, 1, 4)
        q = q.reshape(rows, KV_HEADS, GROUP * count, SIZE)
        scores = (q @ keys.transpose(2, 3)).float().reshape(rows, KV_HEADS, GROUP, count, longest) * SIZE ** -0.5
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1).to(torch.bfloat16)
        heads = weights.reshape(rows, KV_HEADS, GROUP * count, longest) @ values
        heads = heads.reshape(rows, KV_HEADS, GROUP, count, SIZE).permute(0, 3, 1, 2, 4)
        x = x + self.out(heads.reshape(rows, count, HEADS * SIZE))
        y = self.between(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.last, self.head = nn.LayerNorm(WIDTH, bias=False, **MADE), nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        speeds = 1e-4 ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angle = torch.outer(torch.arange(LENGTH, device="cuda").float(), speeds)
        self.cos, self.sin = angle.cos().to(torch.bfloat16), angle.sin().to(torch.bfloat16)

    def forward(self, ids, chats, places, longest):
        hidden = (torch.arange(longest, device="cuda") > places[:, :, None])[:, None, None]
        cos, sin = self.cos[places][:, :, None], self.sin[places][:, :, None]
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, chats, places, cos, sin, hidden)
        return self.head(self.last(x[:, -1]))


class Turn:
    def __init__(self, chat, question, limit):
        self.chat, self.question, self.limit = chat, question, limit
        self.start, self.first, self.end, self.taken_in = now(), 0, 0, 0
        self.text, self.news = [], asyncio.Queue()


class Room:
    def __init__(self, model, record, mark):
        self.model, self.record, self.mark = model, record, mark
        self.worker = concurrent.futures.ThreadPoolExecutor(1, initializer=torch.set_grad_enabled, initargs=(False,))
        self.waiting, self.running, self.bell = collections.deque(), [], asyncio.Event()
        self.forget()

    def forget(self):
        # How much of each chat the cache has, and the chat's last token, which it does not have.
        self.lengths, self.left = [0] * CHATS, [None] * CHATS

    def run(self, ids, chats, places):
        """The next token behind each row of `ids`; lists of rows of equal length."""
        with self.mark("model"):
            sent = torch.tensor([ids, chats, places], device="cuda")
            self.logits = self.model(sent[0], sent[1], sent[2], max(map(max, places)) + 1)
        with self.mark("draw"):
            values, numbers = self.logits.float().topk(40, -1)
            noise = torch.empty_like(values).exponential_()
            chosen = (values.softmax(-1) / noise).argmax(-1, keepdim=True)
            return numbers.gather(-1, chosen)[:, 0].tolist()

    def hear(self, turn, warm_up):
        """A prefill step. Runs in the worker."""
        begin, chat = now(), turn.chat
        with self.mark("hear"):
            if self.lengths[chat] + 1 + len(turn.question) + turn.limit > LENGTH:
                self.lengths[chat], self.left[chat] = 0, None
            ids = turn.question if self.left[chat] is None else [self.left[chat]] + turn.question
            start = self.lengths[chat]
            turn.text += self.run([ids], [[chat] * len(ids)], [list(range(start, start + len(ids)))])
        turn.first = turn.end = now()
        turn.taken_in = len(ids)
        self.lengths[chat] += len(ids)
        self.record.step("prefill", begin, turn.first, len(ids), 1, warm_up)

    def speak(self, turns, warm_up):
        """A decode step. Runs in the worker."""
        begin = now()
        with self.mark(f"speak {len(turns)}"):
            tokens = self.run([[turn.text[-1]] for turn in turns], [[turn.chat] for turn in turns],
                              [[self.lengths[turn.chat]] for turn in turns])
        end = now()
        for turn, token in zip(turns, tokens):
            self.lengths[turn.chat] += 1
            turn.text.append(token)
            turn.end = end
        self.record.step("decode", begin, end, len(turns), len(turns), warm_up)

    def finish(self, turn, warm_up=False):
        self.left[turn.chat] = turn.text[-1]
        self.record.request(turn.start, turn.first, turn.end, turn.taken_in, len(turn.text), warm_up)
        assert all(0 <= token < VOCABULARY for token in turn.text) and self.lengths[turn.chat] < LENGTH

    async def serve(self, steps, warm_up=False):
        """Until `steps` decode steps are made."""
        loop = asyncio.get_running_loop()
        while steps:
            for _ in range(min(2, len(self.waiting))):
                turn = self.waiting.popleft()
                await loop.run_in_executor(self.worker, self.hear, turn, warm_up)
                self.running.append(turn)
                turn.news.put_nowait(turn.text[-1])
            if not self.running:
                self.bell.clear()
                if not self.waiting:
                    await self.bell.wait()
                continue
            await loop.run_in_executor(self.worker, self.speak, self.running, warm_up)
            steps -= 1
            for turn in self.running:
                turn.news.put_nowait(turn.text[-1])
                if len(turn.text) == turn.limit:
                    self.finish(turn, warm_up)
                    turn.news.put_nowait(None)
            self.running = [turn for turn in self.running if len(turn.text) < turn.limit]

    def ask(self, turn):
        self.waiting.append(turn)
        self.bell.set()
        return turn


async def chatter(room, chat, log, chance):
    """One chat: asks, writes down what it is told, token by token, thinks for a while and asks again."""
    await asyncio.sleep(chance.uniform(0.0, 0.05))
    while True:
        question = [chance.randrange(VOCABULARY) for _ in range(chance.randrange(18, 73))]
        turn, words = room.ask(Turn(chat, question, chance.randrange(6, 21))), []
        while (token := await turn.news.get()) is not None:
            words.append(f"w{token}")
            event = dict(chat=chat, number=len(words), delta=words[-1], text=" ".join(words))
            log.write("data: " + json.dumps(event) + "\n\n")
        await asyncio.sleep(chance.uniform(0.005, 0.06))


async def chat(options):
    mark, record = ranges(options.ranges), Record()
    chance = random.Random(options.seed)
    room = Room(Model().eval(), record, mark)
    torch.cuda.synchronize()

    room.ask(Turn(0, [chance.randrange(VOCABULARY) for _ in range(40)], 5))
    await room.serve(4, warm_up=True)
    room.forget()

    with tempfile.TemporaryFile("w+") as log:
        chances = [random.Random(options.seed + 1 + i) for i in range(CHATS)]
        chatters = [asyncio.ensure_future(chatter(room, i, log, chances[i])) for i in range(CHATS)]
        serving = asyncio.ensure_future(room.serve(options.steps))
        done, _ = await asyncio.wait([serving, *chatters], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        for task in chatters:
            task.cancel()
        await asyncio.gather(*chatters, return_exceptions=True)
    for turn in room.running:
        room.finish(turn)
    room.worker.shutdown()
    assert bool(torch.isfinite(room.logits).all())
    record.finish()


def main():
    options = arguments(__doc__)
    torch.manual_seed(options.seed)
    torch.set_grad_enabled(False)
    asyncio.run(chat(options))


main()
