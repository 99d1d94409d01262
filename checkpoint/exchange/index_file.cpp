#include "checkpoint/exchange/index_file.hpp"

#include <vector>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/io/memory_file.hpp"
#include "checkpoint/shards/h5.hpp"
#include "checkpoint/shards/shard_file.hpp"
#include "src/base/as_size.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {

std::string index_text(const Manifest& manifest) {
  const auto& tensors = manifest.tensors;
  std::vector<std::vector<h5::VirtualPart>> sources(tensors.size());
  for (std::size_t rank = 0; rank < manifest.shards.size(); ++rank)
    for (const StoredPiece& piece : pieces_of(manifest, rank)) {
      const auto t = as_size(piece.span.tensor);
      sources[t].push_back({manifest.shards[rank].file, "/" + dataset_name(tensors[t], piece.span.first),
                            piece.span.first, piece.span.count});
    }
  const MemoryFile file;
  h5::Id h5_file = h5::create_file(file.path(), 4096);
  h5::write_attribute(h5_file.get(), "holdfast_format", format_version);
  for (std::size_t t = 0; t < tensors.size(); ++t)
    h5::create_virtual(h5_file.get(), tensors[t].name, h5::element_of(tensors[t].type), shape_of(tensors[t]),
                       sources[t]);
  h5::close_file(std::move(h5_file));
  return file.read(0, file.bytes());
}

void write_index(const fs::path& step_dir, const Manifest& manifest) {
  if (!manifest.index) files::replace_atomically(step_dir / index_file_name, index_text(manifest));
}

}  // namespace holdfast::checkpoint
