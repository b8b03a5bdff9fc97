#!/usr/bin/env python3
"""Makes correct and faulty videos and sounds with ffmpeg, SoX and mkvmerge. Compares random reads
of each file with ffmpeg's sequential decoding: each read must be equal, or be refused with an error.

  media_matrix.py READ_MEDIA [--files N] [--seed N] [--reads N] [--only TEXT] [--folder DIR]

READ_MEDIA is the program that reads the files (read_media.cc). The first files are those that were once read
wrongly; random files follow, up to N in total. If SoX or mkvmerge is missing, its files are skipped. Exit status:
0 means success; 1 means that a read was wrong, or that an unmodified file was refused; 77 means that ffmpeg is
missing.
"""

import argparse
import array
import bisect
import collections
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path


class Unmade(Exception):
    """Raised if this ffmpeg cannot make the file, because it lacks an encoder or does not support the combination."""


def run(*command: object) -> bytes:
    words = [str(word) for word in command]
    if not shutil.which(words[0]):
        raise Unmade(f"{words[0]} is not installed")
    done = subprocess.run(words, capture_output=True, check=False)
    # mkvmerge exits with 1 if there are only warnings.
    if done.returncode > (1 if words[0] == "mkvmerge" else 0):
        raise Unmade(" ".join(words) + "\n" + done.stderr.decode(errors="replace")[-300:])
    return done.stdout


def ffmpeg(*words: object) -> bytes:
    return run("ffmpeg", "-nostdin", "-v", "error", "-y", *words)


# ---------------------------------------------------------------------------------- changed bytes

def renamed_box(path: Path, box: bytes) -> None:
    """Hides this table of an MP4 by renaming its box, because readers skip unknown boxes."""
    data = path.read_bytes()
    if box not in data:
        raise Unmade(f"{path} has no {box!r}")
    path.write_bytes(data.replace(box, b"skip"))


def ebml_number(data: bytes, at: int, keep_marker: bool) -> tuple[int, int]:
    length = 9 - data[at].bit_length()
    value = int.from_bytes(data[at:at + length], "big")
    return (value if keep_marker else value - (1 << 7 * length)), at + length


def changed_blocks(path: Path, change) -> None:
    """Calls change(data, offset of the block's time and flags, number of the block) for each SimpleBlock."""
    data = bytearray(path.read_bytes())
    at, number = 0, 0
    while at < len(data):
        name, at = ebml_number(data, at, True)
        begin = at
        size, at = ebml_number(data, at, False)
        if name in (0x18538067, 0x1F43B675):  # segment or cluster: its content follows
            continue
        if name == 0xA3 and size != (1 << 7 * (at - begin)) - 1:
            change(data, at + 1, number)
            number += 1
        at += size
    path.write_bytes(data)


def all_key(path: Path) -> None:
    if path.suffix in (".mp4", ".mov"):
        renamed_box(path, b"stss")
        return

    def change(data: bytearray, at: int, _number: int) -> None:
        data[at + 2] |= 0x80

    changed_blocks(path, change)


def equal_times(path: Path) -> None:
    """Gives every third packet the time of the previous packet."""
    if path.suffix in (".mp4", ".mov"):
        data = bytearray(path.read_bytes())
        at = data.find(b"ctts")
        if at < 0:
            raise Unmade("no ctts")
        (count,) = struct.unpack_from(">I", data, at + 8)
        entries = [struct.unpack_from(">Ii", data, at + 12 + 8 * i) for i in range(count)]
        for i in range(2, count, 3):
            if entries[i][0] == 1:
                struct.pack_into(">Ii", data, at + 12 + 8 * i, 1, max(entries[i][1] - 512, 0))
        path.write_bytes(data)
        return
    last = [0]

    def change(data: bytearray, at: int, number: int) -> None:
        if number % 3 == 2:
            struct.pack_into(">h", data, at, last[0])
        (last[0],) = struct.unpack_from(">h", data, at)

    changed_blocks(path, change)


def uneven(path: Path) -> None:
    """Gives the packets of an MP4 decoding durations of different lengths."""
    data = path.read_bytes()
    at = data.find(b"stts") - 4
    size, _type, _version, count = struct.unpack_from(">IIII", data, at)
    entries = [struct.unpack_from(">II", data, at + 16 + 8 * i) for i in range(count)]
    r = random.Random(33)
    lengths = [r.randrange(1, 3 * delta) for number, delta in entries for _ in range(number)]
    table = struct.pack(">III", 0x73747473, 0, len(lengths)) + b"".join(
        struct.pack(">II", 1, length) for length in lengths)
    grown = len(table) + 4 - size
    # The header follows the media data, so only the boxes around the table grow.
    data = bytearray(data[:at] + struct.pack(">I", len(table) + 4) + table + data[at + size:])
    for box in (b"moov", b"trak", b"mdia", b"minf", b"stbl"):
        place = data.rfind(box, 0, at) - 4
        (old,) = struct.unpack_from(">I", data, place)
        struct.pack_into(">I", data, place, old + grown)
    path.write_bytes(data)


