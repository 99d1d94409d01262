#include "src/base/bundle.hpp"

#include "src/base/env.hpp"

namespace holdfast {
namespace fs = std::filesystem;

std::optional<fs::path> bundle_root() {
  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  if (program.empty()) return std::nullopt;
  const fs::path root = program.parent_path().parent_path();
  if (!fs::exists(root / "share/holdfast/bundle", none)) return std::nullopt;
  return root;
}

void announce_bundle() {
  const auto root = bundle_root();
  if (!root) return;
  const auto say = [](const char* name, const fs::path& path) {
    if (!env::get(name)) env::set(name, path.string());
  };
  // Agents run a copy of this program, which finds no library beside itself.
  const auto begin_with = [](const char* name, const fs::path& path) {
    const std::string others = env::get_or(name, "");
    if (!(others + ":").starts_with(path.string() + ":"))
      env::set(name, others.empty() ? path.string() : path.string() + ":" + others);
  };
  begin_with("PATH", *root / "bin");
  begin_with("LD_LIBRARY_PATH", *root / "lib");
  say("OPAL_PREFIX", *root);
  say("PMIX_PREFIX", *root / "lib/x86_64-linux-gnu/pmix2");
  // PMIx 4.2 looks for its compression in the old place whatever it is told; it works without.
  say("PMIX_MCA_pcompress_base_silence_warning", "1");
}

}  // namespace holdfast
