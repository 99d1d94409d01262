// Every cell of the table of stages, a row in one of its stages, is needed. A run is brought into a stage and
// held there, and then something happens to it: all stages times all happenings, each with our trainer and
// with a program that reports nothing. The same is played with a supervisor whose table lacks one cell. A
// missing cell shows in what a run leaves behind: other events on record, another exit code, a resignation
// that does not come, checks that are not ordered, ranks that do not hold, or a supervisor that throws.
#include "launcher/supervise/stage_table.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/launcher/fake_cluster.hpp"

namespace holdfast::launcher {
namespace {

using test::FakeCluster;
using test::Shape;
using Verb = control::Order::Verb;

constexpr Stage stages[] = {Stage::gathering, Stage::clearing, Stage::starting, Stage::running};

struct Happening {
  const char* name;
  void (*happens)(FakeCluster&);
  double watched_s = 45;
};

int attempt_of(const FakeCluster& c) { return c.leader ? c.leader->attempt() : 0; }
void order_from_login(FakeCluster& c, Verb verb, const char* node = "") {
  c.tell(3, [verb, node](Supervisor& s) { s.order({"1", verb, node, "mia"}); });
}
void says_cleared(FakeCluster& c, int node) {
  c.tell(node, [node, attempt = attempt_of(c)](Supervisor& s) { s.cleared(node, attempt); });
}
void never_saves(FakeCluster& c) { c.setup.save_s = 1e9; }
/// A second one of the node's ranks is still there.
void rank_ends(FakeCluster& c, int rank, int status) {
  c.tell(rank / 2, [rank, status, attempt = attempt_of(c)](Supervisor& s) {
    s.rank_exited(rank / 2, {rank, attempt, status});
  });
}
void all_ranks_end(FakeCluster& c, int status) {
  for (int rank = 0; rank < 6; ++rank) rank_ends(c, rank, status);
}
/// Of the nodes n1 and n2.
void step_times_arrive(FakeCluster& c) {
  for (int step = 1; step <= 60; ++step)
    c.tell(3, [step, attempt = attempt_of(c)](Supervisor& s) {
      for (const int n : {1, 2}) {
        control::Heartbeat beat{"n" + std::to_string(n), attempt, {}};
        for (const int rank : {2 * n, 2 * n + 1})
          beat.ranks.push_back(
              {rank, attempt, 1000 + step, control::Phase::forward, rank == 3 ? 200000 : 100000});
        s.heartbeat(n, beat);
      }
    });
}

/// Those that a cluster was told not to start.
void last_ranks_start(FakeCluster& c) {
  c.agent(2).starts = true;
  if (!c.leader || !c.agent(2).up || c.stage() != Stage::starting) return;
  for (const int rank : {4, 5}) {
    c.agent(2).ranks[rank] = {.attempt = attempt_of(c)};
    c.tell(2, [rank, attempt = attempt_of(c)](Supervisor& s) { s.rank_started(2, {rank, attempt, 1}); });
  }
}

const Happening happenings[] = {
    {"nothing", [](FakeCluster&) {}, 70},
    {"a node dies", [](FakeCluster& c) { c.kill(2); }},
    {"a spare dies and comes back",
     [](FakeCluster& c) { c.kill(4), c.run(2.6), c.revive(4), c.run(0.1), says_cleared(c, 4); }},
    {"most agents are cut off", [](FakeCluster& c) { c.cut(0), c.cut(1), c.cut(2); }, 150},
    {"it is to stop", [](FakeCluster& c) { order_from_login(c, Verb::stop); }},
    {"it is to stop, and no rank saves",
     [](FakeCluster& c) { never_saves(c), order_from_login(c, Verb::stop); }},
    {"it is to stop, and a rank obeys",
     [](FakeCluster& c) {
       never_saves(c), order_from_login(c, Verb::stop), c.run(0.1), rank_ends(c, 1, 75);
     }},
    {"it is to stop, and all ranks end",
     [](FakeCluster& c) { order_from_login(c, Verb::stop), c.run(0.1), all_ranks_end(c, 143); }},
    {"a rank fails just before it is to stop",
     [](FakeCluster& c) { rank_ends(c, 1, 1), order_from_login(c, Verb::stop); }},
    {"a node is to leave", [](FakeCluster& c) { order_from_login(c, Verb::evict, "n1"); }},
    {"a node is to leave, and no rank saves",
     [](FakeCluster& c) { never_saves(c), order_from_login(c, Verb::evict, "n1"); }},
    {"a node is to leave, and a rank obeys",
     [](FakeCluster& c) {
       never_saves(c), order_from_login(c, Verb::evict, "n1"), c.run(0.1), rank_ends(c, 1, 75);
     }},
    {"the hardware of a node fails",
     [](FakeCluster& c) {
       c.tell(1, [](Supervisor& s) {
         s.node_signs(1, {{{"xid", -1, 79, 0, "GPU 0 has fallen off the bus"}}});
       });
     }},
    {"the hardware of a node fails, and all ranks end",
     [](FakeCluster& c) {
       c.tell(1, [](Supervisor& s) {
         s.node_signs(1, {{{"xid", -1, 79, 0, "GPU 0 has fallen off the bus"}}});
       });
       c.run(0.1), all_ranks_end(c, 143);
     }},
    {"the state is to be saved", [](FakeCluster& c) { order_from_login(c, Verb::save); }},
    {"the ranks are to hold", [](FakeCluster& c) { order_from_login(c, Verb::pause); }},
    {"a rank fails", [](FakeCluster& c) { rank_ends(c, 1, 1); }},
    {"a rank fails while an agent is not heard",
     [](FakeCluster& c) { c.agent(0).beats = false, rank_ends(c, 3, 1), c.run(1), c.agent(0).beats = true; }},
    {"a rank fails while an agent is not heard, and the others go on",
     [](FakeCluster& c) {
       c.agent(0).beats = false, rank_ends(c, 3, 1), c.run(0.7);
       last_ranks_start(c), step_times_arrive(c), c.run(0.5);
       c.agent(0).beats = true;
     }},
    {"an agent loses its ranks", [](FakeCluster& c) { c.agent(1).ranks.clear(); }},
    {"a rank stands still", [](FakeCluster& c) { c.rank(1).hangs = true; }},
    {"a rank is slow", step_times_arrive},
    {"all ranks end well", [](FakeCluster& c) { all_ranks_end(c, 0); }},
    {"a node dies, and the others have states of its ranks in their memory",
     [](FakeCluster& c) {
       for (int rank = 0; rank < 6; ++rank) {
         c.agent(rank / 2).sealed.push_back({rank, 7, 1, 6, false});
         c.agent((rank / 2 + 1) % 3).sealed.push_back({rank, 7, 1, 6, true});
       }
       c.kill(2);
     }},
    {"a comparison is unequal",
     [](FakeCluster& c) {
       c.tell(0, [attempt = attempt_of(c)](Supervisor& s) {
         s.rank_doubt(0, {0, attempt, 5, {2}, "replicas", ""});
       });
     }},
};

/// Brings a run into a stage, and holds it there until `let_go` is called.
struct Holder {
  const char* name;
  Stage stage;
  void (*hold)(FakeCluster&);
  void (*let_go)(FakeCluster&);
};
void never_let_go(FakeCluster&) {}
void n0_clears(FakeCluster& c) { c.agent(0).clears = true, c.restart_agent(0); }
const Holder holders[] = {
    {"gathering for the first time", Stage::gathering,
     [](FakeCluster& c) { c.agent(1).up = false, c.run(1); }, [](FakeCluster& c) { c.revive(1); }},
    {"gathering after a takeover", Stage::gathering,
     [](FakeCluster& c) {
       c.until(Stage::running), c.run(1.7);
       c.agent(1).beats = false;
       c.new_leader(3);
       c.run(0.3);
     },
     [](FakeCluster& c) { c.agent(1).beats = true; }},
    {"gathering after a takeover, and it is to stop", Stage::gathering,
     [](FakeCluster& c) {
       c.until(Stage::running), c.run(1.7);
       never_saves(c), order_from_login(c, Verb::stop), c.run(2);
       c.agent(1).beats = false;
       c.new_leader(3);
       c.run(0.3);
     },
     never_let_go},
    {"gathering after the end", Stage::gathering,
     [](FakeCluster& c) {
       c.until(Stage::running), order_from_login(c, Verb::stop), c.run(6);
       c.exit_code.reset(), c.new_leader(3);
     },
     never_let_go},
    {"clearing", Stage::clearing, [](FakeCluster& c) { c.agent(0).clears = false, c.run(1); }, n0_clears},
    {"clearing the second attempt", Stage::clearing,
     [](FakeCluster& c) {
       c.until(Stage::running), c.run(1.7);
       c.agent(0).clears = false, rank_ends(c, 3, 1), c.run(1);
     },
     n0_clears},
    {"clearing for ever", Stage::clearing,
     [](FakeCluster& c) {
       c.until(Stage::running), c.run(1.7);
       c.agent(0).clears = false, rank_ends(c, 3, 1), c.run(1);
     },
     never_let_go},
    {"clearing for ever on most nodes", Stage::clearing,
     [](FakeCluster& c) {
       c.setup.limits.infrastructure_s = 10;  // it is over when the time of a node is
       c.new_leader(3);
       c.agent(0).clears = c.agent(1).clears = false;
       c.run(1);
     },
     never_let_go},
    {"clearing when the last leader died before it evicted a node", Stage::clearing,
     [](FakeCluster& c) {
       c.until(Stage::running), c.run(1.7);
       order_from_login(c, Verb::evict, "n1");
       c.until([&] { return !c.all("node_evicted").empty(); }, 10);
       while (!c.all("node_evicted").empty()) c.events.pop_back();
       c.agent(0).clears = false;
       c.new_leader(3);
       c.run(1);
     },
     never_let_go},
    {"starting", Stage::starting, [](FakeCluster& c) { c.agent(2).starts = false, c.run(2); },
     last_ranks_start},
    {"starting, and the state is restored", Stage::starting,
     [](FakeCluster& c) {
       c.agent(2).starts = false;
       c.run(2);
       c.tell(0, [](Supervisor& s) { s.rank_restored({0, 1, {0, "fresh", "00", ""}}); });
       c.run(0.1);
     },
     last_ranks_start},
    {"starting, with all the time there is", Stage::starting,
     [](FakeCluster& c) {
       c.setup.limits.start_s = 100000;
       c.new_leader(3);
       c.agent(2).starts = false;
       c.run(2);
     },
     never_let_go},
    {"running", Stage::running, [](FakeCluster& c) { c.until(Stage::running), c.run(1.7); }, never_let_go},
    {"running, and nothing is restored", Stage::running, [](FakeCluster& c) { c.until(Stage::running); },
     never_let_go},
};

/// What a run leaves behind.
std::string played(const StageTable& table, const Holder& holder, const Happening& happening, bool reports) {
  Shape shape;
  shape.reports = reports;
  shape.drain_s = 4;
  shape.limits.start_s = 12;
  shape.limits.step_s = 6;
  shape.limits.clear_s = 15;
  shape.limits.check_spares_s = 1;
  shape.limits.on_straggler = config::OnStraggler::substitute;
  shape.stages = table;
  FakeCluster c(shape);
  std::string out;
  try {
    holder.hold(c);
    if (!c.leader) return "no leader";
    out += name_of(c.stage());
    happening.happens(c);
    c.run(3);
    holder.let_go(c);
    c.run(happening.watched_s);
  } catch (const std::exception& error) {
    out += error.what();
  }
  for (const auto& event : c.events) out += event.dump() + "\n";
  return fmt::format("{}{} {} {} {} {}", out, c.exit_code.value_or(-1), c.resigned, c.checks.size(), c.held,
                     name_of(c.stage()));
}

class Scenarios {
 public:
  Scenarios() {
    for (const auto& holder : holders)
      for (const auto& happening : happenings)
        for (const bool reports : {true, false})
          all_.push_back({&holder, &happening, reports, played(stage_table(), holder, happening, reports)});
  }
  bool tell_apart(const StageTable& table, Stage stage) const {
    return std::any_of(all_.begin(), all_.end(), [&](const Scenario& s) {
      return s.holder->stage == stage && played(table, *s.holder, *s.happening, s.reports) != s.left;
    });
  }

