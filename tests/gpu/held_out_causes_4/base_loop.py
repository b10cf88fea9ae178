"""What the programs of this folder have around them: the model and the loops of ../held_out_causes_2, and a question."""
import os
import sys

import torch

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "held_out_causes_2"))
from common_loop import begin, finish, prompts, serve, serve_prefills  # noqa: E402,F401
from common_model import Block, Decoder, Model, Shape, greedy, replayed  # noqa: E402,F401


def need_gpus(count):
    """Ends the program where there are too few GPUs."""
    found = torch.cuda.device_count()
    if found < count:
        sys.exit(f"{os.path.basename(sys.argv[0])} needs {count} GPUs, but PyTorch sees {found}.")