# ------------------------------------------------------------------------------------------ videos

OPEN = "open-gop=1:scenecut=0:b-pyramid=normal"

MP4 = (".mp4", ".mov", ".mkv")


def encoders(r: random.Random) -> list[tuple[list[str], tuple[str, ...]]]:
    """Returns ffmpeg arguments that encode a video, each with the possible file extensions."""
    group = str(r.choice([1, 2, 5, 10, 12, 25, 300]))
    b = str(r.choice([0, 0, 1, 2, 3, 5]))
    x264 = ["-c:v", "libx264", "-preset", r.choice(["ultrafast", "veryfast", "medium"]), "-g", group]
    fast = ["-preset", "ultrafast"]
    return [
        ([*x264, "-bf", b], MP4),
        ([*x264, "-bf", b, "-x264-params", f"open-gop=1:b-pyramid={r.choice(['none', 'normal', 'strict'])}"], MP4),
        ([*x264, "-bf", "0", "-x264-params", f"intra-refresh=1:keyint={r.choice([8, 15, 30])}"], MP4),
        ([*x264, "-bf", b, "-flags", "+ildct+ilme"], MP4),
        ([*x264, "-bf", b, "-profile:v", "high444", "-pix_fmt", "yuv444p"], MP4),
        ([*x264, "-bf", b, "-x264-params", "slices=3:ref=4:weightp=2"], MP4),
        (["-c:v", "libx264", "-tune", "zerolatency", "-profile:v", "baseline", "-g", group], MP4),
        (["-c:v", "libx265", *fast, "-tag:v", "hvc1", "-g", group, "-x265-params",
          f"log-level=none:bframes={b}:open-gop={r.choice([0, 1])}"], MP4),
        (["-c:v", "mpeg4", "-g", group, "-bf", b[0] if b in "012" else "2"], MP4),
        (["-c:v", "libxvid", "-g", group, "-bf", "0"], MP4),
        (["-c:v", "mpeg4", "-g", group, "-bf", "2", "-flags", "+qpel+aic"], MP4),
        (["-c:v", "libx265", *fast, "-tag:v", "hev1", "-x265-params",
          f"log-level=none:keyint={group}:min-keyint=1:bframes={b}:b-pyramid=1:repeat-headers=1"], MP4),
        ([*x264, "-bf", b, "-bsf:v", "h264_mp4toannexb,dump_extra"], (".mkv",)),
        (["-c:v", "mpeg2video", "-g", group, "-bf", b[0] if b in "012" else "2"], MP4),
        (["-c:v", "mpeg2video", "-g", group, "-bf", "2", "-flags", "+cgop", "-sc_threshold",
          "1000000000"], MP4),
        (["-c:v", "mpeg1video", "-g", group, "-bf", "2"], (".mp4", ".mkv")),
        (["-c:v", "libvpx", "-g", group, "-deadline", "realtime", "-cpu-used", "8", "-auto-alt-ref",
          r.choice(["0", "1"]), "-lag-in-frames", r.choice(["0", "16"])], (".webm", ".mkv")),
        (["-c:v", "libvpx-vp9", "-g", group, "-deadline", r.choice(["realtime", "good"]),
          "-cpu-used", "8", "-lag-in-frames", r.choice(["0", "16"])], (".webm", ".mkv", ".mp4")),
        (["-c:v", "libaom-av1", "-g", group, "-cpu-used", "8", "-usage", "realtime"],
         (".webm", ".mkv", ".mp4")),
        (["-c:v", "mjpeg"], (".mov", ".mkv", ".mp4")),
        (["-c:v", "ffv1", "-g", group], (".mkv",)),
        (["-c:v", "prores_ks"], (".mov", ".mkv")),
        (["-c:v", "h263", "-s", "128x96", "-g", group], (".mov", ".mkv")),
        (["-c:v", "libtheora", "-g", group], (".mkv",)),
    ]


def remuxed(path: Path, r: random.Random) -> tuple[Path, str]:
    """Copies the packets to another kind of container, or with another program."""
    to = path.with_name("remux" + r.choice([".mkv", ".mp4", ".mov"]))
    how = r.choice(["mkvmerge", "mkvmerge", "ffmpeg", "fragments", "live", "clusters", "ts", "flv"])
    if how == "mkvmerge":
        to = to.with_suffix(".mkv")
        more = r.choice([[], ["--no-cues"], ["--clusters-in-meta-seek"], ["--disable-lacing"],
                         ["--cluster-length", "3"], ["--engage", "no_simpleblocks"]])
        run("mkvmerge", "-q", *more, "-o", to, path)
    elif how == "fragments":
        to = to.with_suffix(".mp4")
        flags = r.choice(["frag_keyframe+empty_moov", "frag_every_frame+empty_moov+default_base_moof",
                          "faststart", "frag_keyframe+negative_cts_offsets"])
        ffmpeg("-i", path, "-c", "copy", "-movflags", flags, to)
    elif how == "live":
        to = to.with_suffix(".mkv")
        ffmpeg("-i", path, "-c", "copy", "-live", "1", to)
    elif how in ("ts", "flv"):
        between = path.with_name(f"between.{how}")
        ffmpeg("-i", path, "-c", "copy", between)
        if r.random() < 0.5:
            to = to.with_suffix(".mkv")
            run("mkvmerge", "-q", "-o", to, between)
        else:
            ffmpeg("-i", between, "-c", "copy", to)
    elif how == "clusters":
        to = to.with_suffix(".mkv")
        ffmpeg("-i", path, "-c", "copy", "-cluster_time_limit", "100", to)
    else:
        ffmpeg("-i", path, "-c", "copy", to)
    return to, how


