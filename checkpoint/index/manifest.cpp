#include "checkpoint/index/manifest.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/hash.hpp"
#include "checkpoint/index/manifest_json.hpp"
#include "src/base/files.hpp"

namespace holdfast::checkpoint {
namespace {

using detail::Fields;
using detail::Json;

constexpr std::string_view version_key = "{\"schema_version\":";
constexpr std::string_view digest_key = ",\"digest\":\"";
constexpr std::string_view line_end = "\",\n";
constexpr std::size_t digest_digits = 32;
constexpr std::int64_t largest_manifest = std::int64_t{1} << 30;

/// A list with one entry per line, so that people can read and compare manifests.
template <class Range, class Print>
std::string lines(const Range& range, Print print) {
  std::string text = "[";
  for (std::size_t i = 0; i < range.size(); ++i) text += (i == 0 ? "\n  " : ",\n  ") + print(i);
  return text + "]";
}

/// The first line and the digest, which covers every byte but its own digits. The same in all versions, so
/// that a manifest of a newer one is told from a damaged one.
int check_first_line(std::string_view text) {
  const std::size_t version_at = version_key.size();
  std::size_t at = version_at;
  int version = 0;
  for (; at < text.size() && text[at] >= '0' && text[at] <= '9' && version < 1'000'000; ++at)
    version = version * 10 + (text[at] - '0');
  const std::size_t digest_at = at + digest_key.size(), body_at = digest_at + digest_digits + line_end.size();
  if (!text.starts_with(version_key) || at == version_at || text.size() < body_at ||
      text.substr(at, digest_key.size()) != digest_key ||
      text.substr(body_at - line_end.size(), line_end.size()) != line_end)
    refuse_manifest("its first line is not that of a manifest");
  if (xxh3_128(text.substr(0, digest_at), text.substr(digest_at + digest_digits)) !=
      text.substr(digest_at, digest_digits))
    refuse_manifest("it was altered or cut: its digest does not match");
  if (version > format_version)
    throw NewerFormat("the checkpoint has a newer format",
                      "version " + std::to_string(version) + ", this Holdfast reads up to " +
                          std::to_string(format_version),
                      "Use the Holdfast that wrote it?");
  if (version < 1) refuse_manifest("schema_version " + std::to_string(version) + " never existed");
  return version;
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
  body += "\"shards\":" +
          lines(m.shards, [&](std::size_t i) { return detail::print(detail::to_json(m.shards[i])); }) + ",\n";
  body += "\"index\":" + detail::print(detail::to_json(m.index)) + "}\n";
  const std::string head =
      std::string(version_key) + std::to_string(format_version) + std::string(digest_key);
  body.insert(0, line_end);
  return head + xxh3_128(head, body) + body;
}

Manifest parse_manifest(std::string_view text) {
  const int version = check_first_line(text);
  const Json json = detail::parse_json(text, "the manifest");
  const Fields fields(json, "",
                      {"schema_version", "digest", "generation", "point", "facts", "tensors", "state_digest",
                       "shards", "index"});
  Manifest m;
  m.version = version;
  m.point.step = detail::read_generation(fields.value("generation"), "generation", m.generation);
  detail::read_point(fields.value("point"), "point", version, m.point);
  m.facts = detail::read_facts(fields.value("facts"), "facts");
  detail::read_tensors(fields.array("tensors"), "tensors", m.tensors, &m.digests);
  m.state_digest = fields.hex64("state_digest");
  const Json& shards = fields.array("shards");
  for (std::size_t i = 0; i < shards.size(); ++i)
    m.shards.push_back(detail::read_shard(shards[i], "shards[" + std::to_string(i) + "]", version));
  m.index = detail::read_index(fields.value("index"), "index");
  prove(m);
  return m;
}

Manifest read_manifest(const fs::path& step_dir) {
  const fs::path path = step_dir / manifest_file_name;
  const std::string which = "checkpoint " + step_dir.string(), name = manifest_file_name;
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    throw Unreadable(which, errno == ENOENT ? "it has no " + name : name + ": " + std::strerror(errno));
  if (!S_ISREG(info.st_mode) || info.st_size > largest_manifest)
    throw Damaged(which + " is damaged", "the manifest is not a file of at most 1 GiB");
  const std::string text = [&] {
    try {
      return files::read_text(path);
    } catch (const Error& e) {
      throw Unreadable(which, name + ": " + e.why());
    }
  }();
  try {
    return parse_manifest(text);
  } catch (const Damaged& e) {
    throw Damaged(which + " is damaged", e.why().empty() ? e.what() : e.why());
  } catch (const NewerFormat& e) {
    throw NewerFormat("cannot use " + which, name + ": " + e.problem() + ": " + e.why(), e.hint());
  }
}

}  // namespace holdfast::checkpoint
