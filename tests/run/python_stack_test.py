#!/usr/bin/env python3
"""Holds the stacks that the injection library reads from the interpreter's memory against those that Python gives.

    python3 python_stack_test.py LIBRARY

LIBRARY is python_stack_module.so. ctypes gives up the interpreter's lock around the call, as PyTorch does around calls
of CUDA. Fails in an interpreter that the reader knows but reads wrongly; skipped (77) in one that it does not know.
"""
import cProfile
import copy
import ctypes
import mmap
import random
import sys
import threading
import time

MOST_FRAMES = 12
library = ctypes.CDLL(sys.argv[1])
library.python_stack.restype = ctypes.c_int64
library.python_thread.restype = ctypes.c_void_p
library.python_stack_of.restype = ctypes.c_int64
library.python_stack_of.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64]
failures = []


def read(of_models=False):
    text = ctypes.create_string_buffer(2000)
    key = ctypes.c_uint64()
    length = library.python_stack(text, ctypes.c_int64(len(text)), ctypes.byref(key), int(of_models))
    return (text.raw[:length].decode() if length >= 0 else None), key.value


def read_of(thread):
    text = ctypes.create_string_buffer(2000)
    length = library.python_stack_of(thread, text, len(text))
    return text.raw[:length].decode(errors="replace") if length >= 0 else None


def name_of(code):
    return getattr(code, "co_qualname", code.co_name)[-80:] if sys.version_info >= (3, 11) else code.co_name[-80:]


def of_package(path):
    return any(part in path for part in ("/site-packages/", "/dist-packages/", "/lib/python3")) or path.startswith("<")


def expected(frame):
    out = []
    while frame is not None:
        path = frame.f_code.co_filename[-200:]
        if not of_package(path) and len(out) < MOST_FRAMES:
            out.append((name_of(frame.f_code), path, frame.f_lineno))
        frame = frame.f_back
    return out


def check(what):
    """Its own frame and read()'s come first; they are left out, for their lines differ."""
    text, _ = read()
    frames = expected(sys._getframe())[1:MOST_FRAMES - 1]
    wanted = " < ".join(f"{name} ({path}:{line})" for name, path, line in frames)
    got = " < ".join(text.split(" < ")[2:2 + len(frames)])
    if got != wanted:
        failures.append(f"{what}: read\n  {got}\nfor\n  {wanted}")


def plain():
    check("a call over one line")
    check(
        "a call over"
        " lines"
    )


class Model:
    def forward(self, x):
        return [check("a list comprehension") for _ in range(1)] + [
            x,
        ]

    @staticmethod
    def decorated():
        try:
            raise ValueError
        except ValueError:
            check("an exception's handler")
        finally:
            check("a finally block")


def generator():
    for i in range(2):
        check("a generator")
        yield i


def deep(depth):
    if depth > 0:
        return deep(depth - 1)
    return check("a deep recursion")


def far_apart():
    """Lines far apart, backward jumps, long expressions: entries of every form in the table of lines."""
    body = "def größe(check):\n" + "\n" * 700 + "    x = 0\n" + "    x += 1\n" * 300
    body += "    for i in range(2):\n" + "\n" * 90 + "        check('far lines')\n        if i == 0:\n            continue\n"
    body += "    check('a line behind a loop')\n    (check('left') or\n" + "\n" * 200 + "     check('right'))\n"
    body += " " * 4 + "y = " + " + ".join(f"x * {n}" for n in range(400)) + "; check('behind a long line')\n"
    for path in ("/tmp/größe.py", "/tmp/模型.py", "/tmp/🦙.py", "/tmp/" + "long/" * 60 + "path.py"):
        names = {}
        exec(compile(body, path, "exec"), names)
        names["größe"](check)


def all_cases():
    plain()
    Model().forward(1)
    Model.decorated()
    list(generator())
    (lambda: check("a lambda"))()
    deep(5)
    deep(200)
    far_apart()
    sorted([2, 1], key=lambda x: check("called from C") or x)


