#include "src/train/state/state_window.hpp"

#include <algorithm>

#include "src/base/as_size.hpp"
#include "src/base/digest.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {
namespace {

using checkpoint::PieceView;
using checkpoint::State;

DType type_of(const PieceView& piece, const State& state) { return state.tensors[piece.tensor].type; }

}  // namespace

StateWindow::StateWindow(device::Device& device, std::int64_t bytes) : device_(device) {
  expects(bytes > 0 && bytes % 128 == 0, "a window of two aligned halves");
  if (device.is_host()) return;
  window_ = device.allocate_host(bytes, "the window through which the host sees the state");
  half_bytes_ = as_size(bytes / 2);
}

void StateWindow::read(const std::byte* from, std::int64_t bytes, const Visit& visit) {
  const auto size = as_size(bytes);
  if (device_.is_host()) return visit({from, size}, 0);
  tensor::Stream& side = device_.side();
  side.wait(device_.compute().record());
  const auto part = [&](std::size_t at) { return std::min(half_bytes_, size - at); };
  const auto fetch = [&](std::size_t at, std::size_t i) {
    side.copy(half(i).data(), from + at, static_cast<std::int64_t>(part(at)));
    busy_[i] = side.record();
  };
  if (size > 0) fetch(0, 0);
  for (std::size_t at = 0, i = 0; at < size; at += half_bytes_, i ^= 1) {
    if (at + half_bytes_ < size) fetch(at + half_bytes_, i ^ 1);
    busy_[i].wait();
    visit(half(i).first(part(at)), static_cast<std::int64_t>(at));
  }
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
  for (std::size_t i = 0; i < of_piece.size(); ++i) {
    const PieceView& piece = state.pieces[i];
    const DType type = type_of(piece, state);
    std::uint64_t& sum = of_piece[i] = 0;
    const auto add = [&](std::span<const std::byte> part, std::int64_t at) {
      sum += digest_part(static_cast<std::uint64_t>(piece.first + at / bytes_of(type)), part.data(), type,
                         std::ssize(part) / bytes_of(type));
    };
    // By reference: a check of a step allocates nothing.
    read(static_cast<const std::byte*>(piece.data), piece.count * bytes_of(type), std::ref(add));
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
