"""Reads and writes resume tokens, written from docs/formats/resume-token.md."""

import base64
import math
import re
import struct

from sample_order import (M64, MixtureSchedule, Refused, SkipList, WeightedDraw, canonical, hash64, require, wids_chunk_size,
                          words)

VERSIONS = {"permutation": 1, "epoch_order": 1, "balance": 2, "mixture": 2, "resampled": 1, "wids": 1, "skip": 1}
KINDS = ("chunked", "sharded", "sequential", "resampled", "wids", "mixture")
TAILS = ("exact", "drop", "pad")
UNITS = ("sample", "shard")
FLAGS = (False, True)
# The options of each kind: name and type, in the sequence of the token.
OPTIONS = {
    "chunked": (("chunk_size", None), ("window", None), ("phase", FLAGS)),
    "sharded": (("window", None),),
    "sequential": (),
    "resampled": (("resample", UNITS), ("weights", str)),
    "wids": (("chunk_size", None), ("shuffle", FLAGS), ("shufflefirst", FLAGS)),
}
MOST_REASON = 200


class Reader:
    def __init__(self, data, version):
        self.data, self.at, self.version = data, 0, version

    def left(self):
        return len(self.data) - self.at

    def bytes(self, size):
        require(size <= self.left(), "it ends too early")
        self.at += size
        return self.data[self.at - size:self.at]

    def varint(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.bytes(1)[0]
            require(shift < 63 or byte <= 1, "a number in it is too large")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value

    def of(self, names):
        value = self.varint()
        require(value < len(names), "it names an order that does not exist")
        return names[value]

    def count(self):
        value = self.varint()
        require(value <= self.left(), "it ends too early")
        return value

    def string(self):
        return self.bytes(self.count())

    def u64(self):
        return struct.unpack("<Q", self.bytes(8))[0]

    def u128(self):
        low = self.u64()
        return self.u64() << 64 | low

    def kind(self, names):
        kind = {"sampler": self.of(names)}
        for name, values in OPTIONS.get(kind["sampler"], ()):
            kind[name] = self.string().decode("utf-8", "surrogateescape") if values is str else self.of(values) if values else self.varint()
        if kind["sampler"] == "mixture":
            kind["parts"] = []
            for _ in range(self.count()):
                samples, weight = self.varint(), struct.unpack("<d", self.bytes(8))[0]
                kind["parts"].append({"samples": samples, "weight": weight, **self.kind(KINDS[:3])})
            kind["schedule"] = []
            for _ in range(self.count() if self.version == 4 else 0):
                position = self.varint()
                weights = [struct.unpack("<d", self.bytes(8))[0] for _ in range(self.count())]
                kind["schedule"].append({"from": position, "weights": weights})
        return kind

    def order(self):
        versions = {}
        for name in VERSIONS:
            versions[name] = self.varint()
            require(versions[name] < 1 << 31, "a version that is none")
        order = {"samples": self.varint(), "layout": self.varint(), "world": self.varint(), "seed": self.varint(),
                 "streams": self.varint(), "tail": self.of(TAILS), "balance_bytes": self.of(FLAGS), "epoch_size": self.varint()}
        return {**order, **self.kind(KINDS), "versions": versions}


class Writer:
    def __init__(self, version):
        self.data, self.version = bytes([version]), version

    def varint(self, *values):
        for value in values:
            while value >= 0x80:
                self.data += bytes([value & 0x7F | 0x80])
                value >>= 7
            self.data += bytes([value])

    def string(self, value):
        self.varint(len(value))
        self.data += value

    def u128(self, value):
        self.data += words(value & M64, value >> 64)

    def kind(self, kind):
        self.varint(KINDS.index(kind["sampler"]))
        for name, values in OPTIONS.get(kind["sampler"], ()):
            value = kind[name]
            if values is str:
                self.string(value.encode("utf-8", "surrogateescape"))
            else:
                self.varint(values.index(value) if values else value)
        if kind["sampler"] == "mixture":
            self.varint(len(kind["parts"]))
            for part in kind["parts"]:
                self.varint(part["samples"])
                self.data += struct.pack("<d", part["weight"])
                self.kind(part)
            if self.version == 4:
                self.varint(len(kind["schedule"]))
                for change in kind["schedule"]:
                    self.varint(change["from"], len(change["weights"]))
                    self.data += b"".join(struct.pack("<d", weight) for weight in change["weights"])

    def order(self, order):
        self.varint(*[order["versions"][name] for name in VERSIONS])
        self.varint(order["samples"], order["layout"], order["world"], order["seed"], order["streams"])
        self.varint(TAILS.index(order["tail"]), order["balance_bytes"], order["epoch_size"])
        self.kind(order)


def number_or_none(weight):
    return weight if math.isfinite(weight) else None


def json_of_order(order):
    kind = {name: order[name] for name, _ in OPTIONS.get(order["sampler"], ())}
    if order["sampler"] == "mixture":
        kind["parts"] = [{**part, "weight": number_or_none(part["weight"])} for part in order["parts"]]
        if order["schedule"]:
            kind["schedule"] = [{"from": change["from"], "part_weights": [number_or_none(w) for w in change["weights"]]}
                                for change in order["schedule"]]
    return {"sampler": order["sampler"], "samples": order["samples"], "seed": order["seed"], **kind,
            **{name: order[name] for name in ("streams", "tail", "balance_bytes", "epoch_size")},
            **({"world_size": order["world"], "world": order["world"]} if order["world"] else {}),
            "versions": {name: version for name, version in order["versions"].items() if version}}


def shortened(reason):
    if len(reason) <= MOST_REASON:
        return reason
    kept = MOST_REASON - 3
    end = max(reason.rfind(b" ", 0, kept), reason.rfind(b"/", 0, kept))
    if end > kept // 2:
        return reason[:end] + b"..."
    while kept > 0 and reason[kept] & 0xC0 == 0x80:
        kept -= 1
    return reason[:kept] + b"..."


class Token:
    def __init__(self):
        self.skip, self.sums, self.history, self.batches = SkipList(), None, [], None

    @staticmethod
    def from_text(text):
        text = text.strip(" \t\r\n")
        begins = re.match(r"sw[0-9]+\.", text)
        require(begins, "no token")
        require(begins.group() in ("sw2.", "sw3.", "sw4."), "another version")
        version, text = int(begins.group()[2]), text[4:]
        require(re.fullmatch("[A-Za-z0-9_-]*", text), "no token")
        require(len(text) % 4 != 1, "no token")  # a single last character has only six bits
        data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        require(base64.urlsafe_b64encode(data).decode().rstrip("=") == text, "no token")
        require(len(data) >= 8 and words(hash64(data[:-8])) == data[-8:], "damaged")
        reader, token = Reader(data[:-8], version), Token()
        require(reader.bytes(1)[0] == version, "another version")
        token.fingerprint, token.order = reader.u128(), reader.order()
        token.epoch, token.position = reader.varint(), reader.varint()
        sample = 0
        for _ in range(reader.count()):
            sample = sample + reader.varint() & M64
            point = reader.varint(), reader.varint()
            reason = bytes(byte if byte >= 0x20 else 0x20 for byte in shortened(reader.string()))
            token.skip.add_sample(sample, point, reason.decode("utf-8", "surrogateescape"))
        for _ in range(reader.count()):
            epoch, begin, length = reader.varint(), reader.varint(), reader.varint()
            require(begin + length <= M64, "a number in it is too large")
            token.skip.add_range(epoch, begin, begin + length)
        if reader.of(FLAGS):
            token.sums = reader.varint(), reader.u128(), reader.u128()
        for _ in range(reader.count()):
            token.history.append((reader.varint(), reader.u128(), reader.order()))
        if version == 3 or version == 4 and reader.of(FLAGS):
            token.batches = reader.string().decode("utf-8", "surrogateescape"), reader.varint()
        require(reader.left() == 0, "bytes follow its end")
        return token

    def to_text(self):
        orders = [self.order] + [order for _, _, order in self.history]
        version = 4 if any(order.get("schedule") for order in orders) else 3 if self.batches else 2
        out = Writer(version)
        out.u128(self.fingerprint)
        out.order(self.order)
        out.varint(self.epoch, self.position, len(self.skip.samples))
        before = 0
        for sample, (point, reason) in sorted(self.skip.samples.items()):
            out.varint(sample - before, *point)
            out.string(reason.encode("utf-8", "surrogateescape"))
            before = sample
        out.varint(len(self.skip.ranges))
        for epoch, begin, end in self.skip.ranges:
            out.varint(epoch, begin, end - begin)
        out.varint(1 if self.sums else 0)
        if self.sums:
            out.varint(self.sums[0])
            out.u128(self.sums[1])
            out.u128(self.sums[2])
        out.varint(len(self.history))
        for end_epoch, fingerprint, order in self.history:
            out.varint(end_epoch)
            out.u128(fingerprint)
            out.order(order)
        if version == 4:
            out.varint(1 if self.batches else 0)
        if self.batches:
            out.string(self.batches[0].encode("utf-8", "surrogateescape"))
            out.varint(self.batches[1])
        out.data += words(hash64(out.data))
        return "sw%d." % version + base64.urlsafe_b64encode(out.data).decode().rstrip("=")

    def read(self):
        """Returns what the run has read of each data set of a mixture; [] if the mixture is not valid."""
        order = self.order
        try:
            draws = MixtureSchedule(order["parts"], order["schedule"], order["seed"])
        except Refused:
            return []
        slot = min(self.epoch * (order["epoch_size"] or order["samples"]) + self.position, 1 << 62)
        counts = [(part["samples"], draws.count_before(d, slot)) for d, part in enumerate(order["parts"])]
        passes = [count // n if n else 0 for n, count in counts]
        return [{"samples": n, "samples_read": count, "passes": whole, "remainder": count - whole * n}
                for (n, count), whole in zip(counts, passes)]

    def as_json(self):
        left_out = [{"sample": s, "from_epoch": point[0], "from_position": point[1], "reason": reason}
                    for s, (point, reason) in sorted(self.skip.samples.items())]
        left_out += [{"epoch": epoch, "begin": begin, "end": end} for epoch, begin, end in self.skip.ranges]
        batches = {"batches": {"rule": self.batches[0], "delivered": self.batches[1]}} if self.batches else {}
        read = {"data_sets": self.read()} if self.order["sampler"] == "mixture" and self.read() else {}
        return {"epoch": self.epoch, "position": self.position, **batches, "delivered": self.sums[0] if self.sums else None,
                "fingerprint": "%032x" % self.fingerprint, **read, "order": json_of_order(self.order), "left_out": left_out,
                "history": [{"end_epoch": end, "fingerprint": "%032x" % fingerprint, "order": json_of_order(order)}
                            for end, fingerprint, order in self.history]}


def layout_of(data, order):
    sampler = order["sampler"]
    if sampler == "sharded" or sampler == "resampled" and order["resample"] == "shard":
        return hash64(words(*data.starts))
    if sampler == "resampled" and order["weights"]:
        return hash64(words(*WeightedDraw(data.column).shares))
    layouts, first = [], 0
    for part in order.get("parts", []):
        end = first + part["samples"]
        if part["sampler"] == "sharded":
            layouts.append(hash64(words(*[v - first for v in data.starts if first <= v <= end])))
        first = end
    return hash64(words(*layouts)) if layouts else 0


def spec_of(data, order, ranks):
    """Returns the fields of an order in the form of a token."""
    sampler = order["sampler"]
    used = {"chunked": ["permutation", "epoch_order", "skip"], "sharded": ["permutation", "epoch_order", "skip"],
            "sequential": ["skip"], "mixture": ["mixture", "permutation", "epoch_order", "skip"], "wids": ["wids"],
            "resampled": ["resampled", "skip"] + (["permutation"] if order.get("resample") == "shard" else [])}[sampler]
    used = used + (["balance"] if order["balance_bytes"] else [])
    spec = {**order, "samples": data.n, "layout": layout_of(data, order), "world": ranks.world if sampler == "wids" else 0,
            "versions": {name: version if name in used else 0 for name, version in VERSIONS.items()}}
    if spec["epoch_size"] == data.n:
        spec["epoch_size"] = 0
    if sampler == "sequential":
        spec["seed"] = 0
    if sampler == "mixture":
        spec["schedule"] = canonical(order["parts"], order.get("schedule", []))
    if sampler == "wids":
        spec["chunk_size"] = wids_chunk_size(order, ranks.world)
    return spec


def require_same(token, spec, fingerprint):
    def compared(order):
        out = Writer(4)
        parts = [{**part, "weight": part["weight"] + 0.0} for part in order.get("parts", [])]  # -0 is 0
        out.order({**order, "parts": parts})
        return out.data

    require(token.fingerprint == fingerprint and compared(token.order) == compared(spec), "another data set or order")
