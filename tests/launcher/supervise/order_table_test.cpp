// Every row of the table of orders is needed in each of its stages: without it some order, in some situation,
// gets another answer or does something else. What the deeds do is in supervisor_orders_test.cpp.
#include "launcher/supervise/order_table.hpp"

#include <gtest/gtest.h>

namespace holdfast::launcher {
namespace {

using Verb = control::Order::Verb;
using Role = OrderFacts::Role;

constexpr Verb all_verbs[] = {Verb::save, Verb::stop, Verb::pause, Verb::resume, Verb::evict, Verb::spares};
constexpr Stage all_stages[] = {Stage::gathering, Stage::clearing, Stage::starting, Stage::running,
                                Stage::over};

/// All situations of a stage; those of an order that takes no node have no role in it.
std::vector<OrderFacts> situations(Verb verb, Stage stage) {
  std::vector<OrderFacts> out;
  const bool evicts = verb == Verb::evict;
  for (int bits = 0; bits < 1 << 9; ++bits)
    for (const Role role : {Role::none, Role::gone, Role::leaving, Role::spare, Role::active})
      for (const PolicyAction then : {PolicyAction::stop, PolicyAction::shrink, PolicyAction::requeue,
                                      PolicyAction::substitute, PolicyAction::restart}) {
        if (!evicts && (role != Role::none || then != PolicyAction::stop)) continue;
        const auto bit = [bits](int n) { return (bits >> n & 1) != 0; };
        out.push_back({stage, bit(0), bit(1), bit(2), bit(3), bit(4), bit(5), bit(6), bit(7), bit(8), 40, 25,
                       "n1", role, then, "no fit spare node is left"});
      }
  return out;
}

bool same(const OrderAnswer& a, const OrderAnswer& b) {
  return a.taken == b.taken && a.deed == b.deed && a.says == b.says;
}

TEST(OrderTable, EveryRowIsNeededInEachOfItsStages) {
  for (std::size_t i = 0; i < order_table().size(); ++i) {
    for (const Stage stage : all_stages) {
      OrderTable table = order_table();
      if (!table[i].stages.contains(stage)) continue;
      table[i].stages.remove(stage);
      bool shows = false;
      for (const Verb verb : all_verbs) {
        if (table[i].order.value_or(verb) != verb) continue;
        for (const auto& facts : situations(verb, stage))
          shows = shows || !same(answer_to(verb, facts), answer_to(verb, facts, table));
      }
      EXPECT_TRUE(shows) << "row " << i + 1 << " in " << name_of(stage);
    }
  }
}

TEST(OrderTable, EveryOrderHasAnAnswerAtAnyTime) {
  for (const Verb verb : all_verbs)
    for (const Stage stage : all_stages)
      for (const auto& facts : situations(verb, stage)) {
        const OrderAnswer answer = answer_to(verb, facts);
        EXPECT_NE(answer.says, OrderAnswer{}.says);
        EXPECT_TRUE(answer.taken || answer.deed == Deed::nothing) << answer.says;
      }
}

TEST(OrderTable, AnswersNameWhatTheyAreAbout) {
  EXPECT_EQ(answer_to(Verb::save, {.attempt_live = true, .saved = true, .durable_step = 40}).says,
            "the state of step 40 is saved");
  EXPECT_EQ(answer_to(Verb::save, {.attempt_live = true, .paused = true}).says,
            "the run is paused: its state is saved when it goes on, or at once by a program that looks for "
            "orders while it holds");
  EXPECT_EQ(answer_to(Verb::stop, {.follows = false, .saves_on_sigterm = true, .drain_s = 25}).says,
            "the ranks get SIGTERM and 25 s to save (checkpoint.drain_s), then the run ends");
  EXPECT_EQ(
      answer_to(Verb::stop, {.follows = false, .drain_s = 25}).says,
      "the ranks get SIGTERM and 25 s (checkpoint.drain_s), then the run ends; Holdfast does not know that "
      "they save (rank.kind): what they have not saved is lost");
  EXPECT_EQ(answer_to(Verb::pause, {.follows = false, .drain_s = 25}).says,
            "the program does not report to its agents and would not get the order to hold; stop sends it "
            "SIGTERM and gives it 25 s. Use the client (docs/manual/any-program.md)?");
  OrderFacts leaves{.attempt_live = true, .follows = false, .drain_s = 25, .node = "dgx002"};
  leaves.role = OrderFacts::Role::active;
  EXPECT_FALSE(answer_to(Verb::evict, leaves).taken);
  leaves.saves_on_sigterm = true;
  EXPECT_TRUE(answer_to(Verb::evict, leaves).taken);
  EXPECT_EQ(
      answer_to(Verb::evict, leaves).says,
      "dgx002 leaves when the ranks have ended: they get SIGTERM and 25 s to save; a spare takes its slot");
  for (const Verb verb : {Verb::save, Verb::pause}) EXPECT_FALSE(answer_to(verb, leaves).taken);
  EXPECT_EQ(answer_to(Verb::evict, {.node = "{}"}).says, "the job has no node {}");
}

}  // namespace
}  // namespace holdfast::launcher
