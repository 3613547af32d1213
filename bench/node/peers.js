// node-redlock with its own defaults, passed around between contenders that have a connection each.
//
//     peers.js handover node-redlock PORT WAITERS HOW SECONDS     HOW is held or greedy
//
// Prints the same line of JSON as the Rust program beside it.
"use strict";

const Redis = require("ioredis");
const Redlock = require("redlock").default;

const TTL_MS = 30000;
const HOLD_MS = 2;
const NAME = "lock:shared";

const [port, waiters, how, seconds] = process.argv.slice(4);
const isHeld = how === "held";
// One has it, so many wait.
const count = Number(waiters) + 1;
const acquired = Array(count).fill(0);
const latencies = [];
let stop = false;
let releasedNs = 0n;
let last = -1;
let turn = 0;
let gaveUp = 0;
let sleepers = [];

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function compete(number, redlock) {
  while (!stop) {
    let lock;
    try {
      lock = await redlock.acquire([NAME], TTL_MS);
    } catch {
      gaveUp += 1;
      continue;
    }
    const nowNs = process.hrtime.bigint();
    if (!stop) {
      acquired[number] += 1;
      if (last !== -1 && last !== number) latencies.push(Number(nowNs - releasedNs));
    }
    last = number;
    turn += 1;
    const mine = turn;
    sleepers.splice(0).forEach((wake) => wake());
    if (isHeld) await pause(HOLD_MS);
    releasedNs = process.hrtime.bigint();
    await lock.release();
    if (isHeld && turn === mine && !stop) {
      await Promise.race([new Promise((wake) => sleepers.push(wake)), pause(500)]);
    }
  }
}

function percentile(sorted, percent) {
  const at = Math.min(Math.floor((sorted.length * percent) / 100), sorted.length - 1);
  return sorted.length ? sorted[at] / 1000 : 0;
}

async function main() {
  const clients = acquired.map(() => new Redis({ host: "127.0.0.1", port: Number(port) }));
  await Promise.all(clients.map((client) => client.ping()));
  const competing = clients.map((client, number) => compete(number, new Redlock([client])));
  await pause(Number(seconds) * 1000);
  stop = true;
  await Promise.race([Promise.all(competing), pause(5000)]);
  const sorted = Float64Array.from(latencies).sort();
  console.log(JSON.stringify({
    handovers: sorted.length,
    handovers_per_s: sorted.length / Number(seconds),
    acquired: acquired.reduce((sum, share) => sum + share),
    p50_us: percentile(sorted, 50),
    p99_us: percentile(sorted, 99),
    most_over_least: Math.max(...acquired) / Math.max(Math.min(...acquired), 1),
    gave_up: gaveUp,
  }));
  process.exit(0);
}

main();
