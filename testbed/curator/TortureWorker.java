import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.state.ConnectionState;
import org.apache.curator.framework.state.ConnectionStateListener;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A worker of the torture that takes Curator's {@code InterProcessMutex}, or leads by its {@code
 * LeaderLatch}, as torture_worker takes ours.
 *
 * <p>{@code TortureWorker curator-mutex|curator-latch SERVERS PATH SESSION_MS NAME HISTORY SEED}
 * obeys the same words on its input and writes the same history; torture_checker/main.rs describes
 * it.
 *
 * <p>What counts as held is what Curator's documentation lets a careful user conclude, who listens to
 * the connection's state: after SUSPENDED it cannot be said ({@code unsure}) until RECONNECTED, and
 * after LOST all is lost. A LOST that comes while a call is under way counts against what the call
 * gets, too: it cannot be told in which session that was. The threads share one mutex, as they would
 * in one process. A thread that waits is cancelled by an interrupt.
 *
 * <p>A latch says by itself whether it leads, and hears of the connection's state before its user.
 * So what counts is {@code hasLeadership()}; who has once heard no resigns, as the next yes is another
 * term. A latch stands once, so each thread makes one for each call.
 */
public final class TortureWorker {
  private static final int THREADS = 3;
  private static final long LOOK_EVERY_MS = 10;

  private static CuratorFramework client;
  private static String data;
  private static final Standing STANDING = new Standing();
  private static final AtomicLong LAST_ID = new AtomicLong();
  private static volatile boolean rests = false;
  private static long sessionMs;
  private static int longSections;
  /** No channel: an interrupt would close it. */
  private static FileOutputStream history;

  public static void main(String[] arguments) throws Exception {
    Thread.setDefaultUncaughtExceptionHandler(
        (thread, error) -> {
          // Curator's own threads may have their trouble. The checker misses none of ours.
          error.printStackTrace();
          if (thread instanceof Performer) {
            Runtime.getRuntime().halt(1);
          }
        });
    boolean isMutex = arguments[0].equals("curator-mutex");
    String servers = arguments[1];
    String path = arguments[2];
    sessionMs = Long.parseLong(arguments[3]);
    String name = arguments[4];
    history = new FileOutputStream(arguments[5], true);
    Random random = new Random(Long.parseUnsignedLong(arguments[6]));
    // Some are quick, and some sit on what they have.
    longSections = random.nextBoolean() ? 1 : 30;
    connect(servers);
    Mutex mutex = new Mutex(path);
    List<Thread> performers = new ArrayList<>();
    for (int thread = 0; thread < THREADS; thread++) {
      Lock lock = isMutex ? mutex : new Latch(path);
      Performer performer = new Performer(name + "." + thread, lock, new Random(random.nextLong()));
      performer.start();
      performers.add(performer);
    }
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    waitFor("rest", input);
    rests = true;
    for (Thread performer : performers) {
      performer.join();
    }
    System.out.println("resting");
    System.out.flush();
    waitFor("close", input);
    client.close();
    note(name, "done");
    Runtime.getRuntime().halt(0);
  }

  private static void connect(String servers) throws InterruptedException {
    data = "curator pid=" + ProcessHandle.current().pid() + " ";
    client =
        CuratorFrameworkFactory.builder()
            .connectString(servers)
            .sessionTimeoutMs((int) sessionMs)
            // Curator warns of one that is longer than a session.
            .connectionTimeoutMs((int) sessionMs)
            // Short, so that calls with a time limit may keep it.
            .retryPolicy(new ExponentialBackoffRetry(50, 3))
            // It would leave a watch of its own, and might learn of ways around the proxies.
            .ensembleTracker(false)
            // What a mutex writes into its node.
            .defaultData(data.getBytes(StandardCharsets.UTF_8))
            .build();
    client.getConnectionStateListenable().addListener(STANDING);
    client.start();
    // However long that takes: the nemesis may be at it.
    client.blockUntilConnected();
  }

