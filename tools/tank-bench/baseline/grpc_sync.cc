// The minimal closed loop with blocking calls: one thread per call in progress.

#include <grpcpp/grpcpp.h>

#include <deque>
#include <vector>

#include "grpc_measure.h"
#include "spangap/ping/v1/ping.grpc.pb.h"

using namespace spangap::ping::v1;

struct alignas(64) Counter {
  std::atomic<uint64_t> calls{0};
};

int main(int count, char** values) {
  const Arguments arguments(count, values);
  const auto channel = grpc::CreateChannel(arguments.target, grpc::InsecureChannelCredentials());
  const auto stub = Ping::NewStub(channel);
  std::deque<Counter> counters(arguments.in_flight);
  for (Counter& counter : counters) {
    std::thread([&] {
      PingRequest request;
      PingResponse response;
      for (uint64_t calls = 1;; ++calls) {
        grpc::ClientContext context;
        const grpc::Status status = stub->Ping(&context, request, &response);
        must(status.ok(), status.error_message().c_str());
        counter.calls.store(calls, std::memory_order_relaxed);
      }
    }).detach();
  }
  measure_and_exit(arguments, [&] {
    uint64_t sum = 0;
    for (const Counter& counter : counters) sum += counter.calls.load(std::memory_order_relaxed);
    return sum;
  });
}
