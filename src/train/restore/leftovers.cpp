#include "src/train/restore/leftovers.hpp"

#include <filesystem>

#include "checkpoint/index/catalog.hpp"
#include "src/base/error.hpp"
#include "src/base/log.hpp"
#include "src/snapshot/seal.hpp"
#include "src/train/common/agree.hpp"

namespace holdfast::train {

void put_away_untrusted(const RunDir& dir, std::int64_t trusted_step, Snapshots* local,
                        const checkpoint::Patience& patience, comm::Communicator& world) {
  if (trusted_step < 0) return;
  together(world, world.rank() == 0, [&] {
    for (const std::int64_t step :
         checkpoint::patiently(patience, [&] { return checkpoint::committed_steps(dir.checkpoints()); })) {
      if (step <= trusted_step) continue;
      const auto path = checkpoint::committed_path(dir.checkpoints(), step);
      auto aside = path;
      aside += ".suspect";
      std::error_code failure;
      std::filesystem::remove_all(aside, failure);  // of an earlier doubt
      std::filesystem::rename(path, aside, failure);
      if (failure) throw system_error("cannot put away " + path.string(), failure.value());
      log::warn("{} may hold wrong state and is put away as {}", path.string(), aside.filename().string());
    }
  });
  if (local == nullptr) return;
  checkpoint::StateFolder& own = local->file();
  for (int buffer = 0; buffer < own.buffers(); ++buffer)
    if (const auto what = own.sealed(buffer); what && what->point.step > trusted_step) own.open(buffer);
}

void remove_leftovers(NodeFiles& files, std::span<const int> node_of, std::int64_t trusted_step,
                      comm::Communicator& world) {
  world.barrier();  // everybody's state is sealed in its own file
  const int here = node_of[world.rank()];
  for (const auto& [of, copy] : files.names()) {
    const bool is_rank = of < world.size();
    if (is_rank && !copy && node_of[of] == here) continue;
    bool untrusted = false;
    const checkpoint::StateFolder* file = is_rank && trusted_step >= 0 ? files.find(of, copy) : nullptr;
    for (int buffer = 0; file != nullptr && buffer < file->buffers(); ++buffer)
      if (const auto what = file->sealed(buffer)) untrusted = untrusted || what->point.step > trusted_step;
    std::error_code ignored;  // several ranks of the node do the same
    if (!is_rank || untrusted)
      std::filesystem::remove_all(files.folder() / snapshot::folder_name(of, copy), ignored);
  }
}

}  // namespace holdfast::train
