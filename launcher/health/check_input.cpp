#include "launcher/health/check_input.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"

namespace holdfast::launcher {

namespace fs = std::filesystem;

bool Expected::nics() const {
  return cluster && std::any_of(cluster->gpus.begin(), cluster->gpus.end(),
                                [](const auto& gpu) { return !gpu.nic.empty(); });
}

std::optional<std::string> read_line(const fs::path& file) {
  const files::Fd fd = files::try_open(file, O_RDONLY);
  if (!fd) return std::nullopt;
  std::string text;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::read(fd.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;  // for example /sys/class/net/lo/speed, which opens and gives EINVAL
    if (n == 0) break;
    text.append(buffer, as_size(n));
  }
  if (text.empty()) return std::nullopt;
  text.erase(text.find_last_not_of(" \t\n") + 1);
  return text;
}

std::optional<std::int64_t> read_number(const fs::path& file) {
  const auto text = read_line(file);
  if (!text || text->empty()) return std::nullopt;
  char* end = nullptr;
  const long long value = std::strtoll(text->c_str(), &end, 0);
  if (end == text->c_str() || *end != '\0') return std::nullopt;
  return value;
}

std::optional<double> leading_number(const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str()) return std::nullopt;
  return value;
}

}  // namespace holdfast::launcher
