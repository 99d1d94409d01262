#include "tests/sim/storage.hpp"

#include <cxxabi.h>
#include <unistd.h>

#include <stdexcept>

namespace holdfast::sim {

namespace fs = std::filesystem;

SharedStorage::SharedStorage(int nodes)
    : mounted(as_size(nodes), true), hung_until(as_size(nodes)), errs_until(as_size(nodes)) {
  // In memory where possible: there are thousands of schedules.
  const fs::path parent = ::access("/dev/shm", W_OK) == 0 ? fs::path("/dev/shm") : fs::temp_directory_path();
  std::string name = (parent / "holdfast-sim-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
  folder = name;
  run.path = folder / "run";
  for (const auto& made : {run.path, run.terms(), run.events(), run.checkpoints(), run.logs()})
    fs::create_directory(made);
}

SharedStorage::~SharedStorage() {
  std::error_code ignored;
  fs::remove_all(folder, ignored);
}

int SharedStorage::highest() const {
  const Aside aside;
  if (!highest_) highest_ = launcher::highest_valid_term(run);
  return *highest_;
}

const launcher::RunState& SharedStorage::replay() const {
  const Aside aside;
  if (!replayed_) replayed_ = launcher::replay(run);
  return *replayed_;
}

int SharedStorage::terms() const { return static_cast<int>(files::list(run.terms()).size()); }

std::optional<nlohmann::json> SharedStorage::result() const {
  const Aside aside;
  if (!files::is_there(run.result())) return std::nullopt;
  return nlohmann::json::parse(files::read_text(run.result()));
}

namespace {
Strand* running = nullptr;
}

void Strand::enter() {
  Strand& self = *running;
  self.switch_.entered();
  self.work_();
  self.done_ = true;
  self.switch_.suspend(self.fiber_, true);
}

void Strand::go_on() {
  if (!std::exchange(began_, true)) switch_.start(fiber_, &Strand::enter);
  auto& exceptions = *reinterpret_cast<Exceptions*>(abi::__cxa_get_globals());
  const Exceptions others = std::exchange(exceptions, exceptions_);
  const Caller other = std::exchange(caller(), caller_);
  running = this;
  switch_.resume(fiber_);
  caller_ = std::exchange(caller(), other);
  exceptions_ = std::exchange(exceptions, others);
}

}  // namespace holdfast::sim
