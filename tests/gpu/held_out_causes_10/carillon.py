"""Sixteen carillons play on from melodies of 64 notes, with a recurrent network of four layers whose weights come from a
file, each in a tensor of its own.

A step is one decode step, from its first call until the notes are in a list on the host.
"""
import torch
from torch import nn

from base_loop import begin, finish, greedy, prompts, serve

BATCH, PROMPT, VOCABULARY, WIDTH, LAYERS = 16, 64, 32000, 4096, 4
MADE = dict(device="cuda", dtype=torch.float16)


class Carillon(nn.Module):
    def __init__(self, fixed):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, **MADE)
        self.layers = nn.LSTM(WIDTH, WIDTH, LAYERS, batch_first=True, **MADE)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False, **MADE)
        self.load({name: weight.clone() for name, weight in self.layers.state_dict().items()})
        if fixed:
            self.layers.flatten_parameters()
        self.eval()

    def load(self, file):
        self.layers.load_state_dict(file, assign=True)

    def play(self, notes, state=None):
        heard, state = self.layers(self.embedding(notes), state)
        return greedy(self.head(heard[:, -1])), state


class Tower:
    def __init__(self, carillon):
        self.carillon, self.notes, self.state = carillon, None, None

    def start(self, prompt):
        self.notes, self.state = self.carillon.play(prompt)
        return self.notes[:, 0].tolist()

    def following(self, i):
        self.notes, self.state = self.carillon.play(self.notes, self.state)
        return self.notes[:, 0].tolist()


def main():
    options, record = begin(__doc__)
    tower = Tower(Carillon(options.fixed))
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    serve(record, prompt, 1, tower.start, tower.following, warm_up=True)
    texts = serve(record, prompt, options.steps, tower.start, tower.following)
    finish(record, texts, VOCABULARY)


main()
