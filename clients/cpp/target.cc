#include "target.h"

#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "clock.h"
#include "json.h"
#include "life_line.h"
#include "served_calls.h"
#include "serving.h"

namespace spangap {
namespace {

// How long the end waits for calls in progress, and then for the library.
constexpr std::chrono::milliseconds GRACE(2000);
constexpr std::chrono::milliseconds GRACE_OF_LIBRARY(200);

// The address as numbers, so that there is exactly one and it can be reported.
struct ListenAddress {
  explicit ListenAddress(const std::string& listen) : text(listen) {
    const size_t colon = listen.rfind(':');
    host = listen.substr(0, colon);
    port = listen.substr(colon + 1);
    if (host.size() > 1 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found)) fail(gai_strerror(error));
    memcpy(&address, found->ai_addr, found->ai_addrlen);
    size = found->ai_addrlen;
    freeaddrinfo(found);
    char number[NI_MAXHOST];
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, number, sizeof number, nullptr, 0, NI_NUMERICHOST);
    host = address.ss_family == AF_INET6 ? "[" + std::string(number) + "]" : number;
  }

  std::string with_port(const std::string& number) const { return host + ":" + number; }

  [[noreturn]] void fail(const std::string& why) const {
    throw std::runtime_error("cannot listen on " + text + ": " + why);
  }

  // The library only logs why it cannot listen; trying again with the kernel returns the reason.
  [[noreturn]] void fail_as_the_kernel_does() const {
    const int probe = socket(address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    const bool listens = bind(probe, reinterpret_cast<const sockaddr*>(&address), size) == 0 && listen(probe, 1) == 0;
    const std::string why = listens ? "the library failed, see standard error" : strerror(errno);
    close(probe);
    fail(why);
  }

  std::string text, host, port;
  sockaddr_storage address{};
  socklen_t size = 0;
};

// Ends all think times when the grace period is over.
class Grace {
 public:
  explicit Grace(Serving& serving) : thread_([this, &serving] {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, GRACE, [this] { return over_; });
    cut_off_ = serving.cut_off_calls();
  }) {}

  // Returns whether calls were still in progress at the end of the grace period.
  bool end() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
    return cut_off_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  bool cut_off_ = false;
  std::thread thread_;
};

}  // namespace

int run_target(const TargetSettings& settings) {
  Serving serving(settings);
  const ListenAddress address(settings.listen);
  pb::Ping::AsyncService service;

  grpc::health::v1::Health::AsyncService health;
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address.with_port(address.port), grpc::InsecureServerCredentials(), &port);
  // Two targets that share a port would each see half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  if (settings.max_streams > 0) builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, settings.max_streams);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  // Only reflection is served by the library's own threads.
  builder.SetSyncServerOption(grpc::ServerBuilder::SyncServerOption::NUM_CQS, 1);
  builder.RegisterService(&service);
  builder.RegisterService(&health);
  std::deque<ServingQueue> queues;
  for (unsigned number = 0; number < settings.threads; ++number) {
    queues.emplace_back(serving, service, health, builder.AddCompletionQueue());
  }
  const auto server = builder.BuildAndStart();
  if (!server || port == 0) address.fail_as_the_kernel_does();
  std::vector<std::thread> threads;
  for (ServingQueue& queue : queues) threads.emplace_back([&queue] { queue.serve(); });

  JsonObject message;
  message.text("event", "listening").text("address", address.with_port(std::to_string(port)));
  send_message(message.text("library", "gRPC C++ " + grpc::Version()));

  LifeLine life_line;
  while (life_line.wait_until(NEVER_NS) != LifeLine::Woken::ended) {
  }

  Grace grace(serving);
  for (ServingQueue& queue : queues) queue.end_streams();
  server->Shutdown(std::chrono::system_clock::now() + GRACE + GRACE_OF_LIBRARY);
  const bool cut_off = grace.end();
  serving.alarm.stop();
  for (ServingQueue& queue : queues) queue.shut_down();
  for (std::thread& thread : threads) thread.join();
  serving.send_end(cut_off);
  return 0;
}

}  // namespace spangap
