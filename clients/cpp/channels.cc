#include "channels.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "clock.h"
#include "json.h"

namespace spangap {
namespace {

using std::chrono::milliseconds;
using std::chrono::system_clock;

unsigned channels_needed(const ClientSettings& settings) {
  switch (settings.channel_mode) {
    case ChannelMode::shared:
      return 1;
    case ChannelMode::pool:
      return settings.pool_channels;
    default:
      return settings.in_flight;
  }
}

grpc::ChannelArguments arguments_of(ChannelMode mode, unsigned number) {
  grpc::ChannelArguments arguments;
  // The user decides about large responses, and a proxy would not be the target.
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Channels share subchannels, and so connections, if all their arguments are equal.
  if (mode == ChannelMode::distinct || mode == ChannelMode::pool) arguments.SetInt("spangap.channel", number);
  if (mode == ChannelMode::local_pool) arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return arguments;
}

std::string milliseconds_text(int64_t ns) {
  char text[32];
  snprintf(text, sizeof text, "%gms", static_cast<double>(ns) / MILLISECOND_NS);
  return text;
}

}  // namespace

Channels::Channels(const ClientSettings& settings) : settings_(settings) {
  const unsigned count = channels_needed(settings);
  for (unsigned number = 0; number < count; ++number) {
    Channel& channel = channels_.emplace_back();
    channel.number = number;
    channel.channel = grpc::CreateCustomChannel(settings.target, grpc::InsecureChannelCredentials(),
                                                arguments_of(settings.channel_mode, number));
    channel.stub = pb::Ping::NewStub(channel.channel);
  }
}

std::optional<std::string> Channels::connect(const std::function<bool()>& give_up) {
  for (Channel& channel : channels_) {
    const int64_t deadline_ns = monotonic_ns() + settings_.timeout_ns;
    for (;;) {
      const grpc_connectivity_state state = channel.channel->GetState(true);
      if (state == GRPC_CHANNEL_READY) break;
      const std::string failed = "cannot connect to " + settings_.target + ": ";
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return failed + why_not_connected(channel);
      const int64_t left_ns = deadline_ns - monotonic_ns();
      if (left_ns <= 0) return failed + "no connection within " + milliseconds_text(settings_.timeout_ns);
      if (give_up()) return std::nullopt;
      const auto wait = std::min(milliseconds(left_ns / MILLISECOND_NS + 1), milliseconds(50));
      channel.channel->WaitForStateChange(state, system_clock::now() + wait);
    }
    find_connection(channel);
    if (give_up()) return std::nullopt;
  }
  return std::nullopt;
}

// The state of a channel comes without a reason; a call that fails on it has one.
std::string Channels::why_not_connected(Channel& channel) {
  grpc::ClientContext context;
  context.set_deadline(system_clock::now() + milliseconds(1000));
  pb::UsageResponse response;
  const grpc::Status status = channel.stub->Usage(&context, {}, &response);
  return status.ok() ? "the first attempt failed, a later one did not" : status.error_message();
}

void Channels::find_connection(Channel& channel) {
  unsigned appeared = 0;
  OwnSocket found;
  for (const OwnSocket& socket : own_tcp_sockets()) {
    if (!seen_sockets_.insert(socket.inode).second) continue;
    ++appeared;
    found = socket;
  }
  // Without a new connection, it shares an earlier one; which one is known only if there is just one.
  if (appeared == 0 && seen_sockets_.size() == 1 && connections_.size() == 1) channel.connection = 0;
  if (appeared != 1 || connections_.size() == NO_CONNECTION) return;
  JsonObject message;
  message.text("event", "connection").number("id", connections_.size()).number("channel", channel.number);
  send_message(message.text("local", found.local).text("peer", found.peer));
  channel.connection = connections_.size();
  connections_.push_back(found);
}

}  // namespace spangap
