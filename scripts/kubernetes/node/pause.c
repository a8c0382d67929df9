// The process that holds the namespaces of a pod: it does nothing, and takes its leave when it is asked to.
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal) {
  (void)signal;
  _exit(0);
}

static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

int main(int count, char **arguments) {
  if (count > 1 && strcmp(arguments[1], "--version") == 0) {
    puts("pause 1");
    return 0;
  }
  signal(SIGINT, leave);
  signal(SIGTERM, leave);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
