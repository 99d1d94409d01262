#include "launcher/cli/order_from_here.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "launcher/agent/daemon/caller.hpp"
#include "src/base/clock.hpp"
#include "src/base/env.hpp"

namespace holdfast::launcher {
namespace {

std::string caller_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}@{}", env::get("USER").value_or(std::to_string(::getuid())), host.data());
}

}  // namespace

control::OrderTaken order_from_here(const RunDir& run, control::Order::Verb verb, const std::string& node) {
  // The same order given twice is one order: it may be sent to a second agent, and must be carried out once.
  const control::Order order{fmt::format("{}-{:.6f}", ::getpid(), unix_seconds()), verb, node, caller_name()};
  return give_order(run, order, std::chrono::seconds(order_limit_s));
}

}  // namespace holdfast::launcher
