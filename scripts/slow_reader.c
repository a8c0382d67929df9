// Preloaded into a client, gives each of its connections a serial cost that burns no CPU: whoever reads from a TCP
// socket by recvmsg, as gRPC's C-core does, then sleeps for SLOW_READER_US for every SLOW_READER_BYTES read. It stands
// for what a busy client does under its transport's lock, on machines with too few cores to show that.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

typedef ssize_t (*recvmsg_function)(int, struct msghdr *, int);

static recvmsg_function real_recvmsg;
static long sleep_ns;
// A response to an empty ping of gRPC C++: headers, message and trailers, once the header table knows them.
static long bytes_per_sleep = 49;

__attribute__((constructor)) static void load(void) {
  real_recvmsg = (recvmsg_function)dlsym(RTLD_NEXT, "recvmsg");
  const char *text = getenv("SLOW_READER_US");
  sleep_ns = text ? strtol(text, NULL, 10) * 1000 : 0;
  text = getenv("SLOW_READER_BYTES");
  if (text && strtol(text, NULL, 10) > 0) bytes_per_sleep = strtol(text, NULL, 10);
}

ssize_t recvmsg(int socket, struct msghdr *message, int flags) {
  ssize_t received = real_recvmsg(socket, message, flags);
  int saved = errno;
  struct sockaddr_storage peer;
  socklen_t length = sizeof peer;
  if (received > 0 && sleep_ns > 0 && getpeername(socket, (struct sockaddr *)&peer, &length) == 0 &&
      (peer.ss_family == AF_INET || peer.ss_family == AF_INET6)) {
    long pause_ns = sleep_ns * ((received + bytes_per_sleep - 1) / bytes_per_sleep);
    struct timespec pause = {pause_ns / 1000000000, pause_ns % 1000000000};
    nanosleep(&pause, NULL);
  }
  errno = saved;
  return received;
}
