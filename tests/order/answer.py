"""Answers questions about orders and tokens. Written only from the pages of docs/formats.

    answer.py [INDEX | --size N] [ORDER]    prints the output of `shardwise order` with them
    answer.py token TOKEN                   prints the output of `shardwise token --json TOKEN`
    answer.py --batch                       answers each line of standard input, a request in JSON,
                                            with one line; see answer()
"""

import argparse
import json
import os
import sys

import read_token
import sample_order
from read_token import Token
from sample_order import (M64, Data, Hash128, MixtureSchedule, Pass, Permutation, Ranks, Refused, Sampler, SkipList, WeightedDraw,
                          hash128, require, words)

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "index"))
from read_index import Index  # noqa: E402

def data_of_index(path, column):
    index = Index(path)
    shards = [row[5] for row in index.shards] + [index.num_samples]
    names = [line.split("=")[0] for line in index.meta["columns"].split("\n") if line]
    samples = list(index.samples())
    values = None
    if column:
        require(column in names, "no such column")
        values = [sample["values"][names.index(column)] for sample in samples]
        require(all(isinstance(value, (int, float)) for value in values), "no number")
        values = [float(value) for value in values]
    sizes = [sum(member[2] for member in sample["members"]) for sample in samples]
    data = Data(index.num_samples, shards, sizes, values, int(index.meta["fingerprint"], 16))
    data.keys = [sample["key"] for sample in samples]
    return data


def joined(parts):
    if len(parts) == 1:
        return parts[0]
    starts, sizes, keys = [0], [], []
    for part in parts:
        starts += [len(sizes) + v for v in part.starts[1:]]
        sizes += part.sizes
        keys += part.keys
    halves = b"".join(words(p.fingerprint & M64, p.fingerprint >> 64) for p in parts)
    data = Data(len(sizes), starts, sizes, None, hash128(halves))
    data.keys = keys
    return data


def read_skip(path, data):
    skip = SkipList()
    for line in open(path):
        line, _, reason = line.partition(" # ")
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if parts[0] == "key":
            skip.add_sample(data.keys.index(line.strip()[4:].strip()), reason=reason.strip())
        elif parts[0] == "positions":
            skip.add_range(*[int(p) for p in parts[1:]])
        elif parts[0] == "steps":
            skip.add_steps(*[int(p) for p in parts[1:]])
        else:
            skip.add_sample(int(parts[-1]), reason=reason.strip())
    return skip


def parser():
    class Parser(argparse.ArgumentParser):
        def error(self, message):
            raise Refused(message)

    p = Parser(allow_abbrev=False)
    p.add_argument("index", nargs="?")
    for name in ("size", "epoch", "rank", "chunk", "window", "limit", "batch", "global-batch"):
        p.add_argument("--" + name, type=int)
    for name in ("seed", "epoch-size", "from"):
        p.add_argument("--" + name, type=int, default=0)
    for name in ("world", "streams", "replicas"):
        p.add_argument("--" + name, type=int, default=1)
    for name in ("no-shuffle", "phase", "shufflefirst", "balance-bytes", "json"):
        p.add_argument("--" + name, action="store_true")
    p.add_argument("--sampler", default="chunked")
    p.add_argument("--tail", default="exact")
    for name in ("resample", "weights", "mix", "skip", "token"):
        p.add_argument("--" + name)
    p.add_argument("--schedule", action="append", default=[])
    return p


def kind_of(args):
    sampler = "sequential" if args.no_shuffle and args.sampler in ("chunked", "sharded") else args.sampler
    given = [name for name in ("chunk", "window", "resample", "weights") if getattr(args, name) is not None]
    given += [name for name in ("phase", "shufflefirst") if getattr(args, name)]
    allowed = {"chunked": ["chunk", "window", "phase"], "sharded": ["window"], "sequential": [],
               "resampled": ["resample", "weights"], "wids": ["chunk", "shufflefirst"]}
    require(sampler in allowed and all(name in allowed[sampler] for name in given), "options that mean nothing")
    require(not (args.no_shuffle and sampler == "resampled"), "draws are always shuffled")

    def or_default(value, default):
        return default if value is None else value

    return {"sampler": sampler, **{
        "chunked": {"chunk_size": or_default(args.chunk, 1000), "window": or_default(args.window, 64), "phase": args.phase},
        "sharded": {"window": or_default(args.window, 8)},
        "sequential": {},
        "resampled": {"resample": args.resample or "sample", "weights": args.weights or ""},
        "wids": {"chunk_size": args.chunk or 0, "shuffle": not args.no_shuffle, "shufflefirst": args.shufflefirst},
    }[sampler]}


