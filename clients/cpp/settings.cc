#include "settings.h"

#include <charconv>
#include <map>
#include <string_view>
#include <utility>

namespace spangap {
namespace {

constexpr uint64_t MAX_DURATION_NS = uint64_t{1} << 61;
constexpr uint64_t MAX_CALLS = uint64_t{1} << 62;
// No machine has the memory for more calls than this at once; a larger number is a typing error.
constexpr uint64_t MAX_IN_FLIGHT = 1'000'000;
constexpr uint64_t MAX_CHANNELS_PER_WORKER = 1024;
constexpr uint64_t MAX_THREADS = 4096;
// A protobuf message is limited to 2 GiB.
constexpr uint64_t MAX_REQUEST_BYTES = (uint64_t{1} << 31) - 4096;

std::optional<uint64_t> read_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

class Flags {
 public:
  explicit Flags(const std::vector<std::string>& arguments) {
    for (const std::string& argument : arguments) {
      const size_t equals = argument.find('=');
      if (!argument.starts_with("--") || equals == std::string::npos) {
        throw SettingsError("\"" + argument + "\" is not a flag: expected --name=value");
      }
      const std::string name = argument.substr(2, equals - 2);
      if (!values_.emplace(name, argument.substr(equals + 1)).second) {
        throw SettingsError("--" + name + " is given twice");
      }
    }
  }

  std::string text(const std::string& name) {
    const auto found = values_.find(name);
    if (found == values_.end()) throw SettingsError("--" + name + " is missing: every flag has to be given");
    return std::move(values_.extract(found).mapped());
  }

  uint64_t number(const std::string& name, uint64_t least, uint64_t most) {
    return checked_number(name, text(name), least, most);
  }

  std::optional<uint64_t> number_or_target(const std::string& name, uint64_t most) {
    const std::string value = text(name);
    if (value == "target") return std::nullopt;
    const auto number = read_number(value);
    if (!number || *number > most) {
      refuse(name, value, "expected `target` or a number from 0 to " + std::to_string(most));
    }
    return number;
  }

  template <typename Value>
  Value choice(const std::string& name, const std::map<std::string, Value>& choices) {
    const std::string value = text(name);
    const auto found = choices.find(value);
    if (found != choices.end()) return found->second;
    std::string expected = "expected ";
    for (const auto& [word, _] : choices) expected += (word == choices.begin()->first ? "" : ", ") + word;
    refuse(name, value, expected);
  }

  std::string host_and_port(const std::string& name) {
    std::string value = text(name);
    const size_t colon = value.rfind(':');
    const auto port = colon == std::string::npos ? std::nullopt : read_number(value.substr(colon + 1));
    if (!port || *port > 65535 || colon == 0) refuse(name, value, "expected HOST:PORT");
    return value;
  }

