// A library in NCCL's place whose members never come: what is begun stays in progress until it is aborted. It
// counts calls for communicators that were freed, which NCCL would read and write behind their end.
#include <nccl.h>

#include <atomic>
#include <mutex>
#include <set>

struct ncclComm {};

namespace {
std::mutex mutex;
std::set<ncclComm_t> alive;
std::atomic<int> misuses{0}, questions{0}, version{NCCL_VERSION_CODE};

bool used_well(ncclComm_t comm) {
  const std::lock_guard lock(mutex);
  if (alive.contains(comm)) return true;
  ++misuses;
  return false;
}
ncclResult_t freed(ncclComm_t comm) {
  if (!used_well(comm)) return ncclInvalidArgument;
  const std::lock_guard lock(mutex);
  alive.erase(comm);
  return ncclSuccess;  // its address is not used again: a late call is noticed
}
}  // namespace

extern "C" {
// For the test:
int stand_in_misuses() { return misuses; }
int stand_in_questions() { return questions; }
int stand_in_alive() {
  const std::lock_guard lock(mutex);
  return static_cast<int>(alive.size());
}
void stand_in_version(int number) { version = number; }

ncclResult_t ncclGetVersion(int* number) {
  *number = version;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId*) { return ncclSuccess; }
const char* ncclGetLastError(ncclComm_t) { return ""; }
const char* ncclGetErrorString(ncclResult_t) { return "said by the stand-in"; }
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int, ncclUniqueId, int, ncclConfig_t*) {
  const std::lock_guard lock(mutex);
  alive.insert(*comm = new ncclComm);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  ++questions;
  if (!used_well(comm)) return ncclInvalidArgument;
  *state = ncclInProgress;
  return ncclSuccess;
}
ncclResult_t ncclCommRegister(const ncclComm_t comm, void*, size_t, void**) {
  return used_well(comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = 0;
  return used_well(comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) { return freed(comm); }
ncclResult_t ncclCommFinalize(ncclComm_t comm) { return used_well(comm) ? ncclSuccess : ncclInvalidArgument; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return freed(comm); }
ncclResult_t ncclGroupStart() { return ncclSuccess; }
ncclResult_t ncclGroupEnd() { return ncclInProgress; }
ncclResult_t ncclAllGather(const void*, void*, size_t, ncclDataType_t, ncclComm_t comm, cudaStream_t) {
  return used_well(comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclSend(const void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return used_well(comm) ? ncclSuccess : ncclInvalidArgument;
}
ncclResult_t ncclRecv(void*, size_t, ncclDataType_t, int, ncclComm_t comm, cudaStream_t) {
  return used_well(comm) ? ncclSuccess : ncclInvalidArgument;
}
}
