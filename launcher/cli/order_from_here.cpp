#include "launcher/cli/order_from_here.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "launcher/agent/daemon/caller.hpp"
#include "launcher/supervise/journal.hpp"
#include "src/base/access.hpp"
#include "src/base/clock.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {
namespace {

std::string caller_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}@{}", env::get("USER").value_or(std::to_string(::getuid())), host.data());
}

/// There must be agents that can be asked, and they must believe this user.
void require_agents(const RunDir& run) {
  if (!may_read(run.secret()))
    throw Error(Exit::usage, fmt::format("only {} gives orders to this run", owner_of(run.path)),
                "its secret, by which agents know who may, is not yours to read",
                "Ask " + owner_of(run.path) + " to give the order?");
  if (!files::is_there(run.nodes()))
    throw Error(Exit::usage, "the run has no agents yet",
                fmt::format("the job of {} has not begun", run.path.string()),
                "'holdfast status' says what it waits for");
  const RunState state = replay(run);
  if (state.over_for_good())
    throw Error(Exit::usage, "the run is over",
                fmt::format("{}: {}", run.path.string(), state.outcome->status),
                "'holdfast submit' or 'holdfast run --local' continues it");
  if (state.outcome)
    throw Error(Exit::transient, "the run waits to be continued", state.outcome->why,
                "Give the order when its next job has begun?");
}

}  // namespace

control::OrderTaken ask_from_here(const RunDir& run, control::Order::Verb verb, const std::string& node,
                                  std::chrono::milliseconds limit) {
  // The same order given twice is one order: it may be sent to a second agent, and must be carried out once.
  const control::Order order{fmt::format("{}-{:.6f}", ::getpid(), unix_seconds()), verb, node, caller_name()};
  return give_order(run, order, limit);
}

control::OrderTaken order_from_here(const RunDir& run, control::Order::Verb verb, const std::string& node) {
  require_agents(run);
  return ask_from_here(run, verb, node, std::chrono::seconds(order_limit_s));
}

}  // namespace holdfast::launcher
