"""Python functions and modules of a program as rows of the recording, for `llmprof run --torch`.

libllmprof_inject.so takes a text when a function begins and is told when it ends. Seen are the functions of the program
and of the libraries that models are written in; the standard library and torch are left out, because what they do shows as
operators and calls. Python 3.12 and later say so by sys.monitoring, which costs nothing for a function that is not wanted;
before, sys.setprofile is called for every function, which is slower.
"""

import _thread
import ctypes
import os
import sys
import sysconfig
import threading

_GENERATOR = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR: left and entered in the middle


def recorder():
    """(push, pop) of the recorder in this process, or None. PyDLL: a call keeps the interpreter's lock, so it is short."""
    library = ctypes.PyDLL(None)
    try:
        push, pop = library.llmprof_push_frame, library.llmprof_pop_frame
    except AttributeError:
        return None
    push.argtypes, push.restype = [ctypes.c_char_p], None
    pop.argtypes, pop.restype = [], None
    return push, pop


class Naming:
    """Whether names are wanted: not while the recorder records no kernels. `on` is for every thread; operators are named
    by thread, so each one follows at the next module or function that it comes to. operators: (switch on, switch off)
    for the calling thread."""

    def __init__(self, operators):
        self.on = True
        self.operators_on, self.operators_off = operators
        self.here = threading.local()

    def follow(self):
        if getattr(self.here, "on", False) == self.on:
            return
        self.here.on = self.on
        try:
            (self.operators_on if self.on else self.operators_off)()
        except Exception:
            self.operators_on = self.operators_off = lambda: None

    def leave(self):
        """At the end of a thread: torch warns about observers that outlive it."""
        if getattr(self.here, "on", False):
            self.here.on = False
            self.operators_off()

    def _watch(self, wait):
        while True:
            self.on = bool(wait(int(self.on), 1000))

    def watch(self):
        """Has a thread of its own follow the recorder; it sleeps outside of the interpreter."""
        try:
            wait = ctypes.CDLL(None).llmprof_wait_names
        except AttributeError:
            return
        wait.argtypes, wait.restype = [ctypes.c_int, ctypes.c_int], ctypes.c_int

        def begin():
            # Below threading.Thread: this is none of the program's threads.
            _thread.start_new_thread(self._watch, (wait,))

        begin()
        os.register_at_fork(after_in_child=begin)


def _folders():
    paths = sysconfig.get_paths()
    sites = {paths.get(name) for name in ("purelib", "platlib")}
    unwanted = {paths.get(name) for name in ("stdlib", "platstdlib")}
    return ({os.path.join(path, "") for path in unwanted if path}, {os.path.join(path, "") for path in sites if path})


class Texts:
    """The text of a function, or b"" if it is not wanted. Asked once for each."""

    def __init__(self, torch_folder):
        self.standard, self.sites = _folders()
        self.own = (os.path.join(os.path.dirname(os.path.abspath(__file__)), ""), os.path.join(torch_folder, ""))
        self.texts = {}

    def _wanted(self, code):
        name = code.co_filename
        if code.co_flags & _GENERATOR or name.startswith("<") or name.startswith(self.own):
            return False
        if any(name.startswith(site) for site in self.sites) or "-packages" + os.sep in name:
            return True
        return not any(name.startswith(folder) for folder in self.standard)

    def _short(self, name):
        best = max((path for path in sys.path if path and name.startswith(os.path.join(path, ""))), key=len, default="")
        return name[len(best):].lstrip(os.sep) if best else name

    def text(self, code):
        found = self.texts.get(code)
        if found is None:
            found = b""
            if self._wanted(code):
                function = getattr(code, "co_qualname", code.co_name)
                found = f"[python] {self._short(code.co_filename)}({code.co_firstlineno}): {function}"
                found = found.encode("utf-8", "replace")
            self.texts[code] = found
        return found


class _Open(threading.local):
    """Functions of this thread that were told to the recorder: one that began before is not ended."""

    def __init__(self):
        self.codes = []


def by_monitoring(monitoring, texts, naming, push, pop):
    tool = next((tool for tool in (monitoring.PROFILER_ID, 4, 3) if monitoring.get_tool(tool) is None), None)
    if tool is None:
        return False
    disable, open_here = monitoring.DISABLE, _Open()

    def started(code, _offset):
        text = texts.text(code)
        if not text:
            return disable
        naming.follow()
        if naming.on:
            open_here.codes.append(code)
            push(text)

    def ended(code, _offset, _value):
        codes = open_here.codes
        if codes and codes[-1] is code:
            codes.pop()
            pop()
        elif not texts.text(code):
            return disable

    def left(code, _offset, _exception):  # by an exception; this event cannot be disabled
        codes = open_here.codes
        if codes and codes[-1] is code:
            codes.pop()
            pop()

    events = monitoring.events
    monitoring.use_tool_id(tool, "llmprof")
    monitoring.register_callback(tool, events.PY_START, started)
    monitoring.register_callback(tool, events.PY_RETURN, ended)
    monitoring.register_callback(tool, events.PY_UNWIND, left)
    monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)
    return True


def by_profile(texts, naming, push, pop):
    if sys.getprofile() is not None:
        return False
    open_here = _Open()

    def event(frame, what, _argument):
        if what == "call":
            text = texts.text(frame.f_code)
            if text:
                naming.follow()
                if naming.on:
                    open_here.codes.append(frame.f_code)
                    push(text)
        elif what == "return":
            codes = open_here.codes
            if codes and codes[-1] is frame.f_code:
                codes.pop()
                pop()

    threading.setprofile(event)
    sys.setprofile(event)
    return True


def start(torch_folder, naming, push, pop):
    """True if functions are seen from now on."""
    texts = Texts(torch_folder)
    if hasattr(sys, "monitoring"):
        return by_monitoring(sys.monitoring, texts, naming, push, pop)
    return by_profile(texts, naming, push, pop)
