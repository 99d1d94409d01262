// The part of SimRuntime that enqueues work.
#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "src/base/error.hpp"
#include "tests/cuda/sim/sim_objects.hpp"

namespace holdfast::cuda::sim {

void SimRuntime::copy(StreamHandle stream, void* to, const void* from, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes < 0) throw Finding(fmt::format("copy of {} bytes", bytes));
  if (bytes == 0) return;
  if (static_cast<std::byte*>(to) < static_cast<const std::byte*>(from) + bytes &&
      static_cast<const std::byte*>(from) < static_cast<std::byte*>(to) + bytes)
    throw Finding("copy onto itself");
  Operation operation;
  operation.what = What::copy;
  operation.name = std::make_shared<const std::string>("copy");
  operation.accesses = {reads(from, bytes), writes(to, bytes)};
  operation.run = [=] { return std::memcpy(to, from, bytes), true; };
  add(at(stream, "copy"), std::move(operation));
}

void SimRuntime::zero(StreamHandle stream, void* to, std::int64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes < 0) throw Finding(fmt::format("zero of {} bytes", bytes));
  if (bytes == 0) return;
  Operation operation;
  operation.what = What::zero;
  operation.name = std::make_shared<const std::string>("zero");
  operation.accesses = {writes(to, bytes)};
  operation.run = [=] { return std::memset(to, 0, bytes), true; };
  add(at(stream, "zero"), std::move(operation));
}

void SimRuntime::write_word(StreamHandle stream, std::uint32_t* word, std::uint32_t value) {
  const std::scoped_lock lock(mutex_);
  check_word("write_word", word);
  Operation operation;
  operation.what = What::write_word;
  operation.name = std::make_shared<const std::string>("write_word");
  operation.word = word;
  operation.value = value;
  add(at(stream, "write_word"), std::move(operation));
}

void SimRuntime::wait_word(StreamHandle stream, const std::uint32_t* word, std::uint32_t value) {
  const std::scoped_lock lock(mutex_);
  check_word("wait_word", word);
  Operation operation;
  operation.what = What::wait_word;
  operation.name = std::make_shared<const std::string>("wait_word");
  operation.word = const_cast<std::uint32_t*>(word);
  operation.value = value;
  add(at(stream, "wait_word"), std::move(operation));
}

void SimRuntime::declare(StreamHandle handle, const char* name, std::initializer_list<Access> accesses) {
  const std::scoped_lock lock(mutex_);
  SimStream& stream = at(handle, "declare");
  if (stream.declared && *stream.declared != name)
    throw Finding(
        fmt::format("{} was declared, but then came {} instead of its kernel", *stream.declared, name));
  stream.declared = name;
  stream.declared_accesses.insert(stream.declared_accesses.end(), accesses.begin(), accesses.end());
}

void SimRuntime::add_kernel(SimStream& stream, simt::Launch launch) {
  const std::scoped_lock lock(mutex_);
  check_launch(launch);
  if (!stream.declared) throw Finding(fmt::format("kernel {} was enqueued without declare()", launch.name));
  Operation operation;
  operation.what = What::kernel;
  operation.name = std::make_shared<const std::string>(std::exchange(stream.declared, std::nullopt).value());
  operation.accesses = std::exchange(stream.declared_accesses, {});
  operation.arguments = launch.arguments;
  for (const dim3 size : {launch.grid, launch.block}) simt::append_bytes(operation.arguments, size);
  operation.run = [this, launch = std::move(launch)] { return run_grid(launch, dice_), true; };
  add(stream, std::move(operation));
}

void SimRuntime::enqueue(StreamHandle stream, const char* name, std::span<const Access> accesses,
                         std::function<void()> work, std::span<const std::byte> arguments) {
  const std::scoped_lock lock(mutex_);
  Operation operation;
  operation.what = What::host;
  operation.name = std::make_shared<const std::string>(name);
  operation.accesses.assign(accesses.begin(), accesses.end());
  operation.arguments.assign(arguments.begin(), arguments.end());
  operation.run = [work = std::move(work)] { return work(), true; };
  add(at(stream, name), std::move(operation));
}

void SimRuntime::enqueue_polling(StreamHandle stream, const char* name, std::span<const Access> accesses,
                                 std::function<bool()> work) {
  const std::scoped_lock lock(mutex_);
  Operation operation;
  operation.what = What::polling;
  operation.name = std::make_shared<const std::string>(name);
  operation.accesses.assign(accesses.begin(), accesses.end());
  operation.run = std::move(work);
  add(at(stream, name), std::move(operation));
}

}  // namespace holdfast::cuda::sim

void holdfast::cuda::simt::enqueue(StreamHandle handle, Launch launch) {
  auto* stream = reinterpret_cast<sim::SimRuntime::SimStream*>(handle);
  expects(stream != nullptr && stream->magic == sim::SimRuntime::SimStream::valid,
          "a kernel is enqueued on a stream");
  stream->runtime->add_kernel(*stream, std::move(launch));
}
