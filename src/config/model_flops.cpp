#include "src/config/model_flops.hpp"

#include <algorithm>
#include <array>

namespace holdfast::config {

TokenFlops token_flops(const ModelShape& shape, int sequence) {
  const double table = shape.tied_embeddings ? 0 : static_cast<double>(shape.vocabulary) * shape.width;
  const double model = static_cast<double>(parameters_of(shape)) - table;
  const double adapters = shape.adapters.any() ? static_cast<double>(trained_parameters_of(shape)) : 0;
  const double products = shape.adapters.any() ? 4 * model + 6 * adapters : 6 * model;
  // Scores and their weighted sum: 2 products of T x Q for each head, twice as much backwards.
  double keys = 0;  // over all blocks
  for (int layer = 0; layer < shape.layers; ++layer) {
    const double window = shape.has_window(layer) ? std::min(shape.window, sequence) : sequence;
    keys += 2 * window - window * window / sequence;
  }
  const double attention = 12.0 * static_cast<double>(shape.query_width()) * keys;
  return {products + attention, products + attention / 2};
}

double peak_flops_of(std::string_view device) {
  struct Row {
    std::string_view in_name;
    double flops;
  };
  // The vendor's data sheets, without sparsity. The first row that fits.
  static constexpr std::array rows{
      Row{"MIG", 0},         Row{"H100 PCIe", 756e12},  Row{"H100 NVL", 835.5e12},
      Row{"H100", 989.4e12}, Row{"H200 NVL", 835.5e12}, Row{"H200", 989.4e12},
      Row{"A100", 312e12}};
  for (const auto& [in_name, flops] : rows)
    if (device.find(in_name) != std::string_view::npos) return flops;
  return 0;
}

}  // namespace holdfast::config
