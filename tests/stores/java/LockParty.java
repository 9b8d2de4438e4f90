import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Properties;
import java.util.Scanner;
import java.util.concurrent.TimeUnit;
import org.apache.hudi.client.transaction.lock.StorageBasedLockProvider;
import org.apache.hudi.common.config.LockConfiguration;

/** Uses Hudi's storage lock as told on standard input. Arguments: base path, validity in seconds. */
public class LockParty {
  private static Properties properties;
  private static StorageBasedLockProvider provider;

  public static void main(String[] arguments) throws Exception {
    properties = new Properties();
    properties.setProperty("hoodie.base.path", arguments[0]);
    properties.setProperty("hoodie.write.lock.storage.validity.timeout.secs", arguments[1]);
    properties.setProperty("hoodie.write.lock.storage.renew.interval.secs", "1");
    System.out.println("ready");
    Scanner lines = new Scanner(System.in);
    while (lines.hasNextLine()) {
      String[] words = lines.nextLine().split(" ");
      switch (words[0]) {
        case "acquire": System.out.println(acquire(Long.parseLong(words[1]))); break;
        case "release": System.out.println(release()); break;
        case "count": System.out.println(count(Integer.parseInt(words[1]), Path.of(words[2]))); break;
        default: throw new IllegalArgumentException(words[0]);
      }
    }
  }

  /** Milliseconds that it took, or -1. A provider for each section, as LockManager has it. */
  private static long acquire(long waitMs) {
    long started = System.currentTimeMillis();
    provider = new StorageBasedLockProvider(new LockConfiguration(properties), null);
    if (provider.tryLock(waitMs, TimeUnit.MILLISECONDS)) {
      return System.currentTimeMillis() - started;
    }
    provider.close();
    return -1;
  }

  private static String release() {
    try {
      provider.unlock();
      return "released";
    } catch (Exception error) {
      return "failed";
    } finally {
      provider.close();
    }
  }

  /** Count up in a file, without any atomicity, under a witness; the longest wait in milliseconds. */
  private static long count(int times, Path folder) throws Exception {
    long longest = 0;
    for (int turn = 0; turn < times; turn++) {
      long waited = acquire(120_000);
      if (waited < 0) {
        throw new IllegalStateException("no lock in two minutes");
      }
      longest = Math.max(longest, waited);
      Files.createFile(folder.resolve("witness"));
      int count = Integer.parseInt(Files.readString(folder.resolve("counter")).trim());
      Thread.sleep(20);
      Files.writeString(folder.resolve("counter"), Integer.toString(count + 1));
      Files.delete(folder.resolve("witness"));
      release();
    }
    return longest;
  }
}
