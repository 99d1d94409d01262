#include "launcher/agent/mover/seals.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <isa-l/crc.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "src/base/as_size.hpp"
#include "src/base/files.hpp"
#include "src/base/text.hpp"
#include "src/base/wide_vectors.hpp"

namespace holdfast::launcher {
namespace {
namespace fs = std::filesystem;

constexpr std::size_t max_name = 64, max_buffers = 256;

bool is_buffer_name(std::string_view name) {
  constexpr std::string_view allowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !name.empty() && name.size() <= max_name && name.front() != '.' &&
         name.find_first_not_of(allowed) == std::string_view::npos;
}

/// Takes "WORD NUMBER" with nothing behind it.
template <class Number>
bool take(std::string_view line, std::string_view word, Number& out, int base = 10) {
  if (!line.starts_with(word)) return false;
  line.remove_prefix(word.size());
  const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), out, base);
  return error == std::errc() && end == line.data() + line.size();
}

bool take_buffer(std::string_view line, Seal::Buffer& out) {
  constexpr std::string_view word = "buffer ";
  if (!line.starts_with(word)) return false;
  line.remove_prefix(word.size());
  const auto name_end = line.find(' '), bytes_end = line.rfind(' ');
  if (name_end == std::string_view::npos || bytes_end == name_end) return false;
  out.name = line.substr(0, name_end);
  return is_buffer_name(out.name) && take(line.substr(name_end, bytes_end - name_end), " ", out.bytes) &&
         line.size() - bytes_end == 9 && take(line.substr(bytes_end), " ", out.crc, 16) && out.bytes > 0;
}

}  // namespace

std::uint32_t crc32_of(std::uint32_t crc, const void* data, std::size_t bytes) {
  crc = crc32_gzip_refl(crc, static_cast<const unsigned char*>(data), bytes);
  leave_wide_vectors();
  return crc;
}

std::optional<Seal> seal_of(std::string_view text) {
  constexpr std::size_t end_bytes = 13;  // "end " and 8 digits and a newline
  if (text.size() < end_bytes || text.size() > max_seal_bytes || text.back() != '\n') return std::nullopt;
  const std::string_view body = text.substr(0, text.size() - end_bytes);
  std::uint32_t crc = 0;
  if (!take(text.substr(body.size(), end_bytes - 1), "end ", crc, 16) ||
      crc != crc32_of(0, body.data(), body.size()))
    return std::nullopt;
  const auto lines = lines_of(body);
  Seal seal;
  if (lines.size() < 4 || lines.size() > 4 + max_buffers || lines[0] != "holdfast seal 1" ||
      !take(lines[1], "step ", seal.step) || !take(lines[2], "attempt ", seal.attempt) ||
      !take(lines[3], "world ", seal.world) || seal.step < 0 || seal.step > max_seal_step ||
      seal.attempt < 0 || seal.world < 1 || seal.world > max_seal_rank)
    return std::nullopt;
  for (std::size_t i = 4; i < lines.size(); ++i)
    if (!take_buffer(lines[i], seal.buffers.emplace_back())) return std::nullopt;
  const auto out_of_order = [](const auto& a, const auto& b) { return a.name >= b.name; };
  if (std::adjacent_find(seal.buffers.begin(), seal.buffers.end(), out_of_order) != seal.buffers.end())
    return std::nullopt;
  return seal;
}

std::string to_text(const Seal& seal) {
  std::string text =
      fmt::format("holdfast seal 1\nstep {}\nattempt {}\nworld {}\n", seal.step, seal.attempt, seal.world);
  for (const auto& b : seal.buffers) text += fmt::format("buffer {} {} {:08x}\n", b.name, b.bytes, b.crc);
  return text + fmt::format("end {:08x}\n", crc32_of(0, text.data(), text.size()));
}

std::string folder_name(int rank, bool copy) { return fmt::format("{}-{:05}", copy ? "copy" : "rank", rank); }

std::optional<std::pair<int, bool>> folder_called(std::string_view name) {
  const auto digits = name.find('-');
  int rank = 0;
  if (digits == std::string_view::npos || !take(name.substr(digits), "-", rank) || rank < 0 ||
      rank > max_seal_rank)
    return std::nullopt;
  for (const bool copy : {false, true})
    if (name == folder_name(rank, copy)) return std::pair(rank, copy);
  return std::nullopt;
}

std::optional<Seal> read_seal(const fs::path& generation) {
  const files::Fd fd = files::try_open(generation / "seal", O_RDONLY | O_NOFOLLOW);
  if (!fd) return std::nullopt;
  std::string text(max_seal_bytes, '\0');
  const ssize_t got = ::pread(fd.get(), text.data(), text.size(), 0);
  return seal_of(std::string_view(text).substr(0, as_size(std::max<ssize_t>(got, 0))));
}

Generations read_generations(const fs::path& folder) {
  return {read_seal(folder / "0"), read_seal(folder / "1")};
}

int generation_to_replace(const Generations& known, int attempt, std::int64_t base_step, int base_attempt) {
  const auto worth = [&](const std::optional<Seal>& seal) {
    if (!seal) return std::tuple(0, 0, std::int64_t{0});
    const int kind = seal->attempt == attempt ? 3 : seal->is(base_step, base_attempt) ? 2 : 1;
    return std::tuple(kind, seal->attempt, seal->step);
  };
  return worth(known[0]) <= worth(known[1]) ? 0 : 1;
}

std::vector<control::SealedState> sealed_states(const fs::path& folder) {
  std::vector<control::SealedState> out;
  for (const auto& name : files::list(folder))
    if (const auto of = folder_called(name))
      for (const auto& seal : read_generations(folder / name))
        if (seal) out.push_back({of->first, seal->step, seal->attempt, seal->world, of->second});
  return out;
}

}  // namespace holdfast::launcher
