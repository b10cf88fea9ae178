"""Names PyTorch's operators for `llmprof run --torch`, in an unmodified program.

This folder stands first on PYTHONPATH, so every Python of the run imports this file at its start. It waits until the
program itself imports torch, then lets torch name each operator, with input shapes, as an NVTX range (as
torch.autograd.profiler.emit_nvtx does), and tells libllmprof_inject.so of each nn.Module's forward and of the program's Python
functions (llmprof_frames.py). All three become rows of the trace. Nothing here may change or break the program: every failure is
silent but for a line in the recording, and a sitecustomize of the user's own still runs.
"""

import os
import sys


def _run_next_sitecustomize():
    """Another sitecustomize further down the path is the user's: it must run as if this one were not there."""
    import importlib.machinery

    here = os.path.dirname(os.path.abspath(__file__))
    rest = [p for p in sys.path if os.path.abspath(p or ".") != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", rest)
    if spec is None or spec.loader is None:
        return
    import importlib.util

    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _name_modules(naming, push, pop):
    """nn.Module.forward, named like the class; the modules that the program calls, and those inside."""
    import threading

    from torch.nn.modules import module as modules

    texts, here = {}, threading.local()

    def before(module, _inputs):
        naming.follow()
        if not naming.on:
            return
        kind = type(module)
        text = texts.get(kind)
        if text is None:
            text = texts[kind] = ("[module] " + kind.__name__).encode("utf-8", "replace")
        if not hasattr(here, "open"):
            here.open = []
        here.open.append(module)
        push(text)

    def after(module, _inputs, _outputs):
        open_here = getattr(here, "open", None)  # one that began while names were not wanted is not ended
        if open_here and open_here[-1] is module:
            open_here.pop()
            pop()

    modules.register_module_forward_pre_hook(before)
    # always_call: a forward that raises must not stay open
    modules.register_module_forward_hook(after, always_call=True)


def _operators(torch):
    """(switch on, switch off) of the names of operators, for the calling thread."""
    profiler = torch.autograd.profiler
    try:
        # What emit_nvtx does, but for its two waits for the GPU, which a program in the middle of its work must not do.
        options = (True, False, False, False, False, profiler._ExperimentalConfig())
        config = profiler.ProfilerConfig(profiler.ProfilerState.NVTX, *options)
        enable, disable = profiler._enable_profiler, profiler._disable_profiler
        return (lambda: enable(config, set())), disable
    except (AttributeError, TypeError):  # a torch whose internals are others: on once, and never off
        return (lambda: profiler.emit_nvtx(enabled=True, record_shapes=True).__enter__()), lambda: None


def _name_threads(naming):
    import atexit
    import threading

    naming.follow()
    atexit.register(naming.leave)
    # The state belongs to one thread; threads started from now on get their own.
    run = threading.Thread.run

    def run_named(self):
        naming.follow()
        try:
            run(self)
        finally:
            naming.leave()

    threading.Thread.run = run_named


def _torch_imported(torch):
    try:
        if os.environ.get("LLMPROF_TORCH") == "1":
            import llmprof_frames

            naming = llmprof_frames.Naming(_operators(torch))
            _name_threads(naming)
            recorder = llmprof_frames.recorder()
            if recorder is not None:
                _name_modules(naming, *recorder)
                llmprof_frames.start(os.path.dirname(os.path.abspath(torch.__file__)), naming, *recorder)
                naming.watch()
    except Exception as error:  # a torch too old or too new for this: the program goes on without names
        try:
            torch.cuda.nvtx.mark("llmprof: operators of PyTorch are not named: %r" % (error,))
        except Exception:
            pass


class _WaitForTorch:
    """Finds torch like every other finder would, and learns when its import is complete."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        import importlib.machinery

        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            _torch_imported(module)

        spec.loader.exec_module = exec_module
        return spec


if os.environ.get("LLMPROF_TORCH") == "1" and os.environ.get("LLMPROF_SESSION"):
    sys.meta_path.insert(0, _WaitForTorch())
_run_next_sitecustomize()
