#include "checkpoint/index/files_check.hpp"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>

#include "checkpoint/index/catalog.hpp"
#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "src/base/parallel.hpp"

namespace holdfast::checkpoint {
namespace {

constexpr std::size_t read_at_once = 1 << 20;
constexpr int readers = 4;
constexpr std::size_t digest_bytes = 32;

bool is_gone(const fs::path& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) != 0 && errno == ENOENT;
}

/// A sentence when the checkpoint is proven to be damaged, else "".
std::string damage_of(const fs::path& step_dir, std::int64_t step, std::int64_t read_bytes) try {
  const Condition found = condition_of(step_dir, step);
  if (found.kind == Condition::Kind::damaged) return found.why;
  const auto manifest = manifest_of_files(step_dir);
  if (!manifest || total_bytes(*manifest) > read_bytes) return {};
  return check_files(step_dir, *manifest).damage;
} catch (const Unreadable&) {
  return {};
}

}  // namespace

std::string file_digest(const fs::path& path, const std::function<void(std::int64_t)>& read) {
  const files::Fd fd = files::try_open(path, O_RDONLY);
  const auto refuse = [&](int reason) { throw Unreadable(path.string(), std::strerror(reason)); };
  if (!fd) refuse(errno);
  crypto_hash_sha512_state state;
  crypto_hash_sha512_init(&state);
  std::string part(read_at_once, '\0');
  for (;;) {
    const ssize_t count = ::read(fd.get(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(errno);
    if (count == 0) break;
    crypto_hash_sha512_update(&state, reinterpret_cast<const unsigned char*>(part.data()),
                              static_cast<unsigned long long>(count));
    if (read) read(count);
  }
  unsigned char sum[crypto_hash_sha512_BYTES];
  crypto_hash_sha512_final(&state, sum);
  char hex[2 * digest_bytes + 1];
  return sodium_bin2hex(hex, sizeof hex, sum, digest_bytes);
}

CheckedFiles check_files(const fs::path& step_dir, const FilesManifest& manifest,
                         const std::function<void(std::int64_t, std::int64_t)>& progress) {
  CheckedFiles out;
  std::mutex lock;
  const std::int64_t total = total_bytes(manifest);
  const timespec committed = written_at(step_dir / manifest_file_name);
  std::vector<std::string> problems(manifest.files.size());
  std::vector<char> proven(manifest.files.size());  // damage
  parallel_for(manifest.files.size(), readers, [&](int) {
    return [&](std::size_t i) {
      const ListedFile& file = manifest.files[i];
      const fs::path path = path_of(manifest, file);
      std::int64_t bytes = 0;
      const auto read = [&](std::int64_t more) {
        const std::scoped_lock hold(lock);
        bytes += more;
        out.bytes += more;
        if (progress) progress(out.bytes, total);
      };
      try {
        const std::string digest = file_digest(path, read);
        if (bytes == file.bytes && digest == file.digest) return;
        const bool again = is_later(written_at(path), committed);
        proven[i] = !again;
        if (again)
          problems[i] = path.string() + " was written again since";
        else if (bytes != file.bytes)
          problems[i] =
              path.string() + " has " + std::to_string(bytes) + " bytes, not " + std::to_string(file.bytes);
        else
          problems[i] = path.string() + " does not match its digest";
        const std::scoped_lock hold(lock);
        out.unreadable = out.unreadable || again;
      } catch (const Unreadable& e) {
        problems[i] = e.what();
        const std::scoped_lock hold(lock);
        out.unreadable = true;
      }
    };
  });
  if (const auto first = std::ranges::find(proven, 1); first != proven.end())
    out.damage = problems[as_size(first - proven.begin())];
  std::ranges::copy_if(problems, std::back_inserter(out.problems),
                       [](const std::string& problem) { return !problem.empty(); });
  return out;
}

Judgement judge(const fs::path& checkpoints, std::span<const std::int64_t> on_record,
                std::int64_t read_bytes) {
  Judgement out;
  bool listed = false;  // a step with a manifest has been seen
  std::vector<std::int64_t> behind;
  for (const std::int64_t step : on_record) {
    const fs::path step_dir = committed_path(checkpoints, step);
    const bool has_manifest = !is_gone(step_dir / manifest_file_name);
    if (listed && !has_manifest) {
      behind.push_back(step);
      continue;
    }
    listed = listed || has_manifest;
    const std::string damage = has_manifest && out.steps.empty() ? damage_of(step_dir, step, read_bytes) : "";
    if (damage.empty())
      out.steps.push_back(step);
    else
      out.damaged.emplace_back(step, damage);
  }
  if (out.steps.empty()) out.steps = std::move(behind);
  return out;
}

}  // namespace holdfast::checkpoint
