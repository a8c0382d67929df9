// The minimal closed loop with callbacks: the end of each call starts the next.

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>

#include "grpc_measure.h"
#include "spangap/ping/v1/ping.grpc.pb.h"

using namespace spangap::ping::v1;

const PingRequest request;
std::unique_ptr<Ping::Stub> stub;

struct alignas(64) Slot {
  std::optional<grpc::ClientContext> context;
  PingResponse response;
  std::atomic<uint64_t> calls{0};

  void start() {
    context.emplace();
    stub->async()->Ping(&*context, &request, &response, [this](const grpc::Status& status) {
      must(status.ok(), status.error_message().c_str());
      calls.store(calls.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
      start();
    });
  }
};

int main(int count, char** values) {
  const Arguments arguments(count, values);
  const auto channel = grpc::CreateChannel(arguments.target, grpc::InsecureChannelCredentials());
  stub = Ping::NewStub(channel);
  std::deque<Slot> slots(arguments.in_flight);
  for (Slot& slot : slots) slot.start();
  measure_and_exit(arguments, [&] {
    uint64_t sum = 0;
    for (const Slot& slot : slots) sum += slot.calls.load(std::memory_order_relaxed);
    return sum;
  });
}
