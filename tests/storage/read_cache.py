"""Reads a shard cache: python3 read_cache.py DIR, or --batch

Written only from docs/formats/cache-directory.md. Prints one JSON line per shard, sorted by name: whether the shard matches its
record, and which bytes of the locks file belong to it. With --batch, each line of standard input is
a JSON array [source, compression, validator]. For each line, prints the name that this shard has in
a cache, or null if that page does not allow the URL.
"""

import json
import os
import re
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "support"))
from xxh3 import hash64, hash128  # noqa: E402

UNRESERVED = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
RESERVED = b":/?#[]@!$&'()*+,;=%"
NAME = re.compile(r"[0-9a-f]{32}\.tar")


class Refused(Exception):
    pass


def normalised(text):
    out = b""
    while text:
        encoded = re.match(rb"%([0-9A-Fa-f]{2})", text)
        byte = bytes.fromhex(encoded.group(1).decode()) if encoded else text[:1]
        plain = byte in [bytes([b]) for b in UNRESERVED] or not encoded and byte in [bytes([b]) for b in RESERVED]
        out += byte if plain else b"%%%02X" % byte[0]
        text = text[3:] if encoded else text[1:]
    return out


def without_dots(path):
    out = []
    segments = path.split(b"/")[1:]
    for i, segment in enumerate(segments):
        if segment == b"..":
            out = out[:-1]
        if segment not in (b".", b".."):
            out.append(segment)
        elif i + 1 == len(segments):
            out.append(b"")
    return b"/" + b"/".join(out)


def canonical_url(url):
    if any(b < 0x20 or b == 0x7F for b in url):
        raise Refused
    scheme, _, rest = url.partition(b"://")
    if scheme.lower() in (b"s3", b"gs", b"az", b"hf"):
        return scheme.lower() + b"://" + rest
    rest, _, _ = rest.partition(b"#")
    rest, mark, query = rest.partition(b"?")
    authority, slash, path = rest.partition(b"/")
    authority = authority.rpartition(b"@")[2]
    host, port = re.fullmatch(rb"(\[.*\]|.*?)(?::([^:\]]*))?", authority).groups()
    if not re.fullmatch(rb"[A-Za-z0-9._\x80-\xff-]+|\[[0-9A-Fa-f:.]{2,}\]", host):
        raise Refused
    if port:
        if not port.isdigit() or not 1 <= int(port) <= 65535:
            raise Refused
        host += b"" if (scheme.lower(), int(port)) in ((b"http", 80), (b"https", 443)) else b":%d" % int(port)
    return scheme.lower() + b"://" + host.lower() + without_dots(normalised(slash + path) or b"/") + mark + normalised(query)


# For each signing scheme: the names of parameters that identify it, and of all parameters that it uses.
SCHEMES = [(marks.split(), parts.split()) for marks, parts in (
    (b"x-amz-signature", b"x-amz-*"),
    (b"x-goog-signature", b"x-goog-*"),
    (b"signature awsaccesskeyid", b"signature awsaccesskeyid expires policy x-amz-security-token"),
    (b"signature googleaccessid", b"signature googleaccessid expires policy x-amz-security-token"),
    (b"signature key-pair-id", b"signature key-pair-id expires policy x-amz-security-token"),
    (b"signature keyname expires", b"signature keyname expires urlprefix"),
    (b"signature ossaccesskeyid", b"signature ossaccesskeyid expires security-token"),
    (b"x-oss-signature", b"x-oss-signature x-oss-signature-version x-oss-credential x-oss-access-key-id"
                         b" x-oss-date x-oss-expires x-oss-additional-headers x-oss-security-token"),
    (b"q-signature q-ak", b"q-signature q-ak q-sign-algorithm q-sign-time q-key-time q-header-list"
                          b" q-url-param-list x-cos-security-token"),
    (b"sig sv", b"sig se si sip ske skoid sks skt sktid skv sp spr sr srt ss st sv sdd saoid suoid scid"),
)]


def without_signature(url):
    base, mark, query = url.partition(b"?")
    parts = query.split(b"&")
    if parts[-1] == b"":
        parts.pop()
    names = [part.partition(b"=")[0].lower() for part in parts]

    def is_dropped(name):
        return any(
            all(mark in names for mark in marks)
            and any(name.startswith(part[:-1]) if part.endswith(b"*") else name == part for part in parts)
            for marks, parts in SCHEMES
        )

    kept = [part for part, name in zip(parts, names) if not is_dropped(name)]
    if len(kept) == len(parts):
        return url
    return base + (mark if kept else b"") + b"&".join(kept)


def name_of(source, compression, validator):
    scheme = re.match(rb"([A-Za-z][A-Za-z0-9+.-]*)://", source)
    if scheme and scheme.group(1).lower() != b"file":
        is_object = scheme.group(1).lower() in (b"s3", b"gs", b"az", b"hf")
        source = canonical_url(source)
        if not is_object:
            source = without_signature(source)
    return "%032x" % hash128(source + b"\0" + compression + b"\0" + validator)


def joined(halves):
    return halves[0] << 64 | halves[1]


def note_of(path, shard_hash):
    """Returns the hash128 of the note's text in hexadecimal; None if there is no valid note of this shard."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except FileNotFoundError:
        return None
    if len(data) < 64:
        return None
    magic, version, _, high, low, size, text_high, text_low, checksum = struct.unpack("<8sIIQQQQQQ", data[:64])
    is_whole = checksum == hash64(data[:56]) and size == len(data) - 64 and joined((text_high, text_low)) == hash128(data[64:])
    if magic != b"SHARDWN\n" or version != 1 or not is_whole or joined((high, low)) != shard_hash:
        return None
    return "%032x" % joined((text_high, text_low))


def read(directory):
    with open(os.path.join(directory, "shardwise-cache")) as marker:
        assert marker.read() == "shardwise shard cache, version 2\n"
    shards = os.path.join(directory, "shards")
    for file in sorted(os.listdir(shards)):
        if not NAME.fullmatch(file):
            continue
        path = os.path.join(shards, file)
        with open(path, "rb") as shard:
            data = shard.read()
        record = open(path[:-4] + ".json").read()
        assert record.endswith("}\n") and len(record) <= 65536
        record = json.loads(record)
        k = hash64(file[:-4].encode()) >> 3
        yield {
            "name": file[:-4], "url": record["url"], "validator": record["validator"], "compression": record["compression"],
            "source_size": record["source_size"], "source_hash": "%032x" % joined(record["source_hash"]),
            "is_intact": record["size"] == len(data) and joined(record["hash"]) == hash128(data),
            "is_same_at_a_glance": (record["mtime_ns"], record["start_hash"]) == (os.stat(path).st_mtime_ns, hash64(data[:4096])),
            "checked_as": record["checked_as"] and "%032x" % joined(record["checked_as"]),
            "note": note_of(path[:-4] + ".note", joined(record["hash"])),
            "fetch_byte": 2 * k + 1, "use_byte": 2 * k + 2,
        }


if __name__ == "__main__":
    if sys.argv[1] == "--batch":
        for line in sys.stdin:
            try:
                print(json.dumps(name_of(*[part.encode("latin-1") for part in json.loads(line)])))
            except Refused:
                print("null")
    else:
        for one in read(sys.argv[1]):
            print(json.dumps(one))
