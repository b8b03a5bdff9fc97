from builtins import bytes as _bytes
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, SupportsIndex, overload

import numpy
from numpy import uint8
import numpy.typing
from numpy.typing import NDArray
import torch

import shardwise.records



version: str = '0.1.0'

class ShardCache:
    """
    A directory with a byte budget, in which shards that cannot be read where they lie (remote ones, compressed ones) are kept, shared by all processes of a machine. A shard is fetched once, however many ask for it. Any thread may use it, and a forked child.

    The directory is made if there is none. budget_bytes: what the shards in it may take together. bypass_large: a shard that is larger than the budget is fetched each time, instead of being an error. read_only: nothing is written to the directory, and a shard that is not there is an error; so it is by itself where this user may not write to a directory of its own or root's. Another user's directory is read only if this is given. group_shared: members of the directory's group read and write it; all give this. metrics_file: where what this process does with the cache is written in Prometheus' text format; a process that gets the cache by pickle writes none. allow_pipe: URLs `pipe:command` are run; only for URLs that you wrote yourself.

    How files are fetched, by index(), update() and verify() too, which take the cache for this: http_headers ("Name: value"), bearer_token_file (read again for each shard; sent over https alone, or with bearer_token_loopback over http to this machine, too) and netrc_file say who asks; ca_file: the authorities to trust; host_connections: transfers that talk to one host at a time; shard_connections: requests at a time for one large shard; retry_for: seconds for which a fetch is tried again while its server is away, refuses for now, or sends what is wrong (0: one try); no_sign_request: s3:// is read without keys. url_base: a dict; URLs that begin with a key are fetched from its value. resolve: a function that is given a URL, and gives the one to fetch it from, as one that it signs; called before each fetch, by any thread. What is in the cache is found by the URLs in the index, wherever they were fetched.

    It pickles, and so does a dataset over it, with these options, headers included; not with resolve.
    """

    def __init__(self, directory: str, budget_bytes: int = 68719476736, *, bypass_large: bool = False, read_only: bool = False, group_shared: bool = False, metrics_file: str = '', allow_pipe: bool = False, http_headers: Sequence[str] = (), bearer_token_file: str = '', bearer_token_loopback: bool = False, netrc_file: str = '', ca_file: str = '', host_connections: int = 0, shard_connections: int = 4, retry_for: float = 900.0, no_sign_request: bool = False, url_base: dict[str, str] = {}, resolve: Callable[[str], str] | None = None) -> None: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

    @property
    def directory(self) -> str: ...

    @property
    def budget_bytes(self) -> int: ...

    @property
    def options(self) -> tuple[tuple[str, Any], ...] | None:
        """
        Of what another process makes the same cache, beside directory and budget, as pairs of names and values; None if it cannot, for the sake of `resolve`.
        """

    @property
    def used_bytes(self) -> int:
        """Bytes of all shards in it, those that are being fetched included."""

    def stats(self) -> dict[str, int]:
        """
        Counts of what this process did with it.

        >>> cache = shardwise.ShardCache("cache", budget_bytes=1 << 30)
        >>> cache.stats()["fetched"], cache.used_bytes
        (0, 0)
        """

    def prune(self, max_bytes: int) -> int:
        """
        Removes shards that were not used lately until the others take ``max_bytes`` or less; gives the bytes that were removed. Shards in use stay.
        """

