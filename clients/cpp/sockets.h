// The TCP connections of this process, from the kernel.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace spangap {

struct OwnSocket {
  int descriptor;
  // Tells sockets apart, also when one takes the descriptor of another that was closed.
  ino_t inode;
  std::string local;
  std::string peer;
};

// All connected TCP sockets.
std::vector<OwnSocket> own_tcp_sockets();

// Whether it is the same socket still.
bool is_open(const OwnSocket& socket);

}  // namespace spangap
