#!/usr/bin/env python3
"""Load for `cortado serve`: how long embeddings take, and what is refused.

    serve_load.py --at=127.0.0.1:8080 --model=NAME --clients=16 --seconds=60
    serve_load.py --at=127.0.0.1:8080 --model=NAME --rate=2000 --seconds=60 --pid=PID

Without --rate each client asks again once it is answered. With it requests come at Poisson's times,
and how long one takes counts from its time, so that a client that is late itself is seen. Each
request has one list of ids, of a length between --least and --most. --pid says how much more memory
the server has at the end than after a tenth of the requests. Connections stay open.
"""
import argparse
import asyncio
import collections
import json
import random
import time


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS:"))


class Load:
    def __init__(self, o):
        self.o, self.random = o, random.Random(o.seed)
        self.status, self.seconds = collections.Counter(), collections.defaultdict(list)
        self.n, self.first_kib = 0, None

    def request(self):
        n = self.random.randint(self.o.least, self.o.most)
        ids = [self.random.randrange(self.o.ids) for _ in range(n)]
        body = json.dumps({"model": self.o.model, "input": ids}).encode()
        head = "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        return head.encode() + body

    async def ask(self, pair, due):
        """Asks on a connection; gives it back, or None where it has ended."""
        if pair is None:
            host, port = self.o.at.rsplit(":", 1)
            pair = await asyncio.open_connection(host.strip("[]"), int(port))
        pair[1].write(self.request())
        closes = True
        try:
            head = (await pair[0].readuntil(b"\r\n\r\n")).decode().lower()
            size = next(line[16:] for line in head.split("\r\n") if line.startswith("content-length: "))
            await pair[0].readexactly(int(size))
            status, closes = int(head.split()[1]), "connection: close" in head
        except (ConnectionError, asyncio.IncompleteReadError):
            status = 0
        self.status[status] += 1
        self.seconds[status].append(time.monotonic() - due)
        self.n += 1
        if self.o.pid and self.first_kib is None and time.monotonic() > self.start + 0.1 * self.o.seconds:
            self.first_kib = resident(self.o.pid)
        if not closes:
            return pair
        pair[1].close()
        return None

    async def closed(self):
        pair = None
        while time.monotonic() < self.start + self.o.seconds:
            pair = await self.ask(pair, time.monotonic())

    async def one(self, free, due):
        pair = await self.ask(free.pop() if free else None, due)
        if pair is not None:
            free.append(pair)

    async def poisson(self):
        free, tasks, due = [], set(), self.start
        while due < self.start + self.o.seconds:
            await asyncio.sleep(max(0, due - time.monotonic()))
            task = asyncio.ensure_future(self.one(free, due))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            due += self.random.expovariate(self.o.rate)
        await asyncio.gather(*tasks)

    async def run(self):
        self.start = time.monotonic()
        await (self.poisson() if self.o.rate else asyncio.gather(*[self.closed() for _ in range(self.o.clients)]))
        self.took = time.monotonic() - self.start

    def report(self):
        good = self.seconds[200]
        in_time = sum(1 for s in good if s <= self.o.deadline_ms / 1e3)
        print("%d requests in %.1f s; answered in time: %.0f/s" % (self.n, self.took, in_time / self.took))
        for status, all_s in sorted(self.seconds.items()):
            if not all_s:
                continue
            all_s.sort()
            p50, p99 = (1e3 * all_s[min(len(all_s) - 1, int(q * len(all_s)))] for q in (0.5, 0.99))
            print("status %d: %d, p50 %.3f ms, p99 %.3f ms" % (status, len(all_s), p50, p99))
        if self.first_kib is not None:
            print("resident: %+d KiB since a tenth of the time" % (resident(self.o.pid) - self.first_kib))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--at", required=True, help="ADDRESS:PORT of the server")
    p.add_argument("--model", required=True)
    p.add_argument("--clients", type=int, default=1)
    p.add_argument("--rate", type=float, help="requests a second, at Poisson's times")
    p.add_argument("--seconds", type=float, default=10)
    p.add_argument("--least", type=int, default=1, help="ids of a request, at least")
    p.add_argument("--most", type=int, default=64)
    p.add_argument("--ids", type=int, default=256, help="ids are less than that")
    p.add_argument("--deadline_ms", type=float, default=float("inf"), help="what counts as in time")
    p.add_argument("--pid", type=int, help="of the server, whose memory is looked at")
    p.add_argument("--seed", type=int, default=1)
    load = Load(p.parse_args())
    asyncio.run(load.run())
    load.report()


if __name__ == "__main__":
    main()
