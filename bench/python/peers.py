"""Locks by Python libraries, each with its own defaults, passed around between threads.

    peers.py handover PEER PORT WAITERS HOW SECONDS     HOW is held or greedy
    peers.py cycle kazoo ADDRESS TASKS SECONDS          free locks, one connection

For kazoo, PORT is an address. Prints the same line of JSON as the Rust program beside it.
"""

import json
import os
import sys
import threading
import time

import redis
import redis_lock
from kazoo.client import KazooClient

TTL_SECONDS = 30
SESSION_SECONDS = 10
HOLD_SECONDS = 0.002
WARM_UP_SECONDS = 0.2
NAME = "lock:shared"


class RedisPy:
    def __init__(self, port):
        self.lock = redis.Redis(port=int(port)).lock(NAME, timeout=TTL_SECONDS)

    def acquire(self):
        return self.lock.acquire()

    def release(self):
        self.lock.release()


class PythonRedisLock:
    def __init__(self, port):
        self.client = redis.Redis(port=int(port))

    def acquire(self):
        self.lock = redis_lock.Lock(self.client, NAME, expire=TTL_SECONDS)
        return self.lock.acquire()

    def release(self):
        self.lock.release()


class Kazoo:
    def __init__(self, address, client=None, name="shared"):
        if client is None:
            client = KazooClient(hosts=address, timeout=SESSION_SECONDS)
            client.start(timeout=30)
        self.client = client
        self.lock = client.Lock(f"/kazoo-{name}")

    def acquire(self):
        return self.lock.acquire()

    def release(self):
        self.lock.release()


PEERS = {"redis-py": RedisPy, "python-redis-lock": PythonRedisLock, "kazoo": Kazoo}


class Ring:
    """What all contenders share."""

    def __init__(self, contenders, is_held):
        self.contenders = contenders
        self.is_held = is_held
        self.stop = False
        self.released_ns = 0
        self.last = None
        self.turn = 0
        self.turned = threading.Condition()
        self.acquired = [0] * len(contenders)
        self.gave_up = 0
        self.latencies = []
        self.failures = []

    def compete(self, number):
        try:
            while not self.stop:
                self.go_round(number, self.contenders[number])
        except Exception as failure:
            self.failures.append(repr(failure))

    def go_round(self, number, contender):
        if not contender.acquire():
            self.gave_up += 1
            return
        now_ns = time.perf_counter_ns()
        if not self.stop:
            self.acquired[number] += 1
            if self.last not in (None, number):
                self.latencies.append(now_ns - self.released_ns)
        self.last = number
        with self.turned:
            self.turn += 1
            turn = self.turn
            self.turned.notify_all()
        if self.is_held:
            time.sleep(HOLD_SECONDS)
        self.released_ns = time.perf_counter_ns()
        contender.release()
        if self.is_held and not self.stop:
            with self.turned:
                self.turned.wait_for(lambda: self.turn > turn, 0.5)

    def run(self, seconds):
        count = range(len(self.contenders))
        threads = [threading.Thread(target=self.compete, args=(i,), daemon=True) for i in count]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        self.stop = True
        for thread in threads:
            thread.join(5)


def percentile(latencies, percent):
    at = min(len(latencies) * percent // 100, len(latencies) - 1)
    return latencies[at] / 1000 if latencies else 0


def cycle(address, tasks, seconds):
    client = Kazoo(address).client
    start = time.perf_counter() + WARM_UP_SECONDS
    end = start + seconds
    cycles = []

    def go_round(number):
        contender = Kazoo(address, client, str(number))
        while (before := time.perf_counter()) < end:
            contender.acquire()
            contender.release()
            if before >= start:
                cycles.append(int((time.perf_counter() - before) * 1e9))

    threads = [threading.Thread(target=go_round, args=(number,)) for number in range(tasks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cycles.sort()
    print(json.dumps({
        "cycles_per_s": len(cycles) / seconds,
        "p50_us": percentile(cycles, 50),
        "p99_us": percentile(cycles, 99),
    }), flush=True)
    os._exit(0)


def main():
    if sys.argv[1] == "cycle":
        _, _, address, tasks, seconds = sys.argv[1:]
        cycle(address, int(tasks), float(seconds))
    _, peer, port, waiters, how, seconds = sys.argv[1:]
    # One has it, so many wait.
    contenders = [PEERS[peer](port) for _ in range(int(waiters) + 1)]
    ring = Ring(contenders, how == "held")
    ring.run(float(seconds))
    if ring.failures:
        sys.exit(ring.failures[0])
    latencies = sorted(ring.latencies)
    print(json.dumps({
        "handovers": len(latencies),
        "handovers_per_s": len(latencies) / float(seconds),
        "acquired": sum(ring.acquired),
        "p50_us": percentile(latencies, 50),
        "p99_us": percentile(latencies, 99),
        "most_over_least": max(ring.acquired) / max(min(ring.acquired), 1),
        "gave_up": ring.gave_up,
    }), flush=True)
    # A thread that still waits need not be waited for.
    os._exit(0)


main()