class Sample:
    """
    One sample of a Dataset, read in place: a read-only mapping of the names of its fields to their bytes.

    ``sample["jpg"]`` is a read-only memoryview into the mapped shard. It copies nothing, and keeps the shard mapped while it, or whatever is made over it, lives: evicting the shard, or closing or dropping the Dataset, does no harm. Where the dataset has access="read", it is over bytes that the sample holds.

    A view of a shard that somebody truncates in place ends the process with SIGBUS when it is read; bytes(), copy() and access="read" raise StaleIndex or OSError instead.

    Pickled, a sample is a reference: its index's path, its number there, and ``number``. Any thread may use it. It is no collections.abc.Mapping: torch takes those apart, down to the bytes of each field.

    >>> sample = shardwise.open("train.idx")[42]
    >>> sample.keys()
    ['jpg', 'cls', 'txt']
    >>> bytes(sample["txt"])
    b'no. 42'
    >>> sample["txt"].readonly
    True
    """

    def __iter__(self) -> Iterator[str]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, field: str, /) -> memoryview: ...

    def __contains__(self, field: object, /) -> bool: ...

    @property
    def key(self) -> str:
        """
        Its key: the path of its members up to the first dot of the file's name. Bytes that are not UTF-8 are surrogates (surrogateescape).
        """

    @property
    def index(self) -> int:
        """Its number in its dataset."""

    @property
    def number(self) -> int:
        """
        The number by which it was taken, as samplers and proofs count: that in the mix(), if it was taken from one; else its index.
        """

    @property
    def number_in_index(self) -> int:
        """Its number in the index: another one only where the dataset is a view."""

    @property
    def dataset(self) -> Dataset:
        """The Dataset that it was taken from."""

    @property
    def shard_path(self) -> str:
        """Path or URL of the shard that holds it."""

    def keys(self) -> list[str]:
        """Names of its fields, as they lie in the shard."""

    def values(self) -> list[memoryview]:
        """The bytes of its fields."""

    def items(self) -> list[tuple[str, memoryview]]:
        """Names and bytes."""

    def get(self, field: str, default: Any = None) -> Any:
        """The bytes of a field; ``default`` if it has none of that name."""

    def views(self) -> dict[str, memoryview]:
        """All fields as a dict: quicker than ``dict(sample)``."""

    def bytes(self, field: str) -> _bytes:
        """
        A copy of a field. Raises NotFound; StaleIndex or OSError if the shard was changed or cannot be read, and never SIGBUS.

        >>> sample.bytes("txt")
        b'no. 42'
        """

    def copy(self) -> dict[str, _bytes]:
        """
        Copies of all fields, as a dict that holds no shard. Raises as bytes().
        """

    def text(self, field: str) -> str:
        """A field that is UTF-8. Raises as bytes(), and UnicodeDecodeError."""

    def integer(self, field: str) -> int:
        """
        A field that holds a decimal number, as WebDataset's cls. Raises as bytes(), and BadField.

        >>> sample.integer("cls")
        2
        """

    def json(self, field: str) -> Any:
        """
        A field that is JSON in UTF-8. NaN, numbers beyond the range of a float, halves of surrogate pairs and more than 500 levels are refused, as columns and the loader refuse them. Raises as bytes(), and json.JSONDecodeError.
        """

    def numpy(self, field: str) -> NDArray[uint8]:
        """
        The bytes of a field as a read-only uint8 array [size] over the mapped shard. It is not passed on by DLPack, nor is there a writable one: torch ignores that an array is read-only, and a write to it would end the process; tensor() copies.

        >>> sample.numpy("txt")[:3]
        array([110, 111,  46], dtype=uint8)
        """

    def tensor(self, field: str) -> torch.Tensor:
        """A copy of a field as a torch uint8 tensor [size]. Raises as bytes()."""

    def __eq__(self, other: object, /) -> bool:
        """True for the same sample of the same index."""

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

    def __reduce__(self) -> tuple[Any, ...]: ...

def require_json(text: bytes) -> None:
    """Raises json.JSONDecodeError if Sample.json() would refuse this text."""

class SampleIterator:
    """What Dataset.samples() gives. One thread."""

    def __iter__(self) -> SampleIterator: ...

    def __next__(self) -> Sample: ...

