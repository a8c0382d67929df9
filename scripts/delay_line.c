// A link with faults, made to order: forwards IP packets between TUN devices in two network namespaces, each
// direction with a delay of its own, and with losses, reordering, duplicates and clumps at packets that are named.
// For captures whose truth is known, on kernels without netem. By itself it adds about 10 us.
//
//   delay_line [OPTIONS] NETNS_A DEVICE_A NETNS_B DEVICE_B
//
// A namespace is a name of `ip netns`, or a path. The devices exist already (`ip tuntap add dev DEVICE mode tun`).
// Direction a is from A to B. Prints `ready` when it forwards, nothing else. Ends when its standard input does, or by
// a signal. Options; -b likewise:
//
//   --delay-a NS          how long every packet takes
//   --spike-a EVERY,NS    every EVERYth counted packet takes NS longer, and what follows waits behind it
//   --swap-a LIST         these counted packets come out after the one that follows them
//   --drop-a LIST         these counted packets are lost
//   --twice-a LIST        these counted packets come twice
//   --clump-a NS          packets come out only at multiples of NS
//   --least-a BYTES       TCP packets with at least so much payload count (1; with 0 SYN and bare ACKs do, too)
//   --most-a BYTES        and with at most so much
//
// LIST is numbers, from 1, ascending, separated by commas; a-b is a range.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { PACKET_BYTES = 65536, QUEUE_PACKETS = 16384 };

typedef struct Packet {
  struct Packet *next;
  int64_t due_ns;
  size_t bytes;
  unsigned char data[];
} Packet;

typedef struct {
  long delay_ns, spike_every, spike_ns, clump_ns, least_bytes, most_bytes;
  const char *drop, *swap, *twice;
  long counted;         // packets so far that the lists count
  int64_t behind_ns;    // nothing comes out before this
  Packet *swapped;      // comes out after the next one
  Packet *first, *last; // in the order in which they come out
  long queued;
  int from, to;
} Direction;

static void fail(const char *what) {
  fprintf(stderr, "delay_line: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void misused(const char *what) {
  fprintf(stderr, "delay_line: %s; its options are at the top of delay_line.c\n", what);
  exit(2);
}

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

// Whether a list has the number.
static int listed(const char *list, long number) {
  while (list && *list) {
    char *end;
    long from = strtol(list, &end, 10), to = from;
    if (*end == '-') to = strtol(end + 1, &end, 10);
    if (number >= from && number <= to) return 1;
    list = *end == ',' ? end + 1 : NULL;
  }
  return 0;
}

// Payload of a TCP packet over IPv4 or IPv6 (without extension headers); -1 for any other.
static long tcp_payload(const unsigned char *packet, long bytes) {
  long header, total;
  if (bytes >= 40 && packet[0] >> 4 == 4 && packet[9] == 6) {
    header = (packet[0] & 15) * 4;
    total = packet[2] << 8 | packet[3];
  } else if (bytes >= 60 && packet[0] >> 4 == 6 && packet[6] == 6) {
    header = 40;
    total = 40 + (packet[4] << 8 | packet[5]);
  } else {
    return -1;
  }
  if (header + 20 > bytes) return -1;
  return total - header - (packet[header + 12] >> 4) * 4;
}

// Puts a packet behind all that come out no later.
static void enqueue(Direction *line, Packet *packet, int64_t due_ns) {
  packet->due_ns = due_ns;
  Packet **place = &line->first;
  if (line->last && line->last->due_ns <= due_ns) place = &line->last->next;
  while (*place && (*place)->due_ns <= due_ns) place = &(*place)->next;
  packet->next = *place;
  *place = packet;
  if (!packet->next) line->last = packet;
  line->queued++;
}

static Packet *packet_of(const unsigned char *data, size_t bytes) {
  Packet *packet = malloc(sizeof *packet + bytes);
  if (!packet) fail("no memory");
  packet->bytes = bytes;
  memcpy(packet->data, data, bytes);
  return packet;
}

static void arrived(Direction *line, const unsigned char *data, size_t bytes) {
  if (line->queued >= QUEUE_PACKETS) return; // a full queue loses packets, as any does
  long payload = tcp_payload(data, bytes);
  long number = payload >= line->least_bytes && payload <= line->most_bytes ? ++line->counted : 0;
  if (number && listed(line->drop, number)) return;
  int64_t due_ns = now_ns() + line->delay_ns;
  if (number && line->spike_every && number % line->spike_every == 0) line->behind_ns = due_ns + line->spike_ns;
  if (due_ns < line->behind_ns) due_ns = line->behind_ns;
  if (line->clump_ns) due_ns = (due_ns / line->clump_ns + 1) * line->clump_ns;
  if (number && !line->swapped && listed(line->swap, number)) {
    line->swapped = packet_of(data, bytes);
    return;
  }
  enqueue(line, packet_of(data, bytes), due_ns);
  if (number && listed(line->twice, number)) enqueue(line, packet_of(data, bytes), due_ns);
  if (line->swapped) enqueue(line, line->swapped, due_ns);
  line->swapped = NULL;
}

static void receive(Direction *line) {
  static unsigned char data[PACKET_BYTES];
  // A bounded number, so that one direction does not keep the other waiting.
  for (int n = 0; n < 64; n++) {
    ssize_t bytes = read(line->from, data, sizeof data);
    if (bytes < 0 && errno == EAGAIN) return;
    if (bytes < 0 && errno != EINTR) fail("reading the device");
    if (bytes > 0) arrived(line, data, bytes);
  }
}

static void release(Direction *line, int64_t until_ns) {
  while (line->first && line->first->due_ns <= until_ns) {
    Packet *packet = line->first;
    // What the device does not take (it is down, the packet malformed) is lost, as on any link.
    if (write(line->to, packet->data, packet->bytes) < 0 && errno == EBADFD) fail("writing to the device");
    line->first = packet->next;
    if (!line->first) line->last = NULL;
    line->queued--;
    free(packet);
  }
}

// A TUN device belongs to the namespace in which its file was opened.
static int attach(const char *netns, const char *device) {
  char path[256];
  snprintf(path, sizeof path, strchr(netns, '/') ? "%s" : "/var/run/netns/%s", netns);
  int space = open(path, O_RDONLY | O_CLOEXEC);
  if (space < 0) fail(path);
  if (setns(space, CLONE_NEWNET) < 0) fail("entering the namespace");
  close(space);
  int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tun < 0) fail("/dev/net/tun");
  struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
  snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
  if (ioctl(tun, TUNSETIFF, &request) < 0) fail(device);
  return tun;
}

