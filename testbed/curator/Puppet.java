import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.FutureTask;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.barriers.DistributedDoubleBarrier;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.leader.Participant;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * A process for tests to command: its actors use Curator's recipes when told to, and say what came
 * of it. A Java machine takes long to start, so all tests share one.
 *
 * <p>It says {@code ready}. Then each line of its input is for one actor, {@code ID COMMAND ...}, who
 * answers it with one line, {@code ID ANSWER}. An actor is a thread, as Curator's locks belong to
 * threads: it does one thing after the other, and waits when Curator does. The process ends when its
 * input does. The commands, with objects that are called by names:
 *
 * <pre>
 * connect SERVERS                 the first: a session of its own: ok
 * join ID                         or the session and the objects of that actor: ok
 * mutex NAME PATH                 makes one: ok
 * semaphore-mutex NAME PATH
 * rw NAME PATH                    makes two, NAME.read and NAME.write
 * multi NAME LOCK...              of locks that were made before
 * semaphore NAME PATH MAX
 * counted NAME PATH COUNT         a semaphore that goes by a count
 * count NAME PATH                 a shared count
 * barrier NAME PATH
 * double NAME PATH MEMBERS
 * latch NAME PATH ID              a candidate of that id, which does not stand yet
 * stand LATCH, resign LATCH       ok; it can stand once
 * lead LATCH                      waits until it leads: ok
 * leads LATCH                     yes, no
 * leader LATCH                    the id of who leads
 * candidates LATCH                all ids, in their order
 * campaign PATH ROUNDS MILLIS HISTORY
 *                                 stands with a latch of its own each time, leads so long, and
 *                                 writes when that was: ok
 * acquire NAME [PERMITS]          waits: ok
 * acquire-for NAME MILLIS         yes, no
 * release NAME                    what was acquired last: ok
 * participants NAME               the paths of a mutex's nodes, in their order
 * revocable NAME                  from now on it listens: ok
 * asked NAME                      waits until it was asked for it: ok
 * ask PATH                        asks for a node: ok
 * set COUNT NUMBER, get COUNT     ok, the number
 * close BARRIER, open BARRIER     ok
 * wait BARRIER                    waits: ok
 * enter DOUBLE, leave DOUBLE      wait: ok
 * run NAME ROUNDS MILLIS RIGHT HISTORY
 *                                 acquires and releases it, holds it so long each time, and writes
 *                                 when that was, and as what (alone, shared, how many permits): ok
 * downgrade NAME ROUNDS HISTORY   the same with a write lock that becomes a read lock: ok
 * cycles PATH THREADS CYCLES MILLIS
 *                                 so many threads, each with a mutex of its own below PATH, acquire
 *                                 and release it so often, with a time limit unless that is 0: how
 *                                 many nanoseconds that took
 * again NAME CYCLES               acquires and releases it so often: how many nanoseconds that took
 * sessions SERVERS COUNT          begins and ends so many: how many nanoseconds that took
 * load PATH THREADS MILLIS PROCESS RECORDS
 *                                 so many threads that take turns with one mutex for so long, as
 *                                 what process, and where their sections are written: ok
 * quit                            ends its session, and so whatever it waits for; no answer
 * </pre>
 *
 * What goes wrong is answered with {@code error TYPE: TEXT}.
 */
public final class Puppet {
  private static final int SESSION_MS = 10_000;
  private static final int CONNECT_MS = 30_000;
  /** How long each of the two sections of a downgrade lasts. */
  private static final long SECTION_MS = 1;
  /** Of a section: two numbers of 4 bytes, three of 8. */
  private static final int RECORD_BYTES = 32;

  private static final Map<String, Actor> ACTORS = new ConcurrentHashMap<>();