class Dataset:
    """
    The samples of an index, by number and by key, read in place. shardwise.open() makes one.

    ``ds[i]`` is the sample with this number (``ds[-1]`` the last), ``len(ds)`` their number, ``key in ds`` whether there is one of that key. ``ds[a:b]``, ``ds[numbers]``, where() and select() are views: datasets of some of the samples, numbered from 0 in the order of the index, at 8 bytes a sample.

    Any thread may use it; one that waits for a shard lets the others run. After fork() the child may go on using it. Pickled, it is a reference: the index's absolute path, its fingerprint, the options, and how the view was made. Where another index lies at that path, unpickling raises Mismatch.

    >>> ds = shardwise.open("train.idx")
    >>> len(ds), ds[42].key, "000042" in ds
    (400, '000042', True)
    >>> [sample.key for sample in ds[2:4]]
    ['000002', '000003']
    """

    def __iter__(self) -> Iterator[Sample]: ...

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, number: SupportsIndex, /) -> Sample: ...  # type: ignore[overload-overlap]
    @overload
    def __getitem__(self, numbers: slice | Sequence[int] | NDArray[Any], /) -> Dataset: ...

    def __contains__(self, key: object, /) -> bool: ...

    @property
    def fingerprint(self) -> str:
        """
        32 hexadecimal digits, the same for the same samples in the same order.
        """

    @property
    def version(self) -> str:
        """
        32 hexadecimal digits, the same while the index says the same of every shard: size, time (not with accept_times) or what its server calls its version, samples and metadata. A shard that is edited and indexed again may keep the fingerprint, but gives another version. Some us a shard.
        """

    @property
    def path(self) -> str:
        """The path of its index."""

    @property
    def is_view(self) -> bool:
        """True if it is a view of some samples."""

    @property
    def columns(self) -> list[str]:
        """Names of the metadata columns that the index was built with."""

    def sample_keys(self, numbers: Any = None) -> list[str]:
        """
        The keys of these samples, of all by default. No shard is opened. Raises OutOfRange.

        >>> ds.sample_keys([42, 7])
        ['000042', '000007']
        """

    def column(self, name: str, numbers: Any = None) -> list[int | float | str | bytes | None]:
        """
        The values in a metadata column of these samples, of all by default. No shard is opened. Raises NotFound, OutOfRange.

        >>> ds.column("cls", [7, 18])
        [7, 8]
        """

    def numbers(self, column: str) -> numpy.typing.NDArray[numpy.float64]:
        """
        A metadata column of numbers, one for each sample. Raises NotFound; InvalidArgument if a value is no number. Needs NumPy.

        >>> ds.numbers("cls")[:3].tolist()
        [0.0, 1.0, 2.0]
        """

    def sizes(self, field: str, numbers: Any = None) -> numpy.typing.NDArray[numpy.int64]:
        """
        The bytes of a field of these samples, of all by default; 0 where a sample has no such field. No shard is opened. Needs NumPy.

        >>> ds.sizes("txt", [5, 42]).tolist()
        [5, 6]
        """

    def samples(self, numbers: Any) -> Iterator[Sample]:
        """
        The samples with these numbers, one after another, in this order; one may come twice: ``for sample in ds.samples(numbers)``. Each is as ``ds[i]`` gives it, and lives as long. Records and first bytes of those that follow are on their way into the CPU's caches meanwhile, and up to 1,024 of the shards it met stay open: quicker than ``ds[i]`` where samples are tiny and in random order. One thread goes through it, once. Raises OutOfRange at once; what ``ds[i]`` raises when a sample's turn comes, and then goes on behind it.
        """

    def __getitems__(self, numbers: Any) -> list[Sample]:
        """What torch's DataLoader asks for: the samples of a batch."""

    def gather(self, numbers: Any, field: str) -> tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.uint8]]:
        """
        Copies one field of many samples into one array: ``(offsets, data)``, where that of ``numbers[i]`` is ``data[offsets[i]:offsets[i + 1]]``. Raises NotFound if a sample has no such field; StaleIndex, OSError. Needs NumPy.

        >>> offsets, data = ds.gather([42, 5], "txt")
        >>> offsets.tolist(), bytes(data)
        ([0, 6, 11], b'no. 42no. 5')
        """

    def find_number(self, key: str) -> int | None:
        """
        The number of the first sample with this key, or None. No shard is opened.
        """

    def find(self, key: str) -> Sample | None:
        """The first sample with this key, or None."""

    def get(self, key: str) -> Sample:
        """
        The first sample with this key. Raises NotFound.

        >>> ds.get("000042").text("txt")
        'no. 42'
        """

    def where(self, condition: str, first: int | None = None, last: int | None = None) -> Dataset:
        """
        A view of the samples for which an SQL condition over the table samples holds, as ``ds.where("cls = 7 AND width >= 256")``; only of those in [first, last), if these are given. Raises InvalidArgument with SQLite's reason. Some 0.3 us a sample.

        >>> sevens = ds.where("cls = 7")
        >>> len(sevens), sevens[1].key
        (40, '000017')
        """

    def select(self, which: Any, missing: str = 'error') -> Dataset:
        """
        A view of the samples with these numbers, or (a list of str) keys, in any order: in the view they are in the index's order. With missing="skip" keys that no sample has are left out. Raises OutOfRange, NotFound; InvalidArgument if one is named twice.

        >>> [sample.key for sample in ds.select([9, 3])]
        ['000003', '000009']
        """

    def number_in_index(self, number: int) -> int:
        """
        The number in the index of a sample of this dataset. Raises OutOfRange.
        """

    @property
    def shards(self) -> list[shardwise.records.Shard]:
        """The shards of the index, also where this is a view."""

    @property
    def shard_starts(self) -> list[int]:
        """
        Where each shard's samples begin in this dataset's numbers, and at last its length.
        """

    @property
    def info(self) -> shardwise.records.Info:
        """The whole of the index, summed up."""

    @property
    def open_shards(self) -> int:
        """How many shards are mapped now, or open with access="read"."""

    def __repr__(self) -> str: ...

    def __reduce_ex__(self, protocol: SupportsIndex, /) -> tuple[Any, ...]: ...

