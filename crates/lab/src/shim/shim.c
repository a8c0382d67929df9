// Preloaded into a program (LD_PRELOAD), makes it treat one TCP port as faulty applications do: spend time on what it has
// read, read late, limit its receive buffer, accept late. Changes no byte, no result and no errno.
//
//   SPANGAP_SHIM_IN            act only in a program with this first argument: `client`, `target`
//   SPANGAP_SHIM_PORT          act only on sockets with this port at either end
//   SPANGAP_SHIM_LOG           file that is appended to (optional)
//   SPANGAP_SHIM_COST_NS       after each read: sleep this long per
//   SPANGAP_SHIM_COST_BYTES    this many bytes of it, in proportion
//   SPANGAP_SHIM_LATE_NS       before a read with available data: sleep this long,
//   SPANGAP_SHIM_LATE_READS    before every such read with this number, and
//   SPANGAP_SHIM_LATE_PERIOD_NS   before the first such read of each period of this length
//   SPANGAP_SHIM_RCVBUF        SO_RCVBUF, set before connect and listen, which fix the scale of the window
//   SPANGAP_SHIM_BACKLOG       the backlog of listen
//   SPANGAP_SHIM_ACCEPT_NS     before accepting a waiting connection: sleep this long
//
// Lines of the log: `loaded PID` once a socket with that port is used; `pause FROM TO`, nanoseconds since 1970;
// `buffer BYTES` as the kernel accepted it; `backlog N`; `full` instead of the first line for which there is no room.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MOST_LINES 200000

// Written by `load` before the program's own code runs, and only read afterwards.
static int acts;
static int port;
static int log_file = -1;
static long long cost_ns, cost_bytes, late_ns, late_reads, late_period_ns, rcvbuf, backlog, accept_ns;

static atomic_long lines;
static atomic_int seen;
static atomic_long reads;
static atomic_llong next_late_ns;

static long long now(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return time.tv_sec * 1000000000ll + time.tv_nsec;
}

static void say(const char *text, int length) {
  if (log_file < 0) return;
  long line = atomic_fetch_add(&lines, 1);
  if (line > MOST_LINES) return;
  if (line == MOST_LINES) {
    text = "full\n";
    length = 5;
  }
  // One write with O_APPEND is one line, whoever else writes. A failure cannot be reported to anyone.
  if (write(log_file, text, (size_t)length) < 0) return;
}

static void say_number(const char *word, long long number) {
  char text[64];
  say(text, snprintf(text, sizeof text, "%s %lld\n", word, number));
}

// Sleeps through any signals, and records when.
static void pause_ns(long long ns) {
  if (ns <= 0) return;
  long long from = now(CLOCK_REALTIME), until = now(CLOCK_MONOTONIC) + ns;
  struct timespec end = {until / 1000000000, until % 1000000000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) continue;
  char text[64];
  say(text, snprintf(text, sizeof text, "pause %lld %lld\n", from, now(CLOCK_REALTIME)));
}

static int port_of(const struct sockaddr *address) {
  if (address->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)address)->sin_port);
  if (address->sa_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)address)->sin6_port);
  return -1;
}

static int is_ours(int known) {
  if (known && !atomic_exchange(&seen, 1)) say_number("loaded", getpid());
  return known;
}

static int on_port(int socket) {
  if (!acts) return 0;
  struct sockaddr_storage address;
  struct sockaddr *any = (struct sockaddr *)&address;
  socklen_t length = sizeof address;
  if (getpeername(socket, any, &length) == 0 && port_of(any) == port) return is_ours(1);
  length = sizeof address;
  return is_ours(getsockname(socket, any, &length) == 0 && port_of(any) == port);
}

static void set_buffer(int socket) {
  int bytes = (int)rcvbuf;
  socklen_t length = sizeof bytes;
  if (rcvbuf <= 0 || setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes) != 0) return;
  if (getsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, &length) == 0) say_number("buffer", bytes);
}

// Whether this read is one of the late ones.
static int is_late(void) {
  long number = atomic_fetch_add(&reads, 1) + 1;
  if (late_reads > 0 && number % late_reads == 0) return 1;
  if (late_period_ns <= 0) return 0;
  long long at = now(CLOCK_MONOTONIC), due = atomic_load(&next_late_ns);
  return at >= due && atomic_compare_exchange_strong(&next_late_ns, &due, at + late_period_ns);
}

static void before_read(int socket) {
  if (!acts || late_ns <= 0) return;
  int saved = errno, waiting = 0;
  // Readers that drain a socket try once more and get nothing: such a read does not count.
  if (on_port(socket) && ioctl(socket, FIONREAD, &waiting) == 0 && waiting > 0 && is_late()) pause_ns(late_ns);
  errno = saved;
}

static void after_read(int socket, ssize_t received) {
  if (!acts || cost_ns <= 0 || received <= 0) return;
  int saved = errno;
  if (on_port(socket)) pause_ns(cost_ns * received / cost_bytes);
  errno = saved;
}

static void before_accept(int socket) {
  if (!acts || accept_ns <= 0) return;
  int saved = errno;
  struct pollfd waiting = {.fd = socket, .events = POLLIN};
  if (on_port(socket) && poll(&waiting, 1, 0) == 1) pause_ns(accept_ns);
  errno = saved;
}

