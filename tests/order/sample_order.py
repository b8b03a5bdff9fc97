"""Computes orders and proofs of epochs. Written from docs/formats/order.md, wids-order.md and epoch-proof.md.

It is not optimised: each function is a section of a page. answer.py uses it to answer questions.
"""

import bisect
import math
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "support"))
from xxh3 import hash64, hash128  # noqa: E402

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1
M128 = (1 << 128) - 1
MOST_SAMPLES = 1 << 62


class Refused(Exception):
    """An input that the pages do not allow."""


def require(truth, what):
    if not truth:
        raise Refused(what)


def ceil_div(x, y):
    return -(-x // y)


def words(*numbers):
    return struct.pack("<%dQ" % len(numbers), *numbers)


def scale(x, n):
    return x * n >> 64


def scatter(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


def scatter_b(x):
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCD & M64
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53 & M64
    return x ^ x >> 33


class Hash128:
    def __init__(self, high, low):
        self.high, self.low = high, low


# order.md, Keys

CHUNKS, SAMPLES, RESAMPLED, RESAMPLED_SHARD, RESAMPLED_PASS, MIXTURE_BLOCK, MIXTURE_PHASE, MIXTURE_DATASET = range(1, 9)
AUDIT, PHASE, SAMPLE = 9, 10, 11


def key(seed, epoch, purpose, index=0):
    both = hash128(words(seed, epoch, purpose, index))
    return Hash128(both >> 64, both & M64)


# order.md, Permutation


class Permutation:
    def __init__(self, n, of):
        require(n <= MOST_SAMPLES, "too many numbers")
        self.n, self.k0, self.k1 = n, of.low, of.high | 1
        if n <= 64:
            self.table = list(range(n))
            for i in range(n - 1, 0, -1):
                c = n - 1 - i
                word = scatter(self.k0 + c // 2 * self.k1 & M64)
                j = ((word >> 32 if c % 2 else word & M32) * (i + 1)) >> 32
                self.table[i], self.table[j] = self.table[j], self.table[i]
            return
        self.rows = math.isqrt(n - 1) + 1
        self.columns = ceil_div(n, self.rows)
        keys = [self.k0 + t * self.k1 & M64 for t in range(12 if n < 512 else 8)]
        self.rounds = [(w, w & M32) for w in keys]

    @staticmethod
    def mixed(x, w, m):
        y = ((x ^ w[1]) & M32) * 0x9E3779B1 + w[0] & M64
        y = ((y ^ y >> 32) & M32) * 0x85EBCA77
        return (y & M32) * m >> 32

    def __call__(self, i):
        if self.n <= 64:
            return self.table[i]
        row, column = divmod(i, self.columns)
        while True:
            for t in range(0, len(self.rounds), 2):
                row = (row + self.mixed(column, self.rounds[t], self.rows)) % self.rows
                column = (column + self.mixed(row, self.rounds[t + 1], self.columns)) % self.columns
            if row * self.columns + column < self.n:
                return row * self.columns + column

    def inverse(self, v):
        if self.n <= 64:
            return self.table.index(v)
        row, column = divmod(v, self.columns)
        while True:
            for t in range(len(self.rounds) - 2, -1, -2):
                column = (column - self.mixed(row, self.rounds[t + 1], self.columns)) % self.columns
                row = (row - self.mixed(column, self.rounds[t], self.rows)) % self.rows
            if row * self.columns + column < self.n:
                return row * self.columns + column


# order.md, A pass


class Pass:
    """pass(p) of n samples in the order of a kind: a dictionary with `sampler` and its options."""

    def __init__(self, n, kind, starts, seed, number):
        self.n, self.sampler, self.seed, self.number = n, kind["sampler"], seed, number
        self.shift = 0
        if self.sampler == "sequential":
            return
        window = kind["window"]
        if self.sampler == "chunked":
            self.chunk_size = kind["chunk_size"]
            self.num_chunks = ceil_div(n, self.chunk_size)
        else:
            self.starts = starts
            self.num_chunks = len(starts) - 1
        self.window = min(window, self.num_chunks)
        self.place = Permutation(self.num_chunks, key(seed, number, CHUNKS))
        if self.sampler == "sharded":
            self.begins = [0]
            for i in range(self.num_chunks):
                chunk = self.place(i)
                self.begins.append(self.begins[-1] + starts[chunk + 1] - starts[chunk])
        elif n > 0:
            self.lacks = self.num_chunks * self.chunk_size - n
            self.short_place = self.place.inverse(self.num_chunks - 1)
            if kind["phase"]:
                self.shift = scale(key(seed, number, PHASE).low, min(self.chunk_size, n))
        self.groups = {}

    def begin_of_place(self, place):
        if place >= self.num_chunks:
            return self.n
        if self.sampler == "sharded":
            return self.begins[place]
        return place * self.chunk_size - (self.lacks if place > self.short_place else 0)

    def place_at(self, position):
        if self.sampler == "sharded":
            return bisect.bisect_right(self.begins, position) - 1
        place = position // self.chunk_size
        return place + 1 if position >= self.begin_of_place(place + 1) else place

    def __call__(self, p):
        if self.sampler == "sequential":
            return p
        g = self.place_at(p) // self.window
        if g not in self.groups:
            begin = self.begin_of_place(g * self.window)
            size = self.begin_of_place((g + 1) * self.window) - begin
            self.groups[g] = (begin, Permutation(size, key(self.seed, self.number, SAMPLES, g)))
        begin, mixed = self.groups[g]
        at = begin + mixed(p - begin)
        place = self.place_at(at)
        chunk = self.place(place)
        first = self.starts[chunk] if self.sampler == "sharded" else chunk * self.chunk_size
        return (first + at - self.begin_of_place(place) + self.shift) % self.n


# order.md, Resampled orders


def weight_shares(weights, whole):
    require(all(w >= 0 and math.isfinite(w) for w in weights), "a weight that is none")
    require(len(weights) < 1 << 32 and any(weights), "no weights")
    exponent = math.frexp(max(weights))[1]

    def floor_of(weight):
        top, bottom = weight.as_integer_ratio()
        shift = 62 - exponent
        return top * (1 << shift) // bottom if shift >= 0 else top // (bottom << -shift)

    floors = [floor_of(float(w)) for w in weights]
    drop = 0
    while sum(floors) >= 1 << 63 + drop:
        drop += 1
    masses = [f >> drop for f in floors]
    total, before, shares = sum(masses), 0, []
    for mass in masses:
        shares.append((before + mass) * whole // total - before * whole // total)
        before += mass
    ones = 0
    for i, weight in enumerate(weights):
        if shares[i] == 0 and weight > 0:
            shares[i] = 1
            ones += 1
    shares[shares.index(max(shares))] -= ones
    return shares


class WeightedDraw:
    def __init__(self, weights):
        self.n = len(weights)
        self.shares = weight_shares(weights, self.n << 32)
        column = 1 << 32
        self.threshold, self.alias = [column] * self.n, list(range(self.n))
        light = iter([i for i in range(self.n) if self.shares[i] < column])
        heavy = iter([i for i in range(self.n) if self.shares[i] >= column])
        next_light, h = next(light, None), next(heavy)
        next_heavy, left = next(heavy, None), self.shares[h]
        while next_light is not None or next_heavy is not None:
            if left > column:
                self.threshold[next_light], self.alias[next_light] = self.shares[next_light], h
                left -= column - self.shares[next_light]
                next_light = next(light, None)
            else:
                self.threshold[h], self.alias[h] = left, next_heavy
                left = self.shares[next_heavy] - (column - left)
                h, next_heavy = next_heavy, next(heavy, None)

    def __call__(self, u):
        column, height = u * self.n >> 64, (u * self.n & M64) >> 32
        return column if height < self.threshold[column] else self.alias[column]


# order.md, Mixtures


class MixtureDraws:
    def __init__(self, weights, seed):
        require(len(weights) <= 1 << 20, "too many data sets")
        self.shares = weight_shares(weights, 1 << 62)
        self.depth = (len(weights) - 1).bit_length()
        leaves = 1 << self.depth
        below = [0] * leaves + self.shares + [0] * (leaves - len(weights))
        self.nodes = [(0, 0)] * leaves
        for i in range(leaves - 1, 0, -1):
            below[i] = below[2 * i] + below[2 * i + 1]
            if below[2 * i] == below[i] > 0:
                self.nodes[i] = (M64, M64)
            elif below[2 * i] > 0:
                self.nodes[i] = ((below[2 * i] << 64) // below[i], key(seed, i, MIXTURE_PHASE).low)
        self.table = Permutation(256, key(seed, 0, MIXTURE_BLOCK, 0))
        self.table = [self.table(i) for i in range(256)]
        self.of_blocks = key(seed, 0, MIXTURE_BLOCK, 1)
        self.counts = {}

    def counts_before(self, block):
        """Returns the number of draws of each leaf before the block."""
        if block not in self.counts:
            counts = [0, 256 * block]
            for ratio, phase in self.nodes[1:]:
                node = len(counts) // 2
                left = counts[node] * ratio + phase >> 64
                counts += [left, counts[node] - left]
            self.counts[block] = counts[len(self.nodes):]
        return self.counts[block]

    def __call__(self, slot):
        block, offset = divmod(slot, 256)
        keys = words(scatter(self.of_blocks.low + block * (self.of_blocks.high | 1) & M64))
        entry = offset
        for i in range(4):
            entry = self.table[entry ^ keys[i]]
        entry ^= keys[4]
        for dataset, (begin, end) in enumerate(zip(self.counts_before(block), self.counts_before(block + 1))):
            if entry < end - begin:
                return dataset, begin + entry
            entry -= end - begin


def canonical(parts, schedule):
    """Returns the changes of a schedule in the form of a token: (position, weights)."""
    require(len(schedule) <= 1 << 16, "too many changes")
    earlier, current, kept = 0, [part["weight"] for part in parts], []
    for change in schedule:
        position, weights = change["from"], change["weights"]
        require(earlier < position <= MOST_SAMPLES and len(weights) == len(parts), "no schedule")
        earlier = position
        kept.append((ceil_div(position, 256) * 256, weights))
    last = dict(kept)  # of one block's changes, the last one applies
    changes = []
    for position in sorted(last):
        if last[position] != current:
            changes.append({"from": position, "weights": last[position]})
            current = last[position]
    return changes


def continued(past, future, position):
    """Returns the parts and the schedule of a run that had the weights of `past` before a position."""
    begin = ceil_div(position, 256) * 256
    if begin == 0:
        return future
    now = [part["weight"] for part in future["parts"]]
    later = canonical(future["parts"], future.get("schedule", []))
    for change in later:
        now = change["weights"] if change["from"] <= begin else now
    schedule = [change for change in past["schedule"] if change["from"] < begin] + [{"from": begin, "weights": now}]
    schedule += [change for change in later if change["from"] > begin]
    return {**future, "parts": past["parts"], "schedule": canonical(past["parts"], schedule)}


class MixtureSchedule:
    """order.md, Schedules of weights."""

    def __init__(self, parts, schedule, seed):
        self.pieces = [(0, MixtureDraws([part["weight"] for part in parts], seed), [0] * len(parts))]
        for change in canonical(parts, schedule):
            begin, draws = change["from"], MixtureDraws(change["weights"], seed)
            own = draws.counts_before(begin // 256)
            had = [self.count_before(d, begin) for d in range(len(parts))]
            self.pieces.append((begin, draws, [had[d] - own[d] for d in range(len(parts))]))

    def piece_at(self, slot):
        return [piece for piece in self.pieces if piece[0] <= slot][-1]

    def count_before(self, dataset, slot):
        """Returns the number of draws from a data set before the slot."""
        _, draws, added = self.piece_at(slot)
        block = slot // 256
        inside = [draws(s)[0] for s in range(block * 256, slot)].count(dataset)
        return draws.counts_before(block)[dataset] + inside + added[dataset]

    def __call__(self, slot):
        _, draws, added = self.piece_at(slot)
        dataset, draw = draws(slot)
        return dataset, draw + added[dataset]


# wids-order.md


class PythonRandom:
    def __init__(self, seed):
        words_of_seed = [seed & M32]
        while seed >> 32 * len(words_of_seed):
            words_of_seed.append(seed >> 32 * len(words_of_seed) & M32)
        s = [19650218]
        for i in range(1, 624):
            s.append(1812433253 * (s[-1] ^ s[-1] >> 30) + i & M32)
        i, j = 1, 0

        def on(i):
            if i + 1 < 624:
                return i + 1
            s[0] = s[623]
            return 1

        for _ in range(max(624, len(words_of_seed))):
            s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1664525) + words_of_seed[j] + j & M32
            i, j = on(i), (j + 1) % len(words_of_seed)
        for _ in range(623):
            s[i] = (s[i] ^ (s[i - 1] ^ s[i - 1] >> 30) * 1566083941) - i & M32
            i = on(i)
        s[0] = 0x80000000
        self.s, self.at = s, 624

    def word(self):
        if self.at == 624:
            for i in range(624):
                y = self.s[i] & 0x80000000 | self.s[(i + 1) % 624] & 0x7FFFFFFF
                self.s[i] = self.s[(i + 397) % 624] ^ y >> 1 ^ (0x9908B0DF if y & 1 else 0)
            self.at = 0
        y = self.s[self.at]
        self.at += 1
        y ^= y >> 11
        y ^= y << 7 & 0x9D2C5680
        y ^= y << 15 & 0xEFC60000
        return y ^ y >> 18

    def bits(self, k):
        if k <= 32:
            return self.word() >> 32 - k
        low = self.word()
        return low | self.word() >> 64 - k << 32

    def below(self, m):
        value = self.bits(m.bit_length())
        while value >= m:
            value = self.bits(m.bit_length())
        return value

    def shuffle(self, x):
        for i in range(len(x) - 1, 0, -1):
            j = self.below(i + 1)
            x[i], x[j] = x[j], x[i]


def wids_epoch(ranges, order, epoch):
    random = PythonRandom(order["seed"] + 1289738273 * epoch)
    places = list(range(len(ranges)))
    if order["shuffle"] and (order["shufflefirst"] or epoch > 0):
        random.shuffle(places)
    delivered = []
    for place in places:
        samples = list(range(*ranges[place]))
        if order["shuffle"]:
            random.shuffle(samples)
        delivered += samples
    return delivered


def wids_chunk_size(order, world):
    return order["chunk_size"] or (1000000 if world > 1 else 2000)


def wids_ranges(n, order, world, rank):
    block, chunk_size = ceil_div(n, world), wids_chunk_size(order, world)
    end = min((rank + 1) * block, n)
    return [(begin, min(begin + chunk_size, end)) for begin in range(rank * block, end, chunk_size)]


# order.md, Slots


class Data:
    def __init__(self, n, starts=None, sizes=None, column=None, fingerprint=0):
        self.n, self.starts, self.sizes, self.column, self.fingerprint = n, starts, sizes, column, fingerprint


def position_of_slot(slot, n, streams):
    run = slot % streams
    return run * (n // streams) + min(run, n % streams) + slot // streams


class Slots:
    """slots(epoch, j): the sample in a slot of an epoch."""

    def __init__(self, data, order):
        self.n, self.data, self.order, self.passes, self.known = data.n, data, order, {}, {}
        sampler = order["sampler"]
        self.size = order["epoch_size"] or data.n
        self.is_pass = sampler in ("chunked", "sharded", "sequential")
        self.is_exact = self.is_pass and self.size == data.n
        if sampler == "sharded" or sampler == "resampled" and order["resample"] == "shard":
            require(data.starts is not None, "no shards are known")
        if sampler == "resampled":
            require(data.n > 0, "nothing to draw from")
            if order["weights"]:
                require(order["resample"] == "sample", "weights of shards")
                self.weighted = WeightedDraw(data.column)
        if sampler == "mixture":
            self.parts, first = [], 0
            for i, part in enumerate(order["parts"]):
                weights = [part["weight"]] + [change["weights"][i] for change in canonical(order["parts"], order.get("schedule", []))]
                require(part["samples"] > 0 or not max(weights) > 0, "nothing to draw from")
                end = first + part["samples"]
                starts = None
                if part["sampler"] == "sharded":
                    starts = [v - first for v in data.starts if first <= v <= end]
                    require(starts and starts[0] == 0 and starts[-1] == part["samples"], "no border of shards")
                self.parts.append((first, part, starts, key(order["seed"], 0, MIXTURE_DATASET, i).low))
                first = end
            require(self.parts and first == data.n, "not as many samples as the parts have")
            self.draws = MixtureSchedule(order["parts"], order.get("schedule", []), order["seed"])

    def check_epoch(self, epoch):
        require(epoch < M64, "no such epoch")
        if not self.is_exact and self.order["sampler"] != "resampled":
            require(epoch < MOST_SAMPLES // self.size, "no such epoch")

    def of_pass(self, number, position, n, kind, starts, seed, part=None):
        if (part, number) not in self.passes:
            self.passes[part, number] = Pass(n, kind, starts, seed, number)
        return self.passes[part, number](position)

    def resampled(self, epoch, position):
        seed = self.order["seed"]
        if self.order["resample"] == "sample":
            low = key(seed, epoch, RESAMPLED, position).low
            return self.weighted(low) if self.order["weights"] else scale(low, self.n)
        starts = self.data.starts
        draw, offset = divmod(position, ceil_div(self.n, max(len(starts) - 1, 1)))
        u = key(seed, epoch, RESAMPLED_SHARD, draw)
        shard = bisect.bisect_right(starts, scale(u.low, self.n)) - 1
        length = starts[shard + 1] - starts[shard]
        mixed = Permutation(length, key(u.low, u.high, RESAMPLED_PASS, offset // length))
        return starts[shard] + mixed(offset % length)

    def __call__(self, epoch, j):
        if (epoch, j) not in self.known:
            self.known[epoch, j] = self.sample_in(epoch, j)
        return self.known[epoch, j]

    def sample_in(self, epoch, j):
        streams = self.order["streams"]
        if self.order["sampler"] == "resampled":
            return self.resampled(epoch, position_of_slot(j, self.size, streams))
        if self.is_pass:
            number, j = (epoch, j) if self.is_exact else divmod(epoch * self.size + j, self.n)
            position = position_of_slot(j, self.n, streams)
            return self.of_pass(number, position, self.n, self.order, self.data.starts, self.order["seed"])
        dataset, draw = self.draws(epoch * self.size + j)
        first, part, starts, seed = self.parts[dataset]
        number, position = divmod(draw, part["samples"])
        return first + self.of_pass(number, position, part["samples"], part, starts, seed, dataset)


# order.md, What is left out


class SkipList:
    def __init__(self):
        self.samples = {}  # sample -> (point, reason)
        self.ranges = []  # [epoch, begin, end], ascending

    def add_sample(self, sample, point=(0, 0), reason=""):
        if sample not in self.samples or point < self.samples[sample][0]:
            self.samples[sample] = (point, reason)

    def add_range(self, epoch, begin, end):
        require(begin <= end, "a range that ends before it begins")
        if begin == end:
            return
        touched = [r for r in self.ranges if r[0] == epoch and r[1] <= end and begin <= r[2]]
        self.ranges = [r for r in self.ranges if r not in touched]
        self.ranges.append([epoch, min([begin] + [r[1] for r in touched]), max([end] + [r[2] for r in touched])])
        self.ranges.sort()

    def add_steps(self, epoch, first, last, world, batch):
        self.add_range(epoch, *[min(step * world * batch, MOST_SAMPLES) for step in (first, last)])

    def merge_from(self, own, point):
        for sample, (since, reason) in own.samples.items():
            self.add_sample(sample, max(since, point), reason)
        for epoch, begin, end in own.ranges:
            begin = max(begin, point[1]) if epoch == point[0] else begin
            if epoch >= point[0] and begin < end:
                self.add_range(epoch, begin, end)

    def is_left_out(self, epoch, j, sample, point=None):
        """`point`: the point at which the sample would be delivered, if it is not (epoch, j)."""
        if any(r[0] == epoch and r[1] <= j < r[2] for r in self.ranges):
            return True
        return sample in self.samples and self.samples[sample][0] <= (point or (epoch, j))


# order.md, Ranks and steps; Balanced bytes


def deal(step, sizes, world):
    """Returns, for each place in a step, the rank that gets its sample."""
    if not sizes:
        return []
    shift = max(0, max(sizes).bit_length() - 32)
    sizes = [size >> shift for size in sizes]

    def class_of(size):
        x = size + 1
        v = x.bit_length() - 1
        return 16 * v + 16 * (x - (1 << v)) // (1 << v)

    queue = sorted(range(len(sizes)), key=lambda place: (-class_of(sizes[place]), place))
    taking = min(world, len(sizes))
    load = [0] * taking
    left = [len(sizes) // world + (rank < len(sizes) % world) for rank in range(taking)]
    ranks = [None] * len(sizes)
    at = wave = 0
    while at < len(queue):
        waiting = sorted((r for r in range(taking) if left[r]), key=lambda r: (r - step) % taking, reverse=wave % 2 == 1)
        limit = min(load[r] for r in waiting) + max(sizes[queue[at]], sum(sizes) // taking // 1024)
        for r in waiting:
            if load[r] <= limit and at < len(queue):
                ranks[queue[at]] = r
                load[r] += sizes[queue[at]]
                left[r] -= 1
                at += 1
        wave += 1
    return ranks


class Ranks:
    def __init__(self, rank=0, world_size=1, batch_size=1, global_batch_size=0, replicas=1):
        require(1 <= world_size <= 1 << 31 and rank < world_size, "no such rank")
        require(replicas >= 1 and world_size % replicas == 0, "replicas")
        require(1 <= batch_size <= 1 << 31 and global_batch_size <= 1 << 62, "batch size")
        self.world, self.rank = world_size // replicas, rank // replicas
        self.step = global_batch_size or batch_size * self.world
        self.is_even = global_batch_size % self.world == 0


def check_order(data, order, ranks, has_skip):
    sampler = order["sampler"]
    streams, tail, balanced, epoch_size = (order[o] for o in ("streams", "tail", "balance_bytes", "epoch_size"))
    require(data.n <= MOST_SAMPLES and epoch_size <= MOST_SAMPLES, "too many samples")
    if sampler in ("wids", "mixture"):
        require(streams == 1 and tail == "exact", "streams and tail")
    if sampler == "wids":
        require(not balanced and epoch_size == 0 and not has_skip, "not of wids")
        return
    for kind in order["parts"] if sampler == "mixture" else [order]:
        require(kind.get("window", 1) >= 1 and kind.get("chunk_size", 1) >= 1, "chunks of nothing")
    require(streams >= 1 and (streams % ranks.world == 0 or ranks.world % streams == 0), "streams and ranks")
    require(ranks.is_even or not balanced and tail != "pad", "a global batch that ranks cannot share")
    if sampler in ("chunked", "sharded", "sequential") and epoch_size not in (0, data.n):
        require(tail == "exact" and data.n > 0, "epoch_size")


class Sampler:
    """The samples that all ranks deliver from a point of an epoch on."""

    def __init__(self, data, order, ranks, point=(0, 0), skip=None):
        self.data, self.order, self.ranks, self.skip = data, order, ranks, skip or SkipList()
        self.epoch, self.first = point
        require(all(sample < data.n for sample in self.skip.samples), "no such sample to leave out")
        check_order(data, order, ranks, bool(self.skip.samples or self.skip.ranges))
        if order["sampler"] == "wids":
            self.block = ceil_div(data.n, ranks.world)
            require(self.first <= self.block * ranks.world and self.epoch < M64, "no such position")
            return
        self.slots = Slots(data, order)
        self.slots.check_epoch(self.epoch)
        require(self.first <= self.slots.size, "no such position")

    def is_kept(self, j):
        return not self.has_skip or not self.skip.is_left_out(self.epoch, j, self.slots(self.epoch, j))

    @property
    def has_skip(self):
        return bool(self.skip.samples or self.skip.ranges)

    def slot_list(self):
        """Returns the kept slots of the epoch from the point on, as a range if no sample is left out."""
        all_slots = range(self.first, self.slots.size)
        return [j for j in all_slots if self.is_kept(j)] if self.has_skip else all_slots

    def walk(self):
        """Returns the slots that are delivered, with padding."""
        kept = self.slot_list()
        n, world = len(kept), self.ranks.world
        if self.order["tail"] == "drop":
            return kept[:n - n % world]
        repeated = -n % world if self.order["tail"] == "pad" else 0
        if repeated:
            pads = range(self.slots.size)
            if self.has_skip:
                last = (self.epoch, self.slots.size)
                pads = [j for j in pads if not self.skip.is_left_out(self.epoch, j, self.slots(self.epoch, j), last)]
                pads = pads or [j for j in range(self.slots.size) if self.is_kept(j)]
            kept = list(kept) + [pads[i % len(pads)] for i in range(repeated)]
        return kept

    def deliveries(self, begin=0, limit=None):
        """Returns (sample, slot) of each delivery of this rank."""
        world, rank = self.ranks.world, self.ranks.rank
        end = None if limit is None else begin + limit
        if self.order["sampler"] == "wids":
            ranges = wids_ranges(self.data.n, self.order, world, rank)
            samples = wids_epoch(ranges, self.order, self.epoch)
            whole = [(sample, i * world + rank) for i, sample in enumerate(samples) if i * world + rank >= self.first]
            return whole[begin:end]
        walk = self.walk()
        if not self.order["balance_bytes"] or self.ranks.step == world:
            return [(self.slots(self.epoch, j), j) for j in walk[rank::world][begin:end]]
        mine = []
        for step in range(ceil_div(len(walk), self.ranks.step)):
            slots = walk[step * self.ranks.step:(step + 1) * self.ranks.step]
            samples = [self.slots(self.epoch, j) for j in slots]
            dealt = deal(step, [self.data.sizes[s] for s in samples], world)
            mine += [(samples[i], slots[i]) for i in range(len(slots)) if dealt[i] == rank]
        return mine[begin:end]

    def point_after(self, steps):
        """Returns the point of a token after some steps of all ranks."""
        count = steps * self.ranks.step
        if self.order["sampler"] == "wids":
            at = self.first + count
            return (self.epoch, at) if at < self.block * self.ranks.world else (self.epoch + 1, 0)
        walk = self.walk()
        return (self.epoch, walk[count]) if count < len(walk) else (self.epoch + 1, 0)

    # epoch-proof.md

    def samples_before(self):
        """Returns the samples that were delivered in the epoch before the point."""
        if self.order["sampler"] != "wids":
            return [self.slots(self.epoch, j) for j in range(self.first) if self.is_kept(j)]
        samples = []
        for rank in range(self.ranks.world):
            mine = wids_epoch(wids_ranges(self.data.n, self.order, self.ranks.world, rank), self.order, self.epoch)
            samples += [s for i, s in enumerate(mine) if i * self.ranks.world + rank < self.first]
        return samples

    @property
    def is_exact(self):
        return self.order["sampler"] == "wids" or self.slots.is_exact

    def expected_samples(self):
        """Returns the samples that the whole epoch must deliver."""
        if self.order["sampler"] == "wids":
            return list(range(self.data.n))
        return self.samples_before() + [self.slots(self.epoch, j) for j in self.walk()]

    def sums_before(self):
        return sums_of(self.samples_before(), self.data.fingerprint)

    def expected_sums(self):
        return sums_of(self.expected_samples(), self.data.fingerprint)


def sums_of(samples, fingerprint):
    both = key(fingerprint & M64, fingerprint >> 64, AUDIT)
    count = hashes = numbers = 0
    for s in samples:
        count += 1
        hashes += scatter_b(s + both.high & M64) << 64 | scatter(s + both.low & M64)
        numbers += s
    return count & M64, hashes & M128, numbers & M128


def added(one, other):
    return (one[0] + other[0]) & M64, (one[1] + other[1]) & M128, (one[2] + other[2]) & M128


def to_words(sums):
    return [sums[part] >> 32 * i & M32 for part, limbs in ((0, 2), (1, 4), (2, 4)) for i in range(limbs)]
