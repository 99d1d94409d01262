#include "src/base/clock.hpp"

#include <cmath>
#include <cstdio>
#include <ctime>

namespace holdfast {

double unix_seconds() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
             .count() *
         1e-6;
}

std::string utc_iso8601(double unix_seconds) {
  const auto micros = static_cast<long long>(std::llround(unix_seconds * 1e6));
  const std::time_t whole = micros / 1000000;
  std::tm parts{};
  gmtime_r(&whole, &parts);
  char text[40];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + n, sizeof text - n, ".%06lldZ", micros % 1000000);
  return text;
}

}  // namespace holdfast
