#include "src/tools/infer/parameters.hpp"

#include <algorithm>
#include <string_view>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/base/parallel.hpp"
#include "src/tools/infer/threads.hpp"

namespace holdfast::infer {

namespace {

constexpr std::string_view prefix = "model/";
constexpr std::int64_t piece_elements = 8 << 20;
constexpr int max_readers = 8;  // with 32 MiB of fp32 each beside the model, where that is bf16

}  // namespace

Parameters::Parameters(const config::ModelShape& shape, tensor::DType type) : shape_(shape), type_(type) {
  const auto trained = config::tensors_of(shape), frozen = config::frozen_tensors_of(shape);
  for (const config::StoredTensor& stored : config::stored_tensors_of(shape)) {
    const int number = static_cast<int>(pieces_.size());
    std::int64_t first = 0;
    for (int part = stored.first_part; part < stored.first_part + stored.parts; ++part) {
      const auto& spec = (stored.frozen ? frozen : trained)[part];
      places_.emplace_back(spec.name, Place{number, first});
      first += spec.elements();
    }
    pieces_.push_back(arena_.plan<std::byte>("weights", stored.elements() * tensor::bytes_of(type)));
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::sort(places_.begin(), places_.end(), by_name);
  arena_.commit();
}

const void* Parameters::weight(int stored) { return arena_.at(pieces_.at(stored)); }

std::byte* Parameters::address(const Place& place, std::int64_t element) {
  return arena_.at(pieces_[place.stored]) + (place.first + element) * tensor::bytes_of(type_);
}

Parameters::Place Parameters::place_of(const std::string& name) const {
  const auto found = std::ranges::lower_bound(places_, name, {}, &std::pair<std::string, Place>::first);
  expects(found != places_.end() && found->first == name, "a tensor of the model's shape");
  return found->second;
}

/// The one piece of `part`; in bf16 by way of `room`.
void Parameters::fill(checkpoint::State& part, std::vector<float>& room, const Read& read) {
  checkpoint::PieceView& piece = part.pieces[0];
  const std::string& name = part.tensors[piece.tensor].name;
  std::byte* const to = address(place_of(name.substr(prefix.size())), piece.first);
  piece.data = to;
  if (type_ == tensor::DType::bf16) {
    room.resize(std::max(room.size(), as_size(piece.count)));
    piece.data = room.data();
  }
  read(part);
  if (type_ == tensor::DType::bf16)
    std::transform(room.begin(), room.begin() + piece.count, reinterpret_cast<tensor::Bf16*>(to),
                   tensor::to_bf16);
}

void Parameters::fill(const std::vector<config::TensorSpec>& specs, const Read& read) {
  checkpoint::State whole;
  for (const auto& spec : specs) {
    const int tensor = static_cast<int>(whole.tensors.size());
    whole.tensors.push_back({std::string(prefix) + spec.name, spec.rows, spec.cols, tensor::DType::fp32});
    for (std::int64_t first = 0; first < spec.elements(); first += piece_elements)
      whole.pieces.push_back({tensor, first, std::min(piece_elements, spec.elements() - first), nullptr});
  }
  parallel_for(whole.pieces.size(), std::min(max_threads(), max_readers), [&](int) {
    return [&, part = checkpoint::State{whole.tensors, {{}}},
            room = std::vector<float>()](std::size_t i) mutable {
      part.pieces[0] = whole.pieces[i];
      fill(part, room, read);
    };
  });
}

}  // namespace holdfast::infer
