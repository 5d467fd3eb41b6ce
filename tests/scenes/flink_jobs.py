"""A Flink JobManager of canned answers, as `dapple_dp.pipelines.run.on_flink` asks it."""

import contextlib
import http.server
import json
import threading

from dapple_dp.pipelines.run.options import job_name


class CannedFlink(http.server.BaseHTTPRequestHandler):
    """Lists its jobs and the tasks of each, and remembers what it is asked for, and to cancel."""

    jobs: tuple[tuple[str, str, str], ...] = (
        ("a1", job_name("fit", "night-1"), "RUNNING"),
        ("a2", job_name("fit", "Night-1"), "RESTARTING"),
        ("a3", job_name("fit", "night-1"), "FINISHED"),
        ("a4", "another-job", "RUNNING"),
    )
    canceled: list[str]
    asked: list[str]
    tasks: tuple[tuple[str, str], ...] = ()
    failed: tuple[tuple[str, str], ...] = ()
    """Ids of jobs, and what a task of each failed with last."""
    code = 202
    ends = True
    speaks_http = True

    def do_GET(self):
        self.asked.append(self.path)
        if self.path.endswith("/exceptions?maxExceptions=1"):
            texts = [text for job, text in self.failed if f"/{job}/" in self.path]
            self._answer(200, {"exceptionHistory": {"entries": [{"stacktrace": text} for text in texts]}})
            return
        if self.path != "/jobs/overview":
            self._answer(200, {"vertices": [{"name": name, "status": state} for name, state in self.tasks]})
            return
        over = [path.split("/")[2].partition("?")[0] for path in self.canceled if self.ends]
        left = [each for each in self.jobs if each[0] not in over]
        self._answer(200, {"jobs": [dict(zip(("jid", "name", "state"), each, strict=True)) for each in left]})

    def do_PATCH(self):
        self.canceled.append(self.path)
        self._answer(self.code, {})

    def _answer(self, code, content):
        if not self.speaks_http:
            self.wfile.write(b"220 mail.example ready\r\n")
            return
        raw = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def canned_flink():
    """Its address, and its class."""
    kind = type("Flink", (CannedFlink,), {"canceled": [], "asked": []})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), kind)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", kind
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
