#include "checkpoint/shards/index_file.hpp"

#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/io/memory_file.hpp"
#include "checkpoint/shards/h5.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"

namespace holdfast::checkpoint {

bool is_indexed(const LogicalTensor& tensor, std::int64_t pieces, std::int64_t max_pieces) {
  return pieces <= max_pieces || tensor.name.starts_with("model/");
}

std::string index_text(std::span<const LogicalTensor> tensors, const WriterLayout& layout,
                       std::int64_t max_pieces) {
  std::vector<std::vector<h5::VirtualPart>> sources(tensors.size());
  std::int64_t pieces = 0;
  for (std::size_t rank = 0; rank < layout.of_rank.size(); ++rank)
    for (const PieceSpan& span : layout.of_rank[rank]) {
      const auto t = as_size(span.tensor);
      if (span.count == 0) continue;
      sources.at(t).push_back({shard_file_name(static_cast<int>(rank)),
                               "/" + dataset_name(tensors[t], span.first), span.first, span.count});
      ++pieces;
    }
  const MemoryFile file;
  h5::Id h5_file = h5::create_file(file.path(), 4096);
  h5::write_attribute(h5_file.get(), "holdfast_format", format_version);
  for (std::size_t t = 0; t < tensors.size(); ++t)
    if (is_indexed(tensors[t], pieces, max_pieces))
      h5::create_virtual(h5_file.get(), tensors[t].name, h5::element_of(tensors[t].type), tensors[t].rows,
                         tensors[t].cols, sources[t]);
  h5::close_file(std::move(h5_file));
  return file.read(0, file.bytes());
}

}  // namespace holdfast::checkpoint
