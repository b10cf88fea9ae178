"""What the programs of this folder share: all of it is that of ../held_out_programs_17/parts.py."""
import os

from contract import loaded

earlier = loaded("parts_17", os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "held_out_programs_17", "parts.py"))
MADE, SIZE, Plain, Reader = earlier.MADE, earlier.SIZE, earlier.Plain, earlier.Reader
begun, captured, in_bands, in_batches = earlier.begun, earlier.captured, earlier.in_bands, earlier.in_batches
drawn, evened, prompt, weight, swiglu = earlier.drawn, earlier.evened, earlier.prompt, earlier.weight, earlier.swiglu
layer_of, heads_of, shares_of, attended = earlier.layer_of, earlier.heads_of, earlier.shares_of, earlier.attended
one_text, tables, together = earlier.one_text, earlier.tables, earlier.together
turned = earlier.turned