def edited(path: Path, r: random.Random) -> tuple[Path, str]:
    """Makes a file with a part of the packets, or with the packets of two files."""
    to = path.with_name("edit" + path.suffix)
    how = r.choice(["cut", "cut", "cut keys", "split", "append", "concat", "offset", "seek"])
    at = f"{r.uniform(0.1, 1.0):.3f}"
    if how == "cut":
        ffmpeg("-ss", at, "-i", path, "-c", "copy", to)
    elif how == "seek":
        ffmpeg("-i", path, "-ss", at, "-c", "copy", "-copyinkf", to)
    elif how == "cut keys":
        ffmpeg("-i", path, "-ss", at, "-c", "copy", to)
    elif how == "offset":
        ffmpeg("-itsoffset", at, "-i", path, "-c", "copy", to)
    elif how == "split":
        to = to.with_suffix(".mkv")
        run("mkvmerge", "-q", "-o", to, "--split", f"parts:00:00:00.{r.randrange(100, 900)}-", path)
        if not to.exists():
            raise Unmade("nothing is left")
    elif how == "append":
        to = to.with_suffix(".mkv")
        run("mkvmerge", "-q", "-o", to, path, "+", path)
    else:
        listed = path.with_name("list.txt")
        listed.write_text(f"file '{path}'\nfile '{path}'\n")
        ffmpeg("-f", "concat", "-safe", "0", "-i", listed, "-c", "copy", to)
    return to, how


def lying(path: Path, r: random.Random) -> tuple[Path, str]:
    """Makes a file of the same packets with wrong flags or times."""
    how = r.choice(["all key", "all key", "dts", "dts", "equal", "avi", "coarse", "vfw"])
    to = path.with_name("lie" + path.suffix)
    if how == "all key":
        all_key(path)
        return path, how
    if how == "equal":
        equal_times(path)
        return path, how
    if how == "dts":
        ffmpeg("-i", path, "-c", "copy", "-bsf:v", "setts=pts=DTS", to)
    elif how == "coarse":
        ffmpeg("-i", path, "-c", "copy", "-bsf:v", "setts=pts=PTS/40:dts=DTS/40", to)
    else:
        avi = path.with_name("lie.avi")
        to = to.with_suffix(".mkv")
        ffmpeg("-i", path, "-c", "copy", avi)
        if how == "avi":
            run("mkvmerge", "-q", "-o", to, avi)
        else:
            ffmpeg("-i", avi, "-c", "copy", "-allow_raw_vfw", "1", to)
    return to, how


TAILS = {
    "zeros": bytes(7), "more zeros": bytes(5000), "text": b"\r\n-- sent by a server --\r\n",
    "id3v1": b"TAG" + bytes(125), "a byte": b"\n",
    "apev2": b"APETAGEX" + struct.pack("<IIII", 2000, 32, 0, 0x80000000) + bytes(8),
    "apev2 without header": (struct.pack("<II", 3, 0) + b"Key\0\xff\1\2" + b"APETAGEX" +
                             struct.pack("<IIII", 2000, 47, 1, 0) + bytes(8)),
    "lyrics3": b"LYRICSBEGININD0000200\xff000020LYRICS200",
}
HEAD = b"ID3\3\0\0\0\0\1\0" + b"f" * 128  # the start of a tag that some programs write before any file


def with_head(path: Path, _r: random.Random) -> tuple[Path, str]:
    path.write_bytes(HEAD + path.read_bytes())
    return path, "id3v2"


def with_tail(path: Path, r: random.Random) -> tuple[Path, str]:
    how = r.choice(list(TAILS))
    path.write_bytes(path.read_bytes() + TAILS[how])
    return path, how


def drawn_video(folder: Path, r: random.Random) -> tuple[str, Path]:
    words, suffixes = r.choice(encoders(r))
    path = folder / ("video" + r.choice(suffixes))
    frames, rate = r.choice([1, 2, 25, 40, 60]), r.choice([10, 25, 30, 50])
    size = r.choice(["64x48", "96x64", "98x66"])
    filters = r.choice(["null", "null", "setpts=N*N/(30*TB*20)", "setpts=PTS+2/TB"])
    sound = r.choice([[], [], ["-f", "lavfi", "-i", "sine=frequency=440:duration=1"]])
    ffmpeg("-f", "lavfi", "-i", f"testsrc2=size={size}:rate={rate}", *sound, "-frames:v", frames,
           "-vf", filters, "-vsync", "passthrough", *words, path)
    made = [*words, path.suffix] + ([f"times: {filters}"] if filters != "null" else [])
    for change, chance in ((remuxed, 0.4), (edited, 0.35), (lying, 0.35), (with_tail, 0.08)):
        if r.random() < chance:
            path, how = change(path, r)
            made.append(f"{change.__name__}: {how} {path.suffix}")
    return " ".join(str(word) for word in made[1:]), path


