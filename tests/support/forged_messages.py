"""The text of a candidate that writes to all channels of the process that reads it."""

CHANNELS = """
import json, os, socket, struct, time

def say(body, length=None):
    for name in os.listdir("/proc/self/fd"):
        try:
            channel = socket.socket(fileno=os.dup(int(name)))
            channel.getpeername()
        except OSError:
            continue
        if channel.type == socket.SOCK_STREAM:
            channel.sendall(struct.pack("<I", len(body) if length is None else length) + body)
"""
