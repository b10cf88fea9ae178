"""Two people ask about their files: an event loop reads these and shows what is written, one thread has both models.

For about every second question a scorer looks at all passages of a file, and the best three are put in front of it; the others
are answered as they are. A step is one pass until `.tolist()` or `.item()` has what comes of it: of kind other for the scores, a
prefill step takes in passages and question, a decode step one token. A request is one question, from before its file is read.
With --ranges the models' thread has who asks, with the sentence, around a request, and in it "look in" with the file's name
around the scores; the loop, which launches nothing, has "open" with the file's name, and "show" with the last word and the name.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import asyncio
import html
import math
import zlib
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import Plain, Reader, attended, begun, shares_of, weight

VOCABULARY, LENGTH, PEOPLE, BEST = 32000, 640, ("Ines", "Juri"), 3
LARGE = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
SORT, PAIR = (1024, 2816, 12, 8, 2), 256  # PAIR: the most tokens of question and passage
SENTENCES = ("what does step 3 of the plan to decode the letters say?", "which image shows the vision test, and when?",
             "when is the next prefill of the tank", "how long did the last generation of bees live?",
             "is there more context for the step from 2019 to 2020")
FILES = ("decode_plan_v2.txt", "vision-test-0417.md", None, "bees generation 7.csv", None)  # None: a question without one
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def made_up(chance, words):
    return " ".join("".join(chance.choices(LETTERS, k=chance.randrange(3, 10))) for _ in range(words))


def tokens_of(text):  # each three letters of a word are one
    return [zlib.crc32(word[i:i + 3].encode()) % VOCABULARY for word in text.lower().split() for i in range(0, len(word), 3)]


class Question:
    def __init__(self, chance, number, steps, warm_up=False):
        self.sentence, self.file = SENTENCES[number % len(SENTENCES)], FILES[number % len(FILES)]
        self.steps, self.warm_up = steps, warm_up
        self.details = made_up(chance, chance.randrange(5, 61))
        passages = [made_up(chance, chance.randrange(12, 31)) for _ in range(chance.randrange(12, 41))] if self.file else []
        self.content = "\n".join("<p>%s</p>" % passage for passage in passages)


class Scorer(Plain):  # all places of a pair see each other
    def __init__(self):
        super().__init__(VOCABULARY, *SORT, PAIR)
        self.verdict = weight(1, SORT[0])

    def scores(self, pairs):
        longest = max(map(len, pairs))
        ids = torch.tensor([pair + [0] * (longest - len(pair)) for pair in pairs]).to("cuda")
        lengths = torch.tensor(list(map(len, pairs))).to("cuda")
        hidden = (self.columns[:longest] >= lengths[:, None])[:, None, None, None]
        x = self.through(ids, self.cos[:longest], self.sin[:longest], lambda i, q, k, v: attended(shares_of(q, k, hidden), v))
        return F.linear(x[:, 0], self.verdict).float()[:, 0].tolist()


class Models:
    """All of it runs in one thread, question by question."""

    def __init__(self, record, mark):
        self.record, self.mark, self.scorer, self.writer = record, mark, Scorer(), Reader(VOCABULARY, *LARGE, LENGTH)

    def timed(self, question, kind, tokens, rows, call, *given):
        begin = now()
        result = call(*given)
        end = now()
        self.record.step(kind, begin, end, tokens, rows, question.warm_up)
        return result, end

    def looked_up(self, question):
        """The tokens of the best passages."""
        pairs = [question.asked + passage for passage in question.passages]
        with self.mark("look in " + question.file):
            scores, _ = self.timed(question, "other", sum(map(len, pairs)), len(pairs), self.scorer.scores, pairs)
        assert len(scores) == len(pairs) and all(map(math.isfinite, scores))
        best = sorted(range(len(scores)), key=scores.__getitem__, reverse=True)[:BEST]
        return [token for number in best for token in question.passages[number]]

    def answer(self, question, show):
        with self.mark("%s: %s" % (question.name, question.sentence)):
            prompt = self.looked_up(question) if question.file else []
            prompt = prompt + question.asked + tokens_of(question.details)
            token, first = self.timed(question, "prefill", len(prompt), 1, self.writer.prefill, prompt)
            text, end = [token], first
            show(token)
            for i in range(question.steps):
                token, end = self.timed(question, "decode", 1, 1, self.writer.decode, len(prompt) + i)
                text.append(token)
                show(token)
        self.record.request(question.start, first, end, len(prompt), len(text), question.warm_up)
        assert all(0 <= token < VOCABULARY for token in text) and len(prompt) + len(text) <= LENGTH
        assert bool(torch.isfinite(self.writer.last).all())


class House:
    def __init__(self, models, mark):
        self.models, self.mark, self.shown = models, mark, 0
        # Whether gradients are wanted is asked in each thread for itself.
        self.thread = ThreadPoolExecutor(1, initializer=torch.set_grad_enabled, initargs=(False,))

    def read(self, question):
        question.asked = tokens_of(question.sentence)
        if question.file:
            with self.mark("open " + question.file):
                passages = [html.unescape(line).removeprefix("<p>").removesuffix("</p>") for line in question.content.split("\n")]
                question.passages = [tokens_of(passage) for passage in passages]

    async def ask(self, name, question):
        loop, page = asyncio.get_running_loop(), []

        def add(token):
            word = LETTERS[token % 26] + LETTERS[token // 26 % 26]
            with self.mark("show %s to %s" % (word, name)):
                page.append(word)
                html.escape(" ".join(page))
            self.shown += 1

        question.start, question.name = now(), name
        self.read(question)
        await loop.run_in_executor(self.thread, self.models.answer, question, lambda token: loop.call_soon_threadsafe(add, token))

    async def person(self, name, chance, questions):
        """Asks what is left of the questions, which both persons take from, and thinks for a while behind each answer."""
        for question in questions:
            await self.ask(name, question)
            await asyncio.sleep(chance.uniform(0.001, 0.02))


async def talk(options):
    mark, record, chance = ranges(options.ranges), Record(), begun(options.seed)
    house = House(Models(record, mark), mark)
    torch.cuda.synchronize()
    await house.ask(PEOPLE[0], Question(chance, 0, 4, warm_up=True))
    counts = split(options.steps, max(3, min(25, options.steps // 8)))
    questions = iter([Question(chance, number, count) for number, count in enumerate(counts)])
    await asyncio.gather(*(house.person(name, chance, questions) for name in PEOPLE))
    assert house.shown == 5 + options.steps + len(counts)
    house.thread.shutdown()
    record.finish()


def main():
    asyncio.run(talk(arguments(__doc__)))


main()