  public static void main(String[] none) throws Exception {
    BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    say("ready");
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ", 2);
      if (words[1].equals("quit")) {
        ACTORS.remove(words[0]).quit();
      } else {
        ACTORS.computeIfAbsent(words[0], Actor::new).commands.add(words[1]);
      }
    }
    // Whoever commanded has gone, and the sessions will follow.
    Runtime.getRuntime().halt(0);
  }

  private static void say(String text) {
    synchronized (System.out) {
      System.out.println(text);
      System.out.flush();
    }
  }

  /** A session and what was made in it. */
  private static final class Company {
    final CuratorFramework client;
    final Map<String, Object> objects = new ConcurrentHashMap<>();
    final Map<String, CountDownLatch> asked = new ConcurrentHashMap<>();
    int members = 0;

    Company(String servers) {
      client =
          CuratorFrameworkFactory.builder()
              .connectString(servers)
              .sessionTimeoutMs(SESSION_MS)
              .connectionTimeoutMs(CONNECT_MS)
              .retryPolicy(new ExponentialBackoffRetry(50, 8))
              .build();
      client.start();
    }

    synchronized void enter() {
      members++;
    }

    synchronized void leave() {
      if (--members == 0) {
        client.close();
      }
    }
  }

  /** A thread that does as it is told. */
  private static final class Actor extends Thread {
    final BlockingQueue<String> commands = new LinkedBlockingQueue<>();
    private final String id;
    private final Map<String, Deque<List<Lease>>> leases = new HashMap<>();
    private volatile Company company;

    Actor(String id) {
      this.id = id;
      setDaemon(true);
      start();
    }

    void quit() {
      interrupt();
      // Aside, because it takes a while, and others have commands.
      Company left = company;
      if (left != null) {
        Thread leaving = new Thread(left::leave);
        leaving.setDaemon(true);
        leaving.start();
      }
    }

    @Override
    public void run() {
      try {
        while (true) {
          String answer = obey(commands.take().split(" "));
          say(id + " " + answer);
        }
      } catch (InterruptedException quit) {
        // Nobody waits for an answer.
      }
    }

    private String obey(String[] words) throws InterruptedException {
      try {
        return act(words);
      } catch (InterruptedException quit) {
        throw quit;
      } catch (Exception error) {
        String text = String.valueOf(error.getMessage()).replaceAll("\\s+", " ");
        return "error " + error.getClass().getSimpleName() + ": " + text;
      }
    }

    private String act(String[] words) throws Exception {
      switch (words[0]) {
        case "connect":
          enter(new Company(words[1]));
          if (!company.client.blockUntilConnected(CONNECT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("not connected");
          }
          return "ok";
        case "join":
          enter(ACTORS.get(words[1]).company);
          return "ok";
        case "acquire":
          acquire(words[1], words.length > 2 ? Integer.parseInt(words[2]) : 1);
          return "ok";
        case "acquire-for":
          return acquireFor(words[1], Long.parseLong(words[2])) ? "yes" : "no";
        case "release":
          release(words[1]);
          return "ok";
        case "participants":
          return String.join(" ", mutex(words[1]).getParticipantNodes());
        case "revocable":
          CountDownLatch asked = new CountDownLatch(1);
          company.asked.put(words[1], asked);
          mutex(words[1]).makeRevocable(lock -> asked.countDown());
          return "ok";
        case "asked":
          company.asked.get(words[1]).await();
          return "ok";
        case "ask":
          Revoker.attemptRevoke(company.client, words[1]);
          return "ok";
        case "set":
          count(words[1]).setCount(Integer.parseInt(words[2]));
          return "ok";
        case "get":
          return String.valueOf(count(words[1]).getCount());
        case "close":
          barrier(words[1]).setBarrier();
          return "ok";
        case "open":
          barrier(words[1]).removeBarrier();
          return "ok";
        case "wait":
          barrier(words[1]).waitOnBarrier();
          return "ok";
        case "enter":
          doubleBarrier(words[1]).enter();
          return "ok";
        case "leave":
          doubleBarrier(words[1]).leave();
          return "ok";
        case "stand":
          latch(words[1]).start();
          return "ok";
        case "resign":
          latch(words[1]).close();
          return "ok";
        case "lead":
          latch(words[1]).await();
          return "ok";
        case "leads":
          return latch(words[1]).hasLeadership() ? "yes" : "no";
        case "leader":
          return latch(words[1]).getLeader().getId();
        case "candidates":
          return candidates(words[1]);
        case "campaign":
          campaign(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), words[4]);
          return "ok";
        case "run":
          run(words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]), words[4], words[5]);
          return "ok";
        case "downgrade":
          downgrade(words[1], Integer.parseInt(words[2]), words[3]);
          return "ok";
        case "cycles":
          int threads = Integer.parseInt(words[2]);
          return cycles(words[1], threads, Integer.parseInt(words[3]), Long.parseLong(words[4]));
        case "again":
          return again(words[1], Integer.parseInt(words[2]));
        case "sessions":
          return sessions(words[1], Integer.parseInt(words[2]));
        case "load":
          long millis = Long.parseLong(words[3]);
          load(words[1], Integer.parseInt(words[2]), millis, Integer.parseInt(words[4]), words[5]);
          return "ok";
        default:
          make(words);
          return "ok";
      }
    }

    private String again(String name, int cycles) throws Exception {
      InterProcessLock lock = lock(name);
      long begun = System.nanoTime();
      for (int cycle = 0; cycle < cycles; cycle++) {
        lock.acquire();
        lock.release();
      }
      return String.valueOf(System.nanoTime() - begun);
    }

    private String sessions(String servers, int count) throws Exception {
      long begun = System.nanoTime();
      for (int number = 0; number < count; number++) {
        try (CuratorFramework client = new Company(servers).client) {
          if (!client.blockUntilConnected(CONNECT_MS, TimeUnit.MILLISECONDS)) {
            throw new IllegalStateException("not connected");
          }
        }
      }
      return String.valueOf(System.nanoTime() - begun);
    }

    /** The same as sections_of in load/crew.rs does, and history.rs reads the records. */
    private void load(String path, int threads, long millis, int process, String records)
        throws Exception {
      InterProcessMutex mutex = new InterProcessMutex(company.client, path);
      long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
      List<FutureTask<ByteBuffer>> all = new ArrayList<>();
      for (int number = 0; number < threads; number++) {
        int thread = number;
        FutureTask<ByteBuffer> task =
            new FutureTask<>(() -> sections(mutex, deadline, process, thread));
        all.add(task);
        Thread loader = new Thread(task);
        loader.setDaemon(true);
        loader.start();
      }
      try (FileChannel file =
          FileChannel.open(
              Path.of(records),
              StandardOpenOption.CREATE,
              StandardOpenOption.TRUNCATE_EXISTING,
              StandardOpenOption.WRITE)) {
        for (FutureTask<ByteBuffer> task : all) {
          ByteBuffer sections = task.get();
          while (sections.hasRemaining()) {
            file.write(sections);
          }
        }
      }
    }

    private static ByteBuffer sections(
        InterProcessMutex mutex, long deadline, int process, int thread) throws Exception {
      List<long[]> sections = new ArrayList<>();
      do {
        long asked = System.nanoTime();
        mutex.acquire();
        long entered = System.nanoTime();
        long left = System.nanoTime();
        mutex.release();
        sections.add(new long[] {asked, entered, left});
      } while (System.nanoTime() < deadline);
      ByteBuffer records = ByteBuffer.allocate(sections.size() * RECORD_BYTES);
      records.order(ByteOrder.LITTLE_ENDIAN);
      for (long[] times : sections) {
        records.putInt(process).putInt(thread);
        for (long time : times) {
          records.putLong(time);
        }
      }
      return records.flip();
    }

    private String cycles(String path, int threads, int cycles, long millis) throws Exception {
      CountDownLatch ready = new CountDownLatch(threads);
      CountDownLatch begin = new CountDownLatch(1);
      CountDownLatch end = new CountDownLatch(threads);
      for (int number = 0; number < threads; number++) {
        InterProcessMutex mutex = new InterProcessMutex(company.client, path + "/" + number);
        Thread thread =
            new Thread(
                () -> {
                  try {
                    ready.countDown();
                    begin.await();
                    for (int cycle = 0; cycle < cycles; cycle++) {
                      if (millis == 0) {
                        mutex.acquire();
                      } else if (!mutex.acquire(millis, TimeUnit.MILLISECONDS)) {
                        throw new IllegalStateException("nobody else is about");
                      }
                      mutex.release();
                    }
                    end.countDown();
                  } catch (Exception error) {
                    // Then its end is waited for in vain, and whoever commanded says so.
                    error.printStackTrace();
                  }
                });
        thread.setDaemon(true);
        thread.start();
      }
      ready.await();
      long begun = System.nanoTime();
      begin.countDown();
      end.await();
      return String.valueOf(System.nanoTime() - begun);
    }

    private void enter(Company one) {
      one.enter();
      company = one;
    }

    private void make(String[] words) throws Exception {
      CuratorFramework client = company.client;
      Map<String, Object> objects = company.objects;
      String name = words[1];
      switch (words[0]) {
        case "mutex":
          objects.put(name, new InterProcessMutex(client, words[2]));
          break;
        case "semaphore-mutex":
          objects.put(name, new InterProcessSemaphoreMutex(client, words[2]));
          break;
        case "rw":
          InterProcessReadWriteLock lock = new InterProcessReadWriteLock(client, words[2]);
          objects.put(name + ".read", lock.readLock());
          objects.put(name + ".write", lock.writeLock());
          break;
        case "multi":
          List<InterProcessLock> parts = new ArrayList<>();
          for (int at = 2; at < words.length; at++) {
            parts.add(lock(words[at]));
          }
          objects.put(name, new InterProcessMultiLock(parts));
          break;
        case "semaphore":
          int most = Integer.parseInt(words[3]);
          objects.put(name, new InterProcessSemaphoreV2(client, words[2], most));
          break;
        case "counted":
          objects.put(name, new InterProcessSemaphoreV2(client, words[2], count(words[3])));
          break;
        case "count":
          SharedCount count = new SharedCount(client, words[2], 0);
          count.start();
          objects.put(name, count);
          break;
        case "barrier":
          objects.put(name, new DistributedBarrier(client, words[2]));
          break;
        case "double":
          int members = Integer.parseInt(words[3]);
          objects.put(name, new DistributedDoubleBarrier(client, words[2], members));
          break;
        case "latch":
          objects.put(name, new LeaderLatch(client, words[2], words[3]));
          break;
        default:
          throw new IllegalArgumentException(words[0]);
      }
    }

    private InterProcessLock lock(String name) {
      return (InterProcessLock) company.objects.get(name);
    }

    private InterProcessMutex mutex(String name) {
      return (InterProcessMutex) company.objects.get(name);
    }

    private SharedCount count(String name) {
      return (SharedCount) company.objects.get(name);
    }

    private DistributedBarrier barrier(String name) {
      return (DistributedBarrier) company.objects.get(name);
    }

    private DistributedDoubleBarrier doubleBarrier(String name) {
      return (DistributedDoubleBarrier) company.objects.get(name);
    }

    /** The semaphore of that name, if it is one. */
    private InterProcessSemaphoreV2 semaphore(String name) {
      Object one = company.objects.get(name);
      return one instanceof InterProcessSemaphoreV2 ? (InterProcessSemaphoreV2) one : null;
    }

    private void acquire(String name, int permits) throws Exception {
      if (semaphore(name) == null) {
        lock(name).acquire();
      } else {
        keep(name, new ArrayList<>(semaphore(name).acquire(permits)));
      }
    }

    private boolean acquireFor(String name, long millis) throws Exception {
      if (semaphore(name) == null) {
        return lock(name).acquire(millis, TimeUnit.MILLISECONDS);
      }
      Lease lease = semaphore(name).acquire(millis, TimeUnit.MILLISECONDS);
      if (lease != null) {
        keep(name, List.of(lease));
      }
      return lease != null;
    }

    private void keep(String name, List<Lease> acquired) {
      leases.computeIfAbsent(name, unused -> new ArrayDeque<>()).push(acquired);
    }

    private void release(String name) throws Exception {
      if (semaphore(name) == null) {
        lock(name).release();
      } else {
        semaphore(name).returnAll(leases.get(name).pop());
      }
    }

    private void run(String name, int rounds, long millis, String right, String path)
        throws Exception {
      boolean isShare = semaphore(name) != null;
      try (FileChannel history = append(path)) {
        for (int round = 0; round < rounds; round++) {
          acquire(name, isShare ? Integer.parseInt(right) : 1);
          section(history, millis, right);
          release(name);
        }
      }
    }

    private void downgrade(String name, int rounds, String path) throws Exception {
      try (FileChannel history = append(path)) {
        for (int round = 0; round < rounds; round++) {
          acquire(name + ".write", 1);
          section(history, SECTION_MS, "alone");
          acquire(name + ".read", 1);
          release(name + ".write");
          section(history, SECTION_MS, "shared");
          release(name + ".read");
        }
      }
    }

    private LeaderLatch latch(String name) {
      return (LeaderLatch) company.objects.get(name);
    }

    private String candidates(String name) throws Exception {
      List<String> ids = new ArrayList<>();
      for (Participant participant : latch(name).getParticipants()) {
        ids.add(participant.getId());
      }
      return String.join(" ", ids);
    }

    private void campaign(String path, int rounds, long millis, String history) throws Exception {
      try (FileChannel file = append(history)) {
        for (int round = 0; round < rounds; round++) {
          try (LeaderLatch latch = new LeaderLatch(company.client, path, "curator")) {
            latch.start();
            latch.await();
            section(file, millis, "alone");
          }
        }
      }
    }

    private static FileChannel append(String path) throws Exception {
      return FileChannel.open(Path.of(path), StandardOpenOption.APPEND);
    }

    private static void section(FileChannel history, long millis, String right)
        throws Exception {
      // The system's monotonic clock, as all others use who write here.
      long begun = System.nanoTime();
      // Work, not a wait: an empty one would seldom show an overlap.
      Thread.sleep(millis);
      String line = begun + " " + System.nanoTime() + " curator " + right + "\n";
      // One write, which the system appends as a whole.
      history.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
    }
  }
}
