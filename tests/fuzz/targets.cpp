#include "tests/fuzz/targets.hpp"

#include <cstring>

#include "checkpoint/index/files_manifest.hpp"
#include "checkpoint/index/manifest.hpp"
#include "checkpoint/index/safetensors.hpp"
#include "checkpoint/index/vote.hpp"
#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::fuzz {

using namespace checkpoint;

void try_manifest(std::string_view bytes) {
  try {
    if (lists_files(bytes)) {
      const std::string text = to_text(parse_files_manifest(bytes));
      expects(to_text(parse_files_manifest(text)) == text, "what is accepted is written and accepted again");
      return;
    }
    const Manifest read = parse_manifest(bytes);
    if (read.version != format_version) return;
    const std::string text = to_text(read);
    expects(to_text(parse_manifest(text)) == text, "what is accepted is written and accepted again");
    std::int64_t elements = 0, stored = 0;
    for (const LogicalTensor& tensor : read.tensors) elements += tensor.elements();
    for (std::size_t rank = 0; rank < read.shards.size(); ++rank)
      for (const StoredPiece& piece : pieces_of(read, rank)) {
        stored += piece.span.count;
        expects(piece.offset >= read.shards[rank].payload_offset &&
                    piece.offset + bytes_of(piece.span, read.tensors) <= read.shards[rank].bytes,
                "a piece lies in the payload");
      }
    expects(stored == elements, "every element is stored once");
  } catch (const Error&) {
  }
}

void try_vote(std::string_view bytes) {
  try {
    if (parse_files_vote(std::string(bytes))) return;
    const Vote vote = parse_vote(std::string(bytes));
    if (!vote.has_common) return;
    const Vote again = parse_vote(vote_text(0, vote.common, vote.shard, vote.piece_digests));
    expects(again.common.tensors == vote.common.tensors && again.common.layout == vote.common.layout &&
                again.common.facts == vote.common.facts && again.common.point == vote.common.point,
            "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

void try_safetensors(std::string_view bytes) {
  constexpr auto length_bytes = as_size(safetensors::length_bytes);
  if (bytes.size() < length_bytes) return;
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), length_bytes);
  if (length > bytes.size() - length_bytes) return;
  const std::string_view header = bytes.substr(length_bytes, length);
  const auto buffer_bytes = static_cast<std::int64_t>(bytes.size() - length_bytes - length);
  try {
    safetensors::Header read = safetensors::parse_header(header, buffer_bytes);
    std::int64_t next = 0;
    for (const safetensors::Tensor& tensor : read.tensors) {
      expects(tensor.first == next && tensor.bytes >= 0, "tensors lie side by side");
      next += tensor.bytes;
    }
    expects(next == buffer_bytes, "tensors cover the buffer");
    const auto tensors = read.tensors;
    const std::string text = safetensors::header_text(read.tensors, read.metadata);
    const auto again = safetensors::parse_header(std::string_view(text).substr(length_bytes), buffer_bytes);
    expects(again.tensors == tensors && again.metadata == read.metadata,
            "what is accepted is written and accepted again");
  } catch (const Error&) {
  }
}

}  // namespace holdfast::fuzz
