#include "checkpoint/index/manifest.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/files_manifest.hpp"
#include "checkpoint/index/manifest_json.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

using detail::Fields;
using detail::Json;

constexpr std::int64_t largest_manifest = std::int64_t{1} << 30;

/// A list with one entry per line, so that people can read and compare manifests.
template <class Range, class Print>
std::string lines(const Range& range, Print print) {
  std::string text = "[";
  for (std::size_t i = 0; i < range.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + print(i);
  return text + "]";
}

}  // namespace

std::string to_text(const Manifest& m) {
  std::string body;
  body += "\"generation\":" + detail::print(detail::to_json(m.generation, m.point.step)) + ",\n";
  body += "\"point\":" + detail::print(detail::to_json(m.point)) + ",\n";
  body += "\"facts\":" + detail::print(detail::to_json(m.facts)) + ",\n";
  body += "\"tensors\":" +
          lines(m.tensors,
                [&](std::size_t i) { return detail::print(detail::to_json(m.tensors[i], m.digests[i])); }) +
          ",\n";
  body += "\"state_digest\":\"" + digest_text(m.state_digest) + "\",\n";
  body += "\"layout\":" + detail::print(detail::to_json(m.layout)) + ",\n";
  body += "\"shards\":" +
          lines(m.shards, [&](std::size_t i) { return detail::print(detail::to_json(m.shards[i])); }) + "}\n";
  return detail::with_own_digest(format_version, body);
}

Manifest parse_manifest(std::string_view text) {
  const int version = detail::check_own_digest(text, "the manifest");
  if (version > format_version) throw OtherKind("the checkpoint");
  const Json json = detail::parse_json(text, "the manifest");
  const Fields fields(json, "",
                      {"schema_version", "digest", "generation", "point", "facts", "tensors", "state_digest",
                       "shards", version < 5 ? "index" : "layout"});
  Manifest m;
  m.version = version;
  m.point.step = detail::read_generation(fields.value("generation"), "generation", m.generation);
  detail::read_point(fields.value("point"), "point", version, m.point);
  m.facts = detail::read_facts(fields.value("facts"), "facts");
  detail::read_tensors(fields.array("tensors"), "tensors", m.tensors, &m.digests);
  m.state_digest = fields.hex64("state_digest");
  const Json& shards = fields.array("shards");
  for (std::size_t i = 0; i < shards.size(); ++i)
    m.shards.push_back(
        detail::read_shard(shards[i], "shards[" + std::to_string(i) + "]", version, static_cast<int>(i)));
  if (version < 5)
    m.index = detail::read_index(fields.value("index"), "index");
  else
    m.layout = detail::read_layout(fields.value("layout"), "layout");
  prove(m);
  return m;
}

std::vector<StoredPiece> pieces_of(const Manifest& m, std::size_t rank) {
  const ShardInfo& shard = m.shards.at(rank);
  if (m.version < 5) return shard.pieces;
  return placed(m.tensors, spans_of(m.tensors, m.layout, static_cast<int>(rank)), shard.payload_offset);
}

std::string read_manifest_text(const fs::path& step_dir) {
  const fs::path path = step_dir / manifest_file_name;
  const std::string which = "checkpoint " + step_dir.string(), name = manifest_file_name;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw Unreadable(which, errno == ENOENT ? "it has no " + name : name + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size > largest_manifest)
    throw Damaged(which + " is damaged", "the manifest is not a file of at most 1 GiB");
  try {
    return files::read_text(path, {.limit = largest_manifest, .links = false});
  } catch (const Error& e) {
    throw Unreadable(which, name + ": " + e.why());
  }
}

namespace {
/// What `parse` makes of the text; complaints name the checkpoint.
template <class Parse>
auto named(const fs::path& step_dir, Parse parse) {
  const std::string which = "checkpoint " + step_dir.string(), name = manifest_file_name;
  try {
    return parse();
  } catch (const Damaged& e) {
    throw Damaged(which + " is damaged", e.why().empty() ? e.what() : e.why());
  } catch (const NewerFormat& e) {
    throw NewerFormat("cannot use " + which, name + ": " + e.problem() + ": " + e.why(), e.hint());
  } catch (const OtherKind&) {
    throw OtherKind(which);
  }
}
}  // namespace

Manifest parse_manifest_of(const fs::path& step_dir, std::string_view text) {
  return named(step_dir, [&] { return parse_manifest(text); });
}

FilesManifest parse_files_manifest_of(const fs::path& step_dir, std::string_view text) {
  return named(step_dir, [&] { return parse_files_manifest(text); });
}

Manifest read_manifest(const fs::path& step_dir) {
  return parse_manifest_of(step_dir, read_manifest_text(step_dir));
}

}  // namespace holdfast::checkpoint
