"""What a program for Linux needs of the system: its machine, its shared libraries, and the version of the C library."""

import re
import struct

MACHINES = {62: "x86_64", 183: "aarch64"}
LOADED, DYNAMIC = 1, 2
NEEDED, STRINGS, VERSIONS, VERSION_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF
GLIBC = re.compile(r"GLIBC_(\d+)\.(\d+)")


class Program:
    """A 64-bit little-endian ELF file. A file in another format has no machine and needs nothing."""

    def __init__(self, data):
        self.data, self.machine, self.libraries, self.glibc = data, None, [], None
        if data[:6] == b"\x7fELF\x02\x01":
            (machine,) = struct.unpack_from("<H", data, 18)
            self.machine = MACHINES.get(machine, f"machine {machine}")
            self.read_dynamic()

    def read_dynamic(self):
        segments = list(self.segments())
        self.loaded = [segment[1:] for segment in segments if segment[0] == LOADED]
        dynamic = next((segment for segment in segments if segment[0] == DYNAMIC), None)
        if dynamic is None:
            return
        entries = list(struct.iter_unpack("<QQ", self.data[dynamic[1] : dynamic[1] + dynamic[3]]))
        # The first one of each kind; only the libraries have several.
        values = dict(reversed(entries))
        if STRINGS not in values:
            return
        self.strings = self.offset(values[STRINGS])
        self.libraries = [self.string(value) for tag, value in entries if tag == NEEDED]
        if VERSIONS in values:
            found = self.versions(self.offset(values[VERSIONS]), values.get(VERSION_COUNT, 0))
            numbers = [match.groups() for match in map(GLIBC.fullmatch, found) if match]
            self.glibc = max(((int(major), int(minor)) for major, minor in numbers), default=None)

    def segments(self):
        """Kind, offset in the file, address and length in the file of each segment."""
        (start,) = struct.unpack_from("<Q", self.data, 32)
        size, count = struct.unpack_from("<HH", self.data, 54)
        for at in range(start, start + size * count, size):
            kind, _flags, offset, address, _physical, length = struct.unpack_from("<IIQQQQ", self.data, at)
            yield kind, offset, address, length

    def offset(self, address):
        for offset, start, length in self.loaded:
            if start <= address < start + length:
                return address - start + offset
        raise ValueError(f"no segment of the program has the address {address:#x}")

    def string(self, index):
        start = self.strings + index
        return self.data[start : self.data.index(b"\0", start)].decode()

    def versions(self, at, count):
        """The names of the versions of symbols that the program needs, of all libraries."""
        for _ in range(count):
            _version, names, _file, first, following = struct.unpack_from("<HHIII", self.data, at)
            name_at = at + first
            for _ in range(names):
                _hash, _flags, _other, name, next_name = struct.unpack_from("<IHHII", self.data, name_at)
                yield self.string(name)
                name_at += next_name
            at += following
