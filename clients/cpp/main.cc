// spangap-cpp: calls and serves with gRPC C++. CONTRACT.md, one folder up, specifies it.

#include <csignal>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "json.h"
#include "session.h"
#include "settings.h"
#include "target.h"

namespace {

constexpr int FAILED = 1;
constexpr int WRONG_USAGE = 2;

int run(const std::string& verb, const std::vector<std::string>& flags) {
  if (verb == "client") return spangap::run_client(spangap::parse_client_settings(flags));
  if (verb == "target") return spangap::run_target(spangap::parse_target_settings(flags));
  throw spangap::SettingsError("\"" + verb + "\" is not known: expected client or target");
}

}  // namespace

int main(int count, char** arguments) {
  // The life line says when to end, and a failed write shows that the reader is gone.
  signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  try {
    const std::vector<std::string> all(arguments + 1, arguments + count);
    if (all.empty()) throw spangap::SettingsError("usage: spangap-cpp client|target --name=value...");
    return run(all[0], {all.begin() + 1, all.end()});
  } catch (const spangap::SettingsError& error) {
    fprintf(stderr, "spangap-cpp: %s\n", error.what());
    return WRONG_USAGE;
  } catch (const std::exception& error) {
    fprintf(stderr, "spangap-cpp: %s\n", error.what());
    spangap::JsonObject message;
    message.text("event", "failed").text("error", error.what());
    spangap::send_message(message);
    return FAILED;
  }
}
