"""A lock of kazoo, driven by lines on standard input.

Usage: kazoo_lock.py ADDRESS SESSION_MS; see lockfast_faults::foreign for the lines. A lock's name is
the path of its node.
"""

import logging
import sys

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout

# The nodes of others who count as contenders, besides kazoo's own.
PATTERNS = ("-lock-", "__READ__", "__WRIT__")


def answer(word):
    print("answer", word, flush=True)


def main():
    logging.basicConfig(stream=sys.stderr)
    client = KazooClient(hosts=sys.argv[1], timeout=int(sys.argv[2]) / 1000)
    client.start(timeout=30)
    lock = None
    answer("ready")
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "acquire":
            path, wait_ms = rest[0], int(rest[2])
            lock = client.Lock(path, "kazoo", extra_lock_patterns=PATTERNS)
            try:
                wait = wait_ms / 1000 if wait_ms else None
                got = lock.acquire(blocking=wait_ms > 0, timeout=wait)
            except LockTimeout:
                got = False
            answer("granted" if got else "taken")
        elif word == "extend":
            answer("extended" if lock.is_acquired and client.exists(node(lock)) else "refused")
        elif word == "release":
            answer("released" if lock.release() else "refused")


def node(lock):
    return f"{lock.path}/{lock.node}"


main()
