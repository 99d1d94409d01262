#include "src/train/restore/restore_buffer.hpp"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {

RestoreBuffer::RestoreBuffer(const StateViews& views, Snapshots* local) : views_(views), local_(local) {}

int RestoreBuffer::worth_least(const PointId& point) const {
  // An open buffer holds nothing, and what this one had of `point` is of no use; then the oldest.
  int best = 0;
  std::tuple<bool, PointId> least;
  for (int buffer = 0; buffer < local_->file().buffers(); ++buffer) {
    const auto what = local_->file().sealed(buffer);
    const PointId id = what ? id_of(what->point) : PointId{};
    const std::tuple worth(what && id != point, id);
    if (buffer == 0 || worth < least) {
      best = buffer;
      least = worth;
    }
  }
  return best;
}

void RestoreBuffer::begin(const PointId& point, std::optional<int> has_it) {
  replaced_.clear();
  in_place_ = has_it.has_value();
  if (local_ == nullptr) {
    expects(!in_place_, "only the local level has buffers");
    held_ = views_.held;
    return;
  }
  if (has_it) {
    buffer_ = *has_it;
  } else {
    std::vector<int> needed;
    const int least = worth_least(point);
    for (int buffer = 0; buffer < local_->file().buffers(); ++buffer)
      if (buffer != least) needed.push_back(buffer);
    buffer_ = local_->spare_buffer(needed);
  }
  held_ = local_->view(buffer_);
  replaced_.resize(held_.pieces.size());
}

void RestoreBuffer::replace(int piece) {
  if (!in_place_) return;
  auto& memory = replaced_.at(piece);
  if (!memory.empty()) return;
  memory.resize(bytes(piece).size());
  held_.pieces[piece].data = memory.data();
}

std::span<std::byte> RestoreBuffer::bytes(int i) const {
  return {static_cast<std::byte*>(piece(i).data), as_size(bytes_of(piece(i).span(), held_.tensors))};
}

std::uint64_t RestoreBuffer::digest(int i) const {
  const checkpoint::PieceView& p = piece(i);
  return digest_part(static_cast<std::uint64_t>(p.first), p.data, held_.tensors[p.tensor].type, p.count);
}

void RestoreBuffer::finish(const checkpoint::RunPoint& point, const std::vector<std::uint64_t>& digests) {
  if (local_ == nullptr) return;
  const bool repaired = std::any_of(replaced_.begin(), replaced_.end(), [](auto& r) { return !r.empty(); });
  if (repaired) {
    local_->file().open(buffer_);
    const checkpoint::State in_buffer = local_->view(buffer_);
    for (std::size_t i = 0; i < replaced_.size(); ++i)
      if (!replaced_[i].empty())
        std::memcpy(in_buffer.pieces[i].data, replaced_[i].data(), replaced_[i].size());
    held_ = in_buffer;
    replaced_.clear();
  }
  if (repaired || !in_place_) local_->file().seal(buffer_, {point, digests});
  local_->adopt(buffer_);
}

}  // namespace holdfast::train
