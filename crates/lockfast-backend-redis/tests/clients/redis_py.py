"""A lock of redis-py, driven by lines on standard input.

Usage: redis_py.py PORT; see kit/foreign.rs for the lines.
"""

import sys

import redis
from redis.exceptions import LockError, LockNotOwnedError


def answer(word):
    print("answer", word, flush=True)


def main():
    client = redis.Redis(host="127.0.0.1", port=int(sys.argv[1]))
    lock = None
    answer("ready")
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "acquire":
            name, ttl_ms, wait_ms = rest[0], int(rest[1]), int(rest[2])
            lock = client.lock(name, timeout=ttl_ms / 1000, sleep=0.05)
            got = lock.acquire(blocking=wait_ms > 0, blocking_timeout=wait_ms / 1000 or None)
            answer("granted" if got else "taken")
        elif word == "extend":
            try:
                lock.extend(int(rest[0]) / 1000, replace_ttl=True)
                answer("extended")
            except LockNotOwnedError:
                answer("refused")
        elif word == "release":
            try:
                lock.release()
                answer("released")
            except LockError:
                answer("refused")


main()
