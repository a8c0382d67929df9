/* A task of a machine of scripts/isolate_machine.sh: works for half a millisecond, sleeps for ten, for ever. */
#include <time.h>

static long long now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return at.tv_sec * 1000000000LL + at.tv_nsec;
}

int main(void) {
  const struct timespec pause = {0, 10000000};
  for (;;) {
    long long until = now() + 500000;
    while (now() < until) {}
    nanosleep(&pause, 0);
  }
}
