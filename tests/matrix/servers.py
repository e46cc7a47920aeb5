"""Servers of object stores: installs their programs below build/ and runs them as processes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from email.utils import formatdate
from pathlib import Path
from urllib.request import Request, urlopen

import boto3

from tests.matrix.cell import ROOT, Skipped
from tests.s3 import running_s3

VERSITYGW = "1.8.0"
FAKE_GCS_SERVER = "1.56.1"
AZURITE = "3.37.0"
BUCKET = "lake"
REGION = "us-east-1"
S3_KEY = ("someone", "hunter2-hunter2")
AZURE_ACCOUNT = "devstoreaccount1"
# The key of azurite's only account, which its documentation publishes.
AZURE_KEY = (
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
)
_START_S = 60.0


@contextmanager
def moto(folder: Path) -> Iterator[str]:
    """Run moto with one bucket, and yield its address."""
    with running_s3() as address:
        _create_s3_bucket(address)
        yield address


@contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    """Run versitygw with one bucket in a folder, and yield its address."""
    program = go_program("github.com/versity/versitygw/cmd/versitygw", VERSITYGW)
    files, metadata = folder / "buckets", folder / "metadata"
    files.mkdir()
    metadata.mkdir()
    port = _free_port()
    # Metadata in a folder of its own: not every file system has extended attributes.
    command = [
        *(str(program), "--port", f"127.0.0.1:{port}", "--region", REGION, "--quiet"),
        *("posix", "--sidecar", str(metadata), str(files)),
    ]
    keys = {"ROOT_ACCESS_KEY": S3_KEY[0], "ROOT_SECRET_KEY": S3_KEY[1]}
    with _running(command, port, folder / "versitygw.txt", keys) as address:
        _create_s3_bucket(address)
        yield address


@contextmanager
def fake_gcs_server(folder: Path) -> Iterator[str]:
    """Run fake-gcs-server with one bucket behind the gateway, and yield the gateway's address."""
    program = go_program("github.com/fsouza/fake-gcs-server", FAKE_GCS_SERVER)
    port = _free_port()
    command = [
        *(str(program), "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1"),
        *("-port", str(port), "-log-level", "error"),
    ]
    with _running(command, port, folder / "fake-gcs-server.txt") as server:
        body = json.dumps({"name": BUCKET}).encode()
        kind = {"Content-Type": "application/json"}
        with urlopen(Request(f"{server}/storage/v1/b?project=test", body, kind)):
            pass
        front = _free_port()
        gateway = [sys.executable, "-m", "tests.matrix.gcs", server, str(front)]
        with _running(gateway, front, folder / "gateway.txt") as address:
            yield address


@contextmanager
def azurite(folder: Path) -> Iterator[str]:
    """Run azurite with one container, and yield the address of its account."""
    program = _azurite()
    port = _free_port()
    command = [
        *("node", str(program), "--silent", "--disableTelemetry", "--location", str(folder)),
        *("--blobHost", "127.0.0.1", "--blobPort", str(port), "--skipApiVersionCheck"),
    ]
    with _running(command, port, folder / "azurite.txt") as address:
        _create_azure_container(address)
        yield f"{address}/{AZURE_ACCOUNT}"


def go_program(package: str, release: str) -> Path:
    """Return a program of the Go module proxy; compile it on the first call."""
    name = package.rpartition("/")[2]
    folder = ROOT / "build" / "go" / f"{name}-{release}"
    if (folder / name).exists():
        return folder / name
    if shutil.which("go") is None:
        raise Skipped(f"Go is missing, which builds {name}")
    settings = {**os.environ, "GOBIN": str(folder), "CGO_ENABLED": "0"}
    _install(["go", "install", f"{package}@v{release}"], settings)
    return folder / name


def _azurite() -> Path:
    """Return azurite's program for blobs; install the npm package on the first call."""
    folder = ROOT / "build" / "npm" / f"azurite-{AZURITE}"
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    if program.exists():
        return program
    if shutil.which("npm") is None:
        raise Skipped("npm is missing, which installs azurite")
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
    _install(["npm", "install", *options, f"azurite@{AZURITE}"], os.environ)
    return program


def _install(command: Sequence[str], environment: Mapping[str, str]) -> None:
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise Skipped(f"`{command[0]} {command[1]}` of {command[-1]} failed: {last}")


@contextmanager
def _running(
    command: Sequence[str], port: int, log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a server during a block, and yield its address when it accepts connections."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_open(process, port, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_open(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    last = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < last:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise RuntimeError(f"the server did not start: {log.read_text('utf-8')[-2_000:]}")


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port: int = free.getsockname()[1]
    return port


def _create_s3_bucket(address: str) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=address,
        region_name=REGION,
        aws_access_key_id=S3_KEY[0],
        aws_secret_access_key=S3_KEY[1],
    )
    client.create_bucket(Bucket=BUCKET)


def _create_azure_container(address: str) -> None:
    """Create the container with a signed request, as Azure's documentation describes it."""
    headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-08-06"}
    signed = [
        *("PUT", *[""] * 11, *(f"{name}:{value}" for name, value in headers.items())),
        *(f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{BUCKET}", "restype:container"),
    ]
    key, text = base64.b64decode(AZURE_KEY), "\n".join(signed).encode()
    signature = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
    headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{signature}"
    url = f"{address}/{AZURE_ACCOUNT}/{BUCKET}?restype=container"
    with urlopen(Request(url, headers=headers, method="PUT")):
        pass
