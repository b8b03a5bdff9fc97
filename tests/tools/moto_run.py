"""Runs shardwise against moto's S3. Its session tokens expire within the run.

    moto_run.py SHARDWISE     exit code 77: the Python package moto[server] 5.2.5 or newer is not
                              installed (older versions check signatures against a decoded query)

A proxy in front of moto issues keys, like the service that AWS has for containers. Like S3, the
proxy refuses requests whose token has expired (ExpiredToken). moto checks the signatures of all
other requests. The bucket also has 10,000 other objects, so that listings are long."""
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "2"
for name in list(os.environ):
    if name.startswith("AWS_"):
        del os.environ[name]
os.environ.update(AWS_ACCESS_KEY_ID="setup", AWS_SECRET_ACCESS_KEY="setup",
                  AWS_DEFAULT_REGION="us-east-1")
try:
    import boto3
    import moto
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.s3.models import s3_backends
    from moto.server import ThreadedMotoServer
    from moto.sts.models import sts_backends
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)
if tuple(int(part) for part in moto.__version__.split(".")[:3]) < (5, 2, 5):
    print(f"skipped: moto {moto.__version__} is older than 5.2.5")
    sys.exit(77)

SHARDS, SAMPLES, KEYS = 24, 20, 10_000
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})


class Proxy(BaseHTTPRequestHandler):
    """Forwards requests to moto, except those with expired tokens."""
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    ends: dict[str, float] = {}  # end of validity of each issued token
    lasts = said = 0.0
    given = refused = passed = 0
    pages = 0

    def log_message(self, *args):
        pass

    def answer(self, status, body, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def give_keys(self):
        with Proxy.lock:
            Proxy.given += 1
            name = f"run{Proxy.given}"
        keys = sts_backends[DEFAULT_ACCOUNT_ID]["aws"].assume_role(
            region_name="us-east-1", role_session_name=name, role_arn=role, policy="",
            duration=900, external_id="")
        Proxy.ends[keys.session_token] = time.monotonic() + Proxy.lasts
        end = datetime.now(timezone.utc) + timedelta(seconds=Proxy.said)
        self.answer(200, json.dumps({
            "AccessKeyId": keys.access_key_id, "SecretAccessKey": keys.secret_access_key,
            "Token": keys.session_token,
            "Expiration": end.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}).encode())

    def do_GET(self):
        if self.path == "/keys":
            return self.give_keys()
        token = self.headers.get("x-amz-security-token", "")
        if Proxy.ends.get(token, 0.0) < time.monotonic():
            with Proxy.lock:
                Proxy.refused += 1
            return self.answer(400, b"<Error><Code>ExpiredToken</Code></Error>",
                               [("Content-Type", "application/xml")])
        with Proxy.lock:
            Proxy.passed += 1
            Proxy.pages += "list-type=2" in self.path
        if ".tar" in self.path:
            time.sleep(0.15)  # slow answers: the run takes longer than its tokens are valid
        asked = urllib.request.Request(moto + self.path, method=self.command,
                                       headers=dict(self.headers))
        try:
            got = urllib.request.urlopen(asked)
        except urllib.error.HTTPError as error:
            got = error
        body = got.read()
        kept = [(k, v) for k, v in got.headers.items()
                if k.lower() not in ("content-length", "connection", "transfer-encoding",
                                     "server", "date")]
        if self.command == "HEAD":
            self.send_response(got.status)
            for name, value in kept + [("Content-Length", got.headers.get("Content-Length", "0"))]:
                self.send_header(name, value)
            self.end_headers()
        else:
            self.answer(got.status, body, kept)

    do_HEAD = do_GET


def shard(number):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for i in range(SAMPLES):
            info = tarfile.TarInfo(f"s{number:03}-{i:03}.txt")
            info.size = 3000
            tar.addfile(info, io.BytesIO(bytes([number]) * 3000))
    return file.getvalue()


def run(*arguments):
    began = time.monotonic()
    done = subprocess.run([sys.argv[1], *arguments], capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{arguments}: {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, time.monotonic() - began


def check(holds, what):
    if not holds:
        sys.exit("NOT SO: " + what)


server = ThreadedMotoServer(port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
moto = f"http://{host}:{port}"
iam = boto3.client("iam", endpoint_url=moto)
# moto accepts the first two calls without credentials: these two. Objects are put into moto's
# storage directly, because further calls would need credentials.
role = iam.create_role(RoleName="reader", AssumeRolePolicyDocument=POLICY)["Role"]["Arn"]
iam.put_role_policy(RoleName="reader", PolicyName="p", PolicyDocument=POLICY)
s3 = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
s3.create_bucket("bucket", "us-east-1")
for number in range(SHARDS):
    s3.put_object("bucket", f"data/{number:03}.tar", shard(number))
for number in range(KEYS):
    s3.put_object("bucket", f"many/{number:05}.tar", shard(0) if number == 777 else b"")

proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
threading.Thread(target=proxy.serve_forever, daemon=True).start()
front = f"http://127.0.0.1:{proxy.server_port}"
for name in list(os.environ):
    if name.startswith("AWS_"):
        del os.environ[name]
os.environ.update(AWS_ENDPOINT_URL=front, AWS_CONTAINER_CREDENTIALS_FULL_URI=front + "/keys",
                  AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE="/dev/null",
                  AWS_SHARED_CREDENTIALS_FILE="/dev/null")

with tempfile.TemporaryDirectory() as folder:
    # One service states correctly how long its keys are valid; the other states too long a time.
    for what, lasts, said in (("renewed before they expire", 2.0, 2.0),
                              ("refused in mid-run", 1.0, 3600.0)):
        Proxy.lasts, Proxy.said = lasts, said
        Proxy.given = Proxy.refused = Proxy.passed = 0
        index, cache = f"{folder}/{lasts}.idx", f"{folder}/{lasts}"
        run("index", "-o", index, "s3://bucket/data/")
        out, seconds = run("epoch", index, "--sampler", "sharded", "--cache", cache, "--batch", "8",
                           "--prefetch", "1")
        check(f"{SHARDS * SAMPLES} samples" in out and "proven" in out, out)
        check(f"fetched {SHARDS} shards" in out, out)
        check(Proxy.given >= 3, f"{Proxy.given} keys were given in {seconds} s")
        check((Proxy.refused > 0) == (said > lasts), f"{Proxy.refused} requests were refused")
        print(f"keys {what}: {seconds:.1f} s, {Proxy.given} keys of {lasts} s given, "
              f"{Proxy.passed} requests, {Proxy.refused} refused; every sample once, each shard "
              "fetched once")

    Proxy.lasts = Proxy.said = 3600.0
    Proxy.pages = 0
    out, seconds = run("index", "-o", f"{folder}/many.idx", "s3://bucket/many/*0777.tar")
    check(f"{SAMPLES} samples" in out, out)
    print(f"{KEYS} keys listed in {Proxy.pages} pages, and one shard of them indexed: "
          f"{seconds:.2f} s")
    check(Proxy.pages == KEYS // 1000, f"{Proxy.pages} pages")

    # A data set can be used by one URL: an index of local files is uploaded to the same folder as
    # the shards.
    local = f"{folder}/local"
    os.mkdir(local)
    for number in range(SHARDS):
        with open(f"{local}/{number:03}.tar", "wb") as file:
            file.write(shard(number))
    run("index", "--hash", "-o", f"{local}/train.idx", local)
    for name in sorted(os.listdir(local), reverse=True):  # the table before the catalogue
        if not name.endswith(".tar"):
            with open(f"{local}/{name}", "rb") as file:
                s3.put_object("bucket", f"data/{name}", file.read())
    Proxy.passed = 0
    kept = ("--index-cache", f"{folder}/kept")
    out, seconds = run("epoch", "s3://bucket/data/train.idx", "--cache", f"{folder}/one", *kept)
    check(f"{SHARDS * SAMPLES} samples" in out and "proven" in out, out)
    check(f"fetched {SHARDS} shards" in out, out)
    out, _ = run("info", "s3://bucket/data/train.idx", *kept)
    check("fetched from s3://bucket/data/train.idx\n" in out, out)
    print(f"an index opened by its URL, and one epoch of it: {seconds:.1f} s, "
          f"{Proxy.passed} requests")
