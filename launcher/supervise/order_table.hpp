#pragma once
// Orders of people (`holdfast ctl`) as a table: what each does, and the answer to it. Pure.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/stage_table.hpp"
#include "src/control/message.hpp"

namespace holdfast::launcher {

/// What the answer depends on.
struct OrderFacts {
  Stage stage = Stage::gathering;  ///< over: also when only the record says so
  bool attempt_live = false;
  bool follows = true;            ///< the ranks follow orders (attempt_watch.hpp)
  bool saves_on_sigterm = false;  ///< those that do not, by rank.kind
  bool asked = false;             ///< they have been told to save already
  bool untaken = false;           ///< they have been told what is ordered now, and none has taken it
  bool saved = false;             ///< all that they have done is durable
  bool paused = false;            ///< by an order
  bool stopping = false;          ///< the run was told to end
  bool worth_saving = true;       ///< the nodes hold state that the shared level has not
  std::int64_t durable_step = 0;
  int drain_s = 0;
  /// Of an eviction: the node, what it is now, and what the policy would do without it.
  std::string node = {};
  enum class Role { none, gone, leaving, spare, active } role = Role::none;
  PolicyAction then = PolicyAction::substitute;
  std::string because = {};
};

/// What is done beside the answer. `let_go`: the ranks go on after a pause.
enum class Deed { nothing, list_nodes, save, stop, hold, let_go, evict };

struct OrderRow {
  std::optional<control::Order::Verb> order;  ///< nothing: any
  Stages stages;
  bool (*holds)(const OrderFacts&);
  bool taken;  ///< else it is refused
  Deed deed;
  /// The answer, with {node}, {step}, {drain_s}, {because}, {untaken}, and {unfollowed}: the ranks do not
  /// follow, with what to do.
  const char* says;
};
/// The first row that holds gives the answer.
using OrderTable = std::vector<OrderRow>;
const OrderTable& order_table();

struct OrderAnswer {
  bool taken = false;
  Deed deed = Deed::nothing;
  std::string says = "an unknown order";  ///< of list_nodes: nothing yet
};
OrderAnswer answer_to(control::Order::Verb order, const OrderFacts& facts,
                      const OrderTable& table = order_table());
/// In place of the answer to an order that no rank has taken after a moment.
std::string untaken_words(control::Order::Verb order, int drain_s);

}  // namespace holdfast::launcher
