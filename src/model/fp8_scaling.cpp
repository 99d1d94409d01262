#include "src/model/fp8_scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/fp8.hpp"

namespace holdfast::model {
namespace {

constexpr int largest_size = 255;
constexpr std::size_t head_digits = 8, size_digits = 2;

}  // namespace

Fp8Scaling::Fp8Scaling(int layers, const config::Fp8& settings)
    : roles_(as_size(layers) * fp8_roles),
      history_(as_size(settings.history)),
      margin_(settings.margin),
      scales_(roles_, 0.0f) {
  expects(settings.history >= 1 && settings.margin >= 0, "the settings of 8-bit scaling were checked");
  sizes_.reserve(roles_ * (history_ + 1));
}

void Fp8Scaling::advance(std::span<const std::uint32_t> amaxes) {
  expects(amaxes.size() == roles_, "a step has one largest value per role");
  for (const std::uint32_t amax : amaxes) {
    const int size = fp8_size(amax);
    sizes_.push_back(static_cast<std::uint8_t>(size > largest_size ? 0 : size));
  }
  rescale();
}

void Fp8Scaling::rescale() {
  if (sizes_.size() > history_ * roles_)
    sizes_.erase(sizes_.begin(), sizes_.end() - static_cast<std::ptrdiff_t>(history_ * roles_));
  for (std::size_t role = 0; role < roles_; ++role) {
    int largest = 0;
    for (std::size_t at = role; at < sizes_.size(); at += roles_)
      largest = std::max(largest, int{sizes_[at]});
    const DType type = type_of(static_cast<Fp8Role>(role % fp8_roles_of_linear));
    scales_[role] = largest == 0 ? 0.0f : fp8_scale_of_size(std::min(largest + margin_, largest_size), type);
  }
}

std::string Fp8Scaling::text() const {
  if (sizes_.empty()) return "";
  std::string text = fmt::format("{:08x}", roles_);
  for (const std::uint8_t size : sizes_) fmt::format_to(std::back_inserter(text), "{:02x}", size);
  return text;
}

void Fp8Scaling::load(const std::string& text) {
  const auto refuse = [&](std::string why) {
    throw Error(Exit::runtime, "the checkpoint's scales of 8-bit products cannot be read", std::move(why));
  };
  const auto number = [&](std::size_t at, std::size_t digits) {
    unsigned value = 0;
    const char *first = text.data() + at, *last = first + digits;
    if (std::from_chars(first, last, value, 16).ptr != last)
      refuse(fmt::format("not hexadecimal: '{}'", text.substr(at, digits)));
    return value;
  };
  sizes_.clear();
  if (!text.empty()) {
    if (text.size() < head_digits || (text.size() - head_digits) % (roles_ * size_digits) != 0 ||
        number(0, head_digits) != roles_)
      refuse(fmt::format("{} digits, for another model than one with {} blocks", text.size(),
                         roles_ / fp8_roles));
    const std::size_t steps = (text.size() - head_digits) / (roles_ * size_digits);
    for (std::size_t i = (steps - std::min(steps, history_)) * roles_; i < steps * roles_; ++i)
      sizes_.push_back(static_cast<std::uint8_t>(number(head_digits + i * size_digits, size_digits)));
  }
  rescale();
}

}  // namespace holdfast::model
