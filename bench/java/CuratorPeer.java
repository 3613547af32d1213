// Curator's InterProcessMutex, measured as the Rust program beside it measures others.
//
//   CuratorPeer cycle ADDRESS TASKS SECONDS              take and give back free locks, one connection
//   CuratorPeer handover ADDRESS WAITERS HOW SECONDS     pass one lock around, a connection each;
//                                                        HOW is held or greedy
//
// Prints one line of JSON.

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class CuratorPeer {
    static final int SESSION_MS = 10_000;
    static final int HOLD_MS = 2;
    // The virtual machine compiles what is used often; nothing before that is counted.
    static final long WARM_UP_NS = 3_000_000_000L;

    interface Body {
        void run(int number) throws Exception;
    }

    static CuratorFramework open(String address) throws Exception {
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(address, SESSION_MS, 30_000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        return client;
    }

    static void inThreads(int count, Body body) throws Exception {
        List<Thread> threads = new ArrayList<>();
        List<Exception> failures = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            Thread thread = new Thread(() -> {
                try {
                    body.run(number);
                } catch (Exception failure) {
                    synchronized (failures) {
                        failures.add(failure);
                    }
                }
            });
            threads.add(thread);
            thread.start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (!failures.isEmpty()) {
            throw failures.get(0);
        }
    }

    static double percentile(List<Long> sorted, int percent) {
        int at = Math.min(sorted.size() * percent / 100, sorted.size() - 1);
        return sorted.isEmpty() ? 0 : sorted.get(at) / 1000.0;
    }

    static void cycle(String address, int tasks, double seconds) throws Exception {
        CuratorFramework client = open(address);
        long start = System.nanoTime() + WARM_UP_NS;
        long end = start + (long) (seconds * 1e9);
        List<Long> all = new ArrayList<>();
        inThreads(tasks, number -> {
            InterProcessMutex lock = new InterProcessMutex(client, "/curator-" + number);
            List<Long> own = new ArrayList<>();
            for (long before = System.nanoTime(); before < end; before = System.nanoTime()) {
                lock.acquire();
                lock.release();
                if (before >= start) {
                    own.add(System.nanoTime() - before);
                }
            }
            synchronized (all) {
                all.addAll(own);
            }
        });
        all.sort(null);
        System.out.printf(Locale.ROOT, "{\"cycles_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}%n",
            all.size() / seconds, percentile(all, 50), percentile(all, 99));
    }

    static void handOver(String address, int waiters, boolean isHeld, double seconds) throws Exception {
        CuratorFramework[] clients = new CuratorFramework[waiters + 1];
        for (int i = 0; i < clients.length; i++) {
            clients[i] = open(address);
        }
        long start = System.nanoTime() + WARM_UP_NS;
        long end = start + (long) (seconds * 1e9);
        AtomicLong released = new AtomicLong();
        AtomicInteger last = new AtomicInteger(-1);
        long[] turn = new long[1];
        Object turned = new Object();
        List<Long> all = new ArrayList<>();
        inThreads(clients.length, number -> {
            InterProcessMutex lock = new InterProcessMutex(clients[number], "/curator-shared");
            List<Long> own = new ArrayList<>();
            while (System.nanoTime() < end) {
                lock.acquire();
                long now = System.nanoTime();
                int before = last.getAndSet(number);
                if (before != number && before != -1 && now >= start && now < end) {
                    own.add(now - released.get());
                }
                long mine;
                synchronized (turned) {
                    mine = ++turn[0];
                    turned.notifyAll();
                }
                if (isHeld) {
                    Thread.sleep(HOLD_MS);
                }
                released.set(System.nanoTime());
                lock.release();
                if (isHeld) {
                    synchronized (turned) {
                        long until = System.nanoTime() + 500_000_000L;
                        while (turn[0] == mine && System.nanoTime() < Math.min(until, end)) {
                            turned.wait(20);
                        }
                    }
                }
            }
            synchronized (all) {
                all.addAll(own);
            }
        });
        all.sort(null);
        System.out.printf(Locale.ROOT, "{\"handovers_per_s\":%.1f,\"p50_us\":%.1f,\"p99_us\":%.1f}%n",
            all.size() / seconds, percentile(all, 50), percentile(all, 99));
    }

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "cycle":
                cycle(words[1], Integer.parseInt(words[2]), Double.parseDouble(words[3]));
                break;
            case "handover":
                handOver(words[1], Integer.parseInt(words[2]), words[3].equals("held"),
                    Double.parseDouble(words[4]));
                break;
            default:
                throw new IllegalArgumentException(Arrays.toString(words));
        }
        // Connections and threads need not be ended one by one.
        System.exit(0);
    }
}
