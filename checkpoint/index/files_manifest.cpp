#include "checkpoint/index/files_manifest.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "checkpoint/index/catalog.hpp"
#include "checkpoint/index/manifest_json.hpp"

namespace holdfast::checkpoint {
namespace {

using detail::Fields;
using detail::Json;

constexpr std::size_t longest_name = 4096;

bool is_digest(const std::string& text) {
  std::uint64_t part = 0;
  for (std::size_t at = 0; at < text.size(); at += 16)
    if (!detail::parse_hex(std::string_view(text).substr(at, 16), 16, part)) return false;
  return text.size() == 64;
}

bool has_control_characters(const std::string& text) {
  return std::ranges::any_of(text, [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

/// "/a/b" of "/a/./b/".
fs::path plain(const std::string& folder) {
  const fs::path normal = fs::path(folder).lexically_normal();
  return normal.has_filename() || normal == normal.root_path() ? normal : normal.parent_path();
}

void prove_folder(const std::string& folder) {
  if (folder.empty() || folder.front() != '/' || folder.size() > longest_name ||
      has_control_characters(folder) || plain(folder).string() != folder)
    refuse_manifest("\"" + folder + "\" is not the absolute path of a folder");
}

bool says_the_same(const ListedFile& a, const ListedFile& b) {
  return a.bytes == b.bytes && a.digest == b.digest;
}

fs::path common_of(const fs::path& a, const fs::path& b) {
  fs::path common;
  for (auto i = a.begin(), j = b.begin(); i != a.end() && j != b.end() && *i == *j; ++i, ++j) common /= *i;
  return common;
}

}  // namespace

std::string to_text(const FilesManifest& m) {
  std::string body =
      "\"kind\":\"files\",\"generation\":" + detail::print(detail::to_json(m.generation, m.step)) +
      ",\n\"world\":" + std::to_string(m.world) + ",\"checkpoints\":" + detail::print(m.checkpoints) +
      ",\n\"folder\":" + detail::print(m.folder) + ",\n\"files\":[";
  for (std::size_t i = 0; i < m.files.size(); ++i) {
    const ListedFile& file = m.files[i];
    body += (i == 0 ? "\n  " : ",\n  ") +
            detail::print(
                {{"name", file.name}, {"bytes", file.bytes}, {"digest", file.digest}, {"rank", file.rank}});
  }
  return detail::with_own_digest(files_version, body + "]}\n");
}

bool lists_files(std::string_view text) {
  return text.starts_with("{\"schema_version\":" + std::to_string(files_version) + ",");
}

FilesManifest parse_files_manifest(std::string_view text) {
  if (detail::check_own_digest(text, "the manifest") != files_version)
    refuse_manifest("it is one of holdfast-train's");
  const Json json = detail::parse_json(text, "the manifest");
  const Fields fields(
      json, "",
      {"schema_version", "digest", "kind", "generation", "world", "checkpoints", "folder", "files"});
  if (fields.text("kind") != "files") refuse_manifest("its kind is \"" + fields.text("kind") + "\"");
  FilesManifest m;
  m.step = detail::read_generation(fields.value("generation"), "generation", m.generation);
  m.world = static_cast<int>(fields.integer("world", std::numeric_limits<int>::max()));
  m.checkpoints = fields.text("checkpoints");
  m.folder = fields.text("folder");
  for (const Json& entry : fields.array("files")) {
    const Fields file(entry, "files[" + std::to_string(m.files.size()) + "]",
                      {"name", "bytes", "digest", "rank"});
    m.files.push_back({file.text("name"), file.integer("bytes", max_elements), file.text("digest"),
                       static_cast<int>(file.integer("rank", std::numeric_limits<int>::max()))});
  }
  prove(m);
  return m;
}

std::optional<FilesManifest> manifest_of_files(const fs::path& step_dir) try {
  const std::string text = read_manifest_text(step_dir);
  if (!lists_files(text)) return {};
  return parse_files_manifest(text);
} catch (const Damaged&) {
  return {};
}

void prove_file_name(const std::string& name) {
  bool good = !name.empty() && name.size() <= longest_name && !has_control_characters(name);
  for (std::size_t at = 0; good && at <= name.size();) {
    const std::size_t end = std::min(name.find('/', at), name.size());
    const std::string_view part = std::string_view(name).substr(at, end - at);
    good = !part.empty() && part != "." && part != "..";
    at = end + 1;
  }
  if (!good) refuse_manifest("\"" + name + "\" is not the relative name of a file");
}

void prove(const FilesManifest& m) {
  if (m.world < 1) refuse_manifest("nobody has written it");
  if (m.files.empty()) refuse_manifest("it lists no file");
  prove_folder(m.checkpoints);
  prove_folder(m.folder);
  std::unordered_set<std::string> seen;
  std::int64_t bytes = 0;
  for (const ListedFile& file : m.files) {
    prove_file_name(file.name);
    if (!is_digest(file.digest)) refuse_manifest(file.name + " has no digest of 64 hex digits");
    if (file.rank < 0 || file.rank >= m.world)
      refuse_manifest(file.name + " is of a rank that was not there");
    if (file.bytes < 0 || file.bytes > max_elements - bytes)
      refuse_manifest(file.name + " cannot have " + std::to_string(file.bytes) + " bytes");
    bytes += file.bytes;
    if (!seen.insert(file.name).second) refuse_manifest(file.name + " is named twice");
  }
}

std::int64_t total_bytes(const FilesManifest& manifest) {
  std::int64_t bytes = 0;
  for (const ListedFile& file : manifest.files) bytes += file.bytes;
  return bytes;
}

fs::path path_of(const FilesManifest& manifest, const ListedFile& file) {
  return fs::path(manifest.folder) / file.name;
}

timespec written_at(const fs::path& file) {
  struct stat info {};
  if (::stat(file.c_str(), &info) != 0) throw Unreadable(file.string(), std::strerror(errno));
  return info.st_mtim;
}

bool is_later(const timespec& a, const timespec& b) {
  return a.tv_sec != b.tv_sec ? a.tv_sec > b.tv_sec : a.tv_nsec > b.tv_nsec;
}

void check_sizes(const fs::path& step_dir, const FilesManifest& manifest) {
  const std::string which = "checkpoint " + step_dir.string();
  const timespec committed = written_at(step_dir / manifest_file_name);
  std::string unknown;
  std::vector<fs::path> written;
  for (const ListedFile& file : manifest.files) {
    const fs::path path = path_of(manifest, file);
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      const int reason = errno;
      if (unknown.empty())
        unknown =
            path.string() + (reason == ENOENT ? " is missing" : std::string(": ") + std::strerror(reason));
    } else if (is_later(info.st_mtim, committed)) {
      written.push_back(path);
    } else if (!S_ISREG(info.st_mode) || info.st_size != file.bytes) {
      throw Damaged(which + " is damaged", path.string() + " has " + std::to_string(info.st_size) +
                                               " bytes, not " + std::to_string(file.bytes));
    }
  }
  if (!unknown.empty()) throw Unreadable(which, unknown);
  if (!written.empty()) throw WrittenAgain(which, manifest, std::move(written));
}

void put_together(std::span<const NamedFiles> parts, FilesManifest& manifest) {
  fs::path folder;
  for (const NamedFiles& part : parts)
    folder = folder.empty() ? fs::path(part.folder) : common_of(folder, part.folder);
  manifest.folder = folder.string();
  manifest.files.clear();
  std::unordered_map<std::string, std::size_t> named;
  for (const NamedFiles& part : parts) {
    const fs::path below = fs::path(part.folder).lexically_relative(folder);
    for (ListedFile file : part.files) {
      if (below != ".") file.name = (below / file.name).string();
      const auto [at, is_new] = named.try_emplace(file.name, manifest.files.size());
      if (!is_new && says_the_same(manifest.files[at->second], file)) continue;
      manifest.files.push_back(std::move(file));
    }
  }
}

}  // namespace holdfast::checkpoint