# ------------------------------------------------------------------------------------------ sounds

def sounds(r: random.Random) -> list[tuple[list[str], tuple[str, ...]]]:
    return [
        (["-c:a", r.choice(["pcm_s16le", "pcm_u8", "pcm_s24le", "pcm_f32le", "pcm_alaw"])], (".wav",)),
        (["-c:a", "adpcm_ms"], (".wav",)),
        (["-c:a", "adpcm_ima_wav"], (".wav",)),
        (["-c:a", "pcm_s16le"], (".mov", ".mkv")),
        (["-c:a", "flac"], (".flac", ".mkv", ".mp4", ".ogg")),
        (["-c:a", "alac"], (".m4a", ".mov", ".mkv")),
        (["-c:a", "aac", "-aac_pns", "0"], (".m4a", ".mp4", ".mov", ".mkv")),
        (["-c:a", "libmp3lame"], (".mp3", ".mkv", ".mp4")),
        (["-c:a", "mp2"], (".mkv",)),
        # A high bit rate, because the decoder generates noise for bands without bits.
        (["-c:a", "ac3", "-b:a", "640k"], (".mkv", ".mp4")),
        (["-c:a", "libvorbis"], (".ogg", ".mkv", ".webm")),
        (["-c:a", "libopus", "-ar", "48000"], (".ogg", ".webm", ".mkv", ".mp4")),
    ]


def gapped(path: Path, r: random.Random) -> tuple[Path, str]:
    """Makes a file with a gap in its packets, with two packets that have the same time, or with a drifting clock."""
    to = path.with_name("gap" + path.suffix)
    if path.suffix not in (".mkv", ".mp4", ".m4a", ".mov", ".webm"):
        raise Unmade("no times")
    if r.random() < 0.2:
        ffmpeg("-i", path, "-c", "copy", "-bsf:a", f"setts=ts=TS*{r.choice([1.001, 0.998])}", to)
        return to, "drift"
    seconds = r.choice([0.02, 0.05, 0.3, 1, 3, -0.02, -0.5])
    ffmpeg("-i", path, "-c", "copy", "-bsf:a", f"setts=ts=TS+gte(N\\,{r.randrange(3, 40)})*{seconds}/TB", to)
    return to, f"{seconds} s"


def sox_sound(path: Path, r: random.Random) -> tuple[Path, str]:
    to = path.with_name("sox.wav")
    encoding = r.choice(["ima-adpcm", "ms-adpcm", "a-law", "signed-integer", "pipe"])
    if encoding == "pipe":
        to.write_bytes(run("sox", path, "-t", "wav", "-"))
    else:
        run("sox", path, "-e", encoding, to)
    return to, encoding


def header_lies(path: Path, r: random.Random) -> tuple[Path, str]:
    """Makes a WAV whose header states a wrong number of bytes per second."""
    data = bytearray(path.read_bytes())
    at = data.find(b"fmt ")
    struct.pack_into("<I", data, at + 16, r.choice([0, 1, 16000, 176400, 1 << 30]))
    path.write_bytes(data)
    return path, "byte rate"


def drawn_sound(folder: Path, r: random.Random) -> tuple[str, Path]:
    words, suffixes = r.choice(sounds(r))
    path = folder / ("sound" + r.choice(suffixes))
    rate, seconds = r.choice([8000, 16000, 44100, 48000]), r.choice([0.3, 2, 6])
    ffmpeg("-f", "lavfi", "-i", f"anoisesrc=seed=7:amplitude=0.4:duration={seconds}:sample_rate={rate}",
           "-ac", r.choice([1, 2]), *words, path)
    made = [*words, path.suffix, rate, seconds]
    is_wav = path.suffix == ".wav"
    changes = (((sox_sound, 0.5), (header_lies, 0.4)) if is_wav else
               ((remuxed, 0.3 if path.suffix in (".mkv", ".mp4", ".mov") else 0),
                (edited, 0.25 if path.suffix in (".mkv", ".mp4", ".mov") else 0), (gapped, 0.5)))
    has_head = path.suffix in (".wav", ".flac", ".ogg", ".mp3")
    for change, chance in (*changes, (with_tail, 0.08), (with_head, 0.05 if has_head else 0)):
        if r.random() < chance:
            path, how = change(path, r)
            made.append(f"{change.__name__}: {how} {path.suffix}")
    return " ".join(str(word) for word in made[1:]), path


# ------------------------------------------------------------------- files that were read wrongly