def index_of(number: SupportsIndex) -> int:
    """
    The whole number that names a sample. Raises TypeError, for a bool as well.
    """

def open_dataset(sources: Sequence[str], **options: Any) -> Dataset:
    """What shardwise.open() calls."""

class Order:
    """
    Which sample comes when, whichever rank reads it: a value, the same on every rank.

    kind: "chunked" (chunks of chunk_size samples in a random order, window of them mixed together), "sharded" (the same with whole shards), "sequential", "resampled" (draws with replacement), or "wids" (the order of Python wids, bit for bit).
    seed: shuffle seed.
    streams: number of contiguous segments that ranks read in parallel; 1 means that a run can resume on any number of ranks; the number of nodes means that each node reads its own shards.
    tail: what to do with samples that are left over when all ranks read the same number; exact: the first ranks read one more; drop: they are not read; pad: the first samples of the epoch are repeated.
    balance_bytes: deal the samples of each step to the ranks so that all get nearly the same number of bytes.
    epoch_size: samples per epoch, of all ranks together; 0 means one pass over the data.
    skip: numbers of samples that are left out.
    chunk_size: samples per chunk (chunked: 1000 by default); 0 means the chunk size of Python wids (wids: 0 by default).
    window: number of chunks that are shuffled together (chunked: 64 by default); number of shards that are shuffled together (sharded: 8 by default).
    phase: shift the borders of the chunks in each epoch (chunked).
    unit: what is drawn at a time, a sample or a whole shard (resampled).
    weights: draw samples in proportion to this column of the index (resampled).
    shuffle: shuffle the samples (wids).
    shufflefirst: shuffle the chunks in epoch 0, too (wids).

    An option that the kind has not is InvalidArgument.

    >>> order = shardwise.Order("chunked", seed=17, chunk_size=100, window=2)
    >>> order.options["tail"]
    'exact'
    """

    def __init__(self, kind: str = 'chunked', *, seed: int = 0, streams: int = 1, tail: str = 'exact', balance_bytes: bool = False, epoch_size: int = 0, skip: Sequence[int] = (), chunk_size: int | None = None, window: int | None = None, phase: bool | None = None, unit: str | None = None, weights: str | None = None, shuffle: bool | None = None, shufflefirst: bool | None = None) -> None: ...

    @property
    def kind(self) -> str: ...

    @property
    def seed(self) -> int: ...

    @property
    def options(self) -> dict[str, Any]:
        """All its options by name, as the constructor takes them."""

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

    def __repr__(self) -> str: ...

    def __getstate__(self) -> dict[str, Any]: ...

    def __setstate__(self, state: dict[str, Any], /) -> None: ...

