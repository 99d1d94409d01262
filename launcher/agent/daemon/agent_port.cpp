#include "launcher/agent/daemon/agent_port.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/supervise/agent_ports.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/tcp_table.hpp"

namespace holdfast::launcher {
namespace {
namespace fs = std::filesystem;

struct PortHolder {
  uid_t user = 0;
  std::string socket;                  ///< "socket:[INODE]"
  int pid = 0;                         ///< 0: we cannot see which one: another user's, or an agent
  std::vector<std::string> arguments;  ///< of the process
};

std::optional<PortHolder> listener_in(const char* table, int port) {
  std::ifstream file(table);
  const auto found = find_tcp_socket(file, [end = fmt::format(":{:04X}", port)](const TcpSocket& one) {
    return one.listens && one.local.ends_with(end);
  });
  if (!found) return std::nullopt;
  return PortHolder{found->user, "socket:[" + found->inode + "]", 0, {}};
}

std::vector<std::string> arguments_of(const fs::path& process) {
  std::ifstream file(process / "cmdline");
  std::vector<std::string> out;
  for (std::string one; std::getline(file, one, '\0');) out.push_back(one);
  return out;
}

std::optional<PortHolder> holder_of(int port) {
  auto holder = listener_in("/proc/net/tcp6", port);
  if (!holder) holder = listener_in("/proc/net/tcp", port);
  if (!holder) return std::nullopt;
  std::error_code hidden;
  for (const auto& name : files::list("/proc")) {
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const fs::path process = fs::path("/proc") / name;
    for (fs::directory_iterator fd(process / "fd", hidden), end; !hidden && fd != end; fd.increment(hidden)) {
      std::error_code gone;
      if (fs::read_symlink(fd->path(), gone) != holder->socket) continue;
      holder->pid = std::stoi(name);
      holder->arguments = arguments_of(process);
      return holder;
    }
    hidden.clear();
  }
  return holder;
}

std::string text_of(int port) {
  const auto holder = holder_of(port);
  if (!holder) return fmt::format("{}: cannot be told", port);
  const passwd* user = ::getpwuid(holder->user);
  const std::string who = user != nullptr ? std::string(user->pw_name) : fmt::format("user {}", holder->user);
  if (holder->pid == 0) return fmt::format("{}: a process of {}", port, who);
  return fmt::format("{}: {} (process {} of {})", port,
                     holder->arguments.empty() ? "?" : fs::path(holder->arguments[0]).filename().string(),
                     holder->pid, who);
}

bool are_of_agent(const std::vector<std::string>& arguments, const RunDir& run, const std::string& node) {
  const std::vector<std::string> agents = {"agent", run.path.string(), "--node", node};
  return std::search(arguments.begin(), arguments.end(), agents.begin(), agents.end()) != arguments.end();
}

bool held_by_agent_of(const RunDir& run, const std::string& node, int port) {
  const auto holder = holder_of(port);
  if (!holder || holder->pid != 0) return holder && are_of_agent(holder->arguments, run, node);
  if (holder->user != ::geteuid()) return false;
  // Agents show no process of their user what they have open (hide_memory.hpp), but their arguments.
  const std::string self = std::to_string(::getpid()), guardian = std::to_string(::getppid());
  const auto names = files::list("/proc");
  return std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return name.find_first_not_of("0123456789") == std::string::npos && name != self && name != guardian &&
           are_of_agent(arguments_of(fs::path("/proc") / name), run, node);
  });
}

bool can_listen_on(int port) {
  for (const int family : {AF_INET6, AF_INET}) {
    const files::Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) continue;  // a machine without IPv6
    const int one = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    const int both = 0;
    if (family == AF_INET6) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &both, sizeof both);
    sockaddr_in6 v6{};
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(static_cast<std::uint16_t>(port));
    sockaddr_in v4{};
    v4.sin_family = AF_INET;
    v4.sin_port = htons(static_cast<std::uint16_t>(port));
    const auto* any =
        family == AF_INET6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
    return ::bind(fd.get(), any, family == AF_INET6 ? sizeof v6 : sizeof v4) == 0 &&
           ::listen(fd.get(), 1) == 0;
  }
  return false;
}

}  // namespace

control::Loop::Handle listen_for_agents(control::Loop& loop, const RunDir& run, const Roster::Node& node,
                                        const control::Key& secret,
                                        std::function<void(control::ChannelPtr)> accepted) {
  std::string why;
  for (const int port : ports_to_try(node.port, node.ports, taken_ports())) {
    try {
      auto listener = loop.listen({control::TcpAddress{"", port}, secret, accepted});
      if (!why.empty()) log::warn("listening on port {}; taken: {}", port, why);
      return listener;
    } catch (const Error& error) {
      if (error.exit() != Exit::transient) throw;
      if (held_by_agent_of(run, node.name, port))
        throw Error(Exit::transient, "another agent of this run runs on this node", text_of(port));
      why += (why.empty() ? "" : ", ") + text_of(port);
    }
  }
  throw Error(Exit::transient, "no port is free for the agent on " + node.name, why,
              "End what listens there, or set supervise.port to the first of other ports?");
}

int find_free_port(int first) {
  constexpr int tries = 1000;
  for (const int port : ports_to_try(first, tries, taken_ports()))
    if (can_listen_on(port)) return port;
  return 0;
}

}  // namespace holdfast::launcher
