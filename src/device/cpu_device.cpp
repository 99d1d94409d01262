#include <fmt/core.h>
#include <omp.h>
#include <sys/mman.h>

#include <cstring>
#include <fstream>
#include <utility>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"
#include "src/device/device.hpp"

namespace holdfast::device {
namespace {

constexpr std::int64_t page = 4096, huge_page = 2 << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t to) { return (bytes + to - 1) / to * to; }

/// Bytes that processes can still have without pushing others out; -1: not known.
std::int64_t available_bytes() {
  std::ifstream facts("/proc/meminfo");
  for (std::string name, unit; facts >> name;) {
    std::int64_t kib = 0;
    facts >> kib;
    std::getline(facts, unit);
    if (name == "MemAvailable:") return kib * 1024;
  }
  return -1;
}

/// Anonymous pages, given back with the object.
class Pages {
 public:
  Pages(std::int64_t bytes, std::string_view what) {
    // Whole huge pages where they pay: products and copies then miss the TLB less.
    const std::int64_t unit = bytes >= huge_page ? huge_page : page;
    size_ = as_size(round_up(std::max<std::int64_t>(bytes, 1), unit));
    mapped_ = size_ + as_size(unit - page);
    base_ = ::mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) {
      const std::int64_t available = available_bytes();
      throw Error(Exit::runtime, fmt::format("no memory for {} ({} bytes)", what, bytes),
                  available < 0 ? "" : fmt::format("{} bytes are available", available),
                  "Use a smaller micro-batch or sequence, or more ranks per shard group?");
    }
    const auto start = round_up(reinterpret_cast<std::intptr_t>(base_), unit);
    data_ = static_cast<std::byte*>(base_) + (start - reinterpret_cast<std::intptr_t>(base_));
    if (unit == huge_page) ::madvise(data_, size_, MADV_HUGEPAGE);  // only a hint
    std::memset(data_, 0, size_);                                   // pages come now, not in the first step
  }
  Pages(Pages&& other) noexcept
      : base_(std::exchange(other.base_, nullptr)),
        mapped_(other.mapped_),
        data_(other.data_),
        size_(other.size_) {}
  Pages& operator=(Pages&&) = delete;
  ~Pages() {
    if (base_) ::munmap(base_, mapped_);
  }
  std::byte* data() const { return data_; }

 private:
  void* base_ = nullptr;
  std::size_t mapped_ = 0;
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : threads_(options.threads > 0 ? options.threads : omp_get_max_threads()),
        kernels_(kernels::make_cpu_kernels(options.threads)),
        reduce_kernels_(kernels::make_cpu_kernels(1)) {}

  std::string describe() const override {
    return fmt::format("CPU, {} thread{}", threads_, threads_ == 1 ? "" : "s");
  }
  bool is_host() const override { return true; }
  kernels::Kernels& kernels() override { return *kernels_; }
  kernels::Kernels& reduce_kernels() override { return *reduce_kernels_; }
  tensor::Stream& compute() override { return compute_; }
  tensor::Stream& side() override { return side_; }
  std::span<std::byte> allocate(std::int64_t bytes, std::string_view what) override {
    expects(bytes >= 0, "memory has at least 0 bytes");
    memory_.emplace_back(bytes, what);
    return {memory_.back().data(), as_size(bytes)};
  }
  std::span<std::byte> allocate_host(std::int64_t bytes, std::string_view what) override {
    return allocate(bytes, what);
  }
  std::unique_ptr<comm::Communicator> communicator(std::unique_ptr<comm::Communicator> host) override {
    return host;
  }
  void replay(bool) override {}
  // One algorithm per product: nothing to note, nothing to choose.
  void take_notes(bool) override {}
  std::string choices(std::string_view) override { return ""; }
  void use_choices(std::string_view text) override {
    if (!text.empty())
      throw Error(Exit::usage, "choices of algorithms were given to the CPU",
                  "they were made for another device");
  }

 private:
  int threads_;
  std::unique_ptr<kernels::Kernels> kernels_, reduce_kernels_;
  tensor::InlineStream compute_, side_;
  std::vector<Pages> memory_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace holdfast::device
