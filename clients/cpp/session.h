// One run of a client: connects, waits for `go`, follows the phases, reports.
#pragma once

#include "settings.h"

namespace spangap {

// Returns the exit code.
int run_client(const ClientSettings& settings);

}  // namespace spangap
