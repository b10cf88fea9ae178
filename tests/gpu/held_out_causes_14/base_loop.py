"""What the programs of this folder have around them: the model and the loops of ../held_out_causes_2."""
import os
import sys

sys.path.insert(1, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "held_out_causes_2"))
from common_loop import *  # noqa: E402,F401,F403
from common_model import *  # noqa: E402,F401,F403
