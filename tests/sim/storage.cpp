#include "tests/sim/storage.hpp"

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

int SharedStorage::terms() const { return static_cast<int>(files::list(run.terms()).size()); }

std::optional<nlohmann::json> SharedStorage::result() const {
  if (!files::is_there(run.result())) return std::nullopt;
  return nlohmann::json::parse(files::read_text(run.result()));
}

Strand::Strand(std::function<void()> work)
    : thread_([this, work = std::move(work)] {
        go_.acquire();
        work();
        done_ = true;
        back_.release();
      }) {}

void Strand::go_on() {
  go_.release();
  back_.acquire();
}

void Strand::wait() {
  back_.release();
  go_.acquire();
}

Work*& present_work() {
  thread_local Work* work = nullptr;
  return work;
}

}  // namespace holdfast::sim
