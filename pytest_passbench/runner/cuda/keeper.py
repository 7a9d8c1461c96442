"""The keeper of a subgraph's inputs on a device. It runs in eager's sandbox, and no code of a candidate with it.

It makes one piece of the device's memory, which runners map read-only. It copies the inputs there when the judge asks
for it, once for a round of all arms.
"""

from __future__ import annotations

import os
import socket
from typing import Any

import torch

from pytest_passbench.core.device import gpu_index
from pytest_passbench.core.errors import explain
from pytest_passbench.protocol import Layout, ProtocolError, receive, send
from pytest_passbench.runner.cuda import libcuda
from pytest_passbench.runner.cuda.device_memory import DeviceMemory
from pytest_passbench.runner.pages import MappedPages
from pytest_passbench.runner.template import enclose


def main(message: dict[str, Any], fds: list[int]) -> None:
    """Make the memory, answer with its descriptor, and copy inputs whenever the judge asks, until it hangs up.

    If the driver cannot share memory, the answer says why, and the process ends.
    """
    channel, pages_fd = socket.socket(fileno=fds[0]), fds[1]
    enclose(fds[2], message["limits"])
    pages = MappedPages(pages_fd, Layout.from_data(message["layout"]))
    try:
        index = gpu_index(message["device"])
        torch.cuda.set_device(index)
        torch.cuda.synchronize(index)  # there is a context from here on
        memory = DeviceMemory(libcuda.library(), index, pages.layout.size)
        descriptor = memory.export()
    except Exception as error:
        send(channel, {"status": "failed", "message": explain(error, lambda _file: False)})
        return
    send(channel, {"status": "ready"}, (descriptor,))
    os.close(descriptor)
    while True:
        try:
            request, _none = receive(channel, max_fds=0)
        except ProtocolError:
            return
        memory.write(pages.address, request["bytes"])
        torch.cuda.synchronize(index)
        send(channel, {"written": request["bytes"]})
