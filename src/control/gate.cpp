#include "src/control/gate.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <optional>

#include "src/base/log.hpp"
#include "src/base/seldom.hpp"

namespace holdfast::control {
struct Gate::State {
  struct Waiting {
    std::string source;
    std::function<void()> close;
  };
  std::string whose;
  Limits limits;
  mutable std::mutex mutex;                  ///< of what follows
  std::map<std::uint64_t, Waiting> waiting;  ///< by their numbers: the oldest first
  std::uint64_t entered = 0, closed = 0;
  Seldom lines;

  /// The source that has too many now that one more of `newest` has come; nothing: there is room.
  std::optional<std::string> too_many(const std::string& newest) const {
    std::map<std::string, std::size_t> counts;
    for (const auto& [number, one] : waiting) ++counts[one.source];
    if (counts.at(newest) > limits.of_one) return newest;
    if (waiting.size() <= limits.of_all) return std::nullopt;
    return std::ranges::max_element(counts, {}, [](const auto& count) { return count.second; })->first;
  }

  std::function<void()> take_oldest_of(const std::string& source) {
    const auto oldest =
        std::ranges::find_if(waiting, [&](const auto& one) { return one.second.source == source; });
    auto close = std::move(oldest->second.close);
    waiting.erase(oldest);
    ++closed;
    return close;
  }

  void tell(const std::string& source) {
    if (const auto untold = lines.count())
      log::warn(
          "{}: too many connections were open that had not proved to belong to this run; closed: {}, the "
          "last one from {}",
          whose, *untold, source);
  }
};

Gate::Gate(std::string whose, Limits limits) : state_(std::make_shared<State>()) {
  state_->whose = std::move(whose);
  state_->limits = limits;
}

Gate::Visit Gate::enter(const std::string& source, std::function<void()> close) {
  State& state = *state_;
  std::function<void()> close_another;
  std::uint64_t number = 0;
  {
    const std::scoped_lock lock(state.mutex);
    number = ++state.entered;
    state.waiting[number] = {source, std::move(close)};
    if (const auto from = state.too_many(source)) {
      close_another = state.take_oldest_of(*from);
      state.tell(*from);
    }
  }
  if (close_another) close_another();
  return Visit(state_.get(), [shared = state_, number](void*) {
    std::function<void()> unused;  // what it owns may visit, too
    const std::scoped_lock lock(shared->mutex);
    if (const auto here = shared->waiting.find(number); here != shared->waiting.end()) {
      unused = std::move(here->second.close);
      shared->waiting.erase(here);
    }
  });
}

std::size_t Gate::waiting() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->waiting.size();
}

std::uint64_t Gate::closed() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->closed;
}

std::string source_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "a host that is gone";
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* number = nullptr;
  int family = address.ss_family;
  if (family == AF_INET) number = &reinterpret_cast<const sockaddr_in&>(address).sin_addr;
  if (family == AF_INET6) {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    number = &v6;
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
      number = v6.s6_addr + 12;
      family = AF_INET;
    }
  }
  if (!number || !::inet_ntop(family, number, text.data(), text.size())) return "this node";
  return text.data();
}

}  // namespace holdfast::control
