// run() reads the manifest first; if that is damaged or cannot be read, this is the only problem. A manifest
// of kind files goes to check_files(). Otherwise shard() opens each shard file, which checks size, record and
// block table, and compares the checksum of its HDF5 metadata. read_blocks() then reads every block of the
// shards that could be opened, by several workers, and adds what is right to logical digests. index() checks
// index.h5 by its checksum, where the manifest has one. Only if there is no problem so far are the digests
// compared with the manifest's. The commit record comes next, and last what HDF5 sees, in the files whose
// metadata is what was written: HDF5 never gets metadata that is known to be damaged.
//
// A problem that is found later ends only the check in which it is found. What cannot be read now also sets
// `unreadable`, and is no proof of damage.
#include "checkpoint/verify/verify.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/commit_record.hpp"
#include "checkpoint/index/files_check.hpp"
#include "checkpoint/index/hash.hpp"
#include "checkpoint/io/crc32c.hpp"
#include "checkpoint/shards/block_scan.hpp"
#include "checkpoint/verify/verify_h5.hpp"
#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

/// Sentences per shard; more of them say nothing new.
constexpr std::size_t max_sentences = 16;

/// Pieces in the order of their offsets, so that those of a block are found at once.
std::vector<StoredPiece> by_offset(std::vector<StoredPiece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const auto& a, const auto& b) { return a.offset < b.offset; });
  return pieces;
}

/// Adds what bytes [first, first + bytes.size()) of a shard contribute to the logical digests.
void add_digests(const Manifest& manifest, const std::vector<StoredPiece>& pieces,
                 std::span<const std::byte> bytes, std::int64_t first, std::vector<std::uint64_t>& digests) {
  const std::int64_t end = first + static_cast<std::int64_t>(bytes.size());
  auto piece = std::partition_point(pieces.begin(), pieces.end(), [&](const StoredPiece& p) {
    return p.offset + bytes_of(p.span, manifest.tensors) <= first;
  });
  for (; piece != pieces.end() && piece->offset < end; ++piece) {
    const auto tensor = as_size(piece->span.tensor);
    const DType type = manifest.tensors[tensor].type;
    const std::int64_t from = std::max(piece->offset, first);
    const std::int64_t to = std::min(piece->offset + bytes_of(piece->span, manifest.tensors), end);
    digests[tensor] +=
        digest_part(static_cast<std::uint64_t>(piece->span.first + (from - piece->offset) / bytes_of(type)),
                    bytes.data() + (from - first), type, (to - from) / bytes_of(type));
  }
}

class Verifier {
 public:
  Verifier(const fs::path& step_dir, const Progress& progress) : step_dir_(step_dir), progress_(progress) {}

  Verified run() {
    try {
      text_ = read_manifest_text(step_dir_);
      if (lists_files(text_)) return files();
      manifest_ = parse_manifest_of(step_dir_, text_);
    } catch (const Damaged& e) {
      result_.problems.push_back(e.what());
      return result_;
    } catch (const Unreadable& e) {
      result_.unreadable = true;
      result_.problems.push_back(e.what());
      return result_;
    }
    for (std::size_t rank = 0; rank < manifest_.shards.size(); ++rank) shard(rank);
    const std::vector<std::uint64_t> digests = read_blocks();
    index();
    const bool data_is_good =
        result_.problems.empty();  // else the digests cannot match, and saying so adds nothing
    for (std::size_t t = 0; data_is_good && t < digests.size(); ++t)
      if (digests[t] != manifest_.digests[t])
        problem("tensor " + manifest_.tensors[t].name + " has digest " + digest_text(digests[t]) +
                ", the manifest says " + digest_text(manifest_.digests[t]));
    commit_record(manifest_, manifest_.version);
    for (const std::string& text : problems_seen_by_hdf5(step_dir_, manifest_, openable_)) problem(text);
    return result_;
  }

 private:
  /// Those of another program.
  Verified files() {
    const FilesManifest manifest = parse_files_manifest_of(step_dir_, text_);
    const CheckedFiles read = check_files(step_dir_, manifest, progress_);
    result_.bytes = read.bytes;
    result_.files = static_cast<std::int64_t>(manifest.files.size());
    result_.unreadable = read.unreadable;
    for (const std::string& text : read.problems) problem(text);
    commit_record(manifest, files_version);
    return result_;
  }

  void problem(const std::string& text) { result_.problems.push_back(text); }

  /// All but the blocks of a shard: those are read later, when it is worth it.
  void shard(std::size_t rank) {
    const ShardInfo& info = manifest_.shards[rank];
    try {
      const ShardReader reader(step_dir_, manifest_, rank);
      const std::string metadata = reader.metadata();
      if (crc32c(metadata.data(), metadata.size()) == info.metadata_crc32c)
        openable_.push_back(info.file);
      else
        problem(info.file + ": its HDF5 metadata does not match its checksum");
      result_.bytes += info.data_offset + reader.head_bytes_read();
      const std::int64_t blocks = reader.blocks().count(), most = blocks_per_run(reader.blocks().each);
      for (std::int64_t k = 0; k < blocks; k += most) runs_.push_back({rank, k, std::min(most, blocks - k)});
      result_.blocks += blocks;
    } catch (const Unreadable& e) {
      result_.unreadable = true;
      problem(e.why());
    } catch (const Error& e) {
      problem(e.why().empty() ? e.what() : e.why());
    }
  }

