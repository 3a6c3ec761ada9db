// Ports as ranks use them: the launcher's store listens on one of its machine,
// and gloo connects the ranks by the address of the host's own name.

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "src/base/format.h"
#include "src/run/doctor/machine.h"

namespace ttrace {
namespace {

class Socket {
 public:
  Socket() : descriptor_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  ~Socket() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

// "" if a port that is free can be listened on and reached.
std::string WhyNoPort() {
  const auto failed = [](const std::string& what) {
    return what + ": " + std::generic_category().message(errno);
  };
  const Socket server;
  if (server.descriptor() < 0) return failed("there are no sockets");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* const at = reinterpret_cast<sockaddr*>(&address);
  socklen_t size = sizeof(address);
  if (::bind(server.descriptor(), at, size) != 0 ||
      ::listen(server.descriptor(), 1) != 0 ||
      ::getsockname(server.descriptor(), at, &size) != 0) {
    return failed("no port of 127.0.0.1 can be listened on");
  }
  const Socket client;
  if (::connect(client.descriptor(), at, size) != 0) {
    return failed("a port of 127.0.0.1 is listened on and not reached");
  }
  return "";
}

}  // namespace

void LookAtPorts(HealthList* out) {
  const std::string why = WhyNoPort();
  if (!why.empty()) {
    out->Broken("ports", why + ": no launcher brings two ranks together",
                "bring up the loopback device (ip link set lo up), or ask who "
                "set up this sandbox");
    return;
  }
  std::array<char, 256> name{};
  addrinfo* found = nullptr;
  if (::gethostname(name.data(), name.size() - 1) != 0 ||
      ::getaddrinfo(name.data(), nullptr, nullptr, &found) != 0) {
    out->Doubtful("ports",
                  "this machine's own name, " +
                      Printable(std::string(name.data())) +
                      ", has no address: gloo and torchrun look it up",
                  "add it to /etc/hosts, or export GLOO_SOCKET_IFNAME=lo and "
                  "give torchrun --rdzv-endpoint 127.0.0.1:0");
    return;
  }
  ::freeaddrinfo(found);
  out->Well("ports", "ranks of this machine reach each other");
}

}  // namespace ttrace
