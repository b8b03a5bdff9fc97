"""Which certificates https trusts: the server's certificate is from a private authority."""

from __future__ import annotations

import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from conftest import FileServer, write_shards

import shardwise
from shardwise import _core
from shardwise.errors import FetchError

VARIABLES = ("CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")

# With these settings OpenSSL would have no ciphers.
OTHER_MACHINES_SETTINGS = """
openssl_conf = start
[start]
providers = some
[some]
base = the_one
[the_one]
activate = 1
"""


def openssl(*words: str | Path) -> str:
    done = subprocess.run(["openssl", *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Server(NamedTuple):
    shard: str
    authority: Path
    """The file with the certificate of the authority that signed the server's certificate."""


def certified(folder: Path) -> ssl.SSLContext:
    """Makes the files of a server on localhost, with a certificate from a private authority."""
    key, request = folder / "server.key", folder / "server.csr"
    names = folder / "names.txt"
    names.write_text("subjectAltName = DNS:localhost\n")
    new = ("-newkey", "rsa:2048", "-nodes")
    authority = folder / "authority.pem"
    openssl("req", "-x509", *new, "-keyout", folder / "authority.key", "-out", authority,
            "-days", "2", "-subj", "/CN=an authority of its own")  # fmt: skip
    openssl("req", *new, "-keyout", key, "-out", request, "-subj", "/CN=localhost")
    openssl("x509", "-req", "-in", request, "-CA", authority, "-CAkey",
            folder / "authority.key", "-set_serial", "7", "-days", "2", "-extfile", names,
            "-out", folder / "server.pem")  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", key)
    return context


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl (the package openssl); skipped because it is not in PATH")
    folder = tmp_path_factory.mktemp("https")
    write_shards(folder / "www", [5])
    with FileServer(folder / "www", tls=certified(folder)) as served:
        yield Server(served.url + "/train-000000.tar", folder / "authority.pem")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("no_proxy", "*")


def num_samples(path: Path, shard: str) -> int:
    shardwise.index(path, shard, threads=0)
    return len(shardwise.open(path))


@pytest.mark.parametrize("name", ["CURL_CA_BUNDLE", "SSL_CERT_FILE"])
def test_the_environment_names_a_file_of_authorities(
    name: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(server.authority))
    assert num_samples(tmp_path / "a.idx", server.shard) == 5

    missing = tmp_path / "none.pem"
    monkeypatch.setenv(name, str(missing))
    with pytest.raises(FetchError) as raised:
        num_samples(tmp_path / "b.idx", server.shard)
    assert f"check {name}, which is '{missing}'" in str(raised.value)


def test_the_environment_names_a_folder_of_authorities(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "authorities"
    folder.mkdir()
    monkeypatch.setenv("SSL_CERT_DIR", str(folder))
    with pytest.raises(FetchError) as raised:
        num_samples(tmp_path / "a.idx", server.shard)
    assert f"'{folder}' (SSL_CERT_DIR)" in str(raised.value)

    digest = openssl("x509", "-in", server.authority, "-noout", "-subject_hash")
    (folder / f"{digest}.0").symlink_to(server.authority)
    assert num_samples(tmp_path / "a.idx", server.shard) == 5


def test_an_authority_that_nobody_named_is_not_trusted(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FetchError) as raised:
        num_samples(tmp_path / "a.idx", server.shard)
    text = str(raised.value)
    own = "name the authority (SSL_CERT_FILE, ShardCache(ca_file=))"
    assert own in text or "the package ca-certificates" in text
    assert "after 1 attempt" in text, "and it is not tried again"


def test_a_libcurl_that_is_brought_along_reads_no_settings_of_the_machines_openssl(
    server: Server, tmp_path: Path
) -> None:
    if b"libcurl" in needed_libraries(Path(_core.__file__).read_bytes()):
        pytest.skip("needs a bundled libcurl; skipped because this is the system's")
    settings = tmp_path / "openssl.cnf"
    settings.write_text(OTHER_MACHINES_SETTINGS)
    program = "import sys, shardwise; print(shardwise.index(*sys.argv[1:]).num_samples)"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "a.idx"), server.shard],
        env={**os.environ, "OPENSSL_CONF": str(settings), "SSL_CERT_FILE": str(server.authority)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("5\n", 0), done.stderr


def needed_libraries(library: bytes) -> bytes:
    """Returns the names of versioned libraries in an ELF file, e.g. b"libcurl.so.4"."""
    words = library.split(b"\0")
    return b" ".join(word for word in words if word.startswith(b"lib") and b".so." in word)
