// The faults of a schedule, and the repair of everything at its end.
#include <fmt/format.h>

#include <cerrno>

#include "launcher/supervise/life_signs.hpp"
#include "tests/sim/world.hpp"

namespace holdfast::sim {

using namespace control;
using launcher::stuck_agent_s;

void World::maybe_interrupt(const ProcessPtr& process, bool in_call) {
  if (gone_ || process->term == 0 || !process->alive || interrupt_in_ < 0) return;
  if ((interrupt_calls_ && !in_call) || --interrupt_in_ >= 0) return;
  if (interrupt_kills_) {
    say(fmt::format("the leader on {} dies in the midst of what it does", name(process->node)));
    node(process->node).agent_dies();
  } else {
    stop_process(process, random.between(0.5, 12));
  }
}

Fate World::fate_of_call(Work& work, Kind kind) {
  const ProcessPtr& process = work.process;
  const int n = process->node;
  if (gone_ || !process->alive) return {EIO};
  const Aside aside;
  maybe_interrupt(process, true);
  if (in_trouble_ && kind == Kind::write && work.strand && process->term > 0 && random.chance(0.05))
    stop_process(process, random.between(0.5, 12));  // so that others write in between
  if (!process->alive) return {EIO, random.chance(0.5), random.between(0, 1)};
  if (process->stopped || (work.strand && random.chance(0.2)))
    pass_time(work, random.chance(0.1) ? random.between(0, 2) : random.between(0, 0.05));
  const bool waits =
      !work.only_changes_wait || kind == Kind::change || kind == Kind::write || kind == Kind::sync;
  while (work.strand && waits && !gone_ && process->alive && storage.takes(n, timeline.now) > 0)
    pass_time(work, storage.takes(n, timeline.now));
  if (gone_ || !process->alive) return {EIO};
  if (!storage.reachable(n)) {
    const int errors[] = {EIO, ESTALE, ENOTCONN, ETIMEDOUT};
    return {storage.vanishes ? ENOENT : errors[random.below(4)]};
  }
  if (storage.errs_until[n] <= timeline.now || !random.chance(0.2)) return {};
  ++coverage.faults["a call to storage fails"];
  const bool writes = kind == Kind::write || kind == Kind::change;
  const int errors[] = {EIO, ESTALE, EACCES, writes ? ENOSPC : EIO};
  return {errors[random.below(4)], random.chance(0.3), random.between(0, 1)};
}

void World::stop_process(const ProcessPtr& process, double seconds) {
  if (process->stopped || !process->alive) return;
  say(fmt::format("a process on {} stops for {:.1f} s", name(process->node), seconds));
  process->stopped = true;
  timeline.after(seconds, [this, process] {
    if (process->stopped) go_on(process);
  });
}

/// Its guardian may see that.
void World::stop_agent(int n, double seconds) {
  const ProcessPtr process = node(n).agent->process;
  stop_process(process, seconds);
  if (seconds < stuck_agent_s || random.chance(0.3)) return;
  timeline.after(stuck_agent_s + random.between(0, 0.5), [this, n, process] {
    if (node(n).agent->process != process || !process->alive || !process->stopped) return;
    say(fmt::format("the agent on {} is replaced", name(n)));
    node(n).agent_dies();
  });
}

void World::hang_storage(const char* whose, const std::vector<int>& of) {
  const double seconds = random.between(0.3, random.chance(0.2) ? 60 : 8);
  ++coverage.faults[fmt::format("storage of {} hangs", whose)];
  say(fmt::format("FAULT storage of {} hangs for {:.1f} s", of.size() == 1 ? name(of[0]) : whose, seconds));
  for (const int n : of) storage.hang(n, timeline.now + seconds);
}

/// After its restore, and before its last step is done: at other times only supervise.step_s bounds it.
void World::let_rank_hang() {
  std::vector<RankPtr> ranks;
  for (const auto& n : nodes)
    for (const auto& rank : n->ranks()) {
      if (rank->hung) return;
      if (rank->step() >= 0 && rank->phase() != Phase::finishing) ranks.push_back(rank);
    }
  const auto rank = one_of(ranks);
  if (!rank) return;
  ++coverage.faults["rank hangs"];
  say(fmt::format("FAULT rank {} hangs", rank->rank));
  rank->hung = true;
  fails_itself(rank->attempt.number);
  timeline.after(noticed_s, [this, rank, process = rank->process] {
    expect(!process->alive, fmt::format("it is noticed within {} s that rank {} of attempt {} hangs",
                                        noticed_s, rank->rank, rank->attempt.number));
  });
  if (random.chance(0.5)) return;
  timeline.after(random.between(0, 4), [this] {
    for (int i = 0; i < node_count(); ++i)
      if (auto* agent = live_agent(i); agent && agent->leading()) {
        ++coverage.faults["leader dies"];
        say("FAULT the leader dies");
        return node(i).agent_dies();
      }
  });
}

void World::cut(int n, bool in, bool out) {
  for (int other = 0; other < node_count(); ++other) {
    if (other == n) continue;
    if (in) network.set_way(other, n, false);
    if (out) network.set_way(n, other, false);
  }
}

void World::heal() {
  for (int a = 0; a < node_count(); ++a)
    for (int b = 0; b < node_count(); ++b)
      if (a != b) network.set_way(a, b, true);
  std::fill(storage.mounted.begin(), storage.mounted.end(), true);
  std::fill(slurm_s.begin(), slurm_s.end(), 0);
  network.flush(0.3);
}

/// Null: there is none.
RankPtr World::one_of(const std::vector<RankPtr>& ranks) {
  return ranks.empty() ? nullptr : ranks[as_size(random.below(static_cast<int>(ranks.size())))];
}

void World::fault() {
  const int n = any();
  const auto count = [this, n](const char* what) {
    ++coverage.faults[what];
    say(fmt::format("FAULT {} ({})", what, name(n)));
  };
  Node& here = node(n);
  if (only_ == Only::ranks_hang) return let_rank_hang();
  switch (only_ == Only::storage_hangs ? 27 + random.below(4) : random.below(38)) {
    case 0:
      return count("node dies"), here.power_off();
    case 1:
      if (live_leader()) {
        for (int i = 0; i < node_count(); ++i)
          if (auto* agent = live_agent(i); agent && agent->leading())
            return count("leader's node dies"), node(i).power_off();
      }
      return;
    case 2:
    case 3:
      for (int i = 0; i < node_count(); ++i)
        if (!node(i).powered) return count("node returns"), node(i).power_on();
      return;
    case 4: {
      count("node is cut off");
      const bool all = random.chance(0.7);
      cut(n, true, true);
      if (!all) return;
      storage.mounted[n] = false;
      slurm_s[n] = 60;
      return;
    }
    case 5:
      return count("node is cut off one way"), cut(n, random.chance(0.5), false),
             cut(n, false, random.chance(0.5));
    case 6: {
      count("network falls in two");
      std::vector<bool> side;
      for (int i = 0; i < node_count(); ++i) side.push_back(random.chance(0.5));
      for (int a = 0; a < node_count(); ++a)
        for (int b = 0; b < node_count(); ++b)
          if (a != b && side[a] != side[b]) network.set_way(a, b, false);
      return;
    }
    case 7:
    case 8:
    case 9:
      return count("network heals"), heal();
    case 10:
      return count("agent dies"), here.agent_dies();
    case 11:
      if (live_agent(n)) count("agent stops"), stop_agent(n, random.between(0.3, 15));
      return;
    case 12: {
      count("node stops");
      const double seconds = random.between(0.3, 15);
      if (auto* agent = live_agent(n)) stop_process(agent->process, seconds);
      for (const auto& rank : here.ranks()) stop_process(rank->process, seconds);
      return;
    }
    case 13:
    case 14: {
      const auto rank = one_of(here.ranks());
      if (!rank) return;
      const int statuses[] = {1, 1, 1, 137, 139, -1, 75, 134};
      fails_itself(rank->attempt.number);
      return count("rank ends"), here.rank_ends(*rank, statuses[random.below(8)]);
    }
    case 15:
      if (const auto rank = one_of(here.ranks()))
        count("rank hangs"), fails_itself(rank->attempt.number), rank->hung = true;
      return;
    case 16:
      count("processes cannot be ended");
      if (random.chance(0.5)) return here.let_end();
      for (const bool all = random.chance(0.3); auto& other : nodes)
        if (other.get() == &here || (all && random.chance(0.8))) other->clears = false;
      return;
    case 17: {
      count("ranks cannot be started");
      const bool all = random.chance(0.5);
      const auto how = static_cast<Node::Starts>(random.below(4));
      for (int i = 0; i < node_count(); ++i)
        if (i == n || all) node(i).starts = how;
      return;
    }
    case 18:
      return count("connections break"), network.reset_some(1 + random.below(4));
    case 19:
    case 20:
      count("leader is interrupted");
      interrupt_in_ = random.below(40);
      interrupt_calls_ = random.chance(0.7);
      interrupt_kills_ = random.chance(0.6);
      return;
    case 21:
      count("shared file system is gone");
      storage.up = false;
      storage.vanishes = random.chance(0.3);
      return timeline.after(random.between(0.3, random.chance(0.2) ? 60 : 8), [this] { storage.up = true; });
    case 22:
      count("slurmctld is gone");
      return std::fill(slurm_s.begin(), slurm_s.end(), random.chance(0.3) ? 0 : random.between(0.1, 20));
    case 23:
      count("network is slow");
      network.slow(random.chance(0.5) ? 0.6 : 0.02);
      return;
    case 24:
      if (live_agent(n) && random.chance(0.3))
        count("drain is asked for"),
            tell_agent(n, Hello::Role::job_monitor,
                       random.chance(0.3) ? Drain{true, "SIGTERM"} : Drain{false, "somebody asked"});
      return;
    case 26:
      if (const auto rank = one_of(here.ranks()))
        count("rank computes wrongly"), fails_itself(rank->attempt.number), corrupted = true,
                                                                            training->corrupt(*rank);
      return;
    case 25:
      if (live_agent(n) && live_leader()) {
        const Order::Verb verbs[] = {Order::Verb::save,  Order::Verb::pause,  Order::Verb::resume,
                                     Order::Verb::evict, Order::Verb::spares, Order::Verb::stop};
        const Order what{"1", verbs[random.below(random.chance(0.2) ? 6 : 5)], name(any()), "somebody"};
        count("order"), tell_agent(n, Hello::Role::caller, what);
      }
      return;
    case 27:
    case 28: {
      std::vector<int> all;
      for (int i = 0; i < node_count(); ++i) all.push_back(i);
      return hang_storage("all nodes", all);
    }
    case 29:
      return hang_storage("a node", {n});
    case 30:
      for (int i = 0; i < node_count(); ++i)
        if (auto* agent = live_agent(i); agent && agent->leading()) return hang_storage("a leader", {i});
      return;
    case 31: {
      count("storage errs");
      const double until = timeline.now + random.between(0.3, 10);
      if (random.chance(0.5)) std::fill(storage.errs_until.begin(), storage.errs_until.end(), until);
      storage.errs_until[n] = until;
      return;
    }
    case 32:
      // Of what a leader records, its election alone is dated before it begins: that is one moment here.
      if (auto* agent = live_agent(n); agent && agent->begins_to_lead()) return;
      count("clock jumps");
      clock_off[n] += random.between(-1, 1) * (random.chance(0.3) ? 4000 : 5);
      return;
    case 33:
      return count("SLURM is wrong"), void(slurm_is_wrong = random.chance(0.7));
    case 34:
      return count("SLURM is late"), void(slurm_s[n] = random.between(0.1, 20));
    case 35:
      return count("link is slow"), network.slow_link(n, random.chance(0.7) ? random.between(0.1, 1.5) : 0);
    case 37:
      return count("PMIx server ends"), here.pmix_ends(1);
    case 36:
      for (int i = 0; i < node_count(); ++i)
        if (auto* agent = live_agent(i); agent && agent->leading())
          return count("leader stops"), stop_agent(i, random.between(0.3, 40));
      return;
  }
}

void World::mend() {
  say("MENDED");
  in_trouble_ = false;
  interrupt_in_ = -1;
  storage.up = true;  // calls that hang now return when they would have returned
  std::fill(storage.hung_until.begin(), storage.hung_until.end(), 0);
  std::fill(storage.errs_until.begin(), storage.errs_until.end(), 0);
  slurm_is_wrong = false;
  network.slow(0.02);
  for (int n = 0; n < node_count(); ++n) network.slow_link(n, 0);
  heal();
  for (auto& n : nodes) {
    if (!ending_) n->power_on();
    n->let_end();
    // Starts may fail for longer: only then does it show that they never end the run for good.
    timeline.after(random.chance(0.5) ? 0 : random.between(0, 40),
                   [n = n.get()] { n->starts = Node::Starts::work; });
    for (const auto& rank : n->ranks()) {
      if (only_ == Only::nothing) rank->hung = false;
      if (rank->process->stopped) go_on(rank->process);
    }
    if (n->agent && n->agent->process->stopped) go_on(n->agent->process);
  }
  // After a pause order, resume is ordered until a leader has accepted it.
  every(timeline, std::make_shared<Process>(0), 2, 0.5, [this] {
    if (over()) return false;
    if (const auto* leader = live_leader(); leader && leader->supervisor().state().paused)
      tell_agent(any(), Hello::Role::caller, Order{"2", Order::Verb::resume, "", "somebody"});
    return true;
  });
}

}  // namespace holdfast::sim