  private static void waitFor(String word, BufferedReader input) throws IOException {
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      if (line.equals(word)) {
        return;
      }
    }
    // Without the driver there is nothing to live for.
    Runtime.getRuntime().halt(1);
  }

  private static void note(String who, String event) {
    String line = System.nanoTime() + " " + who + " " + event + "\n";
    try {
      // One write, which the system appends as a whole.
      history.write(line.getBytes(StandardCharsets.UTF_8));
    } catch (IOException error) {
      error.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }

  /** What the listener has heard. */
  private static final class Standing implements ConnectionStateListener {
    private volatile long losses = 0;
    private volatile boolean isSuspended = false;

    @Override
    public void stateChanged(CuratorFramework client, ConnectionState state) {
      // One thread of Curator's calls this, and nothing else writes here.
      if (state == ConnectionState.LOST) {
        losses++;
      }
      isSuspended = !state.isConnected();
    }

    String since(long losses) {
      if (this.losses != losses) {
        return "lost";
      }
      return isSuspended ? "unsure" : "held";
    }
  }

  /** What a thread takes. */
  private interface Lock {
    void acquire() throws Exception;

    boolean acquire(long ms) throws Exception;

    void release() throws Exception;

    String node();

    /** As far as it can be known, when so many losses had been heard of before the call. */
    String state(long losses);

    /** Whether it can be tried, and entered again. */
    boolean isMutex();
  }

  /** Curator's, and the path of its node, which it tells only to itself. */
  private static final class Mutex extends InterProcessMutex implements Lock {
    Mutex(String path) {
      super(client, path);
    }

    @Override
    public boolean acquire(long ms) throws Exception {
      return acquire(ms, TimeUnit.MILLISECONDS);
    }

    @Override
    public String node() {
      return getLockPath();
    }

    @Override
    public String state(long losses) {
      return STANDING.since(losses);
    }

    @Override
    public boolean isMutex() {
      return true;
    }
  }

  /** One thread's latches, one after the other. */
  private static final class Latch implements Lock {
    private final String path;
    private LeaderLatch latch;

    Latch(String path) {
      this.path = path;
    }

    private interface Wait {
      boolean untilItLeads() throws Exception;
    }

    @Override
    public void acquire() throws Exception {
      stand(
          () -> {
            latch.await();
            return true;
          });
    }

    @Override
    public boolean acquire(long ms) throws Exception {
      return stand(() -> latch.await(ms, TimeUnit.MILLISECONDS));
    }

    private boolean stand(Wait wait) throws Exception {
      latch = new LeaderLatch(client, path, data);
      boolean leads = false;
      try {
        latch.start();
        leads = wait.untilItLeads();
      } finally {
        if (!leads) {
          latch.close();
        }
      }
      return leads;
    }

    @Override
    public void release() throws Exception {
      latch.close();
    }

    @Override
    public String node() {
      return latch.getOurPath();
    }

    @Override
    public String state(long losses) {
      return latch.hasLeadership() ? "held" : "lost";
    }

    @Override
    public boolean isMutex() {
      return false;
    }
  }

  private interface Acquire {
    boolean call() throws Exception;
  }

  /** A thread that takes the lock again and again, and notes all it knows about it. */
  private static final class Performer extends Thread {
    private final String who;
    private final Lock lock;
    private final Random random;

    Performer(String who, Lock lock, Random random) {
      this.who = who;
      this.lock = lock;
      this.random = random;
      // It may hang in a call, and must not keep the process.
      setDaemon(true);
    }

    @Override
    public void run() {
      while (!rests) {
        long losses = STANDING.losses;
        long id = LAST_ID.incrementAndGet();
        if (acquire(id)) {
          hold(id, losses, 0);
        }
        int kind = random.nextInt(10);
        pause(between(kind < 6 ? 0 : kind < 9 ? 20 : 400));
      }
    }

    private boolean acquire(long id) {
      long timeMs = between(sessionMs / 2);
      int kind = random.nextInt(10);
      if (kind < 2) {
        return call(id, "wait", -1, this::waitForIt);
      }
      if (kind < 4 && lock.isMutex()) {
        // It waits for nobody but the server.
        return call(id, "try", sessionMs * 2 / 3, () -> lock.acquire(0));
      }
      if (kind < 9) {
        return call(id, "for", timeMs, () -> lock.acquire(timeMs));
      }
      return acquireUntilCancelled(id, timeMs);
    }

    private boolean waitForIt() throws Exception {
      lock.acquire();
      return true;
    }

    private boolean acquireUntilCancelled(long id, long afterMs) {
      CountDownLatch returned = new CountDownLatch(1);
      Object gate = new Object();
      Thread canceller =
          new Thread(
              () -> {
                try {
                  if (returned.await(afterMs, TimeUnit.MILLISECONDS)) {
                    return;
                  }
                } catch (InterruptedException nobody) {
                  return;
                }
                synchronized (gate) {
                  if (returned.getCount() > 0) {
                    note(who, "cancel id=" + id);
                    interrupt();
                  }
                }
              });
      canceller.setDaemon(true);
      canceller.start();
      boolean gotten = call(id, "cancel", -1, this::waitForIt);
      synchronized (gate) {
        returned.countDown();
      }
      // One that came too late is for nobody.
      interrupted();
      return gotten;
    }

    private boolean call(long id, String verb, long boundMs, Acquire acquire) {
      String bound = boundMs < 0 ? "" : " bound_ms=" + boundMs;
      note(who, "call id=" + id + " verb=" + verb + bound);
      String why = "busy";
      try {
        if (acquire.call()) {
          note(who, "got id=" + id + " right=alone node=" + lock.node());
          return true;
        }
      } catch (Exception error) {
        why = reason(error);
      }
      note(who, "none id=" + id + " why=" + why);
      return false;
    }

    private void hold(long id, long losses, int depth) {
      long untilNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(sectionMs());
      boolean lost = isLost(id, losses);
      while (!lost && System.nanoTime() < untilNs) {
        long leftMs = TimeUnit.NANOSECONDS.toMillis(untilNs - System.nanoTime());
        pause(Math.min(LOOK_EVERY_MS, leftMs));
        lost = isLost(id, losses);
      }
      if (!lost && lock.isMutex() && depth < 2 && random.nextInt(100) < 15) {
        enterAgain(losses, depth);
        isLost(id, losses);
      }
      give(id);
    }

    private void enterAgain(long losses, int depth) {
      long id = LAST_ID.incrementAndGet();
      if (call(id, "try", sessionMs * 2 / 3, () -> lock.acquire(0))) {
        hold(id, losses, depth + 1);
      }
    }

    private long sectionMs() {
      int kind = random.nextInt(100);
      // Long enough for a session to end in it.
      return between(kind < longSections ? sessionMs * 4 : kind < 80 ? 20 : 200);
    }

    private boolean isLost(long id, long losses) {
      long began = System.nanoTime();
      String state = lock.state(losses);
      note(who, "look id=" + id + " state=" + state + " began=" + began);
      return state.equals("lost");
    }

    private void give(long id) {
      note(who, "give id=" + id);
      String why = "released";
      try {
        lock.release();
      } catch (Exception error) {
        // Curator goes on by itself to delete the node.
        why = reason(error);
      }
      note(who, "given id=" + id + " why=" + why);
    }

    /** Up to so many. */
    private long between(long most) {
      return (long) (random.nextDouble() * most);
    }

    private void pause(long ms) {
      try {
        Thread.sleep(ms);
      } catch (InterruptedException stray) {
        throw new IllegalStateException("only a call is interrupted", stray);
      }
    }

    private static String reason(Exception error) {
      return error instanceof InterruptedException ? "cancelled" : error.getClass().getSimpleName();
    }
  }
}
