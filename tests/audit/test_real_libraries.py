"""The importers against the libraries themselves: real attempts and waits, a local server."""

from __future__ import annotations

import random
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from perdure.audit.delays import delays
from perdure.audit.imports.kinds import Said, chain

NEARLY_ONE = 1 - 2**-40


@pytest.fixture(scope="module")
def server():
    """Answers everything with the status in `server.status`, and counts."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self):
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            running.seen.append(self.command)
            self.send_response(running.status)
            for name, value in running.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST = do_PUT = do_HEAD = answer  # noqa: N815

        def log_message(self, *_args):
            pass

    running = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running.daemon_threads = True
    running.seen, running.status, running.headers = [], 503, {}
    running.url = f"http://127.0.0.1:{running.server_address[1]}/"
    thread = threading.Thread(target=running.serve_forever, args=(0.01,))
    thread.start()
    yield running
    running.shutdown()
    thread.join()
    running.server_close()


@pytest.fixture
def world(server, monkeypatch):
    """The server afresh, and the waits of the code under test, noted instead of slept."""
    server.seen.clear()
    server.status, server.headers = 503, {}
    server.waits = []
    return server


def imported(tmp_path, kind, text, name="client.py", **said):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    [layer] = chain(kind, str(path), Said(**said)).layers
    return layer


def told(layer, edge):
    """The waits that the importer tells of, at the lower or the upper edge, in milliseconds."""
    return [(each.least if edge == 0 else each.most) for each in delays(layer)]


def same(waits_s, told_ms):
    return [wait * 1000 for wait in waits_s] == pytest.approx(told_ms, rel=1e-6, abs=1e-3)


# --- urllib3 and requests ----------------------------------------------------

URLLIB3 = [
    "Retry(total=4, backoff_factor=0.5, status_forcelist=[503])",
    "Retry(4, backoff_factor=0.1, backoff_jitter=0.3, backoff_max=0.5, status_forcelist=[503])",
    "Retry(total=2, status=9, backoff_factor=1, status_forcelist=[503])",
    "Retry(10, connect=2, read=2, status=2, other=2, status_forcelist=[503])",
    "Retry(total=3, status_forcelist=[503])",
    "Retry(total=0, status_forcelist=[503])",
    "Retry(total=5, backoff_factor=100, status_forcelist=(503, 504))",
]


@pytest.mark.parametrize("expression", URLLIB3)
@pytest.mark.parametrize("edge", [0, 1])
def test_urllib3_makes_the_attempts_and_waits_that_are_told(
    world, tmp_path, monkeypatch, expression, edge
):
    urllib3 = pytest.importorskip("urllib3")
    from urllib3.util import retry as module

    monkeypatch.setattr(module.time, "sleep", world.waits.append)
    monkeypatch.setattr(random, "random", lambda: edge * NEARLY_ONE)
    layer = imported(tmp_path, "urllib3", f"from urllib3 import Retry\npolicy = {expression}\n")
    names: dict = {}
    exec(f"from urllib3 import Retry\npolicy = {expression}\n", names)
    with (
        urllib3.PoolManager(retries=names["policy"]) as http,
        pytest.raises(urllib3.exceptions.MaxRetryError),
    ):
        http.request("GET", world.url)
    assert len(world.seen) == layer.attempts
    # A wait of 0 is not slept.
    assert same(world.waits, [each for each in told(layer, edge) if each > 0])


def test_a_post_is_sent_once_as_the_import_says(world, tmp_path):
    urllib3 = pytest.importorskip("urllib3")
    expression = "Retry(total=4, status_forcelist=[503])"
    layer = imported(tmp_path, "urllib3", f"from urllib3 import Retry\npolicy = {expression}\n")
    with urllib3.PoolManager(retries=urllib3.Retry(total=4, status_forcelist=[503])) as http:
        http.request("POST", world.url)
    assert world.seen == ["POST"]
    assert "POST" not in layer.methods


def test_without_a_forcelist_a_503_with_retry_after_is_retried_all_the_same(
    world, tmp_path, monkeypatch
):
    urllib3 = pytest.importorskip("urllib3")
    from urllib3.util import retry as module

    monkeypatch.setattr(module.time, "sleep", world.waits.append)
    world.headers = {"Retry-After": "7"}
    layer = imported(tmp_path, "urllib3", "import urllib3\nhttp = urllib3.PoolManager(retries=2)\n")
    with urllib3.PoolManager(retries=2) as http:
        assert http.request("GET", world.url).status == 503
    assert len(world.seen) == layer.attempts == 3
    assert world.waits == [7, 7]
    assert layer.respect_retry_after


def test_a_pool_without_retries_has_three(world, tmp_path):
    urllib3 = pytest.importorskip("urllib3")
    layer = imported(tmp_path, "urllib3", "import urllib3\nhttp = urllib3.PoolManager()\n")
    assert layer.attempts == urllib3.Retry.DEFAULT.total + 1 == 4
    assert "attempts" in layer.assumed


def test_requests_makes_the_attempts_that_are_told(world, tmp_path, monkeypatch):
    requests = pytest.importorskip("requests")
    from urllib3.util import retry as module

    monkeypatch.setattr(module.time, "sleep", world.waits.append)
    text = (
        "import requests\nfrom requests.adapters import HTTPAdapter\n"
        "from urllib3.util import Retry\n"
        "retry = Retry(total=3, backoff_factor=0.2, status_forcelist=[503])\n"
        "session = requests.Session()\n"
        "session.mount('http://', HTTPAdapter(max_retries=retry))\n"
    )
    layer = imported(tmp_path, "requests", text)
    names: dict = {}
    exec(text, names)
    with names["session"] as session, pytest.raises(requests.exceptions.RetryError):
        session.get(world.url)
    assert len(world.seen) == layer.attempts == 4
    assert same(world.waits, [each for each in told(layer, 0) if each > 0])


def test_a_bare_adapter_does_not_retry(world, tmp_path):
    requests = pytest.importorskip("requests")
    layer = imported(
        tmp_path, "requests", "from requests.adapters import HTTPAdapter\nHTTPAdapter()\n"
    )
    with requests.Session() as session:
        assert session.get(world.url).status_code == 503
    assert len(world.seen) == layer.attempts == 1


# --- tenacity ----------------------------------------------------------------

TENACITY = [
    "stop=stop_after_attempt(4), wait=wait_fixed(2)",
    "stop=stop_after_attempt(6), wait=wait_exponential(multiplier=0.5, max=4, min=1)",
    "stop=stop_after_attempt(6), wait=wait_exponential(exp_base=3, multiplier=0.1)",
    "stop=stop_after_attempt(6), wait=wait_random_exponential(multiplier=0.5, max=6)",
    "stop=stop_after_attempt(5), wait=wait_random_exponential(multiplier=1, max=6, min=2)",
    "stop=stop_after_attempt(6), wait=wait_exponential_jitter(max=5, jitter=2)",
    "stop=stop_after_attempt(4), wait=wait_random(min=1, max=3)",
    "stop=stop_after_attempt(4), wait=wait_fixed(1) + wait_random(0, 2)",
    "stop=stop_after_attempt(5), wait=wait_incrementing(start=1, increment=2, max=6)",
    "stop=stop_after_attempt(6), wait=wait_chain(*[wait_fixed(1) for _ in range(2)] + "
    "[wait_fixed(5)])",
    "stop=(stop_after_attempt(9) | stop_before_delay(5)), wait=wait_exponential(multiplier=1)",
    "stop=stop_after_delay(5), wait=wait_exponential(multiplier=1)",
    "stop=stop_after_attempt(1)",
]


@pytest.mark.parametrize("arguments", TENACITY)
@pytest.mark.parametrize("edge", [0, 1])
def test_tenacity_makes_the_attempts_and_waits_that_are_told(
    tmp_path, monkeypatch, arguments, edge
):
    tenacity = pytest.importorskip("tenacity")
    clock = [0.0]
    waits: list[float] = []

    def sleep(seconds):
        waits.append(seconds)
        clock[0] += seconds

    monkeypatch.setattr(tenacity.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(random, "random", lambda: edge * NEARLY_ONE)
    monkeypatch.setattr(random, "uniform", lambda a, b: a + (b - a) * edge * NEARLY_ONE)
    head = f"from tenacity import {NAMES}\n"
    layer = imported(tmp_path, "tenacity", f"{head}@retry({arguments})\ndef call(): ...\n")
    names: dict = {"sleep": sleep}
    exec(f"{head}policy = Retrying(sleep=sleep, {arguments})\n", names)
    tries = []

    def call():
        tries.append(1)
        raise OSError

    with pytest.raises(tenacity.RetryError):
        names["policy"](call)
    assert len(tries) == layer.attempts
    assert same(waits, told(layer, edge))


NAMES = (
    "retry, Retrying, stop_after_attempt, stop_after_delay, stop_before_delay, wait_fixed, "
    "wait_random, wait_exponential, wait_random_exponential, wait_chain, wait_incrementing, "
    "wait_exponential_jitter"
)


def test_bare_tenacity_has_no_end_and_no_pause_as_the_import_says(tmp_path):
    tenacity = pytest.importorskip("tenacity")
    layer = imported(tmp_path, "tenacity", "from tenacity import retry\n@retry\ndef f(): ...\n")
    assert layer.unbounded
    assert layer.base_delay_ms == 0
    bare = tenacity.Retrying()
    assert bare.stop is tenacity.stop_never
    assert bare.wait(None) == 0


# --- botocore ----------------------------------------------------------------

BOTOCORE = [
    ("Config()", {}),
    ("Config(retries={'mode': 'standard'})", {}),
    ("Config(retries={'mode': 'standard', 'max_attempts': 2})", {}),
    ("Config(retries={'mode': 'standard', 'total_max_attempts': 2})", {}),
    ("Config(retries={'mode': 'legacy'})", {}),
    ("Config(retries={'mode': 'legacy', 'max_attempts': 0})", {}),
    ("Config(retries={'mode': 'standard', 'max_attempts': 9})", {}),
    ("Config(retries={'mode': 'standard'})", {"AWS_MAX_ATTEMPTS": "4"}),
    ("Config(retries={'mode': 'legacy'})", {"service": "dynamodb"}),
    ("Config(retries={'mode': 'standard'})", {"service": "dynamodb"}),
]


def client_waits(world, monkeypatch, config, service, edge):
    """What botocore does: (tries, waits) of one call that always fails."""
    session = pytest.importorskip("botocore.session")
    from botocore import endpoint, exceptions

    monkeypatch.setattr(endpoint.time, "sleep", world.waits.append)
    from botocore import retryhandler
    from botocore.retries import standard

    monkeypatch.setattr(random, "random", lambda: edge * NEARLY_ONE)
    monkeypatch.setattr(
        standard.ExponentialBackoff.__init__,
        "__defaults__",
        tuple(
            (lambda: edge * NEARLY_ONE) if callable(each) else each
            for each in standard.ExponentialBackoff.__init__.__defaults__
        ),
    )
    assert retryhandler
    made = session.Session().create_client(
        service,
        region_name="eu-north-1",
        endpoint_url=world.url,
        aws_access_key_id="a",
        aws_secret_access_key="b",
        config=config,
    )
    world.status = 500
    call = made.list_tables if service == "dynamodb" else made.list_queues
    with pytest.raises(exceptions.ClientError):
        call()
    made.close()
    return len(world.seen), world.waits


@pytest.mark.parametrize(("config", "more"), BOTOCORE)
@pytest.mark.parametrize("edge", [0, 1])
def test_botocore_makes_the_attempts_and_waits_that_are_told(
    world, tmp_path, monkeypatch, config, more, edge
):
    pytest.importorskip("botocore")
    service = more.get("service", "sqs")
    for name in ("AWS_MAX_ATTEMPTS", "AWS_RETRY_MODE", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    names: dict = {}
    exec(f"from botocore.config import Config\nconfig = {config}\n", names)
    if "AWS_MAX_ATTEMPTS" in more:
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", more["AWS_MAX_ATTEMPTS"])
        text = f"AWS_RETRY_MODE=standard\nAWS_MAX_ATTEMPTS={more['AWS_MAX_ATTEMPTS']}\n"
        layer = imported(tmp_path, "botocore", text, "aws.env")
    else:
        text = f"from botocore.config import Config\nconfig = {config}\n"
        layer = imported(tmp_path, "botocore", text, service=service)
    tries, waits = client_waits(world, monkeypatch, names["config"], service, edge)
    assert tries == layer.attempts
    assert same(waits, told(layer, edge))


def test_the_config_file_counts_the_first_attempt(world, tmp_path, monkeypatch):
    pytest.importorskip("botocore")
    text = "[default]\nretry_mode = standard\nmax_attempts = 2\n"
    layer = imported(tmp_path, "botocore", text, "config")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    tries, _ = client_waits(world, monkeypatch, None, "sqs", 0)
    assert tries == layer.attempts == 2