  /// Returns the logical digests of what matched its checksums.
  std::vector<std::uint64_t> read_blocks() {
    const std::size_t tensors = manifest_.tensors.size();
    std::vector<std::vector<StoredPiece>> pieces;
    for (std::size_t rank = 0; rank < manifest_.shards.size(); ++rank)
      pieces.push_back(by_offset(pieces_of(manifest_, rank)));
    std::vector<std::vector<std::uint64_t>> digests(scan_workers, std::vector<std::uint64_t>(tensors, 0));
    std::map<std::size_t, std::map<std::pair<std::size_t, std::int64_t>, std::string>> damage;  // by shard
    const std::int64_t total = total_bytes(manifest_);
    std::mutex lock;
    const BlockUse use{[&](int worker, std::size_t run, const ShardReader& reader, std::int64_t first,
                           std::int64_t, std::span<const std::byte> bytes) {
                         add_digests(manifest_, pieces[runs_[run].shard], bytes,
                                     reader.blocks().offset(first), digests[worker]);
                         const std::scoped_lock hold(lock);
                         result_.bytes += static_cast<std::int64_t>(bytes.size());
                         if (progress_) progress_(result_.bytes, total);
                       },
                       [&](std::size_t run, std::int64_t first, std::int64_t, const Damaged& why) {
                         const std::scoped_lock hold(lock);
                         damage[runs_[run].shard].try_emplace({run, first}, why.why());
                       }};
    try {
      scan_blocks(step_dir_, manifest_, runs_, use);
    } catch (const Unreadable& e) {
      result_.unreadable = true;
      problem(e.what());
    } catch (const Error& e) {
      problem(e.what());
    }
    for (const auto& [shard, places] : damage) say(manifest_.shards[shard].file, places);
    for (std::size_t t = 0; t < tensors; ++t)
      for (int worker = 1; worker < scan_workers; ++worker) digests[0][t] += digests[worker][t];
    return digests[0];
  }

  void say(const std::string& file,
           const std::map<std::pair<std::size_t, std::int64_t>, std::string>& places) {
    std::size_t said = 0;
    for (const auto& [place, why] : places) {
      if (said++ == max_sentences)
        return problem(file + ": and " + std::to_string(places.size() - max_sentences) + " more places");
      if (result_.problems.empty() || result_.problems.back() != why) problem(why);
    }
  }

  /// Since version 5 it is there when somebody made it, and HDF5 alone is asked what it shows.
  void index() {
    if (!manifest_.index) {
      if (std::error_code ignored; fs::exists(step_dir_ / index_file_name, ignored))
        openable_.emplace_back(index_file_name);
      return;
    }
    const IndexInfo& info = *manifest_.index;
    const fs::path path = step_dir_ / info.file;
    struct stat seen {};
    if (::stat(path.c_str(), &seen) != 0) return problem(info.file + ": " + std::strerror(errno));
    if (!S_ISREG(seen.st_mode) || seen.st_size != info.bytes)
      return problem(info.file + ": it has " + std::to_string(seen.st_size) + " bytes, not " +
                     std::to_string(info.bytes));
    try {
      if (xxh3_128(files::read_text(path, {.limit = files::no_limit})) != info.xxh3)
        return problem(info.file + ": it does not match its checksum");
    } catch (const Error& e) {
      result_.unreadable = true;
      return problem(e.what());
    }
    result_.bytes += info.bytes;
    openable_.push_back(info.file);
  }

  /// The state can be read without it; what it says has to be true all the same.
  template <class AnyManifest>
  void commit_record(const AnyManifest& manifest, int version) {
    try {
      const auto record = read_commit_record(step_dir_);
      if (!record && version >= first_version_with_commit_record)
        result_.remarks.push_back(
            std::string(commit_record_name) +
            ": it is missing (the state is whole without it; lists and retention take the "
            "manifest's time)");
      if (record && *record != commit_record_of(manifest, text_, record->committed))
        problem(std::string(commit_record_name) + ": it is not that of this manifest");
    } catch (const Damaged& e) {
      problem(std::string(commit_record_name) + ": " + e.why());
    } catch (const Error& e) {
      result_.unreadable = true;
      problem(e.what());
    }
  }

  fs::path step_dir_;
  const Progress& progress_;
  std::string text_;  ///< of the manifest
  Manifest manifest_;
  Verified result_;
  std::vector<BlockRun> runs_;
  std::vector<std::string> openable_;  ///< files whose HDF5 metadata is what was written
};

}  // namespace

Verified verify(const fs::path& step_dir, const Progress& progress) {
  return Verifier(step_dir, progress).run();
}

}  // namespace holdfast::checkpoint