class SamplerIterator:
    """A walk through a sampler's epoch. Of one thread."""

    def __iter__(self) -> SamplerIterator: ...

    def __next__(self) -> Any: ...

    @property
    def position(self) -> int:
        """
        How many samples it has given, from where its sampler began. No checkpoint: a DataLoader with workers takes samples long before it delivers them.
        """

    @property
    def at_end(self) -> bool:
        """True if it has nothing more to give."""

    def token(self) -> str:
        """
        A resume token for what it has given, if every rank took as many. What a DataLoader took ahead counts as given, though it was not delivered: see Sampler.token().
        """

    def state_dict(self) -> dict[str, Any]:
        """
        Where it stands, for load_state_dict().

        >>> sampler = shardwise.Sampler(10, shardwise.Order("sequential"), rank=1, world_size=4)
        >>> it = iter(sampler)
        >>> next(it)
        1
        >>> again = iter(sampler)
        >>> again.load_state_dict(it.state_dict())
        >>> next(again)
        5
        """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """
        Goes on where state_dict() was asked: with the same number of ranks exactly where this rank stood; with another, where all of them stood, if each had taken as many. Raises Mismatch if that was of other data or another order.
        """

    def restart(self, sampler: Sampler) -> None:
        """Moves to where a sampler begins."""

    def require_even(self, size: int, drop_last: bool) -> None:
        """
        Raises InvalidArgument if ranks that cut such batches would have different numbers of them, now or after load_state_dict().
        """

