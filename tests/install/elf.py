"""What an ELF file asks of the system it runs on: libraries, and versions of their symbols. Read from the file itself,
so that it can be asked on a machine without binutils."""

import struct

DT_NEEDED, DT_STRTAB, DT_RPATH, DT_RUNPATH, DT_VERNEED, DT_VERNEEDNUM = 1, 5, 15, 29, 0x6FFFFFFE, 0x6FFFFFFF
PT_LOAD, PT_DYNAMIC = 1, 2
SHT_DYNSYM = 11


class Elf:
    def __init__(self, path):
        self.data = path.read_bytes()
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: expected a 64-bit little-endian ELF file")
        table, = struct.unpack_from("<Q", self.data, 0x20)
        size, count = struct.unpack_from("<HH", self.data, 0x36)
        self.segments = [struct.unpack_from("<IIQQQQQQ", self.data, table + i * size) for i in range(count)]
        at, length = next((s[2], s[5]) for s in self.segments if s[0] == PT_DYNAMIC)
        self.dynamic = [entry for entry in struct.iter_unpack("<qQ", self.data[at:at + length])]

    def offset(self, address):
        for kind, _, start, virtual, _, in_file, _, _ in self.segments:
            if kind == PT_LOAD and virtual <= address < virtual + in_file:
                return start + address - virtual
        raise ValueError(f"address {address:#x} is in no segment")

    def value(self, tag):
        return next((value for key, value in self.dynamic if key == tag), None)

    def text(self, index):
        start = self.offset(self.value(DT_STRTAB)) + index
        return self.data[start:self.data.index(b"\0", start)].decode()

    def needed(self):
        """Names of the libraries it is linked against."""
        return [self.text(value) for key, value in self.dynamic if key == DT_NEEDED]

    def search_paths(self):
        return [self.text(value) for key, value in self.dynamic if key in (DT_RPATH, DT_RUNPATH)]

    def versions(self):
        """(library, version) of each version of symbols that it needs: ("libc.so.6", "GLIBC_2.34")."""
        found = []
        if self.value(DT_VERNEED) is None:
            return found
        at = self.offset(self.value(DT_VERNEED))
        for _ in range(self.value(DT_VERNEEDNUM)):
            _, count, name, first, following = struct.unpack_from("<HHIII", self.data, at)
            inner = at + first
            for _ in range(count):
                _, _, _, version, step = struct.unpack_from("<IHHII", self.data, inner)
                found.append((self.text(name), self.text(version)))
                inner += step
            at += following
        return found

    def exported(self):
        """Names of the symbols that it shows to others."""
        table, = struct.unpack_from("<Q", self.data, 0x28)
        size, count = struct.unpack_from("<HH", self.data, 0x3A)
        sections = [struct.unpack_from("<IIQQQQ", self.data, table + i * size) for i in range(count)]
        _, _, _, _, at, length = next(section for section in sections if section[1] == SHT_DYNSYM)
        symbols = struct.iter_unpack("<IBBHQQ", self.data[at:at + length])
        return [self.text(name) for name, _, _, section, _, _ in symbols if section != 0 and name != 0]
