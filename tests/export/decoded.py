"""A Perfetto trace as protoc prints it, read the way Perfetto reads it: packets of one sequence, interned names resolved,
events sorted by time (stable), slices closed innermost first on each track. Knows perfetto.proto and nothing of llmprof.
"""

import pathlib
import re
import subprocess

SCHEMA = pathlib.Path(__file__).resolve().parent / "perfetto.proto"
CLEARED, NEEDED = 1, 2  # bits of sequence_flags


class Broken(Exception):
    pass


def text_of(quoted):
    """A string of the text format: bytes in C escapes."""
    if "\\" not in quoted:
        return quoted[1:-1]
    return quoted[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape").encode("latin-1").decode("utf-8")


class Values(dict):
    """What the texts of values mean; most come again and again."""

    def __missing__(self, text):
        if text[0] == '"':
            value = text_of(text)
        elif text in ("true", "false"):
            value = text == "true"
        elif text.lstrip("-").isdigit():
            value = int(text)
        elif text[0].isupper():
            value = text  # an enumerator
        else:
            value = float(text)
        self[text] = value
        return value


def packets_of(path):
    """Each packet, as a dictionary from field to the list of its values."""
    values = Values()
    message, outside = None, []
    with open(path, "rb") as file, subprocess.Popen(
            ["protoc", f"--proto_path={SCHEMA.parent}", "--decode=perfetto.protos.Trace", SCHEMA.name], stdin=file,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8") as protoc:
        for line in protoc.stdout:
            line = line.strip()
            key, colon, value = line.partition(": ")
            if colon:
                message.setdefault(key, []).append(values[value])
            elif line == "}":
                inner, message = message, outside.pop()
                if message is None:
                    yield inner
            elif line:
                inner = {}
                key = line[:-2]
                if message is not None:
                    message.setdefault(key, []).append(inner)
                elif key != "packet":
                    raise Broken(f"{path}: {key} in place of a packet")
                outside.append(message)
                message = inner
        complaints = protoc.stderr.read()
    if protoc.returncode != 0 or complaints:
        raise Broken(f"protoc cannot decode {path}: {complaints}")


KNOWN = set(re.findall(r" (\w+) = \d+;", SCHEMA.read_text()))  # protoc calls a field that it does not know by its number


def check_known(message):
    for key, values in message.items():
        if key not in KNOWN:
            raise Broken(f"field {key} is none of {SCHEMA.name}")
        for value in values:
            if isinstance(value, dict):
                check_known(value)


def one(message, key, default=None):
    values = message.get(key, [default])
    if len(values) != 1:
        raise Broken(f"{len(values)} values of {key}, expected one")
    return values[0]


class Slice:
    __slots__ = ("track", "start", "end", "name", "category", "args", "flows", "depth")


class Decoded:
    """tracks: uuid -> descriptor; slices: in the order of their start; counters: uuid -> [(time, value)]; unix_ns: what to
    add to times to get Unix time, or None."""

    def __init__(self, path):
        self.tracks, self.slices, self.counters, self.unix_ns = {}, [], {}, None
        self.interned = {"event_names": {}, "event_categories": {}, "debug_annotation_names": {},
                         "debug_annotation_string_values": {}}
        events, cleared = [], False
        for packet in packets_of(path):
            check_known(packet)
            flags = one(packet, "sequence_flags", 0)
            if one(packet, "trusted_packet_sequence_id") != 1:
                raise Broken("a packet of another sequence")
            cleared = cleared or bool(flags & CLEARED)
            if "interned_data" in packet or flags & NEEDED:
                if not cleared:
                    raise Broken("incremental state is used before it is cleared")
            self.intern(one(packet, "interned_data", {}))
            if "clock_snapshot" in packet:
                clocks = {one(clock, "clock_id"): one(clock, "timestamp") for clock in one(packet, "clock_snapshot")["clocks"]}
                self.unix_ns = clocks[1] - clocks[6]
            if "track_descriptor" in packet:
                descriptor = one(packet, "track_descriptor")
                uuid = one(descriptor, "uuid")
                if uuid in self.tracks or not uuid:
                    raise Broken(f"track {uuid} is described twice")
                self.tracks[uuid] = descriptor
            if "track_event" in packet:
                event = one(packet, "track_event")
                if not flags & NEEDED and one(event, "type") != "TYPE_SLICE_END":
                    raise Broken("an event with interned names does not say that it needs them")
                events.append((one(packet, "timestamp"), self.resolve(event)))
        events.sort(key=lambda pair: pair[0])
        self.replay(events)

    def intern(self, data):
        for field, entries in data.items():
            for entry in entries:
                iid = one(entry, "iid")
                known = self.interned[field]
                if not iid or iid in known:
                    raise Broken(f"{field} {iid} is given twice")
                known[iid] = one(entry, "str" if field == "debug_annotation_string_values" else "name")

    def resolve(self, event):
        """With names in place of ids; what is not interned by now is an error."""
        uuid = one(event, "track_uuid")
        if uuid not in self.tracks:
            raise Broken(f"an event on track {uuid} before its descriptor")
        out = {"type": one(event, "type"), "track": uuid, "flows": event.get("flow_ids", [])}
        if "name_iid" in event:
            out["name"] = self.interned["event_names"][one(event, "name_iid")]
            out["category"] = self.interned["event_categories"][one(event, "category_iids")]
        out["args"] = {}
        for annotation in event.get("debug_annotations", []):
            key = self.interned["debug_annotation_names"][one(annotation, "name_iid")]
            if "string_value_iid" in annotation:
                value = self.interned["debug_annotation_string_values"][one(annotation, "string_value_iid")]
            else:
                value = one(annotation, next(field for field in annotation if field != "name_iid"))
            out["args"][key] = value
        for key in ("counter_value", "double_counter_value"):
            if key in event:
                out["value"] = one(event, key)
        return out

    def replay(self, events):
        stacks = {}
        for time, event in events:
            track = event["track"]
            if event["type"] == "TYPE_COUNTER":
                if "counter" not in self.tracks[track]:
                    raise Broken(f"a value on track {track}, which is no counter")
                self.counters.setdefault(track, []).append((time, event["value"]))
                continue
            if "counter" in self.tracks[track]:
                raise Broken(f"a slice on the counter {track}")
            stack = stacks.setdefault(track, [])
            if event["type"] == "TYPE_SLICE_END":
                if not stack:
                    raise Broken(f"track {track}: an end at {time} without a slice")
                stack.pop().end = time
                continue
            piece = Slice()
            piece.track, piece.start, piece.name, piece.category = track, time, event["name"], event["category"]
            piece.args, piece.flows, piece.depth, piece.end = event["args"], event["flows"], len(stack), None
            stack.append(piece)
            self.slices.append(piece)
        for track, stack in stacks.items():
            if stack:
                raise Broken(f"track {track}: {len(stack)} slices never end")

    def name_of(self, uuid):
        track = self.tracks[uuid]
        for kind, field in (("process", "process_name"), ("thread", "thread_name")):
            if kind in track:
                return one(one(track, kind), field)
        return one(track, "name")

    def path_of(self, uuid):
        """Names from the root, of tracks that exist."""
        out = []
        while uuid:
            out.insert(0, self.name_of(uuid))
            uuid = one(self.tracks[uuid], "parent_uuid", 0)
        return out

    def nesting(self):
        """Raises unless slices of a track lie in each other or apart."""
        open_slices = {}
        for piece in self.slices:
            stack = open_slices.setdefault(piece.track, [])
            while len(stack) > piece.depth:
                stack.pop()
            if len(stack) != piece.depth:
                raise Broken(f"track {piece.track}: depth {piece.depth} with {len(stack)} open slices")
            if stack and not stack[-1].start <= piece.start <= piece.end <= stack[-1].end:
                raise Broken(f"track {piece.track}: {piece.name} overlaps {stack[-1].name}")
            if piece.end < piece.start:
                raise Broken(f"track {piece.track}: {piece.name} ends before it begins")
            stack.append(piece)
