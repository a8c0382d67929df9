// The TCP connections of this process, from the kernel.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace spangap {

struct OwnSocket {
  // Tells sockets apart, also when one takes the descriptor of another that was closed.
  ino_t inode;
  std::string local;
  std::string peer;
};

// All connected TCP sockets.
std::vector<OwnSocket> own_tcp_sockets();

}  // namespace spangap