def modules():
    """A function that PyTorch's nn.Module calls: the calls between are left out, and said to be there."""
    names = {}
    exec(compile("def call(f):\n    return f()\n", "/x/site-packages/torch/nn/modules/module.py", "exec"), names)
    exec(compile("def other(f):\n    return f()\n", "/x/site-packages/numpy/core.py", "exec"), names)

    def forward():
        return read()[0].split(" < ")[1:4]

    inside = names["call"](lambda: names["call"](forward))
    if inside[1] != "[nn.Module]" or "<lambda> (" not in inside[2]:
        failures.append(f"a module's call is not told: {inside}")
    if "[nn.Module]" in names["other"](forward)[:2]:
        failures.append("a call by another package is told as a module's")


def models():
    """Where kernels are launched, the frames of a package that holds the model are wanted, and PyTorch's not."""
    names = {}
    for name, path in (("llama", "/x/site-packages/transformers/models/llama.py"), ("linear", "/x/site-packages/torch/nn/linear.py"),
                       ("jit", "/x/dist-packages/triton/runtime/jit.py"), ("wrapped", "/usr/lib/python3.11/contextlib.py")):
        exec(compile(f"def {name}(f):\n    return f()\n", path, "exec"), names)

    def launch(of_models):
        return names["llama"](lambda: names["wrapped"](lambda: names["linear"](lambda: names["jit"](lambda: read(of_models)[0]))))

    for of_models in (False, True):
        frames = [frame.split(" ")[0].rpartition(".")[2] for frame in launch(of_models).split(" < ")]
        frames = [frame for frame in frames if frame != "<lambda>"]
        wanted = ["read"] + ["llama"] * of_models + ["launch", "models"]
        if frames[:len(wanted)] != wanted:
            failures.append(f"frames of {'models' if of_models else 'the program'}: {frames}, wanted {wanted}")


class Audit:
    def line(self, frame, event, argument):
        return self.line


def hooks():
    """What sys.settrace and sys.setprofile were given, by function or by the type of C code, and only while it is set."""
    def function(frame, event, argument):
        return None

    def last():
        return [frame for frame in read()[0].split(" < ") if frame.startswith("[sys.")]

    bare = read()[1]
    place = f"({__file__[-120:]}:{function.__code__.co_firstlineno})"
    for turn_on, turn_off, wanted in (
            (lambda: sys.settrace(function), lambda: sys.settrace(None), f"[sys.settrace {name_of(function.__code__)} {place}]"),
            (lambda: sys.setprofile(function), lambda: sys.setprofile(None), f"[sys.setprofile {name_of(function.__code__)} {place}]"),
            (lambda: sys.settrace(Audit().line), lambda: sys.settrace(None),
             f"[sys.settrace {name_of(Audit.line.__code__)} ({__file__[-120:]}:{Audit.line.__code__.co_firstlineno})]")):
        before = sys.gettrace(), sys.getprofile()
        turn_on()
        found, key = last(), read()[1]
        turn_off()
        if found != [wanted] or key == bare:
            failures.append(f"hooks: read {found} for [{wanted}]")
        if (sys.gettrace(), sys.getprofile()) != before or last():
            failures.append(f"hooks: {last()} where there is none")
    if sys.version_info < (3, 12):  # from then on cProfile is called by sys.monitoring, which no thread shows
        profile = cProfile.Profile()
        profile.enable()
        found = last()
        profile.disable()
        if len(found) != 1 or not found[0].startswith("[sys.setprofile ") or "Profile" not in found[0]:
            failures.append(f"hooks: read {found} for cProfile's")


def hashes():
    keys = [read()[1] for _ in range(2)]
    if keys[0] != keys[1]:
        failures.append("equal stacks have different keys")
    if read()[1] == keys[0]:
        failures.append("another line has the same key")


def busy(stop):
    while not stop.is_set():
        sum(i * i for i in range(1000))


def parked(ready, thread, release):
    thread.append(library.python_thread())
    ready.set()
    release.wait()  # whose frames are the library's and left out


