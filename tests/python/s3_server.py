"""An S3 server on loopback, and one cube in every format: fixtures of the tests of object stores."""

import os
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from support import tet

pytest.importorskip("moto.server")
boto3 = pytest.importorskip("boto3")

BUCKET = "bucket"
SHAPE = (40, 50, 60)


@pytest.fixture(scope="module")
def s3():
    """An S3 server and the environment that reaches it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # In another process: the references hold the interpreter's lock while they wait for an answer.
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except ConnectionRefusedError:
            assert server.poll() is None, "the S3 server ended"
            time.sleep(0.05)
    settings = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "someone",
        "AWS_SECRET_ACCESS_KEY": "hidden-password",
        "AWS_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    client = boto3.client("s3", endpoint_url=settings["AWS_ENDPOINT_URL"], region_name="us-east-1")
    client.create_bucket(Bucket=BUCKET)
    yield client
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    server.kill()
    server.wait()


@pytest.fixture(scope="module")
def cube():
    return np.random.default_rng(7).normal(size=SHAPE).astype("float32")


@pytest.fixture(scope="module")
def local(tmp_path_factory, cube):
    """The same cube in every format."""
    folder = tmp_path_factory.mktemp("stores")
    np.save(folder / "cube.npy", cube)
    for name in ["cube.tet", "cube.tgm", "cube.tdb"]:
        tet("convert", folder / "cube.npy", folder / name, *chunks(name))
    return folder


def chunks(name, text="8,10,60"):
    """Options for chunks, which files of messages do not have."""
    return [] if name.endswith(".tgm") else ["--chunk", text]