static long long number_of(const char *name, long long otherwise) {
  const char *text = getenv(name);
  return text ? strtoll(text, NULL, 10) : otherwise;
}

// Whether the first argument of this program is `wanted`. Not all C libraries pass arguments to constructors.
static int is_meant(const char *wanted) {
  char words[4096] = {0};
  int file = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  ssize_t length = read(file, words, sizeof words - 1);
  close(file);
  size_t first = strlen(words) + 1;
  return length > 0 && first < (size_t)length && strcmp(words + first, wanted) == 0;
}

__attribute__((constructor)) static void load(void) {
  const char *program = getenv("SPANGAP_SHIM_IN"), *path = getenv("SPANGAP_SHIM_LOG");
  if (!program || !is_meant(program)) return;
  port = (int)number_of("SPANGAP_SHIM_PORT", 0);
  cost_ns = number_of("SPANGAP_SHIM_COST_NS", 0);
  cost_bytes = number_of("SPANGAP_SHIM_COST_BYTES", 1);
  if (cost_bytes < 1) cost_bytes = 1;
  late_ns = number_of("SPANGAP_SHIM_LATE_NS", 0);
  late_reads = number_of("SPANGAP_SHIM_LATE_READS", 0);
  late_period_ns = number_of("SPANGAP_SHIM_LATE_PERIOD_NS", 0);
  rcvbuf = number_of("SPANGAP_SHIM_RCVBUF", 0);
  backlog = number_of("SPANGAP_SHIM_BACKLOG", -1);
  accept_ns = number_of("SPANGAP_SHIM_ACCEPT_NS", 0);
  if (path) log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  acts = port > 0;
}

// The function of that name that this one replaces. Resolved at the first call: other libraries read before `load`. It
// is the same for all threads, so it does not matter which of them writes it.
#define REAL(result, name, ...)                              \
  typedef result (*name##_function)(__VA_ARGS__);            \
  static _Atomic(name##_function) real_##name;               \
  static name##_function find_##name(void) {                 \
    name##_function found = atomic_load(&real_##name);       \
    if (!found) {                                            \
      found = (name##_function)dlsym(RTLD_NEXT, #name);      \
      atomic_store(&real_##name, found);                     \
    }                                                        \
    return found;                                            \
  }

REAL(ssize_t, read, int, void *, size_t)
REAL(ssize_t, readv, int, const struct iovec *, int)
REAL(ssize_t, recv, int, void *, size_t, int)
REAL(ssize_t, recvfrom, int, void *, size_t, int, struct sockaddr *, socklen_t *)
REAL(ssize_t, recvmsg, int, struct msghdr *, int)
REAL(int, connect, int, const struct sockaddr *, socklen_t)
REAL(int, listen, int, int)
REAL(int, accept, int, struct sockaddr *, socklen_t *)
REAL(int, accept4, int, struct sockaddr *, socklen_t *, int)

ssize_t read(int file, void *into, size_t size) {
  before_read(file);
  ssize_t received = find_read()(file, into, size);
  after_read(file, received);
  return received;
}

ssize_t readv(int file, const struct iovec *into, int count) {
  before_read(file);
  ssize_t received = find_readv()(file, into, count);
  after_read(file, received);
  return received;
}

// What is only peeked at is read later.
ssize_t recv(int socket, void *into, size_t size, int flags) {
  if (!(flags & MSG_PEEK)) before_read(socket);
  ssize_t received = find_recv()(socket, into, size, flags);
  if (!(flags & MSG_PEEK)) after_read(socket, received);
  return received;
}

ssize_t recvfrom(int socket, void *into, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
  if (!(flags & MSG_PEEK)) before_read(socket);
  ssize_t received = find_recvfrom()(socket, into, size, flags, from, length);
  if (!(flags & MSG_PEEK)) after_read(socket, received);
  return received;
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
  if (!(flags & (MSG_PEEK | MSG_ERRQUEUE))) before_read(socket);
  ssize_t received = find_recvmsg()(socket, message, flags);
  if (!(flags & (MSG_PEEK | MSG_ERRQUEUE))) after_read(socket, received);
  return received;
}

int connect(int socket, const struct sockaddr *address, socklen_t length) {
  int saved = errno;
  if (acts && address && length >= sizeof(struct sockaddr_in) && is_ours(port_of(address) == port)) set_buffer(socket);
  errno = saved;
  return find_connect()(socket, address, length);
}

int listen(int socket, int wanted) {
  int saved = errno;
  if (on_port(socket)) {
    set_buffer(socket);
    if (backlog >= 0) {
      wanted = (int)backlog;
      say_number("backlog", wanted);
    }
  }
  errno = saved;
  return find_listen()(socket, wanted);
}

int accept(int socket, struct sockaddr *address, socklen_t *length) {
  before_accept(socket);
  return find_accept()(socket, address, length);
}

int accept4(int socket, struct sockaddr *address, socklen_t *length, int flags) {
  before_accept(socket);
  return find_accept4()(socket, address, length, flags);
}
