#pragma once
// Computes on the host, in fp64 and slowly, what a plan of cuDNN's says that it computes: the operations in
// the plan's own text on memory bound to it. Results are rounded to the types of their tensors.
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/cuda/attention/cudnn_graph.hpp"
#include "src/tensor/dtype.hpp"

namespace holdfast::cuda::test {

class GraphOnHost {
 public:
  GraphOnHost(const std::string& plan, std::span<const CudnnBinding> bindings)
      : graph_(nlohmann::json::parse(plan).at("operationGraph")) {
    for (const CudnnBinding& b : bindings) memory_[std::to_string(b.uid)] = const_cast<void*>(b.address);
    for (const auto& t : graph_.at("tensors")) {
      Tensor tensor{t.at("dim"), t.at("stride"), t.at("dataType"), t.at("isVirtual"), {}};
      const std::string name = t.at("name");
      if (!tensor.inner && !memory_.contains(name))
        throw std::logic_error("tensor " + name + " is not bound");
      tensors_.emplace(name, std::move(tensor));
    }
    for (const auto& [name, address] : memory_)
      if (!tensors_.contains(name)) throw std::logic_error("there is no tensor " + name + " to bind");
  }

  void run() {
    for (const auto& node : graph_.at("nodes")) {
      const std::string operation = node.at("operation");
      if (operation == "CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR")
        matmul(node.at("matA"), node.at("matB"), node.at("matC"));
      else if (operation == "CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR")
        reduce(node.at("reductionOp"), node.at("X"), node.at("Y"));
      else if (operation == "CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR")
        reshape(node.at("X"), node.at("Y"));
      else if (operation == "CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR")
        pointwise(node);
      else
        throw std::logic_error("unknown operation " + operation);
    }
  }

 private:
  using Index = std::array<std::int64_t, 4>;
  struct Tensor {
    Index dims, strides;
    std::string type;
    bool inner;
    std::vector<double> values;  ///< of an inner tensor, in the order of dims

    std::size_t at(const Index& i) const {
      return as_size(((i[0] * dims[1] + i[1]) * dims[2] + i[2]) * dims[3] + i[3]);
    }
    std::size_t count() const { return as_size(dims[0] * dims[1] * dims[2] * dims[3]); }
    std::int64_t offset(const Index& i) const {
      return i[0] * strides[0] + i[1] * strides[1] + i[2] * strides[2] + i[3] * strides[3];
    }
  };

  static void for_all(const Index& dims, const std::function<void(const Index&)>& work) {
    for (Index i{}; i[0] < dims[0]; ++i[0])
      for (i[1] = 0; i[1] < dims[1]; ++i[1])
        for (i[2] = 0; i[2] < dims[2]; ++i[2])
          for (i[3] = 0; i[3] < dims[3]; ++i[3]) work(i);
  }
  /// The place of a larger tensor's element in a smaller one: neighbours share.
  static Index shared(const Index& i, const Index& large, const Index& small) {
    Index j{};
    for (std::size_t k = 0; k < 4; ++k) j[k] = i[k] / (large[k] / small[k]);
    return j;
  }

  std::vector<double> read(const std::string& name) const {
    const Tensor& t = tensors_.at(name);
    if (t.inner) {
      if (t.values.empty()) throw std::logic_error("tensor " + name + " is read before it is written");
      return t.values;
    }
    std::vector<double> values(t.count());
    const void* memory = memory_.at(name);
    for_all(t.dims, [&](const Index& i) {
      const std::int64_t at = t.offset(i);
      values[t.at(i)] =
          t.type == "CUDNN_DATA_BFLOAT16"
              ? static_cast<double>(tensor::to_float(static_cast<const tensor::Bf16*>(memory)[at]))
          : t.type == "CUDNN_DATA_INT32" ? static_cast<const std::int32_t*>(memory)[at]
                                         : static_cast<double>(static_cast<const float*>(memory)[at]);
    });
    return values;
  }
  void write(const std::string& name, std::vector<double> values) {
    Tensor& t = tensors_.at(name);
    const bool bf16 = t.type == "CUDNN_DATA_BFLOAT16";
    for (double& x : values)
      x = bf16 ? tensor::to_float(tensor::to_bf16(static_cast<float>(x))) : static_cast<float>(x);
    if (t.inner) {
      t.values = std::move(values);
      return;
    }
    void* memory = memory_.at(name);
    for_all(t.dims, [&](const Index& i) {
      const auto x = static_cast<float>(values[t.at(i)]);
      if (bf16)
        static_cast<tensor::Bf16*>(memory)[t.offset(i)] = tensor::to_bf16(x);
      else
        static_cast<float*>(memory)[t.offset(i)] = x;
    });
  }

