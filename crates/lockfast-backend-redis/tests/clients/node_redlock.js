// A lock of node-redlock, driven by lines on standard input.
// Usage: node_redlock.js PORT[,PORT…] MAJOR; see kit/foreign.rs for the lines.
'use strict';

const readline = require('readline');
const Redis = require('ioredis');

const RETRY_MS = 50;
const ports = process.argv[2].split(',').map(Number);
const major = process.argv[3];
const clients = ports.map((port) => new Redis({ host: '127.0.0.1', port }));

// What the two versions call the same things.
const versions = {
  4: {
    load: () => require('redlock4'),
    acquire: (redlock, name, ttl) => redlock.lock(name, ttl),
    extend: (lock, ttl) => lock.extend(ttl),
    release: (lock) => lock.unlock(),
  },
  5: {
    load: () => require('redlock5').default,
    acquire: (redlock, name, ttl) => redlock.acquire([name], ttl),
    extend: (lock, ttl) => lock.extend(ttl),
    release: (lock) => lock.release(),
  },
};
const version = versions[major];
const Redlock = version.load();

// Lets a wait of `waitMs` pass in steps, as the library does it.
function make(waitMs) {
  const retryCount = Math.ceil(waitMs / RETRY_MS);
  const redlock = new Redlock(clients, { retryCount, retryDelay: RETRY_MS, retryJitter: 0 });
  // Each failed try is also an event, which would end the program if nobody listened.
  redlock.on('error', () => {});
  redlock.on('clientError', () => {});
  return redlock;
}

function answer(word) {
  process.stdout.write(`answer ${word}\n`);
}

async function tell(action, yes, no) {
  try {
    const result = await action();
    answer(yes);
    return result;
  } catch (error) {
    if (!['LockError', 'ExecutionError', 'ResourceLockedError'].includes(error.name)) {
      throw error;
    }
    answer(no);
    return undefined;
  }
}

async function main() {
  await Promise.all(clients.map((client) => client.ping()));
  answer('ready');
  let lock;
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [word, first, second, third] = line.split(' ');
    if (word === 'acquire') {
      const redlock = make(Number(third));
      const take = () => version.acquire(redlock, first, Number(second));
      // A refused try keeps the lock that was had before, so that a late release can be tried.
      lock = (await tell(take, 'granted', 'taken')) || lock;
    } else if (word === 'extend') {
      lock = (await tell(() => version.extend(lock, Number(first)), 'extended', 'refused')) || lock;
    } else if (word === 'release') {
      await tell(() => version.release(lock), 'released', 'refused');
    }
  }
  clients.forEach((client) => client.disconnect());
}

main().catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