class Sampler:
    """
    The sample numbers that one rank delivers in an epoch, in order.

    data: a Dataset, a mix() of several, whatever has a length, or that length. order: an Order; of a mix() with weights its kind in each of the data sets. rank, world_size: whose samples. batch_size: samples of a step on each rank; global_batch_size: of all ranks together, instead. replicas: neighbouring ranks that get the same samples.

    ``for i in sampler`` walks through the epoch from where it begins; each iterator anew. ``sampler[k]`` is this rank's k-th sample. About 20 ns a sample, and constant memory. One thread at a time. It pickles with where it begins, and with its data as a reference.

    >>> sampler = shardwise.Sampler(10, shardwise.Order("sequential"), rank=1, world_size=4)
    >>> list(sampler), sampler[-1], sampler.steps
    ([1, 5, 9], 9, 3)
    """

    def __init__(self, data: Any, order: Order = ..., *, rank: int = 0, world_size: int = 1, batch_size: int = 1, global_batch_size: int = 0, replicas: int = 1) -> None: ...

    def __len__(self) -> int:
        """
        How many samples this rank delivers, from where the sampler began to the end of the epoch.
        """

    def __iter__(self) -> SamplerIterator:
        """An iterator from the beginning."""

    def batches(self, size: int, drop_last: bool = False, even: bool = False) -> SamplerIterator:
        """
        An iterator over lists of ``size`` numbers, the last one shorter, or left out. With even all ranks have the same number of lists: one whose samples would make a list less gives its last sample in a list of its own. Raises InvalidArgument if that cannot be.

        >>> list(sampler.batches(2))
        [[1, 5], [9]]
        """

    def num_batches(self, size: int, drop_last: bool = False, even: bool = False) -> int:
        """How many lists batches() gives."""

    def token_after_batches(self, num_batches: int, size: int, drop_last: bool = False, even: bool = False) -> str:
        """A resume token after this many lists of batches() on every rank."""

    def __getitem__(self, index: int) -> int:
        """This rank's sample at this place. Raises OutOfRange."""

    def set_epoch(self, epoch: int) -> None:
        """
        Moves to the beginning of an epoch. In its own epoch the sampler stays where it begins: where resume() put it, if that was called.
        """

    def reset(self) -> None:
        """Moves to the beginning of its epoch, also after resume()."""

    @property
    def epoch(self) -> int: ...

    @property
    def rank(self) -> int: ...

    @property
    def world_size(self) -> int: ...

    @property
    def replicas(self) -> int: ...

    @property
    def batch_size(self) -> int:
        """Samples of a step on this rank, at most."""

    @property
    def steps(self) -> int:
        """Steps to the end of the epoch, the same number on all ranks."""

    @property
    def num_samples(self) -> int:
        """Samples of the data set."""

    @property
    def order(self) -> Order: ...

    @property
    def is_exact(self) -> bool:
        """True if an epoch has each sample exactly once, but for tail and skip."""

    @property
    def fingerprint(self) -> str:
        """That of the data set."""

    def token(self, steps: int) -> str:
        """
        A resume token: one line of text for a checkpoint, after ``steps`` steps of all ranks from where the sampler began. Count the batches that were trained on, and not what a DataLoader took from the sampler: with workers it takes many ahead.
        """

    def resume(self, token: str, allow_changes: bool = False) -> None:
        """
        Goes on where the token stands, with any number of ranks and batch size. Raises Mismatch if it is of other data or another order, unless allow_changes and it stands at the beginning of an epoch; VersionMismatch.

        >>> token = sampler.token(1)
        >>> alone = shardwise.Sampler(10, shardwise.Order("sequential"))
        >>> alone.resume(token)
        >>> list(alone)
        [4, 5, 6, 7, 8, 9]
        """

    def for_rank(self, rank: int) -> Sampler:
        """
        A sampler of the same order from the same point for another rank.

        >>> [list(sampler.for_rank(rank)) for rank in range(4)]
        [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]
        """

    def cache_warning(self, dataset: Dataset) -> str | None:
        """
        What to tell the user if this order uses more shards at one time than the dataset's cache may hold; None if all is well, or another rank of this node says it. Some ms for a large index.
        """

    def __copy__(self) -> Sampler: ...

    def __getstate__(self) -> tuple[Any, ...]: ...

    def __setstate__(self, state: tuple[Any, ...]) -> None: ...

class Audit:
    """
    Counts the samples that were delivered in an epoch, and proves at its end that they were those that had to be. Each rank has one; the sum of their words over all ranks proves the epoch of all:

    >>> sampler = shardwise.Sampler(400, world_size=2)
    >>> audits = [shardwise.Audit(sampler), shardwise.Audit(sampler)]
    >>> for rank, audit in enumerate(audits):
    ...     audit.add(sampler.for_rank(rank))
    >>> words = [a + b for a, b in zip(audits[0].words(), audits[1].words())]  # all-reduce
    >>> audits[0].prove(sampler, words)
    'epoch 0: 400 samples, each exactly once: proven'
    """

    def __init__(self, sampler: Sampler) -> None: ...

    def add(self, numbers: Any) -> None:
        """Samples that were delivered: a number, or several."""

    def reset(self) -> None:
        """Begins the next epoch."""

    def words(self) -> list[int]:
        """Ten whole numbers below 2^32, to be added over the ranks."""

    def prove(self, sampler: Sampler, words: Sequence[int] | None = None) -> str:
        """
        Proves the sampler's epoch, from its very beginning: "epoch 3: 20000 samples, each exactly once: proven". Raises NotExact, with what is missing or came twice.
        """

