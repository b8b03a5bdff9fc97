"""Computes what a transform makes of an image. Written only from docs/formats/transforms.md, and
from order.md for keys.

python3 read_transform.py reads requests, one JSON object per line, and prints one answer per line;
see answer().
"""

import json
import math
import os
import struct
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "support"))
from xxh3 import hash128  # noqa: E402

M64 = (1 << 64) - 1
CROP, RANDOM_CROP, HORIZONTAL, VERTICAL, JITTER, GRAY, ERASING, MIXUP, CUTMIX = range(1, 10)


# order.md, Notation and Keys


def key(seed, epoch, purpose, index=0):
    """Returns the key as (low, high)."""
    value = hash128(struct.pack("<4Q", seed, epoch, purpose, index))
    return value & M64, value >> 64


def scatter(x):
    x ^= x >> 30
    x = x * 0xBF58476D1CE4E5B9 & M64
    x ^= x >> 27
    x = x * 0x94D049BB133111EB & M64
    return x ^ x >> 31


# Random numbers


class Draws:
    def __init__(self, k, operation):
        low, high = key(*k, 12, operation)
        self.at, self.step = low, high | 1

    def word(self):
        word = scatter(self.at)
        self.at = self.at + self.step & M64
        return word

    def uniform(self, a=0.0, b=1.0):
        u = (self.word() >> 11) * 2.0**-53
        return a + u * (b - a)

    def inside(self):
        return ((self.word() >> 12) * 2 + 1) * 2.0**-53

    def below(self, n):
        while True:
            word = self.word()
            if word * n & M64 >= (1 << 64) % n:
                return word * n >> 64

    def chance(self, p):
        return self.uniform() < p


# Functions


def log(x):
    m, e = math.frexp(x)
    if m < 0.707106781186547524401:
        m, e = m * 2, e - 1
    t = (m - 1) / (m + 1)
    q = t * t
    s = 0.0
    for i in range(12, -1, -1):
        s = s * q + 1 / (2 * i + 1)
    return e * 0.693147180559945309417 + 2 * t * s


def exp(x):
    if x < -708:
        return 0.0
    n = math.floor(x / 0.693147180559945309417 + 0.5)
    r = x - n * 0.693147180559945309417
    s = 1.0
    for i in range(16, 0, -1):
        s = s * r / i + 1
    return math.ldexp(s, n)


# Plans


def sides(draws, area, scale, ratio):
    a = area * draws.uniform(*scale)
    r = exp(draws.uniform(log(ratio[0]), log(ratio[1])))
    return round(math.sqrt(a * r)), round(math.sqrt(a / r))


def placed(draws, height, width, h, w):
    top = draws.below(height - h + 1)
    return [top, draws.below(width - w + 1), h, w]


