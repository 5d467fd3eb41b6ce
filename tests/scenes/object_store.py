"""A server that speaks Amazon's protocol of object stores, on this machine, which can be made to throttle.

Jobs ask it as they would ask Amazon: nothing here makes them faster than they are.
"""

import contextlib
import itertools
import logging
import os
import re
import threading
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self
from unittest import mock

BUCKET = "lake"
_SLOW_DOWN = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your request rate.</Message></Error>"


class Asked(NamedTuple):
    """A request: its method (LIST for a list), the path of what it is about, and the id of the key that signed it."""

    method: str
    path: str
    key_id: str

    @classmethod
    def of(cls, environ: dict[str, Any]) -> Self:
        method = "LIST" if "list-type" in environ["QUERY_STRING"] else environ["REQUEST_METHOD"]
        signed = re.search("Credential=([^/]*)/", environ.get("HTTP_AUTHORIZATION", ""))
        return cls(method, environ["PATH_INFO"], signed[1] if signed else "")


class Throttle:
    """Refuses requests as a busy store does, or loses the connection in the middle of an answer.

    Attributes:
      every: one in this many requests is refused; 0 for none.
      refused: how many were.
      cut: of so many objects that are asked for next, half is sent.
      tagged: whether answers say the tags of objects, as Amazon does.
      asked: all requests so far.
      before: called before each answer; None for nothing.
    """

    def __init__(self, app: Callable[..., Any]):
        self.every = 0
        self.refused = 0
        self.cut = 0
        self.tagged = True
        self.asked: list[Asked] = []
        self.before: Callable[[], Any] | None = None
        self._app = app
        self._numbers = itertools.count(1)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Any:
        """One request."""
        self.asked.append(Asked.of(environ))
        if self.before is not None:
            self.before()
        if self.every and next(self._numbers) % self.every == 0:
            self.refused += 1
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            start_response("503 Slow Down", [("Content-Type", "text/xml"), ("Content-Length", str(len(_SLOW_DOWN)))])
            return [_SLOW_DOWN]

        def start(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            return start_response(
                status, [each for each in headers if self.tagged or each[0].lower() != "etag"], *error
            )

        answer = self._app(environ, start)
        if self.cut and self.asked[-1].method == "GET":
            self.cut -= 1
            content = b"".join(answer)
            return [content[: len(content) // 2]]
        return answer


@contextlib.contextmanager
def object_store() -> Iterator[Throttle]:
    """A store with the empty bucket `BUCKET`, at a port of its own; libraries of stores find it by the environment.

    The objects of moto are those of its process: what an earlier store held is dropped first.
    """
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    throttle = Throttle(DomainDispatcherApplication(create_backend_app))
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, throttle, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    place = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    try:
        emptied = urllib.request.Request(f"{place['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST")
        urllib.request.urlopen(emptied).close()
        with mock.patch.dict(os.environ, place):
            client().create_bucket(Bucket=BUCKET)
            yield throttle
    finally:
        server.shutdown()
        thread.join()


def client() -> Any:
    """Amazon's own library on the store."""
    import boto3

    return boto3.client("s3")


def names(prefix: str = "") -> list[str]:
    """Objects whose names begin so."""
    pages = client().get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return sorted(each["Key"] for page in pages for each in page.get("Contents", ()))


def raw(name: str) -> bytes:
    """Content of an object."""
    return bytes(client().get_object(Bucket=BUCKET, Key=name)["Body"].read())


def upload(folder: str, prefix: str) -> str:
    """Copies the files below a folder; returns where they are."""
    for root, _, files in os.walk(folder):
        for each in files:
            path = os.path.join(root, each)
            client().upload_file(path, BUCKET, f"{prefix}/{os.path.relpath(path, folder)}")
    return f"s3://{BUCKET}/{prefix}"
