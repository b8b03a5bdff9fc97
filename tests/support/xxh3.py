"""XXH3 by xxHash's specification (doc/xxhash_spec.md of xxHash 0.8), for programs that read our formats without the library.

hash64(data, seed) is XXH3_64bits_withSeed, hash128(data) is XXH3_128bits. Both return an integer.
"""

import struct

M32 = (1 << 32) - 1
M64 = (1 << 64) - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MIX_1, MIX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")


def u32(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def u64(data, at):
    return int.from_bytes(data[at:at + 8], "little")


WORDS = [u64(SECRET, at) for at in range(len(SECRET) - 7)]


def swap32(x):
    return int.from_bytes(x.to_bytes(4, "little"), "big")


def swap64(x):
    return int.from_bytes(x.to_bytes(8, "little"), "big")


def fold(x, y):
    product = x * y
    return (product & M64) ^ (product >> 64)


def avalanche(x):
    x = (x ^ x >> 37) * MIX_1 & M64
    return x ^ x >> 32


def avalanche_of_xxh64(x):
    x = (x ^ x >> 33) * P64_2 & M64
    x = (x ^ x >> 29) * P64_3 & M64
    return x ^ x >> 32


def rotated(x, by):
    return (x << by | x >> 64 - by) & M64


def mixed_16(data, at, secret, seed):
    return fold(u64(data, at) ^ (WORDS[secret] + seed & M64), u64(data, at + 8) ^ (WORDS[secret + 8] - seed & M64))


def accumulated(data, seed):
    """Returns the eight accumulators for data of more than 240 bytes, and the secret derived from the seed."""
    secret = b"".join(struct.pack("<QQ", lo + seed & M64, hi - seed & M64) for lo, hi in struct.iter_unpack("<QQ", SECRET))
    acc = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def stripe(at, secret_at):
        words = struct.unpack_from("<8Q", data, at)
        keys = struct.unpack_from("<8Q", secret, secret_at)
        for i in range(8):
            key = words[i] ^ keys[i]
            acc[i ^ 1] += words[i]
            acc[i] += (key & M32) * (key >> 32)
        acc[:] = [x & M64 for x in acc]

    blocks = (len(data) - 1) // 1024
    for block in range(blocks):
        for i in range(16):
            stripe(1024 * block + 64 * i, 8 * i)
        keys = struct.unpack_from("<8Q", secret, 128)
        acc[:] = [(x ^ x >> 47 ^ key) * P32_1 & M64 for x, key in zip(acc, keys)]
    for i in range((len(data) - 1 - 1024 * blocks) // 64):
        stripe(1024 * blocks + 64 * i, 8 * i)
    stripe(len(data) - 64, 121)
    return acc, secret


def merged(acc, secret, at, start):
    keys = struct.unpack_from("<8Q", secret, at)
    return avalanche(start + sum(fold(acc[i] ^ keys[i], acc[i + 1] ^ keys[i + 1]) for i in range(0, 8, 2)) & M64)


def hash64(data, seed=0):
    data = bytes(data)
    size = len(data)
    if size == 0:
        return avalanche_of_xxh64(seed ^ WORDS[56] ^ WORDS[64])
    if size <= 3:
        word = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return avalanche_of_xxh64(word ^ ((u32(SECRET, 0) ^ u32(SECRET, 4)) + seed & M64))
    if size <= 8:
        seed ^= swap32(seed & M32) << 32
        word = u32(data, size - 4) + (u32(data, 0) << 32)
        x = word ^ ((WORDS[8] ^ WORDS[16]) - seed & M64)
        x = (x ^ rotated(x, 49) ^ rotated(x, 24)) * MIX_2 & M64
        x = (x ^ (x >> 35) + size) * MIX_2 & M64
        return x ^ x >> 28
    if size <= 16:
        low = u64(data, 0) ^ ((WORDS[24] ^ WORDS[32]) + seed & M64)
        high = u64(data, size - 8) ^ ((WORDS[40] ^ WORDS[48]) - seed & M64)
        return avalanche(size + swap64(low) + high + fold(low, high) & M64)
    if size <= 128:
        acc = size * P64_1
        for i in reversed(range((size - 1) // 32 + 1)):
            acc += mixed_16(data, 16 * i, 32 * i, seed) + mixed_16(data, size - 16 * (i + 1), 32 * i + 16, seed)
        return avalanche(acc & M64)
    if size <= 240:
        acc = avalanche(size * P64_1 + sum(mixed_16(data, 16 * i, 16 * i, seed) for i in range(8)) & M64)
        acc += sum(mixed_16(data, 16 * i, 16 * (i - 8) + 3, seed) for i in range(8, size // 16))
        return avalanche(acc + mixed_16(data, size - 16, 119, seed) & M64)
    acc, secret = accumulated(data, seed)
    return merged(acc, secret, 11, size * P64_1)


def hash128(data):
    data = bytes(data)
    size = len(data)

    def joined(high, low):
        return (high & M64) << 64 | low & M64

    if size == 0:
        return joined(avalanche_of_xxh64(WORDS[80] ^ WORDS[88]), avalanche_of_xxh64(WORDS[64] ^ WORDS[72]))
    if size <= 3:
        low = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        high = swap32(low)
        high = (high << 13 | high >> 19) & M32
        return joined(avalanche_of_xxh64(high ^ u32(SECRET, 8) ^ u32(SECRET, 12)), avalanche_of_xxh64(low ^ u32(SECRET, 0) ^ u32(SECRET, 4)))
    if size <= 8:
        word = u32(data, 0) + (u32(data, size - 4) << 32)
        product = (word ^ WORDS[16] ^ WORDS[24]) * (P64_1 + (size << 2))
        low, high = product & M64, product >> 64
        high = high + (low << 1) & M64
        low ^= high >> 3
        low = (low ^ low >> 35) * MIX_2 & M64
        return joined(avalanche(high), low ^ low >> 28)
    if size <= 16:
        low, high = u64(data, 0), u64(data, size - 8)
        product = (low ^ high ^ WORDS[32] ^ WORDS[40]) * P64_1
        product_low, product_high = (product & M64) + ((size - 1) << 54) & M64, product >> 64
        high ^= WORDS[48] ^ WORDS[56]
        product_high = product_high + high + (high & M32) * (P32_2 - 1) & M64
        product = (product_low ^ swap64(product_high)) * P64_2
        return joined(avalanche((product >> 64) + product_high * P64_2 & M64), avalanche(product & M64))
    if size <= 240:
        low, high = size * P64_1 & M64, 0

        def mix(first, second, secret):
            nonlocal low, high
            low = (low + mixed_16(data, first, secret, 0) & M64) ^ (u64(data, second) + u64(data, second + 8) & M64)
            high = (high + mixed_16(data, second, secret + 16, 0) & M64) ^ (u64(data, first) + u64(data, first + 8) & M64)

        if size <= 128:
            for i in reversed(range((size - 1) // 32 + 1)):
                mix(16 * i, size - 16 * (i + 1), 32 * i)
        else:
            for i in range(4):
                mix(32 * i, 32 * i + 16, 32 * i)
            low, high = avalanche(low), avalanche(high)
            for i in range(4, size // 32):
                mix(32 * i, 32 * i + 16, 32 * (i - 4) + 3)
            mix(size - 16, size - 32, 103)
        return joined(-avalanche(low * P64_1 + high * P64_4 + size * P64_2 & M64), avalanche(low + high & M64))
    acc, secret = accumulated(data, 0)
    return joined(merged(acc, secret, 117, ~(size * P64_2) & M64), merged(acc, secret, 11, size * P64_1))