static long number_of(const char *text, char **end) {
  errno = 0;
  long number = strtol(text, end, 10);
  if (errno || *end == text || number < 0) misused("a number is missing or malformed");
  return number;
}

static void option(Direction lines[2], const char *name, const char *value) {
  char *end = "";
  char stem[16];
  size_t length = strlen(name);
  char way = length ? name[length - 1] : 0;
  if (length < 5 || length > sizeof stem || name[length - 2] != '-' || (way != 'a' && way != 'b')) {
    misused("an option is unknown");
  }
  Direction *line = &lines[way == 'b'];
  memcpy(stem, name, length - 2);
  stem[length - 2] = 0;
  if (!strcmp(stem, "--delay")) line->delay_ns = number_of(value, &end);
  else if (!strcmp(stem, "--clump")) line->clump_ns = number_of(value, &end);
  else if (!strcmp(stem, "--least")) line->least_bytes = number_of(value, &end);
  else if (!strcmp(stem, "--most")) line->most_bytes = number_of(value, &end);
  else if (!strcmp(stem, "--drop")) line->drop = value;
  else if (!strcmp(stem, "--swap")) line->swap = value;
  else if (!strcmp(stem, "--twice")) line->twice = value;
  else if (!strcmp(stem, "--spike")) {
    line->spike_every = number_of(value, &end);
    if (*end++ != ',') misused("--spike takes EVERY,NS");
    line->spike_ns = number_of(end, &end);
  } else misused("an option is unknown");
  if (*end) misused("a number is malformed");
}

int main(int count, char **arguments) {
  Direction lines[2] = {{.least_bytes = 1, .most_bytes = PACKET_BYTES}, {.least_bytes = 1, .most_bytes = PACKET_BYTES}};
  int at = 1;
  for (; at + 1 < count && strncmp(arguments[at], "--", 2) == 0; at += 2) {
    option(lines, arguments[at], arguments[at + 1]);
  }
  if (count - at != 4) misused("two namespaces, each with its device, have to be named");
  lines[0].from = lines[1].to = attach(arguments[at], arguments[at + 1]);
  lines[0].to = lines[1].from = attach(arguments[at + 2], arguments[at + 3]);
  prctl(PR_SET_TIMERSLACK, 1);
  if (write(STDOUT_FILENO, "ready\n", 6) != 6) fail("standard output");

  for (;;) {
    int64_t next_ns = INT64_MAX, now = now_ns();
    for (int n = 0; n < 2; n++) {
      release(&lines[n], now);
      if (lines[n].first && lines[n].first->due_ns < next_ns) next_ns = lines[n].first->due_ns;
    }
    struct pollfd files[3] = {{lines[0].from, POLLIN, 0}, {lines[1].from, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}};
    int64_t wait_ns = next_ns == INT64_MAX ? 0 : next_ns - now_ns();
    if (wait_ns < 0) wait_ns = 0;
    struct timespec wait = {wait_ns / 1000000000, wait_ns % 1000000000};
    if (ppoll(files, 3, next_ns == INT64_MAX ? NULL : &wait, NULL) < 0 && errno != EINTR) fail("ppoll");
    if (files[2].revents) {
      char rest[64];
      if (read(STDIN_FILENO, rest, sizeof rest) <= 0) return 0;
    }
    receive(&lines[0]);
    receive(&lines[1]);
  }
}