def random_resized_crop(k, height, width, scale, ratio):
    draws = Draws(k, CROP)
    for _ in range(10):
        w, h = sides(draws, height * width, scale, ratio)
        if 1 <= w <= width and 1 <= h <= height:
            return placed(draws, height, width, h, w)
    h, w = height, width
    if width / height < ratio[0]:
        h = max(1, round(width / ratio[0]))
    elif width / height > ratio[1]:
        w = max(1, round(height * ratio[1]))
    return [(height - h) // 2, (width - w) // 2, h, w]


def plan(t, k, height, width):
    p = {"crop": [0, 0, height, width], "resized": [height, width]}
    if "random_resized_crop" in t:
        crop = t["random_resized_crop"]
        p["crop"] = random_resized_crop(k, height, width, crop["scale"], crop["ratio"])
        p["resized"] = crop["size"]
    elif "resize" in t:
        p["resized"] = t["resize"]
    elif "resize_shorter_side" in t:
        s = t["resize_shorter_side"]
        p["resized"] = [s, s * width // height] if width > height else [s * height // width, s]
    top, left, bottom, right = t.get("padding", [0, 0, 0, 0])
    before, after = [top, left], [bottom, right]
    first = [0, 0]
    frame = [before[i] + p["resized"][i] + after[i] for i in range(2)]
    p["size"] = list(frame)
    draws = Draws(k, RANDOM_CROP)
    for i in range(2):
        if "random_crop" in t:
            p["size"][i] = length = t["random_crop"][i]
            lacking = max(0, length - frame[i])
            before[i] += lacking
            first[i] = draws.below(frame[i] + 2 * lacking - length + 1)
        elif "centre_crop" in t:
            p["size"][i] = length = t["centre_crop"][i]
            if length > frame[i]:
                before[i] += (length - frame[i]) // 2
            else:
                first[i] = round((frame[i] - length) / 2)
    p["at"] = [before[i] - first[i] for i in range(2)]  # place of the first resized pixel
    p["flips"] = [Draws(k, HORIZONTAL).chance(t.get("horizontal_flip", 0)), Draws(k, VERTICAL).chance(t.get("vertical_flip", 0))]
    if "colour_jitter" in t:
        jitter = t["colour_jitter"]
        draws = Draws(k, JITTER)
        if draws.chance(jitter["probability"]):
            order = [0, 1, 2, 3]
            for i in (3, 2, 1):
                j = draws.below(i + 1)
                order[i], order[j] = order[j], order[i]
            p["jitter"] = [order, [draws.uniform(*jitter[name]) for name in ("brightness", "contrast", "saturation", "hue")]]
    p["gray"] = Draws(k, GRAY).chance(t.get("grayscale", 0))
    if "random_erasing" in t:
        erasing = t["random_erasing"]
        draws = Draws(k, ERASING)
        if draws.chance(erasing["probability"]):
            height, width = p["size"]
            for _ in range(10):
                h, w = sides(draws, height * width, erasing["scale"], erasing["ratio"])
                if h < height and w < width:
                    p["erased"] = placed(draws, height, width, h, w)
                    break
    return p


# Pixels: images are lists of rows of (r, g, b)


def bilinear(x):
    return max(0.0, 1 - abs(x))


def bicubic(x):
    x = abs(x)
    if x < 1:
        return (1.5 * x - 2.5) * x * x + 1
    return (((x - 5) * x + 8) * x - 4) * -0.5 if x < 2 else 0.0


def resized_line(line, size, kernel, support):
    """`line`: lists of numbers, all of the same length."""
    if len(line) == size:
        return line
    scale = len(line) / size
    f = max(scale, 1.0)
    result = []
    for i in range(size):
        centre = (i + 0.5) * scale
        first = int(max(0.0, centre - support * f + 0.5))
        end = min(len(line), int(centre + support * f + 0.5))
        w = [kernel((j - centre + 0.5) * (1 / f)) for j in range(first, end)]
        total = 0.0
        for x in w:
            total += x
        weights = [int(x / total * (1 << 22) + (0.5 if x / total >= 0 else -0.5)) for x in w]
        sums = [(1 << 21) + sum(line[first + j][c] * weights[j] for j in range(len(w))) for c in range(len(line[0]))]
        result.append([min(255, max(0, x >> 22)) for x in sums])
    return result


def resized(image, height, width, name):
    kernel, support = (bicubic, 2.0) if name == "bicubic" else (bilinear, 1.0)
    rows = [resized_line(row, width, kernel, support) for row in image]
    columns = [resized_line([row[x] for row in rows], height, kernel, support) for x in range(width)]
    return [[columns[x][y] for x in range(width)] for y in range(height)]


def f32(x):
    return struct.unpack("<f", struct.pack("<f", x))[0]


def to_byte(x):
    return int(min(255.0, max(0.0, x)))


def gray(pixel):
    return (2989 * pixel[0] + 5870 * pixel[1] + 1140 * pixel[2]) // 10000


def turned(pixel, a):
    r, g, b = pixel
    v = max(pixel)
    d = v - min(pixel)
    if d == 0:
        return pixel
    if v == r:
        h = f32((g - b) / d)
    elif v == g:
        h = f32(2 + f32((b - r) / d))
    else:
        h = f32(4 + f32((r - g) / d))
    h = f32(f32(h / 6) + a)
    h = f32(f32(h - math.floor(h)) * 6)
    i = math.floor(h)
    f = f32(h - i)
    s = f32(d / v)
    v = f32(v / 255)
    p = f32(v * f32(1 - s))
    q = f32(v * f32(1 - f32(s * f)))
    t = f32(v * f32(1 - f32(s * f32(1 - f))))
    chosen = ((v, t, p), (q, v, p), (p, v, t), (p, q, v), (t, p, v), (v, p, q))[i % 6]
    return [to_byte(f32(x * f32(255.999))) for x in chosen]


def adjusted(image, which, amount):
    a = f32(amount)
    if a == (0 if which == 3 else 1):
        return image
    if which == 0:
        return [[[to_byte(f32(x * a)) for x in pixel] for pixel in row] for row in image]
    if which == 3:
        return [[turned(pixel, a) for pixel in row] for row in image]
    rest = f32(1 - a)
    mean = f32(sum(gray(pixel) for row in image for pixel in row) / (len(image) * len(image[0])))
    return [[[to_byte(f32(f32(x * a) + f32((mean if which == 1 else gray(pixel)) * rest))) for x in pixel] for pixel in row]
            for row in image]


def transformed(t, p, image):
    top, left, h, w = p["crop"]
    image = [row[left:left + w] for row in image[top:top + h]]
    image = resized(image, *p["resized"], t.get("filter", "bilinear"))
    height, width = p["size"]
    fill = t.get("fill", [0, 0, 0])
    at = p["at"]

    def pixel(y, x):
        y, x = y - at[0], x - at[1]
        return image[y][x] if 0 <= y < len(image) and 0 <= x < len(image[0]) else fill

    image = [[pixel(y, x) for x in range(width)] for y in range(height)]
    if p["flips"][0]:
        image = [row[::-1] for row in image]
    if p["flips"][1]:
        image = image[::-1]
    if "jitter" in p:
        for which in p["jitter"][0]:
            image = adjusted(image, which, p["jitter"][1][which])
    if p["gray"]:
        image = [[[gray(pixel)] * 3 for pixel in row] for row in image]
    if "normalize" in t:
        mean, std = ([f32(x) for x in t["normalize"][name]] for name in ("mean", "std"))
        image = [[[f32(f32(f32(x / 255) - mean[c]) / std[c]) for c, x in enumerate(pixel)] for pixel in row] for row in image]
    if "erased" in p:
        top, left, h, w = p["erased"]
        for y in range(top, top + h):
            for x in range(left, left + w):
                image[y][x] = [f32(v) for v in t["random_erasing"]["value"]]
    return [x for row in image for pixel in row for x in pixel]


# Batches


def beta(draws, alpha):
    while True:
        u, v = draws.inside(), draws.inside()
        if alpha >= 1:
            if v <= exp((alpha - 1) * log(4 * u * (1 - u))):
                return u
            continue
        x, y = log(u) / alpha, log(v) / alpha
        if exp(x) + exp(y) <= 1:
            return 0.0 if y - x > 708 else 1 / (1 + exp(y - x))


def cutmix(k, alpha, height, width):
    draws = Draws(k, CUTMIX)
    r = 0.5 * math.sqrt(1 - beta(draws, alpha))
    box = []
    for length in (width, height):
        c = draws.below(length)
        half = int(r * length)
        box.append((max(0, c - half), min(length, c + half)))
    (left, right), (top, bottom) = box
    h, w = bottom - top, right - left
    return [[top, left, h, w], 1 - h * w / (height * width)]


# Clips


def clip_start(k, operation, size, span, start):
    if span >= size or start == 0:
        return 0
    return (size - span) // 2 if start == 1 else Draws(k, operation).below(size - span + 1)


def clip_frames(k, size, frames, every, start):
    if every == 0:
        return [i * (size - 1) // max(frames - 1, 1) for i in range(frames)]
    begin = clip_start(k, 11, size, (frames - 1) * every + 1, start)
    taken = [begin + i * every for i in range(frames) if begin + i * every < size]
    return taken + [taken[-1]] * (frames - len(taken))


def answer(request):
    """Answers a request, which has one of these forms:

    - {"image": rows, "transform": its members by name, "seed", "epoch", "sample"}: the plan, with its
      "values" from left to right and top to bottom
    - {"draws": operation, ...}: three random words
    - {"mixup": alpha, "seed", "epoch", "position"}: lambda
    - {"cutmix": alpha, "size", ...}: box and lambda
    - {"clip": {"size", "frames", "every", "start": 0, 1 or 2}, ...}: frames
    """
    seed, epoch = request["seed"], request["epoch"]
    if "mixup" in request:
        return beta(Draws(key(seed, epoch, 13, request["position"]), MIXUP), request["mixup"])
    if "cutmix" in request:
        return cutmix(key(seed, epoch, 13, request["position"]), request["cutmix"], *request["size"])
    k = key(seed, epoch, 11, request["sample"])
    if "clip" in request:
        return clip_frames(k, **request["clip"])
    if "draws" in request:
        draws = Draws(k, request["draws"])
        return [str(draws.word()) for _ in range(3)]
    image = request["image"]
    p = plan(request["transform"], k, len(image), len(image[0]))
    p["values"] = transformed(request["transform"], p, image)
    return p


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))))
