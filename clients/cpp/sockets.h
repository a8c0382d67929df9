// The TCP connections of this process, from the kernel.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace spangap {

struct OwnSocket {
  int descriptor;
  // Identifies a socket even if another one takes its descriptor after it is closed.
  ino_t inode;
  std::string local;
  std::string peer;
};

// All connected TCP sockets.
std::vector<OwnSocket> own_tcp_sockets();

// Whether it is still the same socket.
bool is_open(const OwnSocket& socket);

}  // namespace spangap