 private:
  struct Scenario {
    const Holder* holder;
    const Happening* happening;
    bool reports;
    std::string left;  ///< with the whole table
  };
  std::vector<Scenario> all_;
};

TEST(StageTable, EveryCellIsNeeded) {
  const Scenarios scenarios;
  for (std::size_t i = 0; i < stage_table().size(); ++i) {
    for (const Stage stage : stages) {
      StageTable table = stage_table();
      if (!table[i].stages.contains(stage)) continue;
      table[i].stages.remove(stage);
      EXPECT_TRUE(scenarios.tell_apart(table, stage)) << "row " << i + 1 << " in " << name_of(stage);
    }
  }
}

TEST(StageTable, EveryNextStageAndEveryGoingOnIsNeeded) {
  const Scenarios scenarios;
  const auto shows = [&](const StageTable& table, const StageRow& row) {
    return std::any_of(std::begin(stages), std::end(stages), [&](Stage stage) {
      return row.stages.contains(stage) && scenarios.tell_apart(table, stage);
    });
  };
  for (std::size_t i = 0; i < stage_table().size(); ++i) {
    StageTable table = stage_table();
    if (table[i].next.has_value()) {
      table[i].next.reset();
      EXPECT_TRUE(shows(table, table[i])) << "row " << i + 1;
    }
    table = stage_table();
    if (table[i].goes_on) {
      table[i].goes_on = false;
      EXPECT_TRUE(shows(table, table[i])) << "row " << i + 1 << " goes on";
    }
  }
}

/// Nothing is decided once a run is over.
TEST(StageTable, OverHasNoRow) {
  for (const StageRow& row : stage_table()) EXPECT_FALSE(row.stages.contains(Stage::over));
}

}  // namespace
}  // namespace holdfast::launcher