def seeds() -> list[tuple[str, str, object]]:
    """Returns the files that were once read wrongly. Each has a function that makes it in a given folder."""

    def video(name: str, words: str, *changes):
        def make(folder: Path) -> Path:
            path = folder / name
            ffmpeg("-f", "lavfi", "-i", "testsrc2=size=64x48:rate=25", "-frames:v", "50",
                   *words.split(), path)
            for change in changes:
                path = change(path) or path
            return path
        return make

    def sound(name: str, words: str, *changes):
        def make(folder: Path) -> Path:
            path = folder / name
            ffmpeg("-f", "lavfi", "-i", "anoisesrc=seed=7:amplitude=0.4:duration=8:sample_rate=48000",
                   *words.split(), path)
            for change in changes:
                path = change(path) or path
            return path
        return make

    def copied(suffix: str, *words: str):
        def change(path: Path) -> Path:
            to = path.with_name("copy" + suffix)
            ffmpeg("-i", path, "-c", "copy", *words, to)
            return to
        return change

    def merged(path: Path) -> Path:
        run("mkvmerge", "-q", "-o", path.with_name("merged.mkv"), path)
        return path.with_name("merged.mkv")

    def cut(path: Path) -> Path:
        ffmpeg("-ss", "0.7", "-i", path, "-c", "copy", path.with_name("cut.mp4"))
        return path.with_name("cut.mp4")

    def no_pts(path: Path) -> None:
        renamed_box(path, b"ctts")

    def by_sox(path: Path) -> Path:
        run("sox", path, "-e", "ima-adpcm", path.with_name("sox.wav"))
        return path.with_name("sox.wav")

    def no_data(path: Path) -> None:
        head = bytearray(path.read_bytes()[:44])
        struct.pack_into("<I", head, 40, 0)
        path.write_bytes(bytes(head) + b"LIST" + struct.pack("<I", 64) + b"INFOIART" + bytes(56))

    def appended(words: str):
        def change(path: Path) -> Path:
            other, to = path.with_name("other.mkv"), path.with_name("appended.mkv")
            video(other.name, words)(path.parent)
            run("mkvmerge", "-q", "-o", to, path, "+", other)
            return to
        return change

    gap = "setts=ts=TS+gte(N\\,20)*1/TB"

    def joined(path: Path) -> None:
        path.write_bytes(2 * path.read_bytes())

    return [
        ("all key packets, HEVC", "video", video("a.mp4", "-c:v libx265 -preset ultrafast -x265-params log-level=none", all_key)),
        ("all key packets, MPEG-4", "video", video("a.mkv", "-c:v mpeg4 -g 12 -bf 1", all_key)),
        ("all key packets, H.264", "video", video("a.mkv", "-c:v libx264 -g 250", all_key)),
        ("one key packet", "video", video("a.mp4", "-c:v libx264 -bf 0 -x264-params intra-refresh=1:keyint=10")),
        ("open groups, HEVC", "video", video("a.mp4", "-c:v libx265 -x265-params open-gop=1:keyint=10:log-level=none")),
        ("open groups, H.264", "video", video("a.mkv", "-c:v libx264 -x264-params open-gop=1:keyint=10")),
        ("1,200 frames a second in ms", "video", video("a.mkv", "-c:v libx264 -bf 0 -g 12 -vf setpts=N/1200/TB -vsync passthrough")),
        ("equal times", "video", video("a.mp4", "-c:v libx264 -g 12 -bf 2", equal_times)),
        ("times of decoding, MP4", "video", video("a.mp4", "-c:v libx264 -g 12 -bf 2", no_pts)),
        ("times of decoding, AVI to Matroska", "video", video("a.avi", "-c:v mpeg4 -g 12 -bf 2", merged)),
        ("frames that an edit list leaves out, MPEG-1", "video", video("a.mp4", "-c:v mpeg1video -g 12 -bf 2", cut)),
        ("frames that an edit list leaves out, mjpeg", "video", video("a.mp4", "-c:v mjpeg", cut)),
        ("a gap, FLAC in Matroska", "audio", sound("a.mkv", "-c:a flac", copied(".mkv", "-bsf:a", gap))),
        ("a gap, AAC in MP4", "audio", sound("a.mp4", "-c:a aac -aac_pns 0", copied(".mp4", "-bsf:a", gap))),
        ("a clock that drifts, Opus in Matroska", "audio", sound("a.mkv", "-c:a libopus", copied(".mkv", "-bsf:a", "setts=ts=TS*1.001"))),
        ("a clock that drifts, FLAC in Matroska", "audio", sound("a.mkv", "-c:a flac", copied(".mkv", "-bsf:a", "setts=ts=TS*0.998"))),
        ("FLAC behind FLAC", "audio", sound("a.flac", "-c:a flac", joined)),
        ("lost packets, HEVC", "video", video("a.mkv", "-c:v libx265 -preset ultrafast -x265-params log-level=none:keyint=25", copied(".mkv", "-bsf:v", "noise=drop='not(mod(n,7))'"))),
        ("lost packets, VP8", "video", video("a.webm", "-c:v libvpx -g 15", copied(".webm", "-bsf:v", "noise=drop='not(mod(n+1,7))'"))),
        ("a lost packet, MPEG-2", "video", video("a.mkv", "-c:v mpeg2video -g 12 -bf 2", copied(".mkv", "-bsf:v", "noise=drop='eq(n,13)'"))),
        *((f"a lost packet, open groups, H.264 in {suffix}", "video",
           video("a" + suffix, f"-c:v libx264 -preset veryfast -g 12 -bf 3 -x264-params {OPEN}", copied(suffix, "-bsf:v", "noise=drop='eq(n,37)'")))
          for suffix in (".mkv", ".mp4")),
        ("MPEG-4 by two encoders", "video", video("a.mkv", "-c:v mpeg4 -g 12", appended("-c:v libxvid -g 12 -bf 0"))),
        ("MPEG-2, then interlaced", "video", video("a.mkv", "-c:v mpeg2video -g 12 -bf 2", appended("-c:v mpeg2video -g 12 -bf 2 -flags +ildct+ilme"))),
        ("uneven times of decoding, H.264", "video", video("a.mp4", f"-c:v libx264 -preset veryfast -g 12 -bf 3 -x264-params {OPEN}", uneven)),
        ("ADPCM by ffmpeg", "audio", sound("a.wav", "-c:a adpcm_ima_wav")),
        ("ADPCM by SoX", "audio", sound("a.wav", "-c:a pcm_s16le", by_sox)),
        ("no samples, and a chunk", "audio", sound("a.wav", "-c:a pcm_s16le -bitexact", no_data)),
    ]


