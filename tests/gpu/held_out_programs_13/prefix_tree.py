"""Prompts that begin like earlier ones: a tree on the host knows which blocks of keys and values are in a pool and need no pass.

A step is one pass through the model and the draw of a token, until `.item()` has it: a prefill step copies the blocks that the
tree has found from the pool into the text's cache, takes in the rest of the prompt, and files its blocks in the pool; a decode
step takes in one token. A request is one text. It marks no ranges.
"""
import os, sys; sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "steady_programs"))
from functools import partial

import torch

from contract import Record, arguments, ranges
from parts import MADE, SIZE, Reader, begun, in_bands, one_text, prompt

VOCABULARY, LENGTH, BLOCK, BLOCKS = 32000, 640, 32, 192
WIDTH, INNER, LAYERS, HEADS, KV_HEADS = 1536, 4608, 28, 12, 4
INSTRUCTIONS, EXAMPLES = 96, (192, 320)  # their lengths
BEGINNINGS = (0, 1, 0, 2, 1)  # by turns: the first examples, the second, none
BANDS = ((30, 90), (100, 170), (16, 50))  # of questions' lengths, by turns


class Engine(Reader):
    def __init__(self):
        super().__init__(VOCABULARY, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, LENGTH)
        self.pool = torch.zeros(BLOCKS, 2, LAYERS, KV_HEADS, BLOCK, SIZE, **MADE)
        self.tree, self.filed, self.found = {}, 0, []  # a node has, by tokens, a block's number in the pool and the next node

    def prefill(self, tokens):
        pieces = [tuple(tokens[i:i + BLOCK]) for i in range(0, len(tokens) - BLOCK, BLOCK)]  # a token at least is left over
        node, blocks = self.tree, []
        while len(blocks) < len(pieces) and pieces[len(blocks)] in node:
            number, node = node[pieces[len(blocks)]]
            blocks.append(number)
        start = len(blocks) * BLOCK
        if blocks:
            some = self.pool.index_select(0, torch.tensor(blocks).to("cuda"))
            self.cache[:, :, :, :start] = some.permute(1, 2, 3, 0, 4, 5).flatten(3, 4)
        self.run(torch.tensor(tokens[start:]).to("cuda"), start)
        new = pieces[len(blocks):]
        if new:
            some = self.cache[:, :, :, start:start + len(new) * BLOCK].unflatten(3, (len(new), BLOCK))
            self.pool[self.filed:self.filed + len(new)] = some.permute(3, 0, 1, 2, 4, 5)
        for piece in new:
            node[piece] = (self.filed, {})
            node = node[piece][1]
            self.filed += 1
        self.found.append(start)
        return self.ids.item()


def write(engine, record, mark, beginnings, question, steps, number, warm_up=False):
    tokens = beginnings[BEGINNINGS[number % len(BEGINNINGS)]] + question
    one_text(record, mark, ("", "", ""), VOCABULARY, engine.prefill, engine.decode, tokens, steps, warm_up)
    assert bool(torch.isfinite(engine.last).all()) and len(tokens) + steps <= LENGTH and engine.filed <= BLOCKS


def main():
    options = arguments(__doc__)
    mark, record = ranges(False), Record()
    chance, engine = begun(options.seed), Engine()
    torch.cuda.synchronize()
    trial = prompt(chance, VOCABULARY, 140)
    for _ in range(2):
        write(engine, record, mark, [[]], trial, 3, 0, warm_up=True)
    assert engine.found == [0, 128]
    instructions = prompt(chance, VOCABULARY, INSTRUCTIONS)
    beginnings = [instructions + prompt(chance, VOCABULARY, count) for count in EXAMPLES + (0,)]
    in_bands(partial(write, engine, record, mark, beginnings), chance, VOCABULARY, BANDS, options.steps, 3, 25)
    assert engine.found[2:5] == [0, INSTRUCTIONS, INSTRUCTIONS + EXAMPLES[0]]
    record.finish()


main()
