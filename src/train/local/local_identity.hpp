#pragma once
// What the snapshots of any rank look like, as a pure function of the run: the same for one's own, for
// a peer's that is read, and for a partner's that is kept. FORMAT.md has the bytes.
#include <cstdint>
#include <string>

#include "checkpoint/index/state_folder.hpp"
#include "src/config/model_shape.hpp"
#include "src/config/run_config.hpp"
#include "src/shard/mesh.hpp"

namespace holdfast::train {

/// What all snapshots of a run have in common; the same on every rank.
struct LocalRun {
  config::ModelShape shape;
  shard::Mesh mesh;  ///< of whichever rank
  DType moments = DType::fp32;
  std::uint64_t hash = 0;         ///< LocalIdentity::run
  std::int64_t record_bytes = 0;  ///< room for what to_text(Sealed) gives, of every rank
};

/// `numerics`: numerics_identity(); `data`: Facts::data_identity. Settings that can change a bit of the state
/// are in the hash, other than in the facts of a checkpoint: snapshots under different settings must never be
/// joined to one state, and nobody looks at them first.
LocalRun local_run_of(const config::RunConfig& config, const config::ModelShape& shape,
                      const shard::Mesh& mesh, const std::string& numerics, const std::string& data);

/// Ranks of one kind hold the same pieces; the first rank of each has the same number. Where replicas hold
/// the same, also of ranks that there are only in a run with more replicas.
int kind_of(const LocalRun& run, int rank);
int kinds_of(const LocalRun& run);

/// `rank`: as in kind_of().
checkpoint::LocalIdentity local_identity_of(const LocalRun& run, int rank);

/// A snapshot buffer holds the three optimizer arenas of its rank one after the other: the parameters at 0,
/// the first moments from a multiple of 4096 on, the second ones from a multiple of 64.
struct BufferShape {
  std::int64_t parameter_bytes = 0, moment_bytes = 0;  ///< of the arenas
  std::int64_t exp_avg = 0, exp_avg_sq = 0;            ///< bytes from the start of the buffer
  std::int64_t bytes = 0;
};
BufferShape buffer_shape_of(const LocalRun& run, int rank);

/// All pieces that `rank` holds, in the order of its StateViews::held, in a buffer of its file.
checkpoint::State buffer_view_of(const LocalRun& run, int rank, std::byte* buffer);

}  // namespace holdfast::train
