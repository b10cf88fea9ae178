#!/usr/bin/env python3
"""Holds the stacks that the injection library reads from the interpreter's memory against those that Python gives.

    python3 python_stack_test.py LIBRARY

LIBRARY is python_stack_module.so. ctypes gives up the interpreter's lock around the call, as PyTorch does around calls
of CUDA. Fails in an interpreter that the reader knows but reads wrongly; skipped (77) in one that it does not know.
"""
import ctypes
import sys
import threading

MOST_FRAMES = 12
library = ctypes.CDLL(sys.argv[1])
library.python_stack.restype = ctypes.c_int64
failures = []


def read(of_models=False):
    text = ctypes.create_string_buffer(2000)
    key = ctypes.c_uint64()
    length = library.python_stack(text, ctypes.c_int64(len(text)), ctypes.byref(key), int(of_models))
    return (text.raw[:length].decode() if length >= 0 else None), key.value


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
    if inside[1] != "[nn.Module]" or not inside[2].startswith("modules.<locals>.<lambda>"):
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


def hashes():
    keys = [read()[1] for _ in range(2)]
    if keys[0] != keys[1]:
        failures.append("equal stacks have different keys")
    if read()[1] == keys[0]:
        failures.append("another line has the same key")


def busy(stop):
    while not stop.is_set():
        sum(i * i for i in range(1000))


def main():
    if read()[0] is None:
        known = (3, 10) <= sys.version_info[:2] <= (3, 12)
        print(f"no stack in Python {sys.version.split()[0]}")
        return 1 if known else 77
    all_cases()
    modules()
    models()
    hashes()
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