def sampler_of(args):
    """Returns the sampler that the command line's arguments describe."""
    token = Token.from_text(args.token) if args.token else None
    mix = [part.rpartition("=") for part in args.mix.split(",")] if args.mix else []
    column = token.order.get("weights") if token else args.weights
    parts = [data_of_index(name, column) for name in [m[0] for m in mix] or [args.index] if name]
    if parts:
        data = joined(parts)
    elif token:
        data = Data(token.order["samples"], fingerprint=token.fingerprint)
    else:
        require(args.size is not None, "INDEX or --size")
        data = Data(args.size)
    if token:
        order = token.order
    else:
        order = kind_of(args)
        if mix:
            require(order["sampler"] in ("chunked", "sharded", "sequential"), "no mixture of these")
            changes = [change.partition("=") for change in args.schedule]
            order = {"sampler": "mixture", "parts": [{"samples": part.n, "weight": float(m[2]), **order} for part, m in zip(parts, mix)],
                     "schedule": [{"from": int(c[0]), "weights": [float(w) for w in c[2].split(",")]} for c in changes]}
        order = {**order, "seed": args.seed, "streams": args.streams, "tail": args.tail,
                 "balance_bytes": args.balance_bytes, "epoch_size": args.epoch_size}
    ranks = Ranks(args.rank or 0, args.world, args.batch or 1, args.global_batch or 0, args.replicas)
    skip, point = read_skip(args.skip, data) if args.skip else SkipList(), (args.epoch or 0, 0)
    if token:
        read_token.require_same(token, read_token.spec_of(data, order, ranks), data.fingerprint)
        token.skip.merge_from(skip, (token.epoch, token.position))
        skip = token.skip
        if args.epoch is None:
            point = (token.epoch, token.position)
        require(args.epoch is None or args.epoch >= token.epoch, "an epoch that is over")
    return Sampler(data, order, ranks, point, skip)


def of_command_line(argv):
    args = parser().parse_args(argv)
    return args, sampler_of(args).deliveries(getattr(args, "from"), args.limit)


def loaded(argv):
    """Returns the samples that `shardwise epoch` loads, rank after rank, and the number of samples in its proof."""
    args = parser().parse_args(argv)
    args.batch = args.batch or 64
    sampler, delivered = sampler_of(args), []
    for sampler.ranks.rank in range(sampler.ranks.world):
        delivered += [sample for sample, _ in sampler.deliveries()]
    sums = sample_order.sums_of(delivered, sampler.data.fingerprint)
    token = Token.from_text(args.token) if args.token else None
    if token and token.sums:
        sums = sample_order.added(sums, token.sums)
    assert sums == sampler.expected_sums()
    expected = sampler.expected_samples()
    return {"samples": len(delivered), "epoch": sampler.epoch, "proven": len(set(expected) if sampler.is_exact else expected)}


# Requests


def sampler_of_request(request):
    data = request["data"]
    data = Data(data["n"], data.get("starts"), data.get("sizes"), data.get("column"), int(data["fingerprint"], 16))
    skip = SkipList()
    for sample, epoch, slot, reason in request.get("skip_samples", []):
        skip.add_sample(sample, (epoch, slot), reason)
    for epoch, begin, end in request.get("skip_ranges", []):
        skip.add_range(epoch, begin, end)
    order, point = request["order"], (request.get("epoch", 0), 0)
    if "token" in request:
        token = Token.from_text(request["token"])
        point = (token.epoch, token.position)
        token.skip.merge_from(skip, point)
        skip = token.skip
        if order["sampler"] == "mixture":
            size = order["epoch_size"] or data.n
            order = sample_order.continued(token.order, order, token.epoch * size + token.position)
    return Sampler(data, order, Ranks(**request["ranks"]), point, skip)


