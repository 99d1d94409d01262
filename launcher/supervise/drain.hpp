#pragma once
// Drains: the state must reach the shared level soon, because the memory that holds the other levels may be
// lost: that of all nodes (stop; SLURM may end a job that has lost its batch script), or of one node (evict).
// A drain is not a stage but an order beside them. It is part of the RunState, so it stays in force in later
// attempts and under later leaders. Pure.
//
// clang-format off
//   drain      begins with                               while it lasts                           ends with
//   save       loss of the batch host, an order          every attempt is told to save now        a durable checkpoint
//   stop       SIGTERM, the time limit, no spare left    every attempt is told to save and end    ranks ended with 75, or nothing left
//                                                                                                 to save, or drain_s: over, exit 75
//              an order                                  the same                                 the same, exit 93: not requeued
//   evict      an order, a sign of failing hardware,     this attempt is told to save and end     ranks ended with 75, or drain_s: the
//              a straggler                                                                        attempt ends, and the run goes on
//                                                                                                 without the node
//   Ranks of a program that does not report are told by SIGTERM (attempt_watch.hpp): they have obeyed when all have ended.
// clang-format on
#include <cstdint>
#include <optional>
#include <string>

#include "launcher/supervise/policy.hpp"
#include "launcher/supervise/run_state.hpp"
#include "src/config/rank_promises.hpp"

namespace holdfast::launcher {

/// Is there state that only the nodes of this job have? It may be in the memory of live ranks, or in the
/// local levels of an ended attempt, from which the next one can save it to the shared level.
bool worth_saving(const RunState& state);

/// Does Holdfast know what the program saves?
bool saves_are_known(const RunState& state, const config::RankPromises& promises);
/// How ranks ended that only signals reach: `unended` of `world` had not `after_s` seconds after the order to
/// end. `sent`: to so many their agents have sent SIGTERM.
std::string end_after_signal(int unended, int world, int sent, double after_s);

/// The end of a run that was told to end. `reached`: the newest step of its ranks. `unseen`: where their
/// saves are not known, how they ended.
RunOutcome drained(const RunState& state, std::int64_t reached, const std::optional<std::string>& unseen);

/// The end of an attempt from which the first of RunState::evicting leaves. `note`: what was unusual.
Failure eviction(const RunState& state, const Roster& roster, const std::string& note);

}  // namespace holdfast::launcher
