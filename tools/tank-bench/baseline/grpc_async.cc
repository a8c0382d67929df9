// The minimal closed loop over one completion queue with one thread.

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <optional>

#include "grpc_measure.h"
#include "spangap/ping/v1/ping.grpc.pb.h"

using namespace spangap::ping::v1;

struct Slot {
  std::optional<grpc::ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<PingResponse>> reader;
  PingResponse response;
  grpc::Status status;
};

int main(int count, char** values) {
  const Arguments arguments(count, values);
  const auto channel = grpc::CreateChannel(arguments.target, grpc::InsecureChannelCredentials());
  const auto stub = Ping::NewStub(channel);
  std::atomic<uint64_t> calls{0};
  std::thread([&] {
    grpc::CompletionQueue queue;
    const PingRequest request;
    std::deque<Slot> slots(arguments.in_flight);
    const auto start = [&](Slot& slot) {
      slot.reader.reset();
      slot.context.emplace();
      slot.reader = stub->AsyncPing(&*slot.context, request, &queue);
      slot.reader->Finish(&slot.response, &slot.status, &slot);
    };
    for (Slot& slot : slots) start(slot);
    void* tag;
    bool ok;
    for (uint64_t done = 1; queue.Next(&tag, &ok); ++done) {
      Slot& slot = *static_cast<Slot*>(tag);
      must(slot.status.ok(), slot.status.error_message().c_str());
      calls.store(done, std::memory_order_relaxed);
      start(slot);
    }
  }).detach();
  measure_and_exit(arguments, [&] { return calls.load(std::memory_order_relaxed); });
}
