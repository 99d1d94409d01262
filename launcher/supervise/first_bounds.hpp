#pragma once
// After which time a rank hangs in a phase that has never been seen, from the work that is planned for it:
//
//   min(step_s, 2 * max(hang_factor * planned, hang_floor_s) + patience)
//
// as if `planned` were the longest time so far (pace.hpp), in the first steps of an attempt.
//
//   phase                         planned                                                  patience
//   starting, finishing, paused   nothing: step_s is the bound
//   restoring                     restored / read + state / memory + begin                 read_patience_s
//   data, forward, backward,      one micro-step, since ranks wait for each other in all   0
//     collective, optimizer         of it: tokens / read + operations / computed
//                                   + sent / network + state / memory + begin
//   checkpoint                    saved / written + one micro-step                         0
//
//   rates of a rank, where none is planned   CPU          GPU
//   read, written                            20 MB/s      20 MB/s
//   computed                                 10^8 /s      3 * 10^13 /s
//   network                                  20 MB/s      10 GB/s
//   memory                                   100 MB/s     10 GB/s
//   begin: what comes once (libraries,
//     kernels that are built, caches)      1 s          20 s
//     and 0.05 s for each other rank, for connections
//
// These rates are a tenth or less of what healthy hardware does: of a CPU, an eighth of a core without vector
// instructions; of a GPU, a tenth of an A100; of storage and networks, what is shared by many. Pure.
#include "launcher/plan/rank_work.hpp"
#include "src/config/run_config.hpp"
#include "src/control/rank_link.hpp"

namespace holdfast::launcher {

/// Seconds that the work of a phase takes, at the rates above; negative: not known.
double planned_s(control::Phase phase, const RankWork& work);
/// Seconds after which a rank in `phase` hangs, as long as no pace is known.
double first_bound_s(control::Phase phase, const RankWork& work, const config::Supervise& limits);

}  // namespace holdfast::launcher
