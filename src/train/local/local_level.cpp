#include "src/train/local/local_level.hpp"

#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/config/snapshot_buffers.hpp"
#include "src/control/private_place.hpp"
#include "src/snapshot/seal.hpp"
#include "src/train/local/partner_plan.hpp"

namespace holdfast::train {
namespace {

/// The snapshots of a rank were one file once, "rank-00007.own" or "rank-00007.copy": its memory is given
/// back.
void remove_old_format(const std::filesystem::path& folder) {
  for (const std::string& name : files::list(folder))
    if (name.starts_with("rank-") && (name.ends_with(".own") || name.ends_with(".copy"))) {
      std::error_code ignored;  // another rank of the node removes it as well
      if (std::filesystem::remove(folder / name, ignored))
        log::warn("{} is removed from the local level: it has an earlier format", name);
    }
}

}  // namespace

std::optional<std::filesystem::path> local_folder_of(const Setup& setup) {
  const std::string& local = setup.config.checkpoint.local;
  if (const auto& agent = setup.place.agent)
    return agent->local_level.empty() ? std::nullopt : std::optional(agent->local_level);
  if (local == "none" || local == "auto") return std::nullopt;
  return control::make_private(control::local_level_place(setup.dir, local),
                               control::read_secret(setup.dir.secret()));
}

void remove_local_folder(const Setup& setup) noexcept {
  try {
    std::error_code ignored;  // another rank of the node removes it as well
    if (const auto folder = local_folder_of(setup)) std::filesystem::remove_all(*folder, ignored);
  } catch (const std::exception& error) {
    log::warn("the local level stays on this node: {}", error.what());
  }
}

checkpoint::StateFolder open_state_folder(const Setup& setup, const LocalRun& run,
                                          const std::filesystem::path& folder) {
  const auto& checkpoint = setup.config.checkpoint;
  const bool first =
      setup.place.agent ? setup.place.agent->attempt <= 1 : !files::exists_or_fail(setup.dir.metrics());
  // In bare mode every start is told where the run begins; under agents only the first one.
  const bool begins_elsewhere = !setup.place.agent && setup.config.run.resume != "auto";
  const bool rarer_partner_copies = checkpoint.partner != config::Partner::none &&
                                    checkpoint.partner_every > checkpoint.local_every &&
                                    !copy_destinations(run.mesh, setup.place.ranks_per_node).empty();
  const int buffers = config::snapshot_buffers({.local = true, .rarer_partner_copies = rarer_partner_copies});
  remove_old_format(folder);
  return checkpoint::StateFolder(
      folder / snapshot::folder_name(setup.place.rank, false), local_identity_of(run, setup.place.rank),
      buffer_shape_of(run, setup.place.rank).bytes, buffers, first || begins_elsewhere, run.record_bytes);
}

}  // namespace holdfast::train