# ----------------------------------------------------------------------------------- the comparison

def in_sequence(path: Path, *words: str) -> tuple[bytes, bool]:
    """Returns ffmpeg's decoded output, and whether ffmpeg skipped something damaged."""
    # Use one thread, because libav's replacements for missing data depend on the number of threads.
    done = subprocess.run(["ffmpeg", "-nostdin", "-v", "error", "-threads", "1", "-i", path, *words,
                           "-"],
                          capture_output=True, check=False)
    return done.stdout, b"Error while decoding" in done.stderr


class Sound:
    """The sound as ffmpeg decodes it, with zeros in the gaps between frames."""

    def __init__(self, rate: int, channels: int):
        self.rate = rate
        self.channels = channels
        self.samples = array.array("f")  # interleaved
        self.first = 0  # number of the first sample, computed from its time
        # Ranges of time that two frames cover. Reads that overlap them are not made.
        self.twice: list[tuple[float, float]] = []
        # For each frame: the number of its first sample by its time, the position of that sample in `samples`, and the
        # frame's deviation from its time. Number and position drift apart if the clock drifts.
        self.places: list[tuple[int, int, int]] = []

    def place_of(self, number: int) -> int:
        at, place, _off = self.places[max(self.frame_at(number), 0)]
        return place + number - at

    def frame_at(self, number: int) -> int:
        return bisect.bisect_right(self.places, number, key=lambda frame: frame[0]) - 1

    def most_off(self, begin: int, end: int) -> int:
        """Returns the largest deviation of a frame from its time, among the frames that reading such a clip may
        seek to or decode."""
        first = self.frame_at(begin - self.rate)  # half a second, and a frame, before
        return max(off for _at, _place, off in
                   self.places[max(first - 1, 0):max(self.frame_at(end), 0) + 2])


