"""How shards are fetched: with which credentials, and from which URLs."""

from __future__ import annotations

import gc
import logging
import pickle
import random
import subprocess
import sys
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import FileHandler, FileServer, needs, write_shards

import shardwise
from shardwise.errors import FetchError, InvalidArgument, NotFound, Unsupported


class Asking(FileHandler):
    """Serves files to clients that send the token."""

    def send_head(self) -> Any:
        if self.headers["Authorization"] == "Bearer sesame":
            return super().send_head()
        if self.path.endswith("&X-Amz-Signature=sesame"):
            return super().send_head()
        self.send_error(403 if "Authorization" not in self.headers else 401)
        return None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    write_shards(tmp_path / "www", [5])
    with FileServer(tmp_path / "www", Asking) as server:
        yield server


def test_the_cache_says_who_asks(server: FileServer, tmp_path: Path) -> None:
    index, shard = tmp_path / "x.idx", server.url + "/train-000000.tar"
    with pytest.raises(FetchError, match="HTTP status 403"):
        shardwise.index(index, shard)
    (tmp_path / "token").write_text("sesame\n")
    token = {"bearer_token_file": str(tmp_path / "token")}
    with pytest.raises(InvalidArgument, match="bearer_token_loopback=True"):
        shardwise.index(index, shard, cache=shardwise.ShardCache(str(tmp_path / "no"), **token))
    for options in (
        {"http_headers": ["Authorization: Bearer sesame"]},
        {**token, "bearer_token_loopback": True},
    ):
        cache = shardwise.ShardCache(str(tmp_path / next(iter(options))), 1 << 30, **options)
        assert shardwise.index(index, shard, cache=cache).num_samples == 5
        assert shardwise.verify(index, cache=cache) == []
        assert shardwise.update(index, cache=cache).shards_reused == 1
        assert len(shardwise.open(index, cache=cache)[4].key) > 0


class Unwell(FileHandler):
    """Refuses each request until a test says that it has recovered."""

    is_well = False

    def send_head(self) -> Any:
        if type(self).is_well:
            return super().send_head()
        self.send_error(503)
        return None


