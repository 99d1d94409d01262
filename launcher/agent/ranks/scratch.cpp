#include "launcher/agent/ranks/scratch.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "launcher/agent/ranks/run_processes.hpp"
#include "src/base/error.hpp"
#include "src/base/files.hpp"
#include "src/base/log.hpp"
#include "src/control/private_place.hpp"

namespace holdfast::launcher {
namespace fs = std::filesystem;

namespace {

/// The claim of a scratch folder that may be anybody's: a text of another user must not decide what is
/// removed. Throws Error when it is not this user's regular file.
files::Fd foreign_claim(const Scratch& scratch) {
  files::Fd claim = files::open(scratch.claim(), O_RDWR);
  struct stat facts {};
  if (::fstat(claim.get(), &facts) != 0 || facts.st_uid != ::getuid())
    throw Error(Exit::runtime, "cannot use " + scratch.claim().string(), "it is not this user's file");
  return claim;
}

/// Reads a claim, which holds two paths; it is never longer.
std::string text_of_claim(const files::Fd& claim) {
  std::string text(2 * PATH_MAX, '\0');
  const ssize_t got = ::pread(claim.get(), text.data(), text.size(), 0);
  text.resize(std::max<ssize_t>(0, got));
  return text;
}

}  // namespace

RunDir settings_of(const Scratch& scratch, const RunDir& run) {
  return files::is_there(scratch.settings().nodes()) ? scratch.settings() : run;
}

files::Fd hold_scratch(const Scratch& scratch) {
  files::Fd claim = files::open(scratch.claim(), O_RDWR | O_CREAT, 0600);
  if (::flock(claim.get(), LOCK_SH | LOCK_NB) != 0)
    throw Error(Exit::transient, "cannot use " + scratch.folder.string(),
                "another run's agent is removing it");
  return claim;
}

files::Fd hold_node(const Scratch& scratch) {
  files::Fd lock = files::open(scratch.folder / ("guardian-" + scratch.node), O_RDWR | O_CREAT, 0600);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0)
    throw Error(Exit::transient, "an agent of this run has been started on this node already");
  return lock;
}

files::Fd claim_scratch(const Scratch& scratch, const RunDir& run, const fs::path& local_level) {
  files::Fd claim = hold_scratch(scratch);
  // Always the same text: agents of one run may write it at the same time.
  const std::string text = run.path.string() + "\n" + local_level.string() + "\n";
  files::write_all(claim.get(), text.data(), text.size(), 0, scratch.claim());
  return claim;
}

void sweep_node(const Scratch& own) {
  const std::string prefix = control::scratch_stem();
  for (const auto& name : files::list(node_memory)) {
    const Scratch other{fs::path(node_memory) / name, ""};
    // The name alone proves nothing: any user may have created it.
    if (!name.starts_with(prefix) || other.folder == own.folder || !files::is_private_folder(other.folder))
      continue;
    try {
      const files::Fd claim = foreign_claim(other);
      if (::flock(claim.get(), LOCK_EX | LOCK_NB) != 0) continue;  // it is in use
      std::istringstream text(text_of_claim(claim));
      std::string path, local_level;
      if (!std::getline(text, path) || !std::getline(text, local_level)) continue;
      const RunDir run{path};
      if (lives_here(run)) continue;
      log::info("removing files that {} left on this node", path);
      if (control::is_called_local_level(local_level)) remove_local_level(local_level);
      fs::remove_all(other.folder);
    } catch (const std::exception&) {  // it is not ours, or another process is creating or removing it
    }
  }
}

bool remove_scratch(const Scratch& scratch) {
  std::error_code ignored;
  fs::remove(scratch.socket(), ignored);
  bool shared = false;
  for (const auto& name : files::list(scratch.folder)) {
    for (const char* kind : {"pmix-", "rank-", "end-", "final-", "key-", "heartbeat-"})
      if (name.starts_with(kind + scratch.node + "-")) fs::remove_all(scratch.folder / name, ignored);
    for (const char* kind : {"guardian-", "programs-", "settings-", "term-", "logs-"})
      if (name == kind + scratch.node) fs::remove_all(scratch.folder / name, ignored);
    shared = shared || name.ends_with(".sock");
  }
  if (shared) return false;
  fs::remove(scratch.claim(), ignored);
  fs::remove(scratch.folder, ignored);  // only when it is empty
  return true;
}

void remove_local_level(const fs::path& folder) {
  if (folder.empty()) return;
  std::error_code error;
  fs::remove_all(folder, error);
  if (error) log::warn("cannot remove {}: {}", folder.string(), error.message());
}

}  // namespace holdfast::launcher
