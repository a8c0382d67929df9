#include "sockets.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

namespace spangap {
namespace {

// As HOST:PORT; none for families other than IP. IPv4-mapped IPv6 addresses are written as IPv4.
std::optional<std::string> address_text(const sockaddr_storage& address) {
  char text[INET6_ADDRSTRLEN];
  if (address.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
    inet_ntop(AF_INET, &v4.sin_addr, text, sizeof text);
    return std::string(text) + ":" + std::to_string(ntohs(v4.sin_port));
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(address);
  const std::string port = ":" + std::to_string(ntohs(v6.sin6_port));
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    inet_ntop(AF_INET, v6.sin6_addr.s6_addr + 12, text, sizeof text);
    return text + port;
  }
  inet_ntop(AF_INET6, &v6.sin6_addr, text, sizeof text);
  const std::string scope = v6.sin6_scope_id ? "%" + std::to_string(v6.sin6_scope_id) : "";
  return "[" + std::string(text) + scope + "]" + port;
}

std::optional<OwnSocket> tcp_socket(int descriptor) {
  struct stat file;
  if (fstat(descriptor, &file) != 0 || !S_ISSOCK(file.st_mode)) return std::nullopt;
  int type = 0;
  socklen_t size = sizeof type;
  if (getsockopt(descriptor, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM) return std::nullopt;
  sockaddr_storage local{}, peer{};
  socklen_t local_size = sizeof local, peer_size = sizeof peer;
  if (getsockname(descriptor, reinterpret_cast<sockaddr*>(&local), &local_size) != 0) return std::nullopt;
  // Fails for listening sockets and for those not yet connected.
  if (getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return std::nullopt;
  auto local_text = address_text(local), peer_text = address_text(peer);
  if (!local_text || !peer_text) return std::nullopt;
  return OwnSocket{descriptor, file.st_ino, *local_text, *peer_text};
}

}  // namespace

std::vector<OwnSocket> own_tcp_sockets() {
  std::vector<OwnSocket> sockets;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc/self/fd"), closedir);
  if (!folder) return sockets;
  while (const dirent* entry = readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    if (auto socket = tcp_socket(atoi(entry->d_name))) sockets.push_back(*socket);
  }
  return sockets;
}

bool is_open(const OwnSocket& socket) {
  struct stat file;
  return fstat(socket.descriptor, &file) == 0 && file.st_ino == socket.inode;
}

}  // namespace spangap
