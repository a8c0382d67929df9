// The target: serves pings.
#pragma once

#include "settings.h"

namespace spangap {

// Returns the exit code.
int run_target(const TargetSettings& settings);

}  // namespace spangap
