// A backend to be loaded: the CPU's device under another name. Built with a right stamp, with a wrong one,
// and without the second function.
#include "src/base/log.hpp"
#include "src/device/build_stamp.hpp"
#include "src/device/module_interface.hpp"

#ifndef STAMP
#define STAMP holdfast::device::build_stamp().data()
#endif

const char* holdfast_module_stamp() { return STAMP; }

#ifndef WITHOUT_OPEN
holdfast::device::Device* holdfast_module_open(const holdfast::device::DeviceOptions& options,
                                               const char* speaker) {
  holdfast::log::start(speaker);
  if (options.local_rank == 1)
    throw holdfast::device::Unavailable(holdfast::Exit::runtime, "rank 1 has no GPU", "of the fake",
                                        "buy one?");
  if (options.local_rank == 2)
    throw holdfast::Error(holdfast::Exit::runtime, "the GPU is broken", "of the fake");
  holdfast::log::info("opened");
  auto more = options;
  more.threads = 77;  // so that the test knows it again
  return holdfast::device::make_cpu_device(more).release();
}
#endif
