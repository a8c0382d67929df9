// What the minimal gRPC loops share: arguments, and counting between two moments.
#pragma once

#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>

struct Arguments {
  const char* target;
  int in_flight;
  double warmup_s;
  double measured_s;

  Arguments(int count, char** values) {
    if (count != 5) {
      fprintf(stderr, "usage: %s TARGET IN_FLIGHT WARMUP_S SECONDS\n", values[0]);
      exit(2);
    }
    target = values[1];
    in_flight = atoi(values[2]);
    warmup_s = atof(values[3]);
    measured_s = atof(values[4]);
  }
};

inline double cpu_s() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

// Runs the loop, prints what it did between the warm-up and the end, and ends the process.
template <typename Calls>
[[noreturn]] void measure_and_exit(const Arguments& arguments, Calls calls) {
  using Clock = std::chrono::steady_clock;
  const auto wait = [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); };
  wait(arguments.warmup_s);
  const auto from = Clock::now();
  const uint64_t calls_before = calls();
  const double cpu_before_s = cpu_s();
  wait(arguments.measured_s);
  const double seconds = std::chrono::duration<double>(Clock::now() - from).count();
  printf("{\"calls\":%llu,\"seconds\":%.6f,\"cpu_s\":%.6f}\n",
         static_cast<unsigned long long>(calls() - calls_before), seconds, cpu_s() - cpu_before_s);
  fflush(stdout);
  _Exit(0);
}

// A failed call makes the figures worthless.
inline void must(bool ok, const char* why) {
  if (ok) return;
  fprintf(stderr, "a call failed: %s\n", why);
  _Exit(1);
}