  void matmul(const std::string& a, const std::string& b, const std::string& y) {
    const Tensor &ta = tensors_.at(a), &tb = tensors_.at(b), &ty = tensors_.at(y);
    const std::vector<double> va = read(a), vb = read(b);
    if (ta.dims[3] != tb.dims[2] || ta.dims[2] != ty.dims[2] || tb.dims[3] != ty.dims[3])
      throw std::logic_error("a product of matrices that do not fit");
    std::vector<double> values(ty.count());
    for_all(ty.dims, [&](const Index& i) {
      const std::int64_t ha = i[1] / (ty.dims[1] / ta.dims[1]), hb = i[1] / (ty.dims[1] / tb.dims[1]);
      double sum = 0;
      for (std::int64_t k = 0; k < ta.dims[3]; ++k)
        sum += va[ta.at({i[0], ha, i[2], k})] * vb[tb.at({i[0], hb, k, i[3]})];
      values[ty.at(i)] = sum;
    });
    write(y, std::move(values));
  }
  void reduce(const std::string& mode, const std::string& x, const std::string& y) {
    const Tensor &tx = tensors_.at(x), &ty = tensors_.at(y);
    const std::vector<double> vx = read(x);
    const bool add = mode == "CUDNN_REDUCE_TENSOR_ADD";
    if (!add && mode != "CUDNN_REDUCE_TENSOR_MAX") throw std::logic_error("unknown reduction " + mode);
    std::vector<double> values(ty.count(), add ? 0.0 : -INFINITY);
    for_all(tx.dims, [&](const Index& i) {
      double& to = values[ty.at(shared(i, tx.dims, ty.dims))];
      to = add ? to + vx[tx.at(i)] : std::fmax(to, vx[tx.at(i)]);
    });
    write(y, std::move(values));
  }
  void reshape(const std::string& x, const std::string& y) {
    const Tensor &tx = tensors_.at(x), &ty = tensors_.at(y);
    const std::vector<double> vx = read(x);
    std::map<std::int64_t, double> memory;
    for_all(tx.dims, [&](const Index& i) { memory[tx.offset(i)] = vx[tx.at(i)]; });
    std::vector<double> values(ty.count());
    for_all(ty.dims, [&](const Index& i) { values[ty.at(i)] = memory.at(ty.offset(i)); });
    write(y, std::move(values));
  }
  void pointwise(const nlohmann::json& node) {
    static const std::map<std::string, std::function<double(double, double, double)>> modes{
        {"CUDNN_POINTWISE_MUL", [](double x, double b, double) { return x * b; }},
        {"CUDNN_POINTWISE_SUB", [](double x, double b, double) { return x - b; }},
        {"CUDNN_POINTWISE_ADD", [](double x, double b, double) { return x + b; }},
        {"CUDNN_POINTWISE_DIV", [](double x, double b, double) { return x / b; }},
        {"CUDNN_POINTWISE_EXP", [](double x, double, double) { return std::exp(x); }},
        {"CUDNN_POINTWISE_LOG", [](double x, double, double) { return std::log(x); }},
        {"CUDNN_POINTWISE_IDENTITY", [](double x, double, double) { return x; }},
        {"CUDNN_POINTWISE_CMP_GE", [](double x, double b, double) { return x >= b ? 1.0 : 0.0; }},
        {"CUDNN_POINTWISE_BINARY_SELECT", [](double x, double b, double t) { return t != 0 ? x : b; }},
    };
    const std::string mode = node.at("pointwiseMode"), y = node.at("Y");
    const Tensor& ty = tensors_.at(y);
    std::vector<double> values(ty.count());
    if (mode == "CUDNN_POINTWISE_GEN_INDEX") {
      const std::size_t axis = node.at("axis");
      for_all(ty.dims, [&](const Index& i) { values[ty.at(i)] = static_cast<double>(i[axis]); });
      return write(y, std::move(values));
    }
    std::array<std::vector<double>, 3> inputs;
    std::array<const Tensor*, 3> tensors{};
    for (const auto& [k, key] : {std::pair{0u, "X"}, {1u, "B"}, {2u, "T"}})
      if (node.contains(key)) {
        inputs[k] = read(node.at(key));
        tensors[k] = &tensors_.at(node.at(key));
      }
    const auto& function = modes.at(mode);
    for_all(ty.dims, [&](const Index& i) {
      const auto input = [&](std::size_t k) {
        return tensors[k] == nullptr ? 0.0 : inputs[k][tensors[k]->at(shared(i, ty.dims, tensors[k]->dims))];
      };
      values[ty.at(i)] = function(input(0), input(1), input(2));
    });
    write(y, std::move(values));
  }

  nlohmann::json graph_;
  std::map<std::string, void*> memory_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace holdfast::cuda::test
