"""An answering model, an ear that goes by the clock in a second thread, and a third thread that keeps a journal.

Thirty milliseconds after its last pass, whatever the others do, the ear reads the last 1.3 seconds of sound on a stream of its
own and says which of 64 moods it hears; the newest one's token stands in front of each question. A step is one pass until
`.item()` has what comes of it: of kind other for the ear, a prefill step takes in a question, a decode step one token. A request
is one question, from its text on. With --ranges a question's sentence is around its tokenizing and prefill step, "back to" and a
name around all of its decode steps, "hear" and the sound's time around a pass of the ear; and the journal's thread, which
launches nothing, has "append" and a file's name around each entry.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
import json
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.nn import functional as F

from contract import Record, arguments, now, ranges, split
from parts import Plain, Reader, attended, begun, shares_of, weight

VOCABULARY, LENGTH = 32000, 448
LARGE = (2048, 5632, 18, 16, 4)  # width, inner width, layers, heads, heads of keys and values
EAR, FRAMES, FRAME, MOODS = (1024, 2816, 8, 8, 2), 64, 320, 64  # a frame is 320 samples, twenty milliseconds
HEARD_FRAMES = 3000  # of the sound that comes again and again
EVERY_S, ENTRY_S = 0.03, 0.045  # between two passes of the ear, between two entries
NAMES = ("Lotte", "Milan", "Nia")
SENTENCES = ("please decode what I am humming", "in which context do people say generation X?", "go one step back, and then two",
             "is this image of my vision test good", "what comes before the prefill valve?")
JOURNALS = ("decode_steps.log", "vision-2031.log", "kitchen context.log")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tokens_of(text):
    """Each two letters of a word are a token."""
    return [zlib.crc32(word[i:i + 2].encode()) % (VOCABULARY - MOODS) for word in text.lower().split()
            for i in range(0, len(word), 2)]


def told(chance, number):
    """A sentence, and what is said after it."""
    rest = ("".join(chance.choices(LETTERS, k=chance.randrange(3, 9))) for _ in range(chance.randrange(8, 110)))
    return SENTENCES[number % len(SENTENCES)], " ".join(rest)


class Ear(Plain):
    """All frames see each other; it has no use for words, so its embedding is small and its head has the moods."""

    def __init__(self):
        super().__init__(MOODS, *EAR, FRAMES)
        self.frames, self.stream = weight(EAR[0], FRAME), torch.cuda.Stream()
        self.sound = torch.randn(HEARD_FRAMES, FRAME).to(torch.bfloat16).pin_memory()
        self.tones = torch.arange(FRAMES, device="cuda") % MOODS

    def mood(self, at):
        """What is heard in the frames from `at` on."""
        with torch.cuda.stream(self.stream):
            sound = self.sound[at:at + FRAMES].to("cuda", non_blocking=True)
            self.heard = F.linear(sound, self.frames)
            x = self.through(self.tones, self.cos, self.sin, lambda i, q, k, v: attended(shares_of(q, k), v))
            return self.logits(x + self.heard).argmax(-1).item()

    def feed(self, layer, h):
        return super().feed(layer, h + self.heard)  # each layer is reminded of the sound


class Room:
    def __init__(self, record, mark, chance):
        self.record, self.mark, self.chance = record, mark, chance
        self.writer, self.ear, self.pen = Reader(VOCABULARY, *LARGE, LENGTH), Ear(), threading.Lock()
        self.warm_up, self.over, self.ready = True, threading.Event(), threading.Event()
        self.mood, self.passes, self.said, self.entries = 0, 0, 0, 0

    def timed(self, kind, tokens, warm_up, call, *given):
        begin = now()
        result = call(*given)
        end = now()
        with self.pen:  # two threads write down steps
            self.record.step(kind, begin, end, tokens, 1, warm_up)
        return result, end

    def listen(self):
        """The second thread. Whether gradients are wanted is asked in each thread for itself."""
        torch.set_grad_enabled(False)
        while not self.over.wait(EVERY_S if self.passes else 0.0):
            at = self.passes * 2 % (HEARD_FRAMES - FRAMES)
            with self.mark("hear 00:%06.3f" % (at * 0.02)):
                self.mood, _ = self.timed("other", FRAMES, self.warm_up, self.ear.mood, at)
            self.passes += 1
            self.ready.set()

    def keep(self):
        """The third thread."""
        lines = []
        while not self.over.wait(ENTRY_S):
            with self.mark("append " + JOURNALS[self.entries % len(JOURNALS)]):
                entry = dict(mood=self.mood, words=self.said, passes=self.passes, digest=zlib.crc32(" ".join(lines).encode()))
                lines = lines[-200:] + [json.dumps(entry)]
            self.entries += 1

    def answer(self, sentence, rest, number, steps):
        start = now()
        with self.mark(sentence):
            prompt = [VOCABULARY - MOODS + self.mood] + tokens_of(sentence) + tokens_of(rest)
            token, first = self.timed("prefill", len(prompt), self.warm_up, self.writer.prefill, prompt)
        text, end = [token], first
        with self.mark("back to " + NAMES[number % len(NAMES)]):
            for i in range(steps):
                token, end = self.timed("decode", 1, self.warm_up, self.writer.decode, len(prompt) + i)
                text.append(token)
                self.said += 1
        self.record.request(start, first, end, len(prompt), len(text), self.warm_up)
        assert all(0 <= token < VOCABULARY for token in text) and len(prompt) + steps <= LENGTH
        assert bool(torch.isfinite(self.writer.last).all()) and 0 <= self.mood < MOODS

    def talk(self, steps):
        with ThreadPoolExecutor(2) as threads:
            under_way = [threads.submit(self.listen), threads.submit(self.keep)]
            try:
                assert self.ready.wait(60.0)
                self.answer(*told(self.chance, 1), 0, 4)
                self.warm_up = False
                for number, count in enumerate(split(steps, max(3, min(25, steps // 8)))):
                    sentence, rest = told(self.chance, number)
                    time.sleep(self.chance.uniform(0.005, 0.06))  # while nobody says anything
                    self.answer(sentence, rest, number, count)
            finally:
                self.over.set()
            for future in under_way:
                future.result()


def main():
    options = arguments(__doc__)
    record, chance = Record(), begun(options.seed)
    room = Room(record, ranges(options.ranges), chance)
    torch.cuda.synchronize()
    room.talk(options.steps)
    record.steps.sort(key=lambda step: step["start_ns"])
    record.finish()


main()
