#include "src/snapshot/seal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

extern "C" {
#include "client/crc32.h"
}

namespace holdfast::snapshot {

std::optional<Seal> seal_of(const std::string& text) {
  const auto read = std::make_unique<hfc_seal>();
  if (hfc_seal_read(text.c_str(), read.get()) == 0) return std::nullopt;
  Seal seal{read->step, read->attempt, read->world};
  for (int i = 0; i < read->count; ++i)
    seal.buffers.push_back({read->buffers[i].name, read->buffers[i].bytes, read->buffers[i].crc});
  if (read->note != nullptr) seal.note.assign(read->note, read->note_bytes);
  return seal;
}

std::string to_text(const Seal& seal) {
  const auto what = std::make_unique<hfc_seal>();
  what->step = seal.step;
  what->attempt = seal.attempt;
  what->world = seal.world;
  expects(seal.buffers.size() <= hfc_most_buffers, "a seal names no more buffers");
  for (const auto& buffer : seal.buffers) {
    hfc_sealed_buffer& next = what->buffers[what->count++];
    expects(hfc_is_buffer_name(buffer.name.c_str()) != 0, "a buffer has such a name");
    std::ranges::copy(buffer.name, next.name);
    next.bytes = buffer.bytes;
    next.crc = buffer.crc;
  }
  what->note = seal.note.empty() ? nullptr : seal.note.data();
  what->note_bytes = seal.note.size();
  std::string text(hfc_seal_bytes + seal.note.size(), '\0');
  text.resize(hfc_seal_write(what.get(), text.data(), text.size()));
  return text;
}

std::string folder_name(int rank, bool copy) { return fmt::format("{}-{:05}", copy ? "copy" : "rank", rank); }

std::optional<std::pair<int, bool>> folder_called(std::string_view name) {
  const auto digits = std::min(name.find('-'), name.size() - 1) + 1;
  int rank = -1;
  std::from_chars(name.data() + digits, name.data() + name.size(), rank);
  for (const bool copy : {false, true})
    if (rank >= 0 && rank <= hfc_most_ranks && name == folder_name(rank, copy)) return std::pair(rank, copy);
  return std::nullopt;
}

std::uint32_t crc32_of(std::uint32_t crc, const void* data, std::size_t bytes) {
  return hfc_crc32(crc, data, bytes);
}

}  // namespace holdfast::snapshot
