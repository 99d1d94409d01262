#include "checkpoint/index/commit_record.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/index/manifest_json.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {

using detail::Fields;
using detail::Json;

CommitRecord commit_record_of(const Manifest& manifest, std::string_view text, std::int64_t committed) {
  return {manifest.point.step,
          manifest.generation,
          committed,
          total_bytes(manifest),
          static_cast<std::int64_t>(text.size()),
          detail::own_digest(text),
          false};
}

CommitRecord commit_record_of(const FilesManifest& manifest, std::string_view text, std::int64_t committed) {
  return {manifest.step,
          manifest.generation,
          committed,
          total_bytes(manifest),
          static_cast<std::int64_t>(text.size()),
          detail::own_digest(text),
          true};
}

std::string to_text(const CommitRecord& record) {
  const Json manifest = {{"bytes", record.manifest_bytes}, {"digest", record.manifest_digest}};
  return detail::with_own_digest(
      record.files ? files_version : format_version,
      "\"generation\":" + detail::print(detail::to_json(record.generation, record.step)) +
          ",\n\"committed\":" + std::to_string(record.committed) + ",\"bytes\":" +
          std::to_string(record.bytes) + ",\n\"manifest\":" + detail::print(manifest) + "}\n");
}

CommitRecord parse_commit_record(std::string_view text) {
  const int version = detail::check_own_digest(text, "the record of the commit");
  const Json json = detail::parse_json(text, "the record of the commit");
  const Fields fields(json, "", {"schema_version", "digest", "generation", "committed", "bytes", "manifest"});
  const Fields manifest(fields.value("manifest"), "manifest", {"bytes", "digest"});
  CommitRecord record;
  record.step = detail::read_generation(fields.value("generation"), "generation", record.generation);
  record.committed = fields.integer("committed");
  record.bytes = fields.integer("bytes");
  record.manifest_bytes = manifest.integer("bytes");
  record.manifest_digest = manifest.hex128("digest");
  record.files = version == files_version;
  return record;
}

std::optional<CommitRecord> read_commit_record(const fs::path& step_dir) {
  const fs::path path = step_dir / commit_record_name;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return {};
    throw Unreadable("the record " + path.string(), std::strerror(errno));
  }
  const std::string text = [&] {
    try {
      return files::read_text(path, {.links = false});
    } catch (const Error& e) {
      throw Unreadable("the record " + path.string(), e.why());
    }
  }();
  return parse_commit_record(text);
}

}  // namespace holdfast::checkpoint
