// The channels of a run, their connections, and which worker uses which channel.
#pragma once

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "records.h"
#include "settings.h"
#include "sockets.h"
#include "spangap/ping/v1/ping.grpc.pb.h"

namespace spangap {

namespace pb = ::spangap::ping::v1;

struct Channel {
  unsigned number;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<pb::Ping::Stub> stub;
  // Id of the connection that it was connected with; NO_CONNECTION if unknown.
  uint16_t connection = NO_CONNECTION;
};

class Channels {
 public:
  explicit Channels(const ClientSettings& settings);

  // Connects all of them, one after the other, and reports the connections that appear. Returns the reason for a
  // failure; none on success, or if `give_up()` returned true.
  std::optional<std::string> connect(const std::function<bool()>& give_up);

  size_t count() const { return channels_.size(); }
  Channel& of_worker(unsigned worker) { return channels_[worker % channels_.size()]; }
  // Whether a connection is still open. A lost connection never returns.
  bool is_open(uint16_t connection) const { return spangap::is_open(connections_[connection]); }

 private:
  std::string why_not_connected(Channel& channel);
  void find_connection(Channel& channel);

  const ClientSettings& settings_;
  std::deque<Channel> channels_;
  std::set<ino_t> seen_sockets_;
  // By id.
  std::vector<OwnSocket> connections_;
};

}  // namespace spangap
