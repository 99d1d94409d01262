#include "src/train/local/partner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/base/run_dir.hpp"
#include "src/snapshot/seal.hpp"
#include "src/train/local/local_level.hpp"

namespace holdfast::train {
namespace {

using checkpoint::Sealed;
using checkpoint::StateFolder;

constexpr int buffers = 2;
/// Tags of the exchange.
enum Tag : std::uint64_t { record, state, answer_tag };

StateFolder open_copy(const PartnerParts& parts) {
  expects(parts.who.destination >= 0 && parts.who.source >= 0, "there is somebody to copy to and from");
  return StateFolder(parts.folder / snapshot::folder_name(parts.who.source, true),
                     local_identity_of(parts.run, parts.who.source),
                     buffer_shape_of(parts.run, parts.who.source).bytes, buffers, false,
                     parts.run.record_bytes);
}

}  // namespace

PartnerCopies::PartnerCopies(PartnerParts parts, Snapshots& local)
    : parts_(std::move(parts)),
      local_(local),
      own_bytes_(buffer_shape_of(parts_.run, parts_.rank).bytes),
      file_(open_copy(parts_)),
      record_out_(as_size(parts_.run.record_bytes)),
      record_in_(record_out_.size()) {
  local_.after_seal([this](int buffer, const Sealed& what) {
    if (what.point.step % parts_.every == 0) copy(buffer, what);
  });
}

PartnerCopies::~PartnerCopies() {
  try {
    local_.join();  // the hook may be at work
  } catch (const Error& error) {
    log::warn("the last partner copy was not made: {}", error.what());
  }
  local_.after_seal({});
}

/// What is worth less: an open buffer, then the older one.
int PartnerCopies::older_buffer() const {
  const auto worth = [&](int buffer) {
    const auto what = file_.sealed(buffer);
    return what ? what->point.samples : -1;
  };
  return worth(1) < worth(0) ? 1 : 0;
}

void PartnerCopies::copy(int buffer, const Sealed& what) {
  const Deadline deadline = Deadline::in(parts_.limit);
  const int into = older_buffer();
  file_.open(into);

  const std::string text = to_text(what);
  expects(text.size() < record_out_.size(), "a record has room for every text");
  std::ranges::fill(record_out_, std::byte{0});
  std::memcpy(record_out_.data(), text.data(), text.size());
  const std::span<const std::byte> mine = local_.file().buffer(buffer).first(own_bytes_);
  const comm::PieceOut out[] = {{parts_.who.destination, record, record_out_},
                                {parts_.who.destination, state, mine}};
  const comm::PieceIn in[] = {{parts_.who.source, record, record_in_},
                              {parts_.who.source, state, file_.buffer(into)}};
  const comm::ExchangeRate rate = parts_.exchange->run(out, in, deadline);
  counts_.bytes += rate.sent;
  counts_.seconds += rate.seconds;

  Sealed theirs;
  std::byte whole{arrived_whole(into, what, theirs)}, kept{};
  if (whole == std::byte{1})
    file_.seal(into, theirs);
  else
    ++counts_.refused;
  // Its own snapshot must stay where it is until the copy is whole on the other side.
  const comm::PieceOut answer{parts_.who.source, answer_tag, {&whole, 1}};
  const comm::PieceIn answered{parts_.who.destination, answer_tag, {&kept, 1}};
  parts_.exchange->run({&answer, 1}, {&answered, 1}, deadline);
  if (kept == std::byte{1}) {
    ++counts_.copies;
    local_.keep(buffer);
  }
}

bool PartnerCopies::arrived_whole(int buffer, const Sealed& mine, Sealed& theirs) const {
  const auto end = std::ranges::find(record_in_, std::byte{0});
  const auto record = checkpoint::sealed_from_text(
      {reinterpret_cast<const char*>(record_in_.data()), as_size(end - record_in_.begin())});
  std::string why;
  if (!record) {
    why = "its record cannot be read";
  } else if (record->point.step != mine.point.step || record->point.samples != mine.point.samples) {
    why = fmt::format("it is of step {}", record->point.step);
  } else {
    const auto digests =
        checkpoint::piece_digests(buffer_view_of(parts_.run, parts_.who.source, file_.buffer(buffer).data()));
    if (digests.size() != record->digests.size()) {
      why = fmt::format("{} pieces where there are {}", record->digests.size(), digests.size());
    } else {
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < digests.size(); ++i) wrong += digests[i] != record->digests[i];
      if (wrong > 0) why = fmt::format("{} of {} pieces are not what was sealed", wrong, digests.size());
    }
  }
  if (!why.empty()) {
    log::warn("the copy of rank {}'s snapshot of step {} is not kept ({})", parts_.who.source,
              mine.point.step, why);
    return false;
  }
  theirs = *record;
  return true;
}

std::unique_ptr<PartnerCopies> make_partner_copies(
    const Setup& setup, const LocalRun& run, Snapshots& local, comm::Communicator& world,
    const std::function<std::unique_ptr<comm::PeerExchange>()>& open) {
  const auto folder = local_folder_of(setup);
  if (setup.config.checkpoint.partner == config::Partner::none || !folder) return nullptr;
  // One rank reads: a plan that changes between two looks would be two plans.
  std::string plan;
  if (setup.place.rank == 0 && files::exists_or_fail(setup.dir.plan()))
    plan = files::read_text(setup.dir.plan());
  plan = comm::broadcast_text(world, std::move(plan), 0);
  const int ranks_per_node = setup.place.ranks_per_node;
  const auto destinations = copy_destinations(run.mesh, ranks_per_node,
                                              scalable_units_of_slots(plan, run.mesh.world / ranks_per_node));
  if (destinations.empty()) return nullptr;
  return std::make_unique<PartnerCopies>(
      PartnerParts{partners_of(setup.place.rank, destinations), run, setup.place.rank, *folder,
                   setup.config.checkpoint.partner_every, std::chrono::seconds(setup.config.supervise.step_s),
                   open()},
      local);
}

}  // namespace holdfast::train
