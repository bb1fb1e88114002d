"""Children that speak the control protocol and do nothing else.

Files in the data directory say how they behave.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

import msgspec
import zmq

from perdure.core import links
from perdure.core.boot import Boot
from supervisors.storage import EXIT_COMMIT_FAILED

decoder = msgspec.msgpack.Decoder(list[links.FromRoot])


def note(boot: Boot, name: str, text: str) -> None:
    """Append a line to a file that the test reads."""
    fd = os.open(Path(boot.data_dir) / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, f"{text}\n".encode())
    os.close(fd)


def behaviour(boot: Boot) -> str:
    try:
        return (Path(boot.data_dir) / f"{boot.role}.behave").read_text()
    except FileNotFoundError:
        return ""


def main(boot: Boot) -> None:
    note(boot, "starts", f"{boot.role} {os.getpid()}")
    note(boot, "flags", f"{sys.flags.hash_randomization} {os.environ.get('PYTHONSAFEPATH')}")
    # Of what was loaded before it was forked, what does the search for garbage look at?
    loaded = vars(sys.modules["perdure.worker.main"])
    note(boot, "searched", str(any(each is loaded for each in gc.get_objects())))
    how = behaviour(boot)
    if how == "crash":
        sys.exit(9)
    if how == "commit failed":
        sys.exit(EXIT_COMMIT_FAILED)
    is_worker = boot.inbox_endpoint == ""
    head = [] if is_worker else [b""]
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.LINGER, 1_000)
    socket.setsockopt(zmq.ROUTING_ID, boot.incarnation.encode())
    socket.connect(boot.root_endpoint)

    def send(*messages: links.Message) -> None:
        socket.send_multipart([*head, links.pack(messages)])

    if how == "fail":
        send(links.ChildFailed(boot.role, boot.incarnation, 2, "the store is from the future"))
        socket.close()
        zmq.Context.instance().term()
        os._exit(2)
    send(links.ChildHello(boot.role, boot.incarnation, os.getpid(), boot.inbox_endpoint))
    if how != "never ready":
        send(links.ChildReady(boot.role, boot.incarnation))
    if how == "crash after ready":
        socket.close()
        zmq.Context.instance().term()
        os._exit(9)
    if how == "hold the interpreter lock":
        fork_and_hold(boot)
    while True:
        frames = socket.recv_multipart()
        assert len(frames) <= 2  # A root that has not heard us puts a head in front.
        for message in decoder.decode(frames[-1]):
            if isinstance(message, links.Stop) and how != "ignore stop":
                note(boot, "stops", boot.role)
                socket.close()
                return
            send(*heard(boot, message))


def heard(boot: Boot, message: links.FromRoot) -> list[links.Message]:
    match message:
        case links.Ping(n=n):
            return [links.Pong(n)]
        case links.Peers(peers=peers):
            note(boot, f"{boot.role}.peers", " ".join(sorted(role for role, _, _ in peers)))
        case links.Sessions(highest=highest, live=live):
            note(boot, f"{boot.role}.sessions", f"{highest} {live}")
        case links.SessionDead(session=session):
            note(boot, f"{boot.role}.dead", str(session.ordinal))
            return [links.SessionDone(session)]
    return []


def fork_and_hold(boot: Boot) -> None:
    # The hold is that of this process and of a fork of it.
    pid = os.fork()
    who = "fork" if pid == 0 else "holder"
    note(boot, "holders", f"{who} {os.getpid()}")
    ctypes.PyDLL(None).sleep(60)  # A C call that never lets the interpreter lock go.
    os._exit(0)


def check_apps(apps: tuple[str, ...], cwd: str):
    sys.stdout.write("an application that prints while it is imported\n")
    sys.stdout.flush()
    if "broken" in apps:
        return False, "application broken: no module named 'broken'", (), ()
    if "exits" in apps:
        os._exit(3)
    if "empty" in apps:
        return True, "", (), ()
    return True, "", ("Flow",), ("act",)