def hexed(sums):
    return [sums[0], "%032x" % sums[1], "%032x" % sums[2]]


def answer(request):
    """Returns the answer to a request; its `do` states what is requested."""
    do = request["do"]
    if do == "order":  # argv: the arguments of `shardwise order`
        args, delivered = of_command_line(request["argv"])
        return [list(pair) for pair in delivered] if args.json else [sample for sample, _ in delivered]
    if do == "epoch":  # argv: the arguments of `shardwise epoch`
        return loaded(request["argv"])
    if do == "token_json":
        return Token.from_text(request["text"]).as_json()
    if do == "key":
        made = sample_order.key(*request["of"])
        return "%016x%016x" % (made.high, made.low)
    if do == "permutation":
        made = Permutation(request["n"], Hash128(*request["key"]))
        require(all(made.inverse(made(i)) == i for i in request["of"]), "no bijection")
        return [made(i) for i in request["of"]]
    if do == "pass":
        made = Pass(request["n"], request["kind"], request.get("starts"), request["seed"], request["number"])
        return [made(p) for p in request["of"]]
    if do == "shares":
        return sample_order.weight_shares(request["weights"], request["whole"])
    if do == "draws":
        made = WeightedDraw(request["weights"])
        return [made(u) for u in request["of"]] + [sample_order.hash64(words(*made.shares))]
    if do == "mixture":
        parts = [{"weight": weight} for weight in request["weights"]]
        made = MixtureSchedule(parts, request.get("schedule", []), request["seed"])
        return [list(made(slot)) for slot in request["of"]]
    if do == "deal":
        return sample_order.deal(request["step"], request["sizes"], request["world"])
    if do == "shard_list":
        return sample_order.wids_epoch(list(zip(request["starts"], request["starts"][1:])), request["order"], request["epoch"])
    if do == "sums":
        return hexed(sample_order.sums_of(request["of"], int(request["fingerprint"], 16)))
    if do == "words":
        return sample_order.to_words((request["count"], int(request["hashes"], 16), int(request["numbers"], 16)))
    if do == "token":  # written as text again, and the parts that its JSON lacks
        token = Token.from_text(request["text"])
        return {"text": token.to_text(), "layout": token.order["layout"], "sums": token.sums and hexed(token.sums)}
    sampler = sampler_of_request(request)
    if do == "make_token":
        token = Token()
        token.order = read_token.spec_of(sampler.data, sampler.order, sampler.ranks)
        token.fingerprint, token.skip = sampler.data.fingerprint, sampler.skip
        token.epoch, token.position = sampler.point_after(request["after_steps"])
        return token.to_text()
    if do == "samples":
        return [sample for sample, _ in sampler.deliveries()]
    if do == "ranks":
        everything = {"deliveries": [list(pair) for pair in sampler.deliveries()],
                      "points": [list(sampler.point_after(steps)) for steps in request["steps"]]}
        if request["prove"]:
            everything["before"], everything["expected"] = hexed(sampler.sums_before()), hexed(sampler.expected_sums())
        return everything
    raise AssertionError("nothing to do: " + do)


def main():
    if sys.argv[1:] == ["--batch"]:
        for line in sys.stdin:
            try:
                print(json.dumps({"is": answer(json.loads(line))}))
            except Refused as why:
                print(json.dumps({"refused": str(why)}))
    elif sys.argv[1:2] == ["token"]:
        print(json.dumps(Token.from_text(sys.argv[2]).as_json(), separators=(",", ":")))
    else:
        args, delivered = of_command_line(sys.argv[1:])
        for sample, slot in delivered:
            print('{"sample":%d,"position":%d}' % (sample, slot) if args.json else sample)


if __name__ == "__main__":
    main()