def of_another_thread():
    """The stack of a thread that stands still, read by this one, against the one that Python has of it."""
    ready, release, thread = threading.Event(), threading.Event(), []
    other = threading.Thread(target=parked, args=(ready, thread, release))
    other.start()
    ready.wait()
    time.sleep(0.2)
    text = read_of(thread[0])
    wanted = " < ".join(f"{name} ({path}:{line})" for name, path, line in expected(sys._current_frames()[other.ident]))
    if text != wanted:
        failures.append(f"of another thread: read\n  {text}\nfor\n  {wanted}")
    release.set()
    other.join()


def leaf(n):
    return sum(i * i for i in range(n))


def branch(n):
    if n > 0:
        branch(n - 1)
    leaf(20)
    return copy.deepcopy([n, {"n": n}])


def running(thread, stop):
    thread.append(library.python_thread())
    while not stop.is_set():
        branch(6)
        exec(compile(f"def made_{len(thread)}():\n    return 1\n", "/tmp/made.py", "exec"), {})


def while_it_runs():
    """Every stack of a thread that calls, returns and frees code all the time holds only functions that the program has."""
    stop, thread = threading.Event(), []
    other = threading.Thread(target=running, args=(thread, stop))
    other.start()
    while not thread:
        time.sleep(0.001)
    lines = {"running": running, "branch": branch, "leaf": leaf}
    read_ones, whole, end = 0, 0, time.monotonic() + 3
    while time.monotonic() < end:
        text = read_of(thread[0])
        if text is None:
            continue
        read_ones += 1
        whole += text.rpartition(" < ")[2].startswith("running (")
        for frame in text.split(" < "):
            name, _, place = frame.rpartition(" (")
            path, _, line = place.rstrip(")").rpartition(":")
            function = lines.get(name.partition(".")[0])
            if path == __file__:
                first = function.__code__.co_firstlineno if function is not None else int(line)
                if not first <= int(line) <= first + 8:
                    failures.append(f"while it runs: {frame} is no line of {name}")
            elif path != "/tmp/made.py" and not of_package(path):
                failures.append(f"while it runs: {frame} is none of the program's")
    stop.set()
    other.join()
    print(f"of a running thread {read_ones} stacks, {whole} of them down to its first function")
    if whole < 100 or whole < 0.98 * read_ones:  # generators that give a value meanwhile are read again
        failures.append(f"of a running thread {whole} of {read_ones} stacks were whole")
    for _ in range(1000):  # the thread is gone, and its memory may be anything
        read_of(thread[0])


def nowhere():
    """Pointers to nothing, to freed memory and to bytes of any kind give no stack, and the process lives."""
    generator = random.Random(11)
    gone = mmap.mmap(-1, 1 << 16)
    address = ctypes.addressof(ctypes.c_char.from_buffer(gone))
    held = [bytes(generator.getrandbits(8) for _ in range(4096)) for _ in range(8)]
    objects = [[], {}, "text", read, read.__code__, 1 << 70, *held]
    for pointer in [0, 1, 8, 4095, 4096, 1 << 46, (1 << 47) - 8, 1 << 47, (1 << 64) - 8, address, *map(id, objects),
                    *(id(one) + 32 for one in held), *(generator.getrandbits(bits) for bits in range(64) for _ in range(20))]:
        if (text := read_of(pointer)) is not None:
            failures.append(f"a stack was read where there is none, at {pointer:#x}: {text}")


def main():
    if read()[0] is None:
        known = (3, 10) <= sys.version_info[:2] <= (3, 12)
        print(f"no stack in Python {sys.version.split()[0]}")
        return 1 if known else 77
    all_cases()
    modules()
    models()
    hooks()
    hashes()
    of_another_thread()
    while_it_runs()
    nowhere()
    # Other threads run Python meanwhile, and stacks are read in several threads at once.
    stop = threading.Event()
    runners = [threading.Thread(target=busy, args=(stop,)) for _ in range(2)]
    for runner in runners:
        runner.start()
    readers = [threading.Thread(target=lambda: [all_cases() for _ in range(20)]) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    stop.set()
    for runner in runners:
        runner.join()
    for failure in failures[:10]:
        print(failure)
    print(f"Python {sys.version.split()[0]}: {'failed' if failures else 'all stacks equal'}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
