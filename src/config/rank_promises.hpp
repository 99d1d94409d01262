#pragma once
// What may be relied on of a rank before it has said anything, by its program and by rank.kind. Readers ask
// for a promise, never for which program the ranks run. Pure.
#include "src/config/run_config.hpp"

namespace holdfast::config {

/// Does a rank report its step and its phase to its agent, and follow the orders that the agent passes on?
/// Each value promises more than the one before. Only signals reach a rank that has not reported, unless it
/// always does.
enum class Reports {
  never,     ///< it is not expected to
  perhaps,   ///< from when it uses the client, if it does
  expected,  ///< it is said to use the client, and has not yet
  always     ///< from its start, without the client; so it is started with SIGTERM blocked
};

/// The defaults are those of holdfast-train, which is the default program.
struct RankPromises {
  /// It trains what [model], [data], [train], [optim] and [precision] say, on files that the settings name.
  /// So its memory, work, arithmetic and number of steps are known before it starts.
  bool trains_as_set = true;
  Reports reports = Reports::always;
  /// No rank begins a step before all ranks have taken part in the one before.
  bool steps_together = true;
  /// It writes the run directory's own files: metrics.jsonl, and checkpoints in Holdfast's format. So all
  /// that it has saved is on record, and a restore finds out what is damaged.
  bool writes_run_dir = true;
  /// Its exit codes are Holdfast's (src/base/error.hpp), and so are its comparisons: a rank that differs
  /// convicts its node. What another program says is a claim, and how it ends on an order says nothing of
  /// what it saved.
  bool our_verdicts = true;
  /// A rank is one process: it starts no other ranks, and when it has ended nothing of it goes on.
  bool one_process = true;
  bool saves_on_sigterm = false;  ///< and then ends
  bool client_buffers = false;    ///< its agents keep its state in buffers of the client, if it wants them
  bool speaks_mpi = true;         ///< it needs the PMIx server of its node

  bool operator==(const RankPromises&) const = default;
  bool always_reports() const { return reports == Reports::always; }
};

RankPromises promises_of(const Rank& rank);

}  // namespace holdfast::config
