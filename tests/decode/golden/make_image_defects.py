#!/usr/bin/env python3
"""Writes image_defects.tsv: damaged and unusual images with the verdict of Pillow 13.0 (libjpeg-turbo 3.2, libwebp 1.6).

    python3 make_image_defects.py > image_defects.tsv        # needs Pillow and NumPy; the tests do not

Each line is: name, Pillow's verdict ("ok WIDTHxHEIGHT ADLER32-of-its-RGB" or "refused"), our verdict with a reason if it
differs, the file in base64.
"""
import base64
import io
import struct
import sys
import warnings
import zlib

import numpy as np
from PIL import Image, ImageOps

warnings.simplefilter("ignore")
cases = []
# Our verdict if it differs from Pillow's: "ok" or "refused", with the reason.
MARKER_ONLY = "ok: nothing but the marker is missing"
NOT_NEEDED = "ok: no pixel depends on it"
UNKNOWN = "refused: the format says that it cannot be read without knowing the chunk"


def picture(width=24, height=18):
    y, x = np.mgrid[0:height, 0:width]
    return Image.fromarray(
        np.stack([128 + 100 * np.sin(a * x + b * y) for a, b in ((0.21, 0.05), (0.02, 0.23), (0.17, -0.16))], 2).astype("u1"))


def saved(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def verdict(data, turn):
    try:
        image = Image.open(io.BytesIO(data))
        image = (ImageOps.exif_transpose(image) if turn else image).convert("RGB")
        return "ok %dx%d %08x" % (*image.size, zlib.adler32(image.tobytes()))
    except Exception:
        return "refused"


def case(name, data, ours=""):
    cases.append((name, verdict(data, "turned" in name), ours, base64.b64encode(data).decode()))


def segments(data):
    """Returns (marker, offset, length) of each segment up to the first scan's."""
    at, found = 2, []
    while True:
        marker, length = data[at + 1], struct.unpack(">H", data[at + 2:at + 4])[0] + 2
        found.append((marker, at, length))
        if marker == 0xDA:
            return found
        at += length


def without(data, marker):
    found = segments(data)
    return data[:2] + b"".join(data[a:a + n] for m, a, n in found if m != marker) + data[found[-1][1] + found[-1][2]:]


def exif(value, order="<", kind=3):
    return (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "IHHHIHHI", 8, 1, 0x112, kind, 1, value, 0, 0)


def app1(payload):
    return b"\xff\xe1" + struct.pack(">H", 2 + len(payload)) + payload


def jpeg_cases(kind, data, full):
    sos = segments(data)[-1]
    scan = sos[1] + sos[2]
    middle = (scan + len(data)) // 2
    case(kind + " whole", data)
    case(kind + " no end marker", data[:-2], MARKER_ONLY)
    case(kind + " half the data", data[:middle])
    case(kind + " no data", data[:scan])
    case(kind + " bytes behind", data + b"abc" * 10)
    case(kind + " marker in data", data[:middle] + b"\xff\xe5" + data[middle:])
    if not full:
        return
    case(kind + " half an end marker", data[:-1], MARKER_ONLY)
    case(kind + " half the data and end marker", data[:middle] + b"\xff\xd9")
    case(kind + " no data and end marker", data[:scan] + b"\xff\xd9")
    case(kind + " restart marker in data", data[:middle] + b"\xff\xd3" + data[middle:])
    case(kind + " zeros in data", data[:middle] + bytes(20) + data[middle:])
    flipped = bytearray(data)
    flipped[middle] ^= 0x55
    case(kind + " flipped byte", bytes(flipped))
    case(kind + " no Huffman tables", without(data, 0xC4))
    case(kind + " no quantisation tables", without(data, 0xDB))
    case(kind + " no JFIF header", without(data, 0xE0))
    case(kind + " fill bytes before a marker", data[:2] + b"\xff\xff\xff" + data[3:])
    case(kind + " bytes before the scan", data[:sos[1]] + b"abc" + data[sos[1]:])
    case(kind + " bytes before everything", b"x" + data)
    case(kind + " segment of length 1", data[:2] + b"\xff\xe1\0\1" + data[2:])
    case(kind + " segment longer than the file", data[:2] + b"\xff\xe1\xff\xff" + data[2:])
    case(kind + " two starts", data[:2] + data)
    case(kind + " damaged Exif turned", data[:2] + app1(b"Exif\0\0garbage!") + data[2:])
    case(kind + " short Exif turned", data[:2] + app1(b"Exif\0\0II*") + data[2:])
    frame = [a for m, a, _ in segments(data) if m in (0xC0, 0xC2)][0]
    for height in (0, 10, 60):
        case(kind + " height %d in the header" % height,
             data[:frame + 5] + struct.pack(">H", height) + data[frame + 7:])


def png_chunk(name, data=b"", wrong=0):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data) ^ wrong)