  static uint64_t checked_number(const std::string& name, const std::string& value, uint64_t least, uint64_t most) {
    const auto number = read_number(value);
    if (!number || *number < least || *number > most) {
      refuse(name, value, "expected a number from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return *number;
  }

  [[noreturn]] static void refuse(const std::string& name, const std::string& value, const std::string& why) {
    throw SettingsError("--" + name + "=" + value + ": " + why);
  }

  void finish() const {
    if (!values_.empty()) throw SettingsError("--" + values_.begin()->first + " is not known");
  }

 private:
  std::map<std::string, std::string> values_;
};

void parse_channels(Flags& flags, ClientSettings& settings) {
  const std::string value = flags.text("channels");
  static const std::map<std::string, ChannelMode> MODES = {{"shared", ChannelMode::shared},
                                                           {"per-worker", ChannelMode::per_worker},
                                                           {"distinct", ChannelMode::distinct},
                                                           {"local-pool", ChannelMode::local_pool}};
  if (const auto mode = MODES.find(value); mode != MODES.end()) {
    settings.channel_mode = mode->second;
  } else if (value.starts_with("pool:")) {
    settings.channel_mode = ChannelMode::pool;
    const auto channels = read_number(value.substr(5));
    if (!channels || *channels == 0 || *channels > MAX_CHANNELS_PER_WORKER) {
      Flags::refuse("channels", value, "expected pool:1 to pool:" + std::to_string(MAX_CHANNELS_PER_WORKER));
    }
    settings.pool_channels = *channels;
  } else {
    Flags::refuse("channels", value, "expected shared, per-worker, distinct, local-pool, pool:N");
  }
}

std::optional<Rate> parse_schedule(Flags& flags) {
  const std::string value = flags.text("schedule");
  if (value == "closed") return std::nullopt;
  const size_t slash = value.find('/');
  const auto calls = slash == std::string::npos ? std::nullopt : read_number(value.substr(0, slash));
  const auto ns = slash == std::string::npos ? std::nullopt : read_number(value.substr(slash + 1));
  if (!calls || !ns || *calls == 0 || *ns == 0) Flags::refuse("schedule", value, "expected closed or CALLS/NS");
  return Rate{*calls, *ns};
}

void check_record_file(RecordKind records, const std::string& file) {
  if (records == RecordKind::none && !file.empty()) {
    Flags::refuse("record-file", file, "expected nothing with --records=none");
  }
  if (records != RecordKind::none && file.empty()) Flags::refuse("record-file", file, "expected a file to write to");
}

}  // namespace

ClientSettings parse_client_settings(const std::vector<std::string>& arguments) {
  Flags flags(arguments);
  ClientSettings settings;
  static const std::map<std::string, Stack> STACKS = {
      {"cpp-sync", Stack::cpp_sync}, {"cpp-async", Stack::cpp_async}, {"cpp-callback", Stack::cpp_callback}};
  settings.stack = flags.choice("stack", STACKS);
  for (const auto& [name, stack] : STACKS) {
    if (stack == settings.stack) settings.stack_name = name;
  }
  settings.target = flags.host_and_port("target");
  settings.call = flags.choice<CallKind>("call", {{"unary", CallKind::unary}, {"stream", CallKind::stream}});
  parse_channels(flags, settings);
  settings.rate = parse_schedule(flags);
  settings.in_flight = flags.number("in-flight", 1, MAX_IN_FLIGHT);
  settings.threads = flags.number("threads", 1, MAX_THREADS);
  settings.request_bytes = flags.number("request-bytes", 0, MAX_REQUEST_BYTES);
  settings.response_bytes = flags.number_or_target("response-bytes", UINT64_MAX);
  settings.think_ns = flags.number_or_target("think-ns", UINT64_MAX);
  // C-core sets TCP_NODELAY on each socket and has no setting for it.
  flags.choice<bool>("nodelay", {{"on", true}, {"off", true}, {"default", true}});
  if (flags.choice<bool>("split-writes", {{"on", true}, {"off", false}})) {
    Flags::refuse("split-writes", "on", "gRPC decides itself how it writes; expected off");
  }
  settings.timeout_ns = flags.number("timeout-ns", 1, MAX_DURATION_NS);
  settings.warmup_ns = flags.number("warmup-ns", 0, MAX_DURATION_NS);
  settings.duration_ns = flags.number("duration-ns", 0, MAX_DURATION_NS);
  settings.calls = flags.number("calls", 0, MAX_CALLS);
  settings.trace = flags.choice<bool>("trace", {{"on", true}, {"off", false}});
  settings.records = flags.choice<RecordKind>(
      "records", {{"none", RecordKind::none}, {"slow", RecordKind::slow}, {"all", RecordKind::all}});
  settings.slow_ns = flags.number("slow-ns", 0, UINT64_MAX);
  settings.record_file = flags.text("record-file");
  check_record_file(settings.records, settings.record_file);
  flags.finish();

  const bool channel_each = settings.channel_mode == ChannelMode::per_worker ||
                            settings.channel_mode == ChannelMode::distinct ||
                            settings.channel_mode == ChannelMode::local_pool;
  if (channel_each && settings.rate && settings.in_flight > MAX_CHANNELS_PER_WORKER) {
    Flags::refuse("in-flight", std::to_string(settings.in_flight),
                  "expected at most " + std::to_string(MAX_CHANNELS_PER_WORKER) +
                      " with a channel per worker in an open loop");
  }
  return settings;
}

TargetSettings parse_target_settings(const std::vector<std::string>& arguments) {
  Flags flags(arguments);
  TargetSettings settings;
  flags.choice<bool>("stack", {{"cpp", true}});
  settings.listen = flags.host_and_port("listen");
  settings.response_bytes = flags.number("response-bytes", 0, MAX_PAYLOAD_BYTES);
  settings.think_ns = flags.number("think-ns", 0, MAX_THINK_NS);
  settings.max_streams = flags.number("max-streams", 0, INT32_MAX);
  settings.threads = flags.number("threads", 1, MAX_THREADS);
  flags.choice<bool>("nodelay", {{"on", true}, {"off", true}, {"default", true}});
  settings.records =
      flags.choice<RecordKind>("records", {{"none", RecordKind::none}, {"all", RecordKind::all}});
  settings.record_file = flags.text("record-file");
  check_record_file(settings.records, settings.record_file);
  flags.finish();
  return settings;
}

}  // namespace spangap
