"""Reads an index by its specification docs/formats/index.md alone: python3 read_index.py INDEX [KEY...]

Prints one JSON line per sample: its key, the complete url of its shard, its metadata, and field, offset, size and hash of each
member. Then prints one line per KEY: the numbers of the samples with this key.
"""

import json
import mmap
import os
import sqlite3
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "support"))
from xxh3 import hash64, hash128  # noqa: E402


def require(truth, what):
    if not truth:
        sys.exit("damaged: " + what)


def as_bytes(value):
    return value.encode() if isinstance(value, str) else value


def pack(value):
    if isinstance(value, int):
        return struct.pack("<q", value)
    data = as_bytes(value)
    return struct.pack("<Q", len(data)) + data


def signed(word):
    return word - (1 << 64) if word >> 63 else word


def text(data):
    return data.decode("utf-8", "surrogateescape")


class Index:
    def __init__(self, path):
        path = os.path.realpath(path)
        self.db = sqlite3.connect("file:" + path.replace("?", "%3f").replace("#", "%23") + "?mode=ro&immutable=1", uri=True)
        require(self.db.execute("PRAGMA application_id").fetchone()[0] == 0x53445731, "application_id")
        require(self.db.execute("PRAGMA user_version").fetchone()[0] == 4, "user_version")
        self.meta = dict(self.db.execute("SELECT name, value FROM meta"))
        others = sorted((as_bytes(n), as_bytes(v)) for n, v in self.meta.items() if n != "checksum")
        require("%032x" % hash128(b"".join(pack(n) + pack(v) for n, v in others)) == self.meta["checksum"], "meta")
        self.shards = self.rows("shards", int(self.meta["num_shards"]))
        self.fields = self.rows("fields", int(self.meta["num_fields"]))
        self.skipped = self.rows("skipped", int(self.meta["num_skipped"]))
        with open(os.path.join(os.path.dirname(path), self.meta["table_file"]), "rb") as table:
            self.table = mmap.mmap(table.fileno(), 0, access=mmap.ACCESS_READ)
        (magic, version, self.bits, size, self.num_shards, self.num_samples, _, directory, hints, self.keys, _, _,
         directory_sum, segments_sum, keys_sum, _, _, header_sum) = struct.unpack_from("<8sII7QII6Q", self.table)
        require(magic == b"SHARDWT\n" and version == 4 and size == len(self.table), "table header")
        require("%016x" % header_sum == self.meta["table_checksum"], "another table")
        self.entries = [struct.unpack_from("<3Q", self.table, directory + 24 * i) for i in range(self.num_shards + 1)]
        require(hash64(self.table[:120]) == header_sum, "header checksum")
        end = directory + 24 * (self.num_shards + 1)
        require(hash64(self.table[hints:self.keys], hash64(self.table[directory:end])) == directory_sum, "directory")
        sums = b"".join(self.table[e[0] + 56:e[0] + 64] for e in self.entries[:-1])
        require(hash128(sums) & (1 << 64) - 1 == segments_sum, "segments")
        words = (1 << self.bits) + 1 + self.num_samples
        require(hash64(self.table[self.keys + 8 * words:]) == keys_sum, "keys")

    def rows(self, table, count):
        rows = self.db.execute("SELECT * FROM %s ORDER BY 1" % table).fetchall()
        require(len(rows) == count, table)
        for number, row in enumerate(rows):
            require(row[0] == number, table)
            require(signed(hash64(b"".join(pack(v) for v in row[:-1]))) == row[-1], table)
        return rows

    def segment(self, shard):
        data = self.table[self.entries[shard][0]:self.entries[shard + 1][0]]
        n, m, f, c, field_bytes, flags, value_bytes, key_bytes, size, counts_sum, checksum = struct.unpack_from("<6I5Q", data)
        require(size == len(data) and "%016x" % checksum == self.shards[shard][18], "segment")
        require(hash64(data[:48]) == counts_sum and hash64(data[64:], counts_sum) == checksum, "segment checksum")
        at = 64

        def array(code, count, width):
            nonlocal at
            values = struct.unpack_from("<%d%s" % (count, code), data, at)
            at += count * width
            return values

        samples = array("I", 2 * (n + 1), 4)
        members = array("Q", 2 * m, 8)
        hashes = array("Q", m, 8) if flags & 1 else None
        values = array("Q", c * n, 8)
        ends = array("I", f + 1, 4)
        types = array("B", c * n, 1)
        names, heap, keys = at, at + field_bytes, at + field_bytes + value_bytes

        def value(i):
            word = values[i]
            data_of = data[heap + (word >> 32):heap + (word >> 32) + (word & 0xFFFFFFFF)]
            return [lambda: None, lambda: signed(word), lambda: struct.unpack("<d", struct.pack("<Q", word))[0],
                    lambda: text(data_of), lambda: {"hex": data_of.hex()}][types[i]]()

        for i in range(n):
            fields = [text(data[names + ends[k]:names + ends[k + 1]]) for k in range(f)]
            yield {
                "key": text(data[keys + samples[2 * i + 1]:keys + samples[2 * i + 3]]),
                "values": [value(k * n + i) for k in range(c)],
                "members": [[fields[members[2 * j + 1] & 0xFFFFFF], (members[2 * j + 1] >> 24) * 512, members[2 * j],
                             hashes[j] if hashes else None] for j in range(samples[2 * i], samples[2 * i + 2])],
            }

    def url(self, shard):
        base, url = as_bytes(self.meta["url_base"]), as_bytes(self.shards[shard][1])
        require(base or not url.startswith(b":"), "url")
        return text(base + url[1:] if url.startswith(b":") else url)

    def samples(self):
        for shard in range(self.num_shards):
            for sample in self.segment(shard):
                yield {"url": self.url(shard), **sample}

    def find(self, key):
        key = os.fsencode(key)
        bucket = hash64(key) >> (64 - self.bits) if self.bits else 0
        tag = hash64(key) << self.bits >> 40 & 0xFFFFFF
        starts = self.keys
        entries = starts + 8 * ((1 << self.bits) + 1)
        begin, end = struct.unpack_from("<2Q", self.table, starts + 8 * bucket)
        found = []
        for i in range(begin, end):
            entry, = struct.unpack_from("<Q", self.table, entries + 8 * i)
            if entry >> 40 == tag:
                found.append(entry & (1 << 40) - 1)
        keys = [os.fsencode(sample["key"]) for sample in self.samples()]
        return [i for i in found if keys[i] == key]


if __name__ == "__main__":
    index = Index(sys.argv[1])
    for one in index.samples():
        print(json.dumps(one))
    for wanted in sys.argv[2:]:
        print(json.dumps(index.find(wanted)))