def test_a_retried_fetch_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_shards(tmp_path / "www", [5])

    class Recovers(Unwell):
        pass

    class AtTheLog(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            Recovers.is_well = True

    logger = logging.getLogger("shardwise")
    logger.addHandler(handler := AtTheLog())
    try:
        with FileServer(tmp_path / "www", Recovers) as server:
            url = server.url + "/train-000000.tar"
            cache = shardwise.ShardCache(str(tmp_path / "cache"), retry_for=60)
            shardwise.index(tmp_path / "x.idx", url, cache=cache)
    finally:
        logger.removeHandler(handler)
    (record,) = [each for each in caplog.records if each.name == "shardwise"]
    assert record.levelname == "WARNING"
    assert url in record.getMessage()
    assert "503" in record.getMessage()
    assert "ShardCache(retry_for=)" in record.getMessage()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_a_handler_of_the_log_raises_does_not_end_the_fetch(tmp_path: Path) -> None:
    write_shards(tmp_path / "www", [5])

    class Recovers(Unwell):
        pass

    class Refuses(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            Recovers.is_well = True
            raise ZeroDivisionError

    logger = logging.getLogger("shardwise")
    logger.addFilter(refuses := Refuses())
    try:
        cache = shardwise.ShardCache(str(tmp_path / "cache"), retry_for=60)
        with FileServer(tmp_path / "www", Recovers) as server:
            url = server.url + "/train-000000.tar"
            assert shardwise.index(tmp_path / "x.idx", url, cache=cache).num_samples == 5
    finally:
        logger.removeFilter(refuses)


LOGS_IN_THREAD = """
import logging, os, sys, threading
import shardwise
from shardwise.errors import FetchError

logging.basicConfig(format="%(process)d %(message)s")
url, folder = sys.argv[1:]

def fetch(name):
    cache = shardwise.ShardCache(os.path.join(folder, name), retry_for=4)
    try:
        shardwise.index(os.path.join(folder, name + ".idx"), url, cache=cache)
    except FetchError:
        pass

def fetch_in_thread(name):
    thread = threading.Thread(target=fetch, args=(name,))
    thread.start()
    thread.join()

fetch_in_thread("parent")
child = os.fork()
if child == 0:
    fetch_in_thread("child")
    logging.shutdown()
    os._exit(0)
os.waitpid(child, 0)
print(os.getpid(), child)
"""


def test_retries_are_logged_while_the_main_thread_does_something_else(tmp_path: Path) -> None:
    with FileServer(tmp_path, Unwell) as server:
        run = subprocess.run(
            [sys.executable, "-c", LOGS_IN_THREAD, server.url + "/x.tar", str(tmp_path)],
            capture_output=True,
            text=True,
        )
    logged = [line.split()[0] for line in run.stderr.splitlines() if "cannot be fetched" in line]
    assert logged == run.stdout.split(), run.stderr  # once in each process


def test_shards_are_found_where_they_are_today(server: FileServer, tmp_path: Path) -> None:
    index, old = tmp_path / "x.idx", "http://old.example/data"
    headers = ["Authorization: Bearer sesame"]
    cache = shardwise.ShardCache(
        str(tmp_path / "cache"), http_headers=headers, url_base={old: server.url}
    )
    shardwise.index(index, old + "/train-000000.tar", cache=cache)
    data = shardwise.open(index, cache=cache)
    assert data.shards[0].path == old + "/train-000000.tar"
    assert len(data[4].key) > 0

    asked: list[str] = []

    def resolve(url: str) -> str:
        asked.append(url)
        return url.replace(old, server.url) + "?signature=sesame"

    signing = shardwise.ShardCache(str(tmp_path / "other"), http_headers=headers, resolve=resolve)
    assert len(shardwise.open(index, cache=signing)[4].key) > 0
    assert set(asked) == {old + "/train-000000.tar"}
    assert server.asked[-1] == "/train-000000.tar?signature=sesame"


def test_signed_urls_are_fetched_as_they_are_and_not_kept(server: FileServer, tmp_path: Path) -> None:
    plain = server.url + "/train-000000.tar"

    def signed(day: int) -> str:
        return f"{plain}?X-Amz-Date={day}&X-Amz-Signature=sesame"

    index = tmp_path / "x.idx"
    assert shardwise.index(index, signed(1)).shards_scanned == 1
    again = shardwise.index(index, signed(2))
    assert (again.shards_scanned, again.shards_moved) == (0, 0)

    data = shardwise.open(signed(3), index_directory=tmp_path / "kept", cache=tmp_path / "a")
    assert len(data[4].key) > 0
    again_there = pickle.loads(pickle.dumps(data))
    assert again_there[4].key == data[4].key
    other = shardwise.open(signed(4), index_directory=tmp_path / "kept", cache=tmp_path / "b")
    assert other[4].key == data[4].key
    assert other.path == data.path  # URLs with other signatures have the same index

    data = shardwise.open(index, cache=tmp_path / "c")
    assert data.shards[0].path == plain
    assert data.info.url_base == server.url + "/"
    with pytest.raises(FetchError, match=r"HTTP status 403.*"
                       r"\(ShardCache: url_base, resolve, http_headers, netrc_file\)"):
        data[4]
    cache = shardwise.ShardCache(
        str(tmp_path / "d"),
        url_base={data.info.url_base: server.url + "?X-Amz-Date=5&X-Amz-Signature=sesame"},
    )
    assert shardwise.open(index, cache=cache)[4].key == other[4].key
    for path in tmp_path.rglob("*"):
        if path.is_file():
            assert b"sesame" not in path.read_bytes(), path


AGAIN = """
import pickle, sys
import shardwise
data = pickle.load(open(sys.argv[1], "rb"))
print(len(data[4].key) > 0)
"""


def test_another_process_fetches_as_this_one_does(server: FileServer, tmp_path: Path) -> None:
    index, old = tmp_path / "x.idx", "http://old.example/data"
    options = {"http_headers": ["Authorization: Bearer sesame"], "url_base": {old: server.url}}
    cache = shardwise.ShardCache(str(tmp_path / "cache"), **options)  # type: ignore[arg-type]
    shardwise.index(index, old + "/train-000000.tar", cache=cache)
    data = shardwise.open(index, cache=cache)
    (tmp_path / "data.pickle").write_bytes(pickle.dumps(data))
    again = subprocess.run(
        [sys.executable, "-c", AGAIN, str(tmp_path / "data.pickle")], capture_output=True, text=True
    )
    assert again.stdout == "True\n", again.stderr
    # A cache with the same directory and budget, but without a resolve function, is another object.
    plain = shardwise.open(index, cache=str(tmp_path / "cache"))
    assert plain[4].key == data[4].key  # the shard is already cached
    assert pickle.loads(pickle.dumps(plain))[4].key == data[4].key

    other = shardwise.ShardCache(str(tmp_path / "other"), resolve=lambda url: url)
    with pytest.raises(Unsupported, match="cannot be pickled"):
        pickle.dumps(shardwise.open(index, cache=other))


def test_what_a_resolver_raises_arrives(server: FileServer, tmp_path: Path) -> None:
    def resolve(url: str) -> str:
        raise LookupError("no key for " + url)

    cache = shardwise.ShardCache(str(tmp_path / "cache"), resolve=resolve)
    with pytest.raises(LookupError, match="no key for http"):
        shardwise.index(tmp_path / "x.idx", server.url + "/train-000000.tar", cache=cache)


def test_a_resolver_that_reaches_its_cache_is_collected(server: FileServer, tmp_path: Path) -> None:
    headers = ["Authorization: Bearer sesame"]

    class Signer:
        def __init__(self) -> None:
            self.cache = shardwise.ShardCache(
                str(tmp_path / "cache"), http_headers=headers, resolve=self.signed
            )

        def signed(self, url: str) -> str:
            return url

    signer = Signer()
    seen = weakref.ref(signer)
    url = server.url + "/train-000000.tar"
    shardwise.index(tmp_path / "x.idx", url, cache=signer.cache)
    data = shardwise.open(tmp_path / "x.idx", cache=signer.cache)
    assert data[0].key
    del signer
    gc.collect()
    assert seen() is not None, "the data set may still ask it"
    del data
    gc.collect()
    assert seen() is None


@pytest.mark.parametrize(("given", "shown"), [(None, "None"), (7, "int"), (b"http://h", "bytes")])
def test_a_resolver_that_gives_no_url_is_named_with_what_it_gave(
    server: FileServer, tmp_path: Path, given: Any, shown: str
) -> None:
    cache = shardwise.ShardCache(str(tmp_path / "cache"), resolve=lambda url: given)
    url = server.url + "/train-000000.tar"
    with pytest.raises(InvalidArgument, match=f": {shown} for '{url}'; "):
        shardwise.index(tmp_path / "x.idx", url, cache=cache)


def test_a_resolver_may_give_what_it_was_given(server: FileServer, tmp_path: Path) -> None:
    asked = []

    def resolve(url: str) -> str:
        asked.append(url)
        return url

    headers = ["Authorization: Bearer sesame"]
    cache = shardwise.ShardCache(str(tmp_path / "cache"), http_headers=headers, resolve=resolve)
    url = server.url + "/train-000000.tar"
    shardwise.index(tmp_path / "x.idx", url, cache=cache)
    assert asked and set(asked) == {url}
    # Bytes that are not UTF-8 become surrogates, as in Python's paths, and are restored when passed
    # back.
    with pytest.raises(NotFound, match="b%FF.tar|b\\\\xff.tar"):
        shardwise.index(tmp_path / "y.idx", server.url + "/b%FF.tar", cache=cache)


RAISES_AHEAD = """
import sys
import shardwise
from shardwise import columns

def resolve(url):
    raise LookupError("no key for " + url)

cache = shardwise.ShardCache(sys.argv[2], resolve=resolve)
data = shardwise.open(sys.argv[1], cache=cache)
try:
    # Shards are fetched ahead by threads that Python does not know; the errors there are let go of
    # without the GIL, and the one of the shard that is read arrives.
    for batch in shardwise.Loader(data, columns=[columns.bytes("bin")], batch_size=1, threads=2):
        pass
except LookupError as error:
    print("arrived:", "no key for http" in str(error))
"""


def test_what_a_resolver_raises_in_threads_that_fetch_ahead(
    server: FileServer, tmp_path: Path
) -> None:
    index = tmp_path / "x.idx"
    cache = shardwise.ShardCache(
        str(tmp_path / "cache"), http_headers=["Authorization: Bearer sesame"]
    )
    shardwise.index(index, server.url + "/train-000000.tar", cache=cache)
    for attempt in range(5):
        run = subprocess.run(
            [sys.executable, "-c", RAISES_AHEAD, str(index), str(tmp_path / f"other{attempt}")],
            capture_output=True,
            text=True,
        )
        assert (run.returncode, run.stdout) == (0, "arrived: True\n"), run.stderr


def test_a_cache_that_is_only_read_and_one_that_a_group_shares(
    server: FileServer, tmp_path: Path
) -> None:
    folder = str(tmp_path / "shared")
    headers = ["Authorization: Bearer sesame"]
    metrics = tmp_path / "cache.prom"
    cache = shardwise.ShardCache(
        folder, group_shared=True, metrics_file=str(metrics), http_headers=headers
    )
    assert (tmp_path / "shared").stat().st_mode & 0o7777 == 0o2770
    index = tmp_path / "x.idx"
    shardwise.index(index, server.url + "/train-000000.tar", cache=cache)
    assert len(list(shardwise.open(index, cache=cache))) == 5
    assert "# TYPE shardwise_cache_fetched_shards_total counter" in metrics.read_text()

    reader = shardwise.ShardCache(folder, read_only=True, group_shared=True)
    asked = len(server.asked)
    again = pickle.loads(pickle.dumps(shardwise.open(index, cache=reader)))
    assert [sample.key for sample in again] == [
        sample.key for sample in shardwise.open(index, cache=cache)
    ]
    assert len(server.asked) == asked
    empty = shardwise.ShardCache(str(tmp_path / "empty"))
    del empty
    nothing = shardwise.ShardCache(str(tmp_path / "empty"), read_only=True, http_headers=headers)
    with pytest.raises(Unsupported, match="read-only cache"):
        shardwise.open(index, cache=nothing)[0]


def test_options_that_cannot_be_meant_are_refused(tmp_path: Path) -> None:
    for options, text in (
        ({"http_headers": ["Host: other"]}, "not valid: http_headers; .*'Name: value'"),
        ({"url_base": {"data": "http://h"}}, "not valid: url_base; .*two URLs"),
        ({"host_connections": -1}, "not valid: host_connections; give 0"),
        ({"shard_connections": 0}, "not valid: shard_connections; give 1 to 64"),
        ({"retry_for": -1.0}, "not valid: ShardCache.retry_for=.; give 0 .*30 days"),
        ({"retry_for": float("nan")}, "not valid: ShardCache.retry_for=."),
        ({"retry_for": float("inf")}, "not valid: ShardCache.retry_for=."),
    ):
        with pytest.raises(InvalidArgument, match=text):
            shardwise.ShardCache(str(tmp_path / "cache"), **options)  # type: ignore[arg-type]


class SmallCache:
    """Eight shards of 20 samples behind a server, and caches for only some of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shards = write_shards(folder / "www", [20] * 8)
        self.server = FileServer(folder / "www", Asking)
        self.shard_bytes = max(path.stat().st_size for path in shards)
        self.index = folder / "x.idx"
        urls = [f"{self.server.url}/{path.name}" for path in shards]
        shardwise.index(self.index, *urls, cache=self.cache("first", 8))

    def cache(self, name: str, num_shards: int) -> shardwise.ShardCache:
        headers = ["Authorization: Bearer sesame"]
        budget = num_shards * self.shard_bytes
        return shardwise.ShardCache(str(self.folder / name), budget, http_headers=headers)

    def data(self, name: str, num_shards: int) -> shardwise.Dataset:
        return shardwise.open(self.index, cache=self.cache(name, num_shards))


@pytest.fixture
def small(tmp_path: Path) -> Iterator[SmallCache]:
    small = SmallCache(tmp_path)
    with small.server:
        yield small


SCATTERED = list(range(160))
random.Random(7).shuffle(SCATTERED)
NOT_AT_HAND = (
    r"by number, and \d+ of .* open a shard; .* `sharded` .* at most 2 shards, .* shardwise.Loader "
)


def by_number(data: shardwise.Dataset) -> None:
    for i in SCATTERED:
        assert data[i].index == i


def in_a_row(data: shardwise.Dataset) -> None:
    assert [sample.index for sample in data.samples(SCATTERED)] == SCATTERED


def by_lists(data: Any) -> None:
    for first in range(0, 160, 4):
        numbers = SCATTERED[first : first + 4]
        assert [sample.index for sample in data.__getitems__(numbers)] == numbers


READS = pytest.mark.parametrize("read", [by_number, in_a_row, by_lists])


@READS
def test_scattered_reads_over_a_small_cache_are_warned_of_once(
    small: SmallCache, read: Any
) -> None:
    data = small.data("small", 2)
    with pytest.warns(UserWarning, match=NOT_AT_HAND) as told:
        read(data)
        read(data)
    assert len(told) == 1


@READS
def test_no_warning_where_the_cache_does(small: SmallCache, read: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        data = small.data("large", 8)
        read(data)
        read(data)
        data = small.data("small", 2)
        for _ in range(3):
            for i in range(160):
                assert data[i].index == i


def test_an_order_for_which_the_cache_is_too_small_is_said_before_the_epoch(
    small: SmallCache,
) -> None:
    loader = shardwise.Loader(
        small.data("small", 2),
        columns=[shardwise.columns.key()],
        order=shardwise.Order("resampled"),
    )
    warning = loader.cache_warning()
    assert warning is not None and "at most 2 shards" in warning


def test_the_samplers_of_torch_warn_once_of_a_small_cache(small: SmallCache) -> None:
    needs("torch")
    from torch.utils.data import DataLoader

    from shardwise.torch import BatchSampler, ResampledSampler, ShardedSampler

    data = small.data("small", 2)
    sampler = ResampledSampler(data, seed=1)
    with pytest.warns(UserWarning, match="at most 2 shards") as told:
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for batch in DataLoader(data, batch_size=8, sampler=sampler):  # type: ignore[arg-type]
                assert len(batch["__key__"]) == 8
    assert len(told) == 1  # the reads cause no further warning
    with pytest.warns(UserWarning, match="choose a smaller window"):
        iter(BatchSampler(ShardedSampler(data, window=8), 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(ShardedSampler(data, window=2))
        list(ResampledSampler(small.data("large", 8)))
        list(ResampledSampler(data, unit="shard"))
        list(ResampledSampler(160))


def test_a_cache_pickles_to_the_one_that_all_of_a_process_share(tmp_path: Path) -> None:
    cache = shardwise.ShardCache(
        str(tmp_path / "cache"), 1 << 20, retry_for=3.5, url_base={"http://a/": "http://b/"}
    )
    again = pickle.loads(pickle.dumps(cache))
    assert again is cache
    code = """
import pickle, sys
a, b = pickle.loads(pickle.load(sys.stdin.buffer)), None
print(a.directory, a.budget_bytes, dict(a.options)["retry_for"], dict(a.options)["url_base"])
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(pickle.dumps(cache)),
        capture_output=True,
        check=True,
    )
    assert done.stdout.decode() == (
        f"{tmp_path}/cache 1048576 3.5 (('http://a/', 'http://b/'),)\n"
    )
    own = shardwise.ShardCache(str(tmp_path / "cache"), resolve=lambda url: url)
    with pytest.raises(Unsupported, match="resolve="):
        pickle.dumps(own)
