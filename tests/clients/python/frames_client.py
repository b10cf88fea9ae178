"""Functions and modules that --torch is to see, and some that it is not. "monitoring": through sys.monitoring, which is
made of sys.setprofile where this Python has none."""
import json
import sys
import threading


class Monitoring:
    """The part of sys.monitoring that is used, with its rule that a callback may switch an event of a function off."""

    DISABLE, PROFILER_ID = object(), 2

    class events:
        PY_START, PY_RETURN, PY_UNWIND = 1, 2, 4

    def __init__(self):
        self.callbacks, self.disabled, self.raising = {}, set(), {}

    def get_tool(self, _tool):
        return None

    def use_tool_id(self, _tool, name):
        assert name == "llmprof"

    def register_callback(self, _tool, event, function):
        self.callbacks[event] = function

    def set_events(self, _tool, _events):
        sys.setprofile(self.profile)
        threading.setprofile(self.profile)

    def call(self, event, code, value=None):
        if (event, code) in self.disabled:
            return
        arguments = (code, 0) if event == self.events.PY_START else (code, 0, value)
        if self.callbacks[event](*arguments) is self.DISABLE:
            assert event != self.events.PY_UNWIND
            self.disabled.add((event, code))

    def profile(self, frame, what, argument):
        if what == "call":
            self.call(self.events.PY_START, frame.f_code)
        elif what == "return":
            unwinds = argument is None and frame.f_code.co_name == "fails"
            self.call(self.events.PY_UNWIND if unwinds else self.events.PY_RETURN, frame.f_code, argument)


if "monitoring" in sys.argv and not hasattr(sys, "monitoring"):
    sys.monitoring = Monitoring()

import torch  # noqa: E402: the hook module begins here


def numbers(count):
    yield from range(count)


def helper(count):
    return json.dumps(list(numbers(count)))


def fails():
    raise ValueError("on purpose")


class Layer(torch.nn.Module):
    def forward(self, count):
        return helper(count)


def work():
    layer = Layer()
    for count in range(3):
        layer(count)
    try:
        fails()
    except ValueError:
        pass


def windows():
    """Names are not wanted, and then wanted for a while: operators are switched with the next module or function."""
    import time

    naming = next(cell.cell_contents for cell in torch.nn.modules.module._before[0].__closure__
                  if type(cell.cell_contents).__name__ == "Naming")
    until = time.monotonic() + 5
    while naming.on and time.monotonic() < until:
        time.sleep(0.01)
    work()
    work()
    naming.on = True
    work()


if "windows" in sys.argv:
    windows()
else:
    work()
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
print("done", *(torch.autograd.profiler.switches if "windows" in sys.argv or "old" in sys.argv else []))
