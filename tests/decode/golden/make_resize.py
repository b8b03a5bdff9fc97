"""Makes resize.txt, the results of Pillow's resize: python3 make_resize.py > resize.txt

Needs NumPy, and Pillow before 13.0, because 13.0 resizes some images vertically first. Each line is: filter, input height and
width, output height and width, CRC-32 of the output's interleaved RGB. The picture is noise, so that a wrong weight changes the
result: byte i is the highest byte of i * i * 2654435761 + i * 97 as a 32-bit number.
"""

import zlib

import numpy
import PIL
from PIL import Image

SIZES = [(375, 500, 224, 224), (224, 224, 224, 224), (375, 500, 375, 224), (375, 500, 224, 500), (1, 1, 5, 7), (5, 7, 1, 1),
         (3, 2, 64, 65), (64, 65, 3, 2), (37, 41, 36, 40), (100, 30, 333, 90), (480, 640, 17, 19), (31, 1000, 16, 33),
         (1000, 31, 33, 16), (256, 256, 255, 257), (50, 60, 200, 4), (8, 4000, 8, 5), (299, 299, 64, 64), (7, 5, 7, 11)]


def picture(height, width):
    i = numpy.arange(height * width * 3, dtype=numpy.uint64)
    values = (i * i * 2654435761 + i * 97) & 0xFFFFFFFF
    return (values >> 24).astype(numpy.uint8).reshape(height, width, 3)


print(f"# Pillow {PIL.__version__}; see make_resize.py")
for name, kind in (("bilinear", Image.Resampling.BILINEAR), ("bicubic", Image.Resampling.BICUBIC)):
    for in_height, in_width, height, width in SIZES:
        resized = Image.fromarray(picture(in_height, in_width)).resize((width, height), kind)
        print(name, in_height, in_width, height, width, zlib.crc32(numpy.asarray(resized).tobytes()))
