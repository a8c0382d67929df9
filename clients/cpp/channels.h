// The channels of a run, their connections, and which worker uses which.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "records.h"
#include "settings.h"
#include "spangap/ping/v1/ping.grpc.pb.h"

namespace spangap {

namespace pb = ::spangap::ping::v1;

struct Channel {
  unsigned number;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::Ping::Stub> stub;
  // Id of the connection that it uses; NO_CONNECTION when not known.
  std::atomic<uint16_t> connection{NO_CONNECTION};
};

class Channels {
 public:
  explicit Channels(const ClientSettings& settings);
  ~Channels();

  // Connects all of them, one after the other, and says which connections appeared. None when that succeeded or
  // `give_up()` said so, otherwise the reason.
  std::optional<std::string> connect(const std::function<bool()>& give_up);

  size_t count() const { return channels_.size(); }
  Channel& of_worker(unsigned worker) { return channels_[worker % channels_.size()]; }

 private:
  std::string why_not_connected(Channel& channel);
  void find_connection(Channel& channel);
  void watch();

  const ClientSettings& settings_;
  std::deque<Channel> channels_;
  std::set<ino_t> seen_sockets_;
  unsigned connections_ = 0;
  // Tells when a channel is no longer connected as it was; used only when there are records that carry ids.
  // It must not poll: its thread would take events away from the threads that call.
  grpc::CompletionQueue state_changes_;
  std::thread watcher_;
};

}  // namespace spangap
