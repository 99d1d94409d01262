#pragma once
// Partner copies: what no other node holds is copied, snapshot by snapshot, into the local level of another
// node. Each rank sends its sealed snapshot buffer to its destination and takes that of the rank it keeps
// for, at once, on the background thread of the local level. The copy has two snapshot buffers: while one is
// written, the other is whole.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>

#include "src/comm/peer_exchange.hpp"
#include "src/train/common/setup.hpp"
#include "src/train/local/partner_plan.hpp"
#include "src/train/local/snapshots.hpp"

namespace holdfast::train {

struct PartnerParts {
  Partners who;  ///< both are there
  LocalRun run;  ///< gives the shape of the copy and of what is sent
  int rank = 0;
  std::filesystem::path folder;       ///< of the local level
  int every = 1;                      ///< steps between copies, a multiple of those between snapshots
  std::chrono::milliseconds limit{};  ///< of one copy
  std::unique_ptr<comm::PeerExchange> exchange;
};

class PartnerCopies {
 public:
  struct Counts {
    std::int64_t copies = 0;   ///< of this rank's state that its destination has sealed
    std::int64_t refused = 0;  ///< copies that came damaged: they are not kept
    std::int64_t bytes = 0;    ///< that were sent
    double seconds = 0;        ///< of sending and taking
  };

  /// Makes or finds the copy that this rank keeps; nothing of it is lost before the first snapshot. Throws
  /// Error (runtime) when there is no room for it. `local` outlives the object, which outlives its hook.
  PartnerCopies(PartnerParts parts, Snapshots& local);
  /// Waits for a copy that is being made.
  ~PartnerCopies();
  PartnerCopies(const PartnerCopies&) = delete;
  PartnerCopies& operator=(const PartnerCopies&) = delete;

  /// Between snapshots: after Snapshots::join().
  const Counts& counts() const { return counts_; }
  const checkpoint::StateFolder& file() const { return file_; }
  /// For people: over what the copies go.
  std::string describe() const { return parts_.exchange->describe(); }

 private:
  void copy(int buffer, const checkpoint::Sealed& what);
  bool arrived_whole(int buffer, const checkpoint::Sealed& mine, checkpoint::Sealed& theirs) const;
  int older_buffer() const;

  PartnerParts parts_;
  Snapshots& local_;
  std::int64_t own_bytes_;
  checkpoint::StateFolder file_;
  std::vector<std::byte> record_out_, record_in_;
  Counts counts_;
};

/// Collective. Nothing where checkpoint.partner or the plan wants no copies. `open`: how an exchange of its
/// own is opened, collective too. After the restore: the copies that there are may be needed for it.
std::unique_ptr<PartnerCopies> make_partner_copies(
    const Setup& setup, const LocalRun& run, Snapshots& local, comm::Communicator& world,
    const std::function<std::unique_ptr<comm::PeerExchange>()>& open);

}  // namespace holdfast::train
