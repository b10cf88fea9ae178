"""MessagePack of what json.loads gives, each value in its shortest form, as the writer of Triton's Proton encodes it.

Written from the specification of MessagePack, and independent of llmprof's reader.
"""

import struct


def sized(kinds, length):
    """A header: (highest length, first byte or its format, format of the length), the first that fits."""
    for most, first, form in kinds:
        if length <= most:
            return bytes([first | length]) if form is None else bytes([first]) + struct.pack(form, length)
    raise ValueError(f"{length} is too long")


def number(value):
    if 0 <= value <= 0x7F:
        return bytes([value])
    if -32 <= value < 0:
        return struct.pack(">b", value)
    kinds = ((0xCC, ">B"), (0xCD, ">H"), (0xCE, ">I"), (0xCF, ">Q")) if value >= 0 else ((0xD0, ">b"), (0xD1, ">h"), (0xD2, ">i"), (0xD3, ">q"))
    for first, form in kinds:
        try:
            return bytes([first]) + struct.pack(form, value)
        except struct.error:
            continue
    raise ValueError(f"{value} does not fit")


def pack(value):
    if value is None or isinstance(value, bool):
        return {None: b"\xc0", False: b"\xc2", True: b"\xc3"}[value]
    if isinstance(value, int):
        return number(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        text = value.encode()
        return sized(((31, 0xA0, None), (0xFF, 0xD9, ">B"), (0xFFFF, 0xDA, ">H"), (0xFFFFFFFF, 0xDB, ">I")), len(text)) + text
    if isinstance(value, list):
        return sized(((15, 0x90, None), (0xFFFF, 0xDC, ">H"), (0xFFFFFFFF, 0xDD, ">I")), len(value)) + b"".join(map(pack, value))
    header = sized(((15, 0x80, None), (0xFFFF, 0xDE, ">H"), (0xFFFFFFFF, 0xDF, ">I")), len(value))
    return header + b"".join(pack(key) + pack(one) for key, one in value.items())


OF_KERNELS = ("time (ns)", "count", "device_id", "device_type")


def proton_order(node):
    """Keys of a node in the order in which Proton's MessagePack has them; those of its JSON are sorted."""
    own = node["metrics"]
    metrics = {key: own[key] for key in OF_KERNELS if key in own} | {key: own[key] for key in sorted(own) if key not in OF_KERNELS}
    return {"frame": node["frame"], "metrics": metrics, "children": [proton_order(child) for child in node["children"]]}


def pack_proton(document):
    """A .hatchet document as a .hatchet_msgpack one."""
    return pack([proton_order(document[0])] + document[1:])
