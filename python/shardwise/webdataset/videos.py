"""Videos by PyAV, for versions of torchvision without a reader."""

from __future__ import annotations

import io
from typing import Any

from ..errors import Unsupported


def read_video(data: bytes) -> tuple[Any, Any, dict[str, float]]:
    """(frames uint8 [T, H, W, 3], sound float32 [C, S], {"video_fps", "audio_fps"}) of a video, as
    torchvision.io.read_video() gives them. Raises Unsupported without PyAV."""
    try:
        import av  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise Unsupported(
            "torch_video needs torchvision before 0.24, or PyAV; install av, or use a "
            "shardwise.Loader with columns.video(field)"
        ) from None
    import numpy
    import torch

    info: dict[str, float] = {}
    frames, sounds = [], []
    with av.open(io.BytesIO(data)) as container:
        if container.streams.video:
            info["video_fps"] = float(container.streams.video[0].average_rate)
            frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
    with av.open(io.BytesIO(data)) as container:
        if container.streams.audio:
            info["audio_fps"] = float(container.streams.audio[0].rate)
            sounds = [_planes(frame.to_ndarray()) for frame in container.decode(audio=0)]
    shown = numpy.stack(frames) if frames else numpy.zeros((0, 1, 1, 3), numpy.uint8)
    heard = numpy.concatenate(sounds, axis=1) if sounds else numpy.zeros((1, 0), numpy.float32)
    return torch.from_numpy(shown), torch.from_numpy(heard), info


def _planes(samples: Any) -> Any:
    """Converts audio samples to float32 in [-1, 1]."""
    import numpy

    if samples.dtype.kind == "i":
        return samples.astype(numpy.float32) / float(2 ** (8 * samples.dtype.itemsize - 1))
    return samples.astype(numpy.float32)


__all__ = ["read_video"]
