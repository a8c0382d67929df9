// Anything that waits for a completion of a queue.
#pragma once

namespace spangap {

// Its address is the completion's tag.
class Waiter {
 public:
  virtual ~Waiter() = default;
  virtual void completed(bool ok) = 0;
};

}  // namespace spangap
