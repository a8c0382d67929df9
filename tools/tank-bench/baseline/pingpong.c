/*
 * The plainest TCP ping-pong: what the raw stack is held to.
 *
 *   pingpong server PORT
 *   pingpong client HOST PORT IN_FLIGHT WARMUP_S SECONDS
 *
 * Messages of 64 bytes over one connection, blocking sockets, no Nagle. The client keeps IN_FLIGHT messages under
 * way and prints {"calls":n,"seconds":s,"cpu_s":c,"p50_ns":n,"p99_ns":n}.
 */
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_BYTES 64
#define MAX_IN_FLIGHT 1024
#define BUFFER_BYTES (MESSAGE_BYTES * MAX_IN_FLIGHT)
/* Buckets of 16 ns, up to 16 ms; the last one has the rest. */
#define BUCKET_NS 16
#define BUCKETS (1 << 20)

static char buffer[BUFFER_BYTES];
static uint64_t sent_ns[MAX_IN_FLIGHT];
static uint32_t histogram[BUCKETS];

static void fail(const char *what)
{
	fprintf(stderr, "pingpong: %s: %s\n", what, strerror(errno));
	exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static double cpu_s(void)
{
	struct rusage usage;
	getrusage(RUSAGE_SELF, &usage);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static void send_all(int fd, size_t bytes)
{
	for (size_t sent = 0; sent < bytes;) {
		ssize_t n = write(fd, buffer + sent, bytes - sent);
		if (n < 0)
			fail("write");
		sent += n;
	}
}

static void no_delay(int fd)
{
	int on = 1;
	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) < 0)
		fail("TCP_NODELAY");
}

/* Reads what is there, and the rest of its last message. Returns the number of messages, 0 at the end. */
static size_t read_messages(int fd)
{
	ssize_t n = read(fd, buffer, BUFFER_BYTES);
	if (n < 0 && errno == ECONNRESET)
		return 0;
	if (n < 0)
		fail("read");
	size_t bytes = n;
	while (bytes % MESSAGE_BYTES != 0) {
		n = read(fd, buffer + bytes, MESSAGE_BYTES - bytes % MESSAGE_BYTES);
		if (n <= 0)
			fail("read");
		bytes += n;
	}
	return bytes / MESSAGE_BYTES;
}

static void serve(int port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
	int on = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, 16) < 0)
		fail("listen");
	socklen_t length = sizeof address;
	if (getsockname(listener, (struct sockaddr *)&address, &length) < 0)
		fail("getsockname");
	printf("listening on 127.0.0.1:%d\n", ntohs(address.sin_port));
	fflush(stdout);
	for (;;) {
		int fd = accept(listener, NULL, NULL);
		if (fd < 0)
			fail("accept");
		no_delay(fd);
		size_t messages;
		while ((messages = read_messages(fd)) > 0)
			send_all(fd, messages * MESSAGE_BYTES);
		close(fd);
	}
}

static uint64_t quantile(uint64_t calls, double q)
{
	uint64_t seen = 0, rank = (uint64_t)(q * calls);
	for (size_t i = 0; i < BUCKETS; i++) {
		seen += histogram[i];
		if (seen > rank)
			return i * BUCKET_NS + BUCKET_NS / 2;
	}
	return 0;
}

static void call(const char *host, const char *port, size_t in_flight, double warmup_s, double seconds)
{
	struct addrinfo hints = {.ai_family = AF_INET, .ai_socktype = SOCK_STREAM}, *address;
	if (getaddrinfo(host, port, &hints, &address) != 0)
		fail("getaddrinfo");
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, address->ai_addr, address->ai_addrlen) < 0)
		fail("connect");
	no_delay(fd);

	uint64_t start = now_ns(), from = start + warmup_s * 1e9, to = from + seconds * 1e9;
	uint64_t calls = 0, now = start;
	double cpu_before_s = 0;
	size_t oldest = 0;
	for (size_t i = 0; i < in_flight; i++)
		sent_ns[i] = now;
	send_all(fd, in_flight * MESSAGE_BYTES);
	while (now < to) {
		size_t messages = read_messages(fd);
		if (messages == 0)
			fail("the server left");
		now = now_ns();
		if (now >= from && cpu_before_s == 0)
			cpu_before_s = cpu_s();
		for (size_t i = 0; i < messages; i++) {
			if (now >= from) {
				uint64_t bucket = (now - sent_ns[oldest]) / BUCKET_NS;
				histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
				calls++;
			}
			sent_ns[oldest] = now;
			oldest = oldest + 1 == in_flight ? 0 : oldest + 1;
		}
		send_all(fd, messages * MESSAGE_BYTES);
	}
	printf("{\"calls\":%lu,\"seconds\":%.6f,\"cpu_s\":%.6f,\"p50_ns\":%lu,\"p99_ns\":%lu}\n", (unsigned long)calls,
	       (now - from) / 1e9, cpu_s() - cpu_before_s, (unsigned long)quantile(calls, 0.5),
	       (unsigned long)quantile(calls, 0.99));
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "server") == 0)
		serve(atoi(argv[2]));
	if (argc == 7 && strcmp(argv[1], "client") == 0) {
		long in_flight = atol(argv[4]);
		double warmup_s = atof(argv[5]), seconds = atof(argv[6]);
		if (in_flight >= 1 && in_flight <= MAX_IN_FLIGHT && warmup_s >= 0 && seconds > 0) {
			call(argv[2], argv[3], in_flight, warmup_s, seconds);
			return 0;
		}
	}
	fprintf(stderr, "usage: pingpong server PORT | pingpong client HOST PORT IN_FLIGHT WARMUP_S SECONDS\n"
			"IN_FLIGHT: 1 to %d\n", MAX_IN_FLIGHT);
	return 2;
}
