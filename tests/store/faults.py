#!/usr/bin/env python3
"""The run store under faults, by the program itself: every call that changes a file made to fail in turn, processes
killed at every such call and at random, full disks, an index that is damaged, many processes at once, and retention
against a model of it that shares nothing with llmprof.

After each fault: what was there before is there, byte for byte; `verify` finds no damage; the new run is whole,
incomplete or not there; the command printed and ended as it does without a store. After the next command without a
fault, nothing is left behind.

    tests/store/faults.py --binary build/release/bin/llmprof --shim build/release/fakes/faulty_files.so \\
                          --kills 200 --full-disks 20
"""

import argparse
import errno
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
INPUT = HERE.parent / "golden/inputs/cold_only.json.gz"
LIMIT_S = 60
FAULTS = (errno.EIO, errno.ENOSPC)


class Failure(Exception):
    pass


def check(condition, text):
    if not condition:
        raise Failure(text)


class Store:
    """A store of its own, and llmprof on it."""

    def __init__(self, options, folder, **settings):
        self.options = options
        self.folder = pathlib.Path(folder)
        self.root = self.folder / "runs"
        settings = {"compress_from_kb": 1, **settings}
        self.environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "LC_ALL": "C.UTF-8", "NO_COLOR": "1",
                            "LLMPROF_STORE": str(self.root), "LLMPROF_NVML": "/nowhere", "XDG_RUNTIME_DIR": str(folder),
                            **{f"LLMPROF_STORE_{key.upper()}": str(value) for key, value in settings.items()}}
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS"):
            if name in os.environ:
                self.environment[name] = os.environ[name]

    def start(self, *words, **faults):
        environment = dict(self.environment)
        if faults:
            environment.update({f"FAULTY_{key.upper()}": str(value) for key, value in faults.items()})
            environment.update(FAULTY_ROOT=str(self.root), LD_PRELOAD=str(self.options.shim))
        return subprocess.Popen([self.options.binary, *words], cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def run(self, *words, **faults):
        process = self.start(*words, **faults)
        out, err = process.communicate(timeout=LIMIT_S)
        return process.returncode, out, err.decode(errors="replace")

    def good(self, *words):
        code, out, err = self.run(*words)
        check(code == 0, f"llmprof {' '.join(words)}: exit {code}: {err}")
        return out

    def answer(self, *words):
        return json.loads(self.good("runs", *words, "--json"))

    def rows(self):
        return self.answer("list")["runs"]

    def files(self):
        """Content of every file of every run, by its path; of files that may be compressed in place, what they hold."""
        found = {}
        for path in sorted(self.root.glob("[0-9]*/**/*")):
            if path.is_file() and path.name not in (".live", "manifest.json.new"):
                found[str(path.relative_to(self.root))] = hashlib.sha256(path.read_bytes()).hexdigest()
        return found

    def count(self, words):
        """The calls that the command makes, by their names."""
        log = self.folder / "calls"
        log.unlink(missing_ok=True)
        self.run(*words, log=log)
        return log.read_text().split()

    def copy_of(self, other):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(other, self.root, symlinks=True)


ANALYZE = ("analyze", str(INPUT))
RECORD = ("run", "--no-report", "--", "true")


def sound(store, what):
    """No damage, and no number twice; gives the rows by number."""
    code, out, err = store.run("runs", "verify", "--json")
    check(code == 0, f"{what}: verify ends with {code}: {out.decode()} {err}")
    rows = store.rows()
    numbers = [row["number"] for row in rows]
    check(len(set(numbers)) == len(numbers), f"{what}: a number twice: {numbers}")
    for row in rows:
        check(row["state"] in ("whole", "incomplete"), f"{what}: run {row['number']} is {row['state']}")
    return {row["number"]: row for row in rows}


def settled(store, what):
    """After a command without a fault nothing is left behind but runs."""
    problems = json.loads(store.run("runs", "verify", "--json")[1])["problems"]
    problems = [problem for problem in problems if "incomplete" not in problem["what"]]
    check(not problems, f"{what}: left behind: {problems}")


def unchanged(before, store, what):
    after = store.files()
    for path, content in before.items():
        check(after.get(path) == content, f"{what}: {path} is {'another' if path in after else 'gone'}")


# ---- every call fails in turn

def faults_of(store, words, plain, kinds, every, highest):
    """One command with a fault at each of its calls."""
    calls = store.count(words)
    shutil.rmtree(store.root)
    store.copy_of(highest)
    before, numbers = store.files(), {row["number"] for row in store.rows()}
    tried = noticed = 0
    for at in range(1, len(calls) + 1):
        for n, (kind, error) in enumerate(kinds):
            if (at * len(kinds) + n) % every:
                continue
            what = f"{words[0]}, {calls[at - 1]} {at} of {len(calls)}, {kind} {errno.errorcode.get(error, '')}"
            store.copy_of(highest)
            code, out, err = store.run(*words, **{kind: at, "errno": error})
            tried += 1
            noticed += "not kept in the run store" in err
            if kind != "kill":
                check((code, out) == plain, f"{what}: ended with {code} and printed {len(out)} bytes, without a store "
                                            f"{plain[0]} and {len(plain[1])}: {err}")
                check(err.count("not kept in the run store") <= 1, f"{what}: several notices: {err}")
            unchanged(before, store, what)
            rows = sound(store, what)
            check(numbers <= set(rows), f"{what}: runs are gone: {numbers - set(rows)}")
            check(len(set(rows) - numbers) <= 1 and all(n > max(numbers) for n in set(rows) - numbers), f"{what}: {set(rows)}")
            store.good(*ANALYZE)
            after = sound(store, what)
            check(max(after) > max(rows), f"{what}: a number was given again")
            unchanged(before, store, what)
            settled(store, what)
    check(tried < 8 or noticed, f"{words[0]}: none of {tried} faults was noticed")
    by_name = ", ".join(f"{calls.count(name)} {name}" for name in sorted(set(calls)))
    print(f"{words[0]}: {tried} faults at {len(calls)} calls ({by_name}), {noticed} of them with a notice")


def every_call(options, work):
    """Without retention: nothing may change. Then compression and removal, whose faults leave the old or the new."""
    store = Store(options, work)
    kinds = [("at", error) for error in FAULTS] + [("from", errno.ENOSPC), ("kill", 0)]
    for words in (ANALYZE, RECORD):
        shutil.rmtree(store.root, ignore_errors=True)
        bare = {**store.environment, "LLMPROF_STORE": "off"}
        done = subprocess.run([options.binary, *words], cwd=work, env=bare, capture_output=True, check=False)
        plain = done.returncode, done.stdout
        store.good(*ANALYZE)
        store.good(*RECORD)
        store.good("runs", "pin", "1")
        held = work / "held"
        shutil.rmtree(held, ignore_errors=True)
        shutil.copytree(store.root, held, symlinks=True)
        faults_of(store, words, plain, kinds, options.every, held)
    shutil.rmtree(work / "llmprof-runs", ignore_errors=True)


def retention_calls(options, work):
    store = Store(options, work, keep=1, keep_compressed=1)
    for _ in range(3):
        store.good(*ANALYZE)
    store.good("runs", "pin", "2")
    store.good(*ANALYZE)  # 4 as it is, 3 compressed, 2 pinned
    held = work / "held"
    shutil.rmtree(held, ignore_errors=True)
    shutil.copytree(store.root, held, symlinks=True)
    calls = store.count(ANALYZE)  # one more: 5 as it is, 4 compressed, 3 removed
    tried = 0
    for at in range(1, len(calls) + 1):
        for n, (kind, error) in enumerate([("at", errno.EIO), ("from", errno.ENOSPC), ("kill", 0)]):
            if (at * 3 + n) % options.every:
                continue
            what = f"retention, {calls[at - 1]} {at} of {len(calls)}, {kind}"
            store.copy_of(held)
            store.run(*ANALYZE, **{kind: at, "errno": error})
            tried += 1
            rows = sound(store, what)
            check({2, 4} <= set(rows), f"{what}: one that is to stay is gone: {sorted(rows)}")
            check(3 in rows or 5 in rows, f"{what}: 3 is gone although nothing came: {sorted(rows)}")
            store.good(*ANALYZE)
            rows = sound(store, what)
            plain = sorted((n for n in rows if n != 2), reverse=True)
            check(len(plain) == 2 and 2 in rows, f"{what}: retention leaves {sorted(rows)}")
            check([rows[n]["compressed"] for n in plain] == [False, True], f"{what}: the wrong ones are compressed")
            settled(store, what)
    print(f"retention: {tried} faults at {len(calls)} calls")


# ---- killed at random, full disks

def kills(options, work):
    store = Store(options, work, keep=2, keep_compressed=2)
    store.good(*ANALYZE)
    store.good("runs", "pin", "1")
    pinned = {path: content for path, content in store.files().items() if path.startswith("0001")}
    for _ in range(5):  # until each further one compresses and removes others
        store.good(*ANALYZE)
        store.good(*RECORD)
    begun = time.monotonic()
    for _ in range(4):
        store.good(*ANALYZE)
        store.good(*RECORD)
    usual = (time.monotonic() - begun) / 8
    lucky = random.Random(7)
    before, ended, came, broken = {}, 0, 0, 0
    for n in range(options.kills):
        what = f"kill {n}"
        process = store.start(*(ANALYZE if n % 2 else RECORD))
        time.sleep(lucky.uniform(0, 1.5 * usual))
        ended += process.poll() is not None
        process.kill()
        process.communicate()
        rows = sound(store, what)
        unchanged(pinned, store, what)
        # Of what was there the newest three of a kind stay, whether the fourth came or not.
        for kind in ("analysis", "run"):
            stay = sorted((n for n, row in before.items() if row["kind"] == kind and n != 1), reverse=True)[:3]
            check(set(stay) <= set(rows), f"{what}: {sorted(set(stay) - set(rows))} lost")
        check(not before or max(rows) >= max(before), f"{what}: numbers go back")
        fresh = set(rows) - set(before) if before else set()
        came += len(fresh)
        broken += any(rows[n]["state"] == "incomplete" for n in fresh)
        before = rows
    store.good(*ANALYZE)
    store.good(*RECORD)
    exact(store, "after kills", {1}, 2, 2)
    settled(store, "after kills")
    print(f"kills: {options.kills}; {came} new runs were there by then, {broken} of them incomplete; {ended} came after the end")


def full_disks(options, work):
    """A small file system where one may be mounted, else a number of bytes that are free."""
    lucky = random.Random(11)
    mounted = 0
    room = work / "room"
    room.mkdir()
    for words in (ANALYZE, RECORD):
        Store(options, room).good(*words)  # an end with an error below is one of the disk
    for n in range(options.full_disks):
        what = f"full disk {n}"
        folder = work / f"disk{n}"
        folder.mkdir()
        # With the usual settings the sixth compresses the first: then only what verify says must hold.
        compresses = n % 2 == 1
        store = Store(options, folder, keep=5 if compresses else 20)
        store.root.mkdir()
        kilobytes = lucky.randrange(40, 400, 4)
        small = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(store.root)],
                               capture_output=True, check=False).returncode == 0
        mounted += small
        try:
            before, known = {}, set()
            for attempt in range(12):
                words = ANALYZE if attempt % 3 else RECORD
                if small:
                    code, _, err = store.run(*words)
                else:
                    code, _, err = store.run(*words, bytes=kilobytes * 1024 // 12 if attempt < 11 else 700)
                check(code == 0 or words == RECORD, f"{what}: {words[0]} ends with {code}: {err}")
                if not compresses:
                    unchanged(before, store, f"{what}, {attempt}")
                rows = sound(store, f"{what}, {attempt}")
                check(known <= set(rows), f"{what}: {known - set(rows)} lost")
                before, known = store.files(), set(rows)
        finally:
            if small:
                subprocess.run(["umount", str(store.root)], check=True)
    print(f"full disks: {options.full_disks}, of which {mounted} were mounted")


# ---- retention, against a model

def exact(store, what, pinned, keep, keep_compressed):
    rows = store.rows()
    for kind in {row["kind"] for row in rows}:
        plain = [row for row in rows if row["kind"] == kind and row["number"] not in pinned]
        check(len(plain) <= keep + keep_compressed, f"{what}: {len(plain)} of {kind} are kept")
        for place, row in enumerate(plain):
            if row["state"] == "whole":
                check(row["compressed"] == (place >= keep), f"{what}: {kind} {row['number']}, place {place}: {row}")


class Model:
    """What is to be there: numbers of analyses, the newest first, and which are pinned or compressed."""

    def __init__(self, keep, keep_compressed):
        self.keep, self.most = keep, keep + keep_compressed
        self.numbers, self.pinned, self.compressed, self.next = [], set(), set(), 1

    def add(self):
        self.numbers.insert(0, self.next)
        self.next += 1
        self.retain()

    def retain(self):
        plain = [n for n in self.numbers if n not in self.pinned]
        self.compressed |= set(plain[self.keep:self.most])
        gone = set(plain[self.most:])
        self.numbers = [n for n in self.numbers if n not in gone]


def retention(options, work):
    lucky = random.Random(5)
    store = Store(options, work, keep=3, keep_compressed=2)
    model = Model(3, 2)
    store.good(*ANALYZE)
    model.add()
    for n in range(options.retention):
        what = f"retention {n}"
        action = lucky.choice(["add"] * 6 + ["pin", "unpin", "prune", "remove", "index"])
        one = lucky.choice(model.numbers) if model.numbers else None
        if action == "add" or one is None:
            store.good(*ANALYZE)
            model.add()
        elif action in ("pin", "unpin"):
            store.good("runs", action, str(one))
            (model.pinned.add if action == "pin" else model.pinned.discard)(one)
        elif action == "prune":
            planned = store.answer("prune", "--dry-run")["steps"]
            done = store.answer("prune")["steps"]
            check([(s["number"], s["action"]) for s in planned] == [(s["number"], s["action"]) for s in done],
                  f"{what}: a dry run says {planned}, and then {done}")
            model.retain()
        elif action == "remove" and one not in model.pinned:
            store.good("runs", "prune", f"#{one}")
            model.numbers.remove(one)
        elif action == "index":
            index = store.root / "index.sqlite"
            listed = store.rows()
            damage = lucky.choice(["gone", "cut", "noise", "noise"])
            if damage == "gone":
                index.unlink()
            elif damage == "cut":
                os.truncate(index, lucky.randrange(index.stat().st_size))
            else:
                data = bytearray(index.read_bytes())
                for _ in range(40):
                    data[lucky.randrange(len(data))] = lucky.randrange(256)
                index.write_bytes(data)
            check(store.rows() == listed, f"{what}: another list with an index that is {damage}")
        rows = store.rows()
        check([row["number"] for row in rows] == model.numbers, f"{what} ({action}): {[r['number'] for r in rows]}, not {model.numbers}")
        check({row["number"] for row in rows if row["pinned"]} == model.pinned & set(model.numbers), f"{what}: pins")
        check({row["number"] for row in rows if row["compressed"]} == model.compressed & set(model.numbers), f"{what}: compressed")
    sound(store, "retention")
    # By size: the oldest go until all that is not pinned fits, but none of the newest three.
    for total in (0.00003, 0.0000001):
        store.environment["LLMPROF_STORE_TOTAL_GB"] = f"{total:.10f}"
        before = [row for row in store.rows() if not row["pinned"]]
        done = store.answer("prune")
        by_age = [row for row in before if row["number"] not in {s["number"] for s in done["steps"] if "newer" in s["why"]}]
        sizes = {row["number"]: row["stored_bytes"] for row in before}
        sum_bytes, expected = sum(sizes[row["number"]] for row in by_age), []
        for row in reversed(by_age[3:]):
            if sum_bytes <= total * 1e9:
                break
            expected.append(row["number"])
            sum_bytes -= sizes[row["number"]]
        check([s["number"] for s in done["steps"]] == expected, f"by size: {done['steps']}, expected {expected}")
    print(f"retention: {options.retention} steps as the model says")


def together(options, work):
    """Many at once: each has a number of its own."""
    store = Store(options, work, keep=20)
    started = [store.start(*ANALYZE) for _ in range(8)]
    for process in started:
        _, err = process.communicate(timeout=LIMIT_S)
        check(process.returncode == 0 and b"notice" not in err, f"together: {process.returncode}: {err}")
    check([row["number"] for row in store.rows()] == list(range(8, 0, -1)), f"together: {store.rows()}")
    settled(store, "together")
    # A run that goes on is neither removed nor compressed, and says so.
    process = store.start("run", "--no-report", "--quiet", "--name", "long", "--", "sleep", "30")
    until = time.monotonic() + LIMIT_S
    while not any(row["state"] == "running" for row in store.rows()) and time.monotonic() < until:
        time.sleep(0.05)
    code, _, err = store.run("runs", "prune", "long")
    check(code == 2 and "still going on" in err, f"a running run: {code}: {err}")
    process.terminate()
    process.communicate(timeout=LIMIT_S)
    check(store.rows()[0]["state"] == "whole", f"a run that was ended by a signal: {store.rows()[0]}")


def names(options, work):
    """Runs by number, name and `last`, wherever a recording may stand; errors that say what is near."""
    store = Store(options, work)
    store.good(*ANALYZE)
    store.good("run", "--no-report", "--quiet", "--name", "first", "--", "true")
    elsewhere = work / "elsewhere"
    store.good("run", "--no-report", "--quiet", "-o", str(elsewhere), "--", "true")
    shown = store.answer("show", "3")
    check(shown["recording"] == str(elsewhere) and shown["files"] == [] and shown["exit_code"] == 0, f"-o: {shown}")
    check(store.good("runs", "open", "first").decode().strip() == str(store.root / "0002-run-first"), "open by name")
    check(store.answer("open", "first")["runs"][0]["folder"] == str(store.root / "0002-run-first"), "open --json")
    pinned = store.answer("pin", "1", "first")["runs"]
    check([(row["number"], row["pinned"]) for row in pinned] == [(1, True), (2, True)], f"pin --json: {pinned}")
    check([row["pinned"] for row in store.rows()] == [False, True, True], "pins are not listed")
    again = json.loads(store.good("analyze", "1", "--json"))
    check(again["source"]["files"] == [str(INPUT)], f"an analysis by its number: {again['source']}")
    # Nothing was recorded of `true`: that the recording was found and read is what its error says.
    for word, folder in (("2", "0002-run-first/recording"), ("#2", "0002-run-first/recording"), ("first", "0002-run-first/recording"),
                         ("last", str(elsewhere))):
        code, _, err = store.run("analyze", word)
        check(code == 1 and folder in err, f"analyze {word}: {code}: {err}")
    code, _, err = store.run("analyze", str(store.root / "0002-run-first"))  # as `runs open` prints it
    check(code == 1 and "0002-run-first/recording" in err, f"analyze a run's folder: {code}: {err}")
    code, _, err = store.run("analyze", str(store.root / "0002-run-first/manifest.json"))
    check(code != 0 and "the manifest of a stored run" in err, f"analyze a manifest: {code}: {err}")
    (work / "2").write_text("not a recording")
    code, _, err = store.run("analyze", "2")
    check("0002-run-first" not in err, f"a file that is called 2: {err}")
    for words, code, text in ((("analyze", "99"), 2, "it has 1 to "), (("runs", "show", "frist"), 2, "did you mean first?"),
                              (("analyze", "frist"), 2, "did you mean first?"), (("analyze", "wholly-other"), 1, "no such file"),
                              (("bench", "--compare", "last"), 2, "expected a bench in the run store, found none"),
                              (("runs", "shw"), 2, "llmprof runs show"), (("runs", "pin"), 2, "llmprof runs pin last")):
        found, _, err = store.run(*words)
        check(found == code and text in err, f"{' '.join(words)}: {found}: {err}")
    for variable, value in (("LLMPROF_STORE_KEEP", "none"), ("LLMPROF_STORE_TOTAL_GB", "-1")):
        store.environment[variable] = value
        code, out, err = store.run(*ANALYZE)
        check(code == 0 and out and variable in err, f"{variable}={value}: {code}: {err}")
        del store.environment[variable]
    (store.root / "settings.json").write_text('{"kep": 3}')
    code, _, err = store.run("runs", "prune")
    check(code == 2 and "did you mean keep" in err, f"a wrong key: {err}")


CASES = (names, together, every_call, retention_calls, retention, kills, full_disks)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", required=True, type=os.path.abspath)
    parser.add_argument("--shim", required=True, type=os.path.abspath)
    parser.add_argument("--every", type=int, default=1, help="only each Nth fault")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--full-disks", type=int, default=20)
    parser.add_argument("--retention", type=int, default=300, help="steps of the model")
    parser.add_argument("--only", help="one case by its name")
    options = parser.parse_args()
    failed = 0
    for case in CASES:
        if options.only not in (None, case.__name__):
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="llmprof-store-") as work:
            try:
                case(options, pathlib.Path(work))
            except Failure as failure:
                failed += 1
                print(f"{case.__name__}: {failure}", file=sys.stderr)
        print(f"  {case.__name__} took {time.monotonic() - begun:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