def sound_in_sequence(path: Path) -> Sound:
    told = json.loads(run("ffprobe", "-v", "error", "-select_streams", "a:0", "-show_frames",
                          "-show_entries", "stream=channels,sample_rate,codec_name:format=format_name:"
                          "frame=pts_time,nb_samples", "-of", "json", path))
    stream = told["streams"][0]
    rate, channels = int(stream["sample_rate"]), int(stream["channels"])
    raw = array.array("f", in_sequence(path, "-map", "0:a:0", "-f", "f32le")[0])
    container = told["format"]["format_name"].split(",")[0]
    has_times = container in ("mov", "matroska", "ogg")
    sound = Sound(rate, channels)
    samples = sound.samples
    begin, end, taken, drift = None, 0, 0, 0
    least = 0.008 * rate * channels
    for frame in told["frames"]:
        size = frame["nb_samples"] * channels
        time = round(float(frame.get("pts_time", 0)) * rate) * channels
        if begin is None:
            begin = end = time if path.suffix != ".mp3" else 0
        gap = time - begin - len(samples) - drift
        step = time - end
        off = 0
        if has_times and gap > least and step > least:
            samples.extend([0.0] * gap)
        elif has_times and container != "ogg" and gap < -least and step < -least:
            sound.twice.append((time / channels / rate, (time - gap) / channels / rate))
            del samples[gap:]
        elif has_times and container != "ogg":
            off = abs(gap) // channels
            drift += gap if abs(gap) > least else 0
        if has_times and container != "ogg":
            sound.places.append((time // channels, len(samples) // channels, off))
        samples.extend(raw[taken:taken + size])
        taken += size
        end = time + size
    samples.extend(raw[taken:])
    sound.first = (begin or 0) // channels
    sound.places = sound.places or [(sound.first, 0, 0)]
    return sound


class Reader:
    """Runs the program READ_MEDIA, and sends requests to it, one per line."""

    def __init__(self, program: Path, kind: str, path: Path):
        self.process = subprocess.Popen([program, kind, path], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.head = self.process.stdout.readline().decode().split()

    def ask(self, line: str) -> tuple[float, bytes] | str:
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().decode()
        words = answer.split()
        if not words:
            raise RuntimeError(f"the reader ended ({self.process.wait()}) at {line!r}")
        if words[0] == "refused":
            return answer.strip()
        return float(words[1]), self.process.stdout.read(int(words[2]))

    def close(self) -> None:
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


class Tally:
    def __init__(self):
        self.reads = collections.Counter()
        self.files = collections.Counter()
        self.refusals = collections.defaultdict(collections.Counter)
        self.wrong: list[str] = []

    def refuse(self, name: str, text: str, reads: int) -> None:
        """Records a refusal, which is correct only for a file that was modified after encoding."""
        if name[:4].isdigit() and ": " not in name:
            self.judge(name, False, f"as its encoder made it, {text}")
            return
        self.reads["refused"] += reads
        self.refusals[text.split("(", 1)[-1].split(");", 1)[0]][name] += reads

    def judge(self, name: str, is_equal: bool, text: str) -> bool:
        self.reads["equal" if is_equal else "wrong"] += 1
        if not is_equal:
            self.wrong.append(f"{name}: {text}")
            print(f"WRONG {self.wrong[-1]}", flush=True)
        return is_equal

    def print(self) -> None:
        print(f"files: {dict(self.files)}")
        print(f"reads: {dict(self.reads)}")
        for text, names in self.refusals.items():
            print(f"refused {sum(names.values())}: {text}")
            for name in names:
                print(f"    {name}")


def without_left_out(path: Path, pixels: bytes, size: int) -> bytes:
    """Removes the frames that an edit list excludes, because FFmpeg 5.1 shows those of AV1 and MJPEG."""
    told = json.loads(run("ffprobe", "-v", "error", "-select_streams", "v:0", "-show_packets",
                          "-show_frames", "-show_entries", "packet=pos,flags:frame=pkt_pos", "-of",
                          "json", path))["packets_and_frames"]
    left_out = {one["pos"] for one in told if one["type"] == "packet" and "D" in one["flags"]}
    places = [one.get("pkt_pos") for one in told if one["type"] == "frame"]
    if len(places) * size != len(pixels):
        return pixels
    return b"".join(pixels[i * size:(i + 1) * size] for i, place in enumerate(places)
                    if place not in left_out)


def compare_damaged(name: str, pixels: bytes, size: int, num_frames: int, reader: Reader, reads: int,
                    r: random.Random, tally: Tally) -> None:
    """Checks a video in which the reader counts frames that ffmpeg omits. All frames that the reader
    returns must be among ffmpeg's, in ffmpeg's order."""
    places = collections.defaultdict(list)
    for at in range(0, len(pixels), size):
        places[pixels[at:at + size]].append(at // size)
    given = {}
    for _ in range(reads):
        number = r.randrange(num_frames)
        answer = reader.ask(str(number))
        if isinstance(answer, str):
            tally.refuse(name, answer, 1)
        else:
            given.setdefault(number, []).append(answer[1])
    last = -1
    for number, answer in ((number, answer) for number in sorted(given) for answer in given[number]):
        behind = [place for place in places[answer] if last <= place <= number]
        if not tally.judge(name, bool(behind), f"frame {number} of those that are not damaged"):
            return
        last = behind[0]


def compare_video(name: str, path: Path, reader: Reader, reads: int, r: random.Random,
                  tally: Tally) -> None:
    pixels, is_damaged = in_sequence(path, "-map", "0:v:0", "-vsync", "passthrough", "-f", "rawvideo",
                                     "-pix_fmt", "rgb24")
    num_frames, height, width = (int(word) for word in reader.head[1:])
    size = height * width * 3
    if "av1" in name or "mjpeg" in name:
        pixels = without_left_out(path, pixels, size)
    if is_damaged and num_frames * size > len(pixels):
        compare_damaged(name, pixels, size, num_frames, reader, reads, r, tally)
        return
    if not tally.judge(name, num_frames * size == len(pixels),
                       f"{num_frames} frames, not {len(pixels) / size}"):
        return
    for _ in range(reads):
        number = r.randrange(num_frames)
        answer = reader.ask(str(number))
        if isinstance(answer, str):
            tally.refuse(name, answer, 1)
        elif not tally.judge(name, answer[1] == pixels[number * size:(number + 1) * size],
                             f"frame {number}"):
            return


# Maximum error after a seek, where a lossy codec's state from earlier frames is only approximate.
TOLERANCE = 0.001


def is_like(clip: array.array, whole: array.array, at: int, channels: int, slack: int,
            tolerance: float) -> bool:
    """Returns whether `whole` contains the interleaved clip [channels, samples] at or near sample `at`."""
    size = len(clip) // channels
    for shift in sorted(range(-slack, slack + 1), key=abs):
        place = at + shift
        if place < 0 or (place + size) * channels > len(whole):
            continue
        if all(abs(clip[c * size + i] - whole[(place + i) * channels + c]) <= tolerance
               for c in range(channels) for i in range(size)):
            return True
    return False


def compare_sound(name: str, path: Path, reader: Reader, reads: int, r: random.Random,
                  tally: Tally) -> None:
    sound = sound_in_sequence(path)
    rate, channels, samples = sound.rate, sound.channels, sound.samples
    length = len(samples) // channels
    # Matroska stores times in whole milliseconds.
    rounding = rate // 1000 + 1 if path.suffix in (".mkv", ".webm") else 0
    lossy = ("aac", "opus", "vorbis", "mp3", "mp2", "ac3")
    tolerance = TOLERANCE if any(codec in name.lower() for codec in lossy) else 0
    whole = reader.ask("")
    if isinstance(whole, str):
        tally.refuse(name, whole, 1)
    else:
        clip = array.array("f", whole[1])
        got = len(clip) // channels
        if not tally.judge(name, got == length, f"{got} samples, not {length}"):
            return
        # The same decoder with the same start gives bit-identical samples for every codec.
        if not tally.judge(name, is_like(clip, samples, 0, channels, 0, 0), "the whole"):
            return
    for i in range(reads):
        begin = r.uniform(0, max(length / rate - 0.03, 0)) + sound.first / rate
        answer = reader.ask(f"{begin} {begin + 0.02}")
        if isinstance(answer, str):
            tally.refuse(name, answer, 1)
            continue
        if any(begin < behind and before < begin + 0.02 for before, behind in sound.twice):
            tally.reads["not judged"] += 1
            continue
        clip = array.array("f", answer[1])
        number = round(answer[0] * rate)
        # Small deviations do not count as gaps. After a seek, samples are placed by their times.
        slack = rounding + sound.most_off(number, number + round(0.02 * rate))
        is_near = abs(answer[0] - begin) * rate <= 1.5 + slack
        size = min((begin + 0.02 - answer[0]) * rate, length - sound.place_of(number))
        is_long_enough = len(clip) > 0 and abs(len(clip) / channels - size) <= 1.5
        if not tally.judge(name, is_near and is_long_enough and
                           is_like(clip, samples, sound.place_of(number), channels, slack,
                                   tolerance),
                           f"{begin} s gives {len(clip) // channels} samples from {answer[0]}"):
            return


def compare(program: Path, name: str, path: Path, kind: str, reads: int, r: random.Random,
            tally: Tally) -> None:
    reader = Reader(program, kind, path)
    try:
        if reader.head[0] == "refused":
            tally.refuse(name, " ".join(reader.head), reads)
        elif kind == "video":
            compare_video(name, path, reader, reads, r, tally)
        else:
            compare_sound(name, path, reader, reads, r, tally)
    finally:
        reader.close()


def files(options: argparse.Namespace, base: Path):
    """Yields name, path, kind and random generator of each file."""
    made = 0
    for name, kind, make in seeds():
        folder = base / f"seed-{made:02}"
        folder.mkdir(parents=True, exist_ok=True)
        made += 1
        try:
            path = make(folder)
        except Unmade as reason:
            print(f"not made: {name}: {str(reason).splitlines()[0]}")
            continue
        yield name, path, kind, random.Random(options.seed)
    for draw in range(10 * options.files):
        if made >= options.files:
            return
        r = random.Random(f"{options.seed} {draw}")
        kind = r.choice(["video", "video", "audio"])
        folder = base / f"{draw:04}"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            name, path = (drawn_video if kind == "video" else drawn_sound)(folder, r)
        except Unmade:
            continue
        yield f"{draw:04} {name}", path, kind, r
        made += 1


def measure(options: argparse.Namespace, base: Path, tally: Tally) -> None:
    for name, path, kind, r in files(options, base):
        if options.only in name:
            before = tally.reads.copy()
            compare(options.program.absolute(), name, path, kind, options.reads, r, tally)
            tally.files[", ".join(sorted(tally.reads - before))] += 1
        if not options.folder:
            shutil.rmtree(path.parent)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("program", type=Path)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=20261125)
    parser.add_argument("--reads", type=int, default=50)
    parser.add_argument("--only", default="", help="files in whose name this is")
    parser.add_argument("--folder", type=Path, help="where the files stay")
    options = parser.parse_args()
    if not shutil.which("ffmpeg") or not shutil.which("ffprobe"):
        print("skipped: ffmpeg is not installed")
        return 77
    print(f"seed {options.seed}")
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="media_matrix") as temporary:
        measure(options, options.folder or Path(temporary), tally)
    tally.print()
    return 1 if tally.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
