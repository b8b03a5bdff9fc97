"""Makes colour.txt: python3 make_colour.py > colour.txt (needs NumPy).

Computes the formulas of torchvision.transforms.v2.functional for uint8 tensors, in float32. The
image is 8 x 8 pixels of noise: byte i is the highest byte of the 32-bit number i * i * 2654435761 +
i * 97. Each line is: operation, parameter, bytes of the result.
"""

import numpy

F = numpy.float32
SIDE = 8


def picture():
    i = numpy.arange(SIDE * SIDE * 3, dtype=numpy.uint64)
    values = (i * i * 2654435761 + i * 97) & 0xFFFFFFFF
    return (values >> 24).astype(numpy.uint8).reshape(SIDE, SIDE, 3)


def gray(image):
    r, g, b = (image[..., c].astype(F) for c in range(3))
    return numpy.floor(r * F(0.2989) + g * F(0.587) + b * F(0.114))


def blend(image, other, ratio):
    mixed = image.astype(F) * F(ratio) + other.astype(F) * F(1 - ratio)
    return numpy.clip(mixed, 0, 255).astype(numpy.uint8)


def hue(image, turns):
    image = image.astype(F) / F(255)
    most, least = image.max(-1), image.min(-1)
    same = most == least
    distance = most - least
    s = distance / numpy.where(same, F(1), most)
    rc, gc, bc = numpy.moveaxis((most[..., None] - image) / numpy.where(same, F(1), distance)[..., None], -1, 0)
    is_red = most == image[..., 0]
    is_green = (most == image[..., 1]) & ~is_red
    h = numpy.where(is_red, bc - gc, numpy.where(is_green, rc + F(2) - bc, gc + F(4) - rc))
    h = numpy.fmod(h / F(6) + F(1), F(1))
    h = numpy.mod(h + F(turns), F(1))
    sixths = h * F(6)
    sector = numpy.floor(sixths)
    f = sixths - sector
    v = most
    p, q, t = (numpy.clip(x, 0, 1) for x in (v * (1 - s), v * (1 - s * f), v * (1 - s * (1 - f))))
    chosen = numpy.stack([
        numpy.choose(sector.astype(int) % 6, levels)
        for levels in ([v, q, p, p, t, v], [t, v, v, q, p, p], [p, p, t, v, v, q])
    ], -1)
    return (chosen * F(255.999)).astype(numpy.uint8)


def contrast(image, ratio):
    return blend(image, gray(image).mean(dtype=F), ratio)


OPERATIONS = {
    "brightness": (lambda image, ratio: blend(image, F(0), ratio), (0.0, 0.4, 1.0, 1.7)),
    "contrast": (contrast, (0.0, 0.6, 1.0, 1.4)),
    "saturation": (lambda image, ratio: blend(image, gray(image)[..., None], ratio), (0.0, 0.6, 1.0, 1.4)),
    "hue": (hue, (-0.5, -0.1, 0.0, 0.03, 0.25, 0.5)),
    "gray": (lambda image, _: numpy.repeat(gray(image)[..., None], 3, -1).astype(numpy.uint8), (0.0,)),
}
for name, (operation, parameters) in OPERATIONS.items():
    for parameter in parameters:
        print(name, parameter, operation(picture(), parameter).tobytes().hex())
