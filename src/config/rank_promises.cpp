#include "src/config/rank_promises.hpp"

#include <filesystem>

namespace holdfast::config {

RankPromises promises_of(const Rank& rank) {
  const bool own_trainer =
      !rank.command.empty() && std::filesystem::path(rank.command.front()).filename() == "holdfast-train";
  RankPromises out;
  if (!own_trainer)
    out = {.trains_as_set = false,
           .reports = rank.kind == RankKind::client      ? Reports::expected
                      : rank.kind == RankKind::automatic ? Reports::perhaps
                                                         : Reports::never,
           .steps_together = false,
           .writes_run_dir = false,
           .our_verdicts = false,
           .one_process = false,
           .saves_on_sigterm = rank.kind == RankKind::sigterm,
           .client_buffers = true,
           .speaks_mpi = false};
  if (rank.launch != "auto") out.speaks_mpi = rank.launch == "mpi";
  return out;
}

}  // namespace holdfast::config