def png_cases():
    image = picture()
    width, height = image.size
    raw = b"".join(b"\0" + image.tobytes()[y * width * 3:(y + 1) * width * 3] for y in range(height))
    stream = zlib.compress(raw, 9)
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    body, end = png_chunk(b"IDAT", stream), png_chunk(b"IEND")

    def png(name, *chunks, ours=""):
        case("png " + name, b"\x89PNG\r\n\x1a\n" + b"".join(chunks), ours)

    def data(stream, wrong=0):
        return png_chunk(b"IDAT", stream, wrong)

    png("whole", head, body, end)
    png("bytes behind", head, body, end, b"junk")
    png("no end chunk", head, body)
    png("cut in the end chunk", head, body, end[:-5])
    png("cut in the data's sum", head, body[:-2])
    png("cut in half", head, body[:len(body) // 2])
    png("wrong sum of the header", head[:-1] + b"x", body, end)
    png("wrong sum of the data", head, data(stream, 1), end)
    png("wrong sum of the end", head, body, png_chunk(b"IEND", b"", 1))
    png("wrong sum of a text", head, png_chunk(b"tEXt", b"a\0b", 1), body, end, ours=NOT_NEEDED)
    png("wrong sum of a text behind", head, body, png_chunk(b"tEXt", b"a\0b", 1), end)
    png("gamma of three bytes", head, png_chunk(b"gAMA", b"\0\0\xb1"), body, end, ours=NOT_NEEDED)
    png("damaged colour profile", head, png_chunk(b"iCCP", b"x\0\0garbage"), body, end)
    png("damaged transparency", head, png_chunk(b"tRNS", b"abc"), body, end, ours=NOT_NEEDED)
    png("damaged Exif", head, png_chunk(b"eXIf", b"xx"), body, end)
    png("text bomb", head, png_chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(2 << 20), 9)), body, end, ours=NOT_NEEDED)
    png("unknown chunk", head, png_chunk(b"abCd", b"x"), body, end)
    png("unknown critical chunk", head, png_chunk(b"ABCD", b"x"), body, end, ours=UNKNOWN)
    png("no data", head, end)
    png("wrong zlib sum", head, data(stream[:-4] + b"\0\0\0\0"), end)
    png("no zlib sum", head, data(stream[:-4]), end)
    png("rows missing from a whole stream", head, data(zlib.compress(raw[:(width * 3 + 1) * 9])), end,
        ours="refused: rows are missing")
    png("more rows", head, data(zlib.compress(raw + bytes(500))), end)
    png("bytes behind the stream", head, data(stream + b"abc"), end)
    png("data chunk behind the stream", head, body, data(b"abc"), end)
    png("text inside the data", head, data(stream[:100]), png_chunk(b"tEXt", b"a\0b"), data(stream[100:]), end)
    png("damaged stream", head, data(stream[:100] + b"\xff" * 8 + stream[108:]), end)
    png("unknown filter", head, data(zlib.compress(b"\x09" + raw[1:])), end)
    png("Exif behind turned", head, body, png_chunk(b"eXIf", exif(6, ">")), end)