def ranks_of_launcher() -> tuple[int, int]:
    """
    This process's rank and the number of ranks, from what torchrun (RANK, WORLD_SIZE), Open MPI, Slurm or PMI left in the environment; (0, 1) without a launcher. Raises Distributed, naming the variable, if these contradict each other.
    """

def at_home(path: str) -> str:
    """The path with this user's home folder for a leading ~."""

def index(output: str, sources: list[str], **options: Any) -> shardwise.records.BuildReport:
    """What shardwise.index() calls."""

def update(path: str, **options: Any) -> shardwise.records.BuildReport:
    """What shardwise.update() calls."""

def merge(output: str, parts: list[str]) -> shardwise.records.BuildReport:
    """What shardwise.merge() calls."""

def verify(path: str, **options: Any) -> list[tuple[int, str]]:
    """What shardwise.verify() calls."""

def query(path: str, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """What shardwise.query() calls."""

def plan(data: Dataset, **options: Any) -> shardwise.records.FetchPlan:
    """What shardwise.plan() calls."""

class ShardWriter:
    """What shardwise.ShardWriter is made of."""

    def __init__(self, pattern: str, *, max_samples: int, max_bytes: int, replace: bool) -> None: ...

    def write(self, key: str, fields: dict[str, Any]) -> None:
        """Writes one sample of bytes by field."""

    def close(self) -> None:
        """Finishes the last shard."""

    @property
    def paths(self) -> list[str]:
        """Of the shards that are finished."""

    @property
    def num_samples(self) -> int:
        """Written so far."""

    @property
    def num_unfinished(self) -> int:
        """Of these, those of the shard that is not finished."""

def list_to_pack(directory: str, images: bool) -> tuple[list[tuple[str, list[tuple[str, str]], int | None]], list[str], list[str]]:
    """What shardwise.pack() packs."""

def shuffled(samples: list[Any], seed: int) -> list[Any]:
    """The order of `shardwise pack --shuffle`."""

class Column:
    """
    What a Loader makes of each sample: one array of its batches. Columns are made by the functions of shardwise.columns. Immutable.
    """

    @property
    def name(self) -> str: ...

    def named(self, name: str) -> Column:
        """The same column under another name."""

    def __reduce__(self) -> tuple[Any, ...]: ...

    @property
    def dtype(self) -> str:
        """The type of its values, as NumPy names it; "bfloat16", too."""

    def __repr__(self) -> str: ...

def column_of_kind(kind: str, fields: str) -> Column: ...

def tokens_column(fields: str, dtype: str) -> Column: ...

def array_column(fields: str, dtype: str, shape: Sequence[int]) -> Column: ...

def npz_column(fields: str, array: str, dtype: str, shape: Sequence[int]) -> Column: ...

def image_column(fields: str, transform: object, decoding: object) -> Column: ...

def function_column(name: str, dtype: str, shape: Sequence[int] | None, function: object) -> Column: ...

def decoded_column(fields: str, dtype: str, shape: Sequence[int] | None, function: object) -> Column: ...

class Batch:
    """
    What a Loader delivers: the rows of one step of one rank, as named arrays.

    ``batch["jpg"]`` is a NumPy array over the batch's memory, which it keeps: no copy, and it may be written to. It may outlive the batch and the loader. When the batch and all arrays of it are gone, its memory is used for another one: so what reads an array behind Python's back, as a copy to a GPU with non_blocking=True, must end first.

    ``len(batch)`` is its number of rows: 0 in the last step of a rank that has nothing left while others have. The rows are the same in every array, but for packed ones (see ByLength). ``dict(batch)`` has all arrays.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, name: str) -> Any:
        """
        A column: a NumPy array [N, ...], or a Ragged if its rows differ in shape. bfloat16, which NumPy has not, comes as uint16. Raises NotFound, with the columns that there are.
        """

    def __contains__(self, name: object) -> bool: ...

    def keys(self) -> list[str]:
        """Names of its columns."""

    def text(self, name: str) -> list[str]:
        """
        The rows of a column of text, JSON, keys or bytes. What is not UTF-8 becomes surrogates (surrogateescape).
        """

    def bytes(self, name: str) -> list[bytes]:
        """The rows of such a column, copied."""

    def torch(self, name: str) -> Any:
        """
        A column as a torch tensor over the batch's memory, or a Ragged of tensors. No copy.
        """

    def tensors(self) -> dict[str, Any]:
        """All columns, as torch() has them."""

    @property
    def samples(self) -> numpy.typing.NDArray[numpy.int64]:
        """The sample number of each row in the data set."""

    @property
    def positions(self) -> numpy.typing.NDArray[numpy.int64]:
        """
        The position of each row in the epoch, counted over all ranks as if nothing were left out.
        """

    def __repr__(self) -> str: ...

class Loader:
    """What shardwise.Loader is made of."""

    def __init__(self, data: Any, **options: Any) -> None: ...

    def __del__(self) -> None: ...

    @staticmethod
    def numbers() -> dict[str, tuple[int, int]]: ...

    def next(self) -> Batch | None: ...

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> bool: ...

    @property
    def is_closed(self) -> bool: ...

    def set_epoch(self, epoch: int) -> None: ...

    def prove(self) -> str: ...

    def state(self) -> str: ...

    def restore(self, token: str, allow_changes: bool) -> bool: ...

    def bad_samples(self) -> dict[int, str]: ...

    @property
    def epoch(self) -> int: ...

    @property
    def steps(self) -> int: ...

    @property
    def steps_left(self) -> int: ...

    @property
    def steps_done(self) -> int: ...

    @property
    def has_ended(self) -> bool: ...

    def cache_warning(self) -> str | None: ...

    def stats(self) -> dict[str, Any]: ...

    @staticmethod
    def wait_for_dropped() -> None: ...

    def summary(self) -> str: ...

class WidsReader:
    """
    What ShardListDataset of shardwise.wids reads with: ``reader[i]`` is sample i of a list of shards as a dict of BytesIO, with the extras of wids. Any thread may use it.
    """

    def __init__(self, dataset: Dataset, sample_type: type[dict[str, Any]], stream_type: type[Any], shards: list[tuple[int, int, int, str, str | None]], capacity: int) -> None:
        """
        stream_type: of large fields; its objects are given the attributes _sample and _place. shards: of each its samples in the list, its first sample and its samples in the dataset, its URL, and the name of its data set.
        """

    def __len__(self) -> int: ...

    def __getitem__(self, number: SupportsIndex, /) -> dict[str, Any]: ...

    def recent(self) -> list[int]:
        """
        Numbers of the shards that were used last, the last one at the end; ``capacity`` at most.
        """

    @property
    def accesses(self) -> int: ...

    @property
    def misses(self) -> int: ...

    @property
    def capacity(self) -> int: ...

    def clear(self) -> None:
        """Forgets which shards were used."""

    def reset_stats(self) -> None:
        """Counts from 0 again."""

def copy_field(sample: Sample, place: int) -> bytes:
    """
    A copy of the field at this place of a sample. Raises StaleIndex or OSError if its shard was truncated.
    """

def read_remote(url: str, max_bytes: int) -> bytes:
    """
    The whole of a remote file. Raises InvalidArgument if it is larger; NotFound, FetchError.
    """

class WidsOrder:
    """
    The numbers in some ranges in the order of wids, bit for bit. Of one thread. About 15 ns a number; memory for the numbers of one range.
    """

    def __iter__(self) -> WidsOrder: ...

    def __next__(self) -> int: ...

    def __init__(self, ranges: Iterable[Sequence[int]], state: Sequence[int], *, shuffles_ranges: bool, shuffles_samples: bool) -> None:
        """
        ranges: pairs of the first number, and the one after the last. state: ``random.Random(seed).getstate()[1]``.
        """
