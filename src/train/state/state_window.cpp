#include "src/train/state/state_window.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

using checkpoint::PieceView;
using checkpoint::State;

DType type_of(const PieceView& piece, const State& state) { return state.tensors[piece.tensor].type; }

}  // namespace

StateWindow::StateWindow(device::Device& device, std::int64_t bytes)
    : device_(device),
      sums_(reinterpret_cast<kernels::DigestSums*>(
          device.allocate(digests_at_once * sizeof(kernels::DigestSums), "digests of the state").data())) {
  expects(bytes > 0 && bytes % 128 == 0, "a window of two aligned halves");
  if (device.is_host()) return;
  window_ = device.allocate_host(bytes, "the window through which the host sees the state");
  half_bytes_ = as_size(bytes / 2);
}

void StateWindow::write(std::byte* to, std::int64_t bytes, const Fill& fill) {
  const auto size = as_size(bytes);
  if (device_.is_host()) return fill({to, size}, 0);
  tensor::Stream& compute = device_.compute();
  for (std::size_t at = 0, i = 0; at < size; at += half_bytes_, i ^= 1) {
    const auto part = half(i).first(std::min(half_bytes_, size - at));
    busy_[i].wait();
    fill(part, static_cast<std::int64_t>(at));
    compute.copy(to + at, part.data(), std::ssize(part));
    busy_[i] = compute.record();
  }
}

void StateWindow::digests(const State& state, std::span<std::uint64_t> of_piece) {
  expects(of_piece.size() == state.pieces.size(), "one digest for each piece");
  tensor::Stream& compute = device_.compute();
  std::array<kernels::DigestSums, digests_at_once> sums;
  for (std::size_t begin = 0; begin < of_piece.size(); begin += sums.size()) {
    const std::size_t count = std::min(sums.size(), of_piece.size() - begin);
    const auto bytes = static_cast<std::int64_t>(count * sizeof sums[0]);
    compute.zero(sums_, bytes);
    for (std::size_t i = 0; i < count; ++i) {
      const PieceView& piece = state.pieces[begin + i];
      device_.kernels().digest(compute, piece.data, type_of(piece, state), piece.first, piece.count,
                               sums_ + i);
    }
    compute.download(sums.data(), sums_, bytes);
    for (std::size_t i = 0; i < count; ++i) of_piece[begin + i] = sums[i].digest;
  }
}

std::vector<std::uint64_t> StateWindow::partial_digests(const State& state) {
  std::vector<std::uint64_t> of_piece(state.pieces.size()), of_tensor(state.tensors.size(), 0);
  digests(state, of_piece);
  for (std::size_t i = 0; i < of_piece.size(); ++i) of_tensor.at(state.pieces[i].tensor) += of_piece[i];
  return of_tensor;
}

void StateWindow::fill(const State& state, const std::function<void(const State& part)>& fill) {
  if (device_.is_host()) return fill(state);
  State part{state.tensors, {}};
  for (const PieceView& piece : state.pieces) {
    const std::int64_t each = bytes_of(type_of(piece, state));
    write(static_cast<std::byte*>(piece.data), piece.count * each, [&](auto memory, auto at) {
      part.pieces = {{piece.tensor, piece.first + at / each, std::ssize(memory) / each, memory.data()}};
      fill(part);
    });
  }
}

}  // namespace holdfast::train
