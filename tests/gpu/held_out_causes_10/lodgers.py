"""Sixteen lodgers write home. Another process of the same house seals the archive; each of the two is bound to a core of the
CPU.

The steps are launched one kernel after the other. A step is one decode step, from its first call until the tokens are in a
list on the host.
"""
import os
import subprocess
import sys

from base_loop import Decoder, Model, Shape, begin, finish, prompts, serve

BATCH, PROMPT, VOCABULARY = 16, 64, 32000
SHAPE = Shape(layers=16, vocabulary=VOCABULARY, batch=BATCH)

# Says when it is on the core that it is given, and seals pages there until it or the process that started it is ended.
SEALER = """
import hashlib, os, sys

os.sched_setaffinity(0, {int(sys.argv[1])})
print("here", flush=True)
parent, page = os.getppid(), bytes(4096)
while os.getppid() == parent:
    for _ in range(100):
        page = page[64:] + hashlib.sha512(page).digest()
"""


def cores(fixed):
    """The one of this process and that of the sealer."""
    allowed = sorted(os.sched_getaffinity(0))
    own = allowed[len(allowed) // 3]
    return own, allowed[-1] if fixed else own


def main():
    options, record = begin(__doc__)
    lodgers = Decoder(Model(SHAPE), graphed=False)
    prompt = prompts(options.seed, BATCH, PROMPT, VOCABULARY)
    own, other = cores(options.fixed)
    os.sched_setaffinity(0, {own})
    sealer = subprocess.Popen([sys.executable, "-c", SEALER, str(other)], stdout=subprocess.PIPE)
    sealer.stdout.readline()
    try:
        serve(record, prompt, 1, lodgers.start, lodgers.following, warm_up=True)
        texts = serve(record, prompt, options.steps, lodgers.start, lodgers.following)
    finally:
        sealer.terminate()
        sealer.wait()
    finish(record, texts, VOCABULARY)


main()
