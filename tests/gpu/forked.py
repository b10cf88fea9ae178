#!/usr/bin/env python3
"""A process that has imported PyTorch and forks Python programs, so that each is spared the seconds of the import.

    Forks(python, env, cpus).run([program, *arguments], timeout)

CUDA begins in the child: nothing here touches it. A line of JSON on standard input is a program and its arguments, a line on
standard output how it ended and where its output lies.
"""
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading


def serve():
    import gc

    import torch  # noqa: F401

    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
    for line in sys.stdin:
        words = json.loads(line)
        output = tempfile.NamedTemporaryFile(mode="w", suffix=".out", delete=False)
        child = os.fork()
        if child == 0:
            os.dup2(output.fileno(), 1)
            sys.argv = words
            sys.path[0] = os.path.dirname(words[0])
            try:
                runpy.run_path(words[0], run_name="__main__")
                failed = False
            except SystemExit as end:
                failed = end.code not in (None, 0)
            except BaseException as error:  # noqa: BLE001: the child ends here, whatever it was
                print(repr(error), file=sys.stderr, flush=True)
                failed = True
            sys.stdout.flush()
            os._exit(failed)
        _, status = os.waitpid(child, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status), "output": output.name}), flush=True)


class Forks:
    def __init__(self, python, env=None, cpus=None):
        self.start = lambda: subprocess.Popen([python, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
                                              preexec_fn=lambda: cpus and os.sched_setaffinity(0, cpus), start_new_session=True)
        self.process = self.start()

    def run(self, words, timeout):
        """What the program printed; "" if it failed."""
        if self.process.poll() is not None:  # the program before took too long
            self.process = self.start()
        overdue = threading.Timer(timeout, lambda: os.killpg(self.process.pid, 9))
        overdue.start()
        try:
            self.process.stdin.write(json.dumps(words) + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        finally:
            overdue.cancel()
        if not line:  # it is at its end, too
            self.process.wait()
            return ""
        answer = json.loads(line)
        with open(answer["output"]) as file:
            text = file.read()
        os.unlink(answer["output"])
        return text if answer["status"] == 0 else ""

    def close(self):
        self.process.stdin.close()
        self.process.wait()


if __name__ == "__main__":
    serve()
