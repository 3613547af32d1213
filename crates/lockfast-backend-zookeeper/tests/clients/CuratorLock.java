// A lock of Curator, driven by lines on standard input.
//
// Usage: CuratorLock ADDRESS SESSION_MS KIND, where KIND is mutex, read or write; see
// lockfast_faults::foreign for the lines. A lock's name is the path of its node.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.retry.RetryOneTime;

public class CuratorLock {
    static void answer(String word) {
        System.out.println("answer " + word);
        System.out.flush();
    }

    static InterProcessMutex lock(CuratorFramework client, String kind, String path) {
        switch (kind) {
            case "mutex":
                return new InterProcessMutex(client, path);
            case "read":
                return new InterProcessReadWriteLock(client, path).readLock();
            case "write":
                return new InterProcessReadWriteLock(client, path).writeLock();
            default:
                throw new IllegalArgumentException(kind + " is no kind of lock");
        }
    }

    public static void main(String[] arguments) throws Exception {
        int session = Integer.parseInt(arguments[1]);
        CuratorFramework client =
            CuratorFrameworkFactory.newClient(arguments[0], session, 30000, new RetryOneTime(100));
        client.start();
        client.blockUntilConnected();
        InterProcessMutex lock = null;
        answer("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "acquire":
                    lock = lock(client, arguments[2], words[1]);
                    boolean got = lock.acquire(Long.parseLong(words[3]), TimeUnit.MILLISECONDS);
                    answer(got ? "granted" : "taken");
                    break;
                case "extend":
                    answer(lock.isAcquiredInThisProcess() ? "extended" : "refused");
                    break;
                case "release":
                    try {
                        lock.release();
                        answer("released");
                    } catch (Exception failure) {
                        answer("refused");
                    }
                    break;
                default:
                    throw new IllegalArgumentException(line);
            }
        }
        System.exit(0);
    }
}
