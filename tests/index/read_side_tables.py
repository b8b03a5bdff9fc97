"""Reads side tables by their specification docs/formats/side-tables.md alone: python3 read_side_tables.py FILE [TABLE KEY...]

Prints one JSON line per table, without its rows, and one per row: its key and values. Then prints the row of each KEY in TABLE,
or null.
"""

import json
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "support"))
from read_index import require, signed, text  # noqa: E402
from xxh3 import hash64, hash128  # noqa: E402


class Table:
    def __init__(self, data, entry):
        self.entry = entry
        self.data = data = data[entry["offset"]:entry["offset"] + entry["bytes"]]
        require(entry["offset"] % 8 == 0, "alignment")
        (magic, version, self.bits, size, segments, self.rows, members, directory, hints, self.keys, _, _,
         directory_sum, segments_sum, keys_sum, _, _, header_sum) = struct.unpack_from("<8sII7QII6Q", data)
        require(magic == b"SHARDWT\n" and version == 4 and size == len(data), "table header")
        require(hash64(data[:120]) == header_sum and "%016x" % header_sum == entry["checksum"], "table checksum")
        require(self.rows == entry["rows"] and members == 0, "counts")
        self.entries = [struct.unpack_from("<3Q", data, directory + 24 * i) for i in range(segments + 1)]
        end = directory + 24 * (segments + 1)
        require(hash64(data[hints:self.keys], hash64(data[directory:end])) == directory_sum, "directory")
        sums = b"".join(data[e[0] + 56:e[0] + 64] for e in self.entries[:-1])
        require(hash128(sums) & (1 << 64) - 1 == segments_sum, "segments")
        words = (1 << self.bits) + 1 + self.rows
        require(hash64(data[self.keys + 8 * words:]) == keys_sum, "keys")
        self.all = [row for i in range(segments) for row in self.segment(i)]

    def segment(self, number):
        data = self.data[self.entries[number][0]:self.entries[number + 1][0]]
        n, m, f, c, field_bytes, flags, value_bytes, _, size, counts_sum, checksum = struct.unpack_from("<6I5Q", data)
        require(size == len(data) and m == 0 and flags == 0 and c == len(self.entry["columns"]), "segment")
        require(hash64(data[:48]) == counts_sum and hash64(data[64:], counts_sum) == checksum, "segment checksum")
        samples, values = 64, 64 + 8 * (n + 1)
        types = values + 8 * c * n + 4 * (f + 1)
        heap = types + c * n + field_bytes
        keys = heap + value_bytes

        def value(i):
            word, = struct.unpack_from("<Q", data, values + 8 * i)
            found = data[heap + (word >> 32):heap + (word >> 32) + (word & 0xFFFFFFFF)]
            return [lambda: None, lambda: signed(word), lambda: struct.unpack("<d", struct.pack("<Q", word))[0],
                    lambda: text(found), lambda: {"hex": found.hex()}][data[types + i]]()

        for i in range(n):
            begin, = struct.unpack_from("<I", data, samples + 8 * i + 4)
            end, = struct.unpack_from("<I", data, samples + 8 * i + 12)
            yield {"key": text(data[keys + begin:keys + end]), "values": [value(k * n + i) for k in range(c)]}

    def find(self, key):
        hash = hash64(os.fsencode(key))
        bucket = hash >> (64 - self.bits) if self.bits else 0
        tag = hash << self.bits >> 40 & 0xFFFFFF
        entries = self.keys + 8 * ((1 << self.bits) + 1)
        begin, end = struct.unpack_from("<2Q", self.data, self.keys + 8 * bucket)
        for i in range(begin, end):
            entry, = struct.unpack_from("<Q", self.data, entries + 8 * i)
            row = self.all[entry & (1 << 40) - 1]
            if entry >> 40 == tag and row["key"] == key:
                return row
        return None


def tables_of(path):
    with open(path, "rb") as file:
        data = file.read()
    magic, version, _, size, offset, length, list_sum, _, header_sum = struct.unpack_from("<8sII6Q", data)
    require(magic == b"SHARDWS\n" and version == 1 and size == len(data), "header")
    require(hash64(data[:56]) == header_sum, "header checksum")
    require(hash64(data[offset:offset + length]) == list_sum, "list checksum")
    return [Table(data, entry) for entry in json.loads(data[offset:offset + length])["tables"]]


if __name__ == "__main__":
    tables = tables_of(sys.argv[1])
    for table in tables:
        print(json.dumps(table.entry))
        for row in table.all:
            print(json.dumps(row))
    for wanted in sys.argv[3:]:
        print(json.dumps(next(t for t in tables if t.entry["name"] == sys.argv[2]).find(wanted)))
