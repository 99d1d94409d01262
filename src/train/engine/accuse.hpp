#pragma once
// Two results that must be equal bit by bit are not: who is wrong? Pure; every rank comes to the same answer.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace holdfast::train {

/// A comparison did not hold.
struct Doubt {
  std::string check;              ///< "replicas" or "micro_batch"
  std::vector<int> accused;       ///< ascending; of several nodes: it cannot be told
  std::int64_t trusted_step = 0;  ///< the newest state that the same kind of comparison found right
  std::string why;
};

/// Ranks of one kind (equal `kind_of`) hold the same, so that their `seals` are equal: who holds something
/// else? Of each kind those that differ from most others. Where there is no such majority, those that
/// `contradict_themselves` (their memory is not what they once digested), or else all of that kind.
std::vector<int> accuse_replicas(std::span<const std::uint64_t> seals, std::span<const int> kind_of,
                                 std::span<const std::uint64_t> contradict_themselves);

/// Whether there are two different seals of one kind. The first rank of a kind has its number.
bool replicas_differ(std::span<const std::uint64_t> seals, std::span<const int> kind_of);

/// Hashes of one micro-batch by the rank whose micro-batch it is and by another one, which differ; then by
/// both once more, and by a third one where there is a third node.
struct MicroBatchHashes {
  std::uint64_t owner = 0, other = 0, owner_again = 0, other_again = 0;
  std::optional<std::uint64_t> third;
};
struct MicroBatchBlame {
  bool owner = false, other = false;  ///< both: it cannot be told
};
/// Who contradicts itself; or, where both stand by what they said, whom the third one contradicts.
MicroBatchBlame accuse_micro_batch(const MicroBatchHashes& hashes);

/// A step came out as NaN or infinity, so each of its micro-batches was computed again: how often those of
/// each rank (by rank) were not finite with the rank itself and with another one, with itself alone, and with
/// the other one alone; and whose losses in the step were not finite, 1 or 0.
struct NotFiniteCounts {
  std::vector<std::uint64_t> both, owner, other, loss;
};
struct NotFiniteBlame {
  bool reproduced = false;   ///< two ranks agree on it: the data or the state is the reason
  std::vector<int> accused;  ///< ascending, where it is not reproduced
};
/// `distance`: ranks from the owner to the other one; 0: there is none, and what a rank finds twice is
/// reproduced.
NotFiniteBlame accuse_not_finite(const NotFiniteCounts& counts, int distance);

/// Ranks between the one whose micro-batch it is and the one that computes it again: on the next node where
/// there is one, else the next rank, else (0) the same.
int second_distance(int world, int ranks_per_node);
/// To the third one, on a third node; nothing where there is none.
std::optional<int> third_distance(int world, int ranks_per_node);

/// The newest state that a run which was at `step` has vouched for by comparing a micro-batch every `every`
/// steps (0: never, and then no such comparison ever doubts it). The micro-batch of step S is compared before
/// S changes the state, and says that S - 1 was reached by right computing; what came after it, up to `step`,
/// no comparison has seen.
std::int64_t vouched_by_micro_batch(std::int64_t step, int every);

/// "rank 3" or "ranks 1, 3 and 5".
std::string ranks_text(std::span<const int> ranks);

}  // namespace holdfast::train