def webp_cases():
    lossy, lossless = saved(picture(), "WEBP", quality=80), saved(picture(), "WEBP", lossless=True)
    for kind, data in (("lossy", lossy), ("lossless", lossless)):
        case("webp %s whole" % kind, data)
        case("webp %s cut by 1" % kind, data[:-1])
        case("webp %s cut in half" % kind, data[:len(data) // 2])
        case("webp %s bytes behind" % kind, data + b"abc")
        case("webp %s too long by its header" % kind, data[:4] + struct.pack("<I", len(data) + 92) + data[8:])
    alpha = picture().convert("RGBA")
    alpha.putalpha(picture().convert("L"))
    case("webp lossy with alpha", saved(alpha, "WEBP", quality=80))
    case("webp lossless with alpha", saved(alpha, "WEBP", lossless=True, exact=True))
    # Frames that are smaller than the canvas, as ANMF chunks that are assembled here.
    def chunk(name, data):
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def three(*numbers):
        return b"".join(struct.pack("<I", n)[:3] for n in numbers)

    def animation(left, top, frames):
        body = b"WEBP" + chunk(b"VP8X", bytes([2, 0, 0, 0]) + three(39, 29)) + chunk(b"ANIM", b"\xff\xff\xff\xff\0\0")
        for data in frames:
            body += chunk(b"ANMF", three(left // 2, top // 2, 23, 17, 100) + b"\0" + data[12:])
        return b"RIFF" + struct.pack("<I", len(body)) + body

    case("webp animation lossy", animation(6, 4, [lossy, lossless]))
    case("webp animation lossless", animation(0, 8, [lossless, lossy]))
    case("webp animation outside its canvas", animation(20, 4, [lossy]))
    case("webp animation cut", animation(6, 4, [lossy, lossless])[:-20])
    case("webp animation without a frame", animation(0, 0, []))


def pnm_cases():
    case("pnm whole", b"P6 4 3 255\n" + bytes(range(36)))
    case("pnm cut", b"P6 4 3 255\n" + bytes(range(35)))
    case("pnm bytes behind", b"P6 4 3 255\n" + bytes(range(36)) + b"abc")
    case("pnm values above the maximum", b"P6 4 3 15\n" + bytes(range(36)))
    case("pnm maximum 0", b"P6 4 3 0\n" + bytes(36))
    case("pnm comment", b"P6 4 # x\n3\n255\n" + bytes(range(36)))
    case("pnm gray", b"P5 4 3 255\n" + bytes(range(12)))


def exif_cases():
    data = saved(picture(13, 9), "JPEG", quality=50, subsampling=0, optimize=True)
    for value in range(10):
        case("jpeg Exif %d turned" % value, data[:2] + app1(b"Exif\0\0" + exif(value, "<>"[value % 2])) + data[2:])
    case("jpeg Exif cut turned", data[:2] + app1(b"Exif\0\0" + exif(6)[:-8]) + data[2:])


def tiff(*entries, order="<", mark=None, behind=b""):
    """Returns a TIFF block with one directory. An entry is (tag, type, count, four bytes)."""
    start = mark or (b"II*\0" if order == "<" else b"MM\0*")
    rows = b"".join(struct.pack(order + "HHI", *entry[:3]) + entry[3] for entry in entries)
    return start + struct.pack(order + "IH", 8, len(entries)) + rows + bytes(4) + behind


def orientation_blocks():
    """Blocks of Exif data that state an orientation in unusual ways (the usual way is one SHORT in a plain block)."""
    short = (0x112, 3, 1, b"\6\0\0\0")
    yield "with Exif twice", b"Exif\0\0" + tiff(short)
    yield "with Exif three times", b"Exif\0\0" * 2 + tiff(short)
    yield "as LONG", tiff((0x112, 4, 1, b"\6\0\0\0"))
    yield "as big-endian LONG", tiff((0x112, 4, 1, b"\0\0\0\6"), order=">")
    yield "as BYTE", tiff((0x112, 1, 1, b"\6\0\0\0"))
    yield "as ASCII", tiff((0x112, 2, 2, b"6\0\0\0"))
    yield "as SBYTE", tiff((0x112, 6, 1, b"\6\0\0\0"))
    yield "as SSHORT", tiff((0x112, 8, 1, b"\6\0\0\0"))
    yield "as SLONG", tiff((0x112, 9, 1, b"\6\0\0\0"))
    yield "as negative SLONG", tiff((0x112, 9, 1, b"\xfa\xff\xff\xff"))
    yield "as IFD", tiff((0x112, 13, 1, b"\6\0\0\0"))
    yield "as LONG8", tiff((0x112, 16, 1, b"\x1a\0\0\0"), behind=b"\6" + bytes(7))
    yield "as type 14", tiff((0x112, 14, 1, b"\6\0\0\0"))
    yield "of two SHORTs", tiff((0x112, 3, 2, b"\6\0\3\0"))
    yield "of four SHORTs", tiff((0x112, 3, 4, b"\x1a\0\0\0"), behind=b"\6\0\3\0\1\0\1\0")
    yield "of no SHORT", tiff((0x112, 3, 0, b"\6\0\0\0"))
    yield "of SHORTs outside", tiff((0x112, 3, 4, b"\xff\0\0\0"))
    yield "of very many SHORTs", tiff((0x112, 3, 1 << 31, b"\x1a\0\0\0"))
    yield "twice", tiff(short, (0x112, 3, 1, b"\3\0\0\0"))
    yield "behind a tag outside", tiff((0x10f, 2, 30, b"\xff\0\0\0"), short)
    yield "behind a tag too large", tiff((0x10f, 2, 3000, b"\x1a\0\0\0"), short)
    yield "behind a tag of type 99", tiff((0x10f, 99, 1, b"\0\0\0\0"), short)
    yield "in a block MM*", tiff((0x112, 3, 1, b"\0\6\0\0"), order=">", mark=b"MM*\0")
    yield "in a block II*", tiff(short, mark=b"II\0*")
    yield "in an empty block", b""


def xmp(value, element=False):
    how = "<tiff:Orientation>%s</tiff:Orientation>" if element else '<rdf:Description tiff:Orientation="%s"/>'
    return ("<x:xmpmeta><rdf:RDF>" + how % value + "</rdf:RDF></x:xmpmeta>").encode()


def raw_profile(block):
    return b"\nexif\n%8d\n" % len(block) + "\n".join(
        block.hex()[i:i + 72] for i in range(0, len(block) * 2, 72)).encode() + b"\n"


def orientation_cases():
    data = saved(picture(13, 9), "JPEG", quality=50, subsampling=0, optimize=True)
    packet = b"http://ns.adobe.com/xap/1.0/\0"
    other = tiff((0x128, 3, 1, b"\2\0\0\0"))

    def jpeg(name, *payloads, ours=""):
        case("jpeg orientation %s turned" % name, data[:2] + b"".join(map(app1, payloads)) + data[2:], ours)

    for name, block in orientation_blocks():
        jpeg(name, b"Exif\0\0" + block)
    for value in ("1", "3", "6", "8", "9", "0", "x"):
        jpeg("%s in XMP" % value, packet + xmp(value))
    jpeg("6 in XMP, an element", packet + xmp("6", True))
    jpeg("6 in XMP, 1 in Exif", packet + xmp("6"), b"Exif\0\0" + exif(1))
    jpeg("6 in XMP, 3 in Exif", b"Exif\0\0" + exif(3), packet + xmp("6"))
    jpeg("6 in XMP, none in Exif", b"Exif\0\0" + other, packet + xmp("6"))
    jpeg("6 in XMP, BYTE in Exif", b"Exif\0\0" + tiff((0x112, 1, 1, b"\3\0\0\0")), packet + xmp("6"))
    jpeg("6 in XMP, no TIFF in Exif", b"Exif\0\0II*\1" + exif(3)[4:], packet + xmp("6"))
    jpeg("6 in XMP, half a header in Exif", b"Exif\0\0II*", packet + xmp("6"))
    jpeg("in two packets", packet + xmp("6"), packet + xmp("3"))
    jpeg("in two segments of one block", b"Exif\0\0" + exif(6)[:13], b"Exif\0\0" + exif(6)[13:])
    jpeg("in the first of two blocks", b"Exif\0\0" + exif(6), b"Exif\0\0" + exif(3))

    image = picture(13, 9)
    raw = b"".join(b"\0" + image.tobytes()[y * 39:(y + 1) * 39] for y in range(9))
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 13, 9, 8, 2, 0, 0, 0))
    body, end = png_chunk(b"IDAT", zlib.compress(raw, 9)), png_chunk(b"IEND")

    def png(name, *chunks, ours=""):
        case("png orientation %s turned" % name, b"\x89PNG\r\n\x1a\n" + b"".join(chunks), ours)

    def text(keyword, value):
        return png_chunk(b"tEXt", keyword + b"\0" + value)

    def packed(keyword, value):
        return png_chunk(b"zTXt", keyword + b"\0\0" + zlib.compress(value, 9))

    def international(keyword, value, compressed=False):
        return png_chunk(b"iTXt", keyword + (b"\0\1\0en\0word\0" + zlib.compress(value, 9) if compressed else b"\0\0\0\0\0" + value))

    profile, adobe = b"Raw profile type exif", b"XML:com.adobe.xmp"
    for name, block in orientation_blocks():
        png(name, head, png_chunk(b"eXIf", block), body, end, ours=NOT_NEEDED if name == "with Exif three times" else "")
    png("of eXIf with a prefix", head, png_chunk(b"eXIf", b"Exif\0\0" + exif(6)), body, end)
    png("in two eXIf", head, png_chunk(b"eXIf", exif(6)), png_chunk(b"eXIf", exif(3)), body, end)
    for make in (text, packed, international):
        png("in a profile, " + make.__name__, head, make(profile, raw_profile(b"Exif\0\0" + exif(6))), body, end)
        png("in a profile behind, " + make.__name__, head, body, make(profile, raw_profile(exif(3, ">"))), end)
        png("in XMP, " + make.__name__, head, make(adobe, xmp("6")), body, end)
    png("in compressed iTXt", head, international(adobe, xmp("6"), True), body, end)
    png("in compressed iTXt behind", head, body, international(profile, raw_profile(exif(6)), True), end)
    png("in a profile and eXIf", head, packed(profile, raw_profile(exif(6))), png_chunk(b"eXIf", exif(3)), body, end)
    png("in a profile and XMP", head, packed(profile, raw_profile(exif(6))), international(adobe, xmp("3")), body, end)
    png("none in eXIf, in XMP", head, png_chunk(b"eXIf", other), international(adobe, xmp("6")), body, end)
    png("in two profiles", head, packed(profile, raw_profile(exif(6))), text(profile, raw_profile(exif(3))), body, end)
    png("in two packets", head, international(adobe, xmp("6"), True), body, international(adobe, xmp("3")), end)
    png("in a profile of other digits", head, text(profile, raw_profile(exif(6)).upper()), body, end)
    png("in a profile without lines", head, text(profile, exif(6).hex().encode()), body, end)
    png("in a profile of no digits", head, text(profile, b"\nexif\n 4\nzzzz\n"), body, end, ours=NOT_NEEDED)
    png("in half a profile", head, png_chunk(b"zTXt", profile + b"\0\0" + zlib.compress(raw_profile(exif(6)), 9)[:-6]), body, end)
    png("in a damaged profile", head, png_chunk(b"zTXt", profile + b"\0\0garbage"), body, end)
    png("in a profile of 2 MiB", head, packed(profile, raw_profile(exif(6) + bytes(1 << 20))), body, end, ours=NOT_NEEDED)

    bare = saved(picture(13, 9), "WEBP", lossless=True)[12:]

    def webp(name, flags, *chunks):
        chunks = b"".join(n + struct.pack("<I", len(d)) + d + b"\0" * (len(d) % 2) for n, d in chunks)
        whole = b"WEBPVP8X" + struct.pack("<IB", 10, flags) + bytes(3) + b"\x0c\0\0\x08\0\0" + bare + chunks
        case("webp orientation %s turned" % name, b"RIFF" + struct.pack("<I", len(whole)) + whole)

    for name, block in orientation_blocks():
        webp(name, 8, (b"EXIF", block))
    webp("in EXIF with a prefix", 8, (b"EXIF", b"Exif\0\0" + exif(6)))
    webp("in EXIF without its flag", 0, (b"EXIF", exif(6)))
    webp("in XMP", 4, (b"XMP ", xmp("6")))
    webp("in XMP without its flag", 0, (b"XMP ", xmp("6")))
    webp("in XMP and EXIF", 12, (b"EXIF", exif(3)), (b"XMP ", xmp("6")))
    webp("none in EXIF, in XMP", 12, (b"EXIF", other), (b"XMP ", xmp("6")))
    webp("in two EXIF", 8, (b"EXIF", exif(6)), (b"EXIF", exif(3)))


def ink_cases():
    """Images of three and four components, without Adobe's marker, and with each transform that the marker can state."""
    for name, image in (("CMYK", picture().convert("CMYK")), ("RGB", picture())):
        plain = saved(image, "JPEG", quality=75)
        bare = without(without(plain, 0xEE), 0xE0)
        case("jpeg %s without a marker" % name, bare)
        for transform in range(4):
            marker = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0" + bytes([transform])
            case("jpeg %s of transform %d" % (name, transform), bare[:2] + marker + bare[2:])
            case("jpeg %s of transform %d and JFIF" % (name, transform), without(plain, 0xEE)[:2] + marker + without(plain, 0xEE)[2:])
    progressive = saved(picture().convert("CMYK"), "JPEG", quality=75, progressive=True)
    case("jpeg progressive CMYK without a marker", without(progressive, 0xEE))


baseline = saved(picture(), "JPEG", quality=75, subsampling=2)
jpeg_cases("jpeg", baseline, True)
jpeg_cases("jpeg 4:4:4", saved(picture(), "JPEG", quality=75, subsampling=0), False)
jpeg_cases("jpeg progressive", saved(picture(), "JPEG", quality=75, progressive=True), False)
jpeg_cases("jpeg gray", saved(picture().convert("L"), "JPEG", quality=75), False)
jpeg_cases("jpeg with restarts", saved(picture(), "JPEG", quality=75, restart_marker_blocks=2), False)
case("jpeg CMYK", saved(picture().convert("CMYK"), "JPEG", quality=75))
png_cases()
webp_cases()
pnm_cases()
exif_cases()
orientation_cases()
ink_cases()
for line in cases:
    sys.stdout.write("\t".join(line) + "\n")
