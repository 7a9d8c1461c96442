"""What CUDA's driver does in a process when it opens a device, as far as walls are concerned."""

import os
import socket
import threading
import time


def helper() -> None:
    """Name this thread, as a thread of the driver does."""
    with open(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/comm", "w") as file:  # noqa: PTH123 - as it does
        file.write("cuda-EvtHandlr")
    NAMED.set()
    time.sleep(1e6)


NAMED = threading.Event()
threading.Thread(target=helper, daemon=True).start()
if not NAMED.wait(5):
    raise SystemExit("the driver cannot name its thread")
BOUND = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
BOUND.bind(f"\0cuda-uvmfd-{os.getpid()}")
