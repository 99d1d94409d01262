// State::start() makes a context with the chosen transports, one worker, the descriptor on which it sleeps,
// and its address; a failure is thrown with UCX's own words, after stop() has released what was made before.
//
// A message is given to UCX by send() or receive(). It ends in a callback while the worker makes progress, or
// at once when UCX refuses it. Either way end() notes bytes and failure in it and puts it on the list that
// finished() hands out, so a failed message is reported there and never thrown. A connection that breaks is
// noted at its Peer by UCX's error handler, and lost() tells it.
//
// stop() cancels receives, closes every endpoint by force, which takes at most 2 s each, and destroys the
// worker.
#include "src/comm/ucx_worker.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>
#include <uct/api/uct.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <utility>

#include "src/base/clock.hpp"
#include "src/base/env.hpp"
#include "src/base/error.hpp"

namespace holdfast::comm {
namespace {

void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK)
    throw Error(Exit::runtime, fmt::format("UCX failed at '{}'", what), ucs_status_string(status));
}

/// UCX takes the process's crash signals for a backtrace on stdout, and reports there what is an Error here.
void be_quiet() {
  for (int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE}) ucs_debug_disable_signal(signal);
  if (!env::get("UCX_LOG_LEVEL")) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
}

void list_transports(uct_component_h component, const char* domain, std::vector<UcxTransport>& found) {
  uct_md_config_t* config = nullptr;
  if (uct_md_config_read(component, nullptr, nullptr, &config) != UCS_OK) return;
  uct_md_h opened = nullptr;
  const ucs_status_t status = uct_md_open(component, domain, config, &opened);
  uct_config_release(config);
  if (status != UCS_OK) return;
  uct_tl_resource_desc_t* resources = nullptr;
  unsigned count = 0;
  if (uct_md_query_tl_resources(opened, &resources, &count) == UCS_OK) {
    for (unsigned i = 0; i < count; ++i) {
      const auto type = resources[i].dev_type;
      if (type == UCT_DEVICE_TYPE_ACC) continue;
      const auto kind = type == UCT_DEVICE_TYPE_NET   ? UcxTransport::Kind::network
                        : type == UCT_DEVICE_TYPE_SHM ? UcxTransport::Kind::node
                                                      : UcxTransport::Kind::itself;
      found.push_back({resources[i].tl_name, resources[i].dev_name, kind});
    }
    uct_release_tl_resource_list(resources);
  }
  uct_md_close(opened);
}

}  // namespace

std::vector<UcxTransport> ucx_transports() {
  be_quiet();
  uct_component_h* components = nullptr;
  unsigned count = 0;
  check(uct_query_components(&components, &count), "query the transports");
  std::vector<UcxTransport> found;
  for (unsigned i = 0; i < count; ++i) {
    uct_component_attr_t attributes{};
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCE_COUNT;
    if (uct_component_query(components[i], &attributes) != UCS_OK) continue;
    std::vector<uct_md_resource_desc_t> domains(attributes.md_resource_count);
    attributes.field_mask = UCT_COMPONENT_ATTR_FIELD_MD_RESOURCES;
    attributes.md_resources = domains.data();
    if (domains.empty() || uct_component_query(components[i], &attributes) != UCS_OK) continue;
    for (const auto& domain : domains) list_transports(components[i], domain.md_name, found);
  }
  uct_release_component_list(components);
  return found;
}

struct UcxWorker::State {
  struct Peer {
    ucp_ep_h endpoint = nullptr;
    const char* lost = nullptr;
  };

  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  int descriptor = -1;
  std::vector<std::byte> address;
  std::map<int, Peer> peers;  // nodes of a map stay where they are: UCX holds on to them
  std::vector<UcxMessage*> finished, receiving;

  void start(const UcxChoice& choice);
  void stop();
  /// Every message ends in its callback, none at once in the call: one way for all.
  ucp_request_param_t begin(UcxMessage& message);
  void keep(void* request, UcxMessage& message);
  void end(UcxMessage& message, ucs_status_t status, std::size_t bytes);
  static void sent(void* request, ucs_status_t status, void* message);
  static void received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* message);
  bool wait_for(void* request, const Deadline& deadline);
};

void UcxWorker::State::start(const UcxChoice& choice) {
  be_quiet();
  ucp_config_t* config = nullptr;
  check(ucp_config_read(nullptr, nullptr, &config), "read the settings");
  const std::unique_ptr<ucp_config_t, void (*)(ucp_config_t*)> released(config, ucp_config_release);
  const auto set = [&](const char* name, const std::string& value) {
    check(ucp_config_modify(config, name, value.c_str()), name);
  };
  set("TLS", choice.ways);
  if (!choice.devices.empty()) set("NET_DEVICES", choice.devices);
  set("KEEPALIVE_INTERVAL", "1s");  // or a dead process of this node is seen after 20 s
  set("MM_ERROR_HANDLING", "y");    // or memory of the node is not used with endpoints that see failures
  set("USE_MT_MUTEX", "y");
  if (choice.streams) {
    // Asking before sending costs twice the processor time of a plain stream (measured), and half its rate.
    // So do short segments.
    set("RNDV_THRESH", "inf");
    set("TX_SEG_SIZE", "256k");  // in UCX 1.13 without the "TCP_" that the environment variable has
    set("RX_SEG_SIZE", "512k");
  }

  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
  check(ucp_init(&params, config, &context), "start");

  ucp_worker_params_t wanted{};
  wanted.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  wanted.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  check(ucp_worker_create(context, &wanted, &worker), "create a worker");
  check(ucp_worker_get_efd(worker, &descriptor), "get a descriptor to sleep on");

  ucp_address_t* bytes = nullptr;
  std::size_t count = 0;
  check(ucp_worker_get_address(worker, &bytes, &count), "get the address");
  const auto* first = reinterpret_cast<const std::byte*>(bytes);
  address.assign(first, first + count);
  ucp_worker_release_address(worker, bytes);
}

void UcxWorker::State::stop() {
  if (worker != nullptr) {
    for (UcxMessage* message : receiving)
      if (!message->done && message->request != nullptr) ucp_request_cancel(worker, message->request);
    for (auto& [rank, peer] : peers) {
      if (peer.endpoint == nullptr) continue;
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      how.flags = UCP_EP_CLOSE_FLAG_FORCE;
      wait_for(ucp_ep_close_nbx(peer.endpoint, &how), Deadline::in(std::chrono::seconds(2)));
    }
    ucp_worker_destroy(worker);
  }
  if (context != nullptr) ucp_cleanup(context);
}

ucp_request_param_t UcxWorker::State::begin(UcxMessage& message) {
  message = {};
  message.worker = this;
  ucp_request_param_t how{};
  how.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  how.user_data = &message;
  return how;
}

/// `request`: what UCX gave back; the message may have ended before.
void UcxWorker::State::keep(void* request, UcxMessage& message) {
  if (UCS_PTR_IS_ERR(request))
    end(message, UCS_PTR_STATUS(request), 0);
  else if (!message.done)
    message.request = request;
}

void UcxWorker::State::end(UcxMessage& message, ucs_status_t status, std::size_t bytes) {
  message.done = true;
  message.request = nullptr;
  message.bytes = bytes;
  message.failure = status == UCS_OK ? nullptr : ucs_status_string(status);
  finished.push_back(&message);
}

void UcxWorker::State::sent(void* request, ucs_status_t status, void* data) {
  auto& message = *static_cast<UcxMessage*>(data);
  static_cast<State*>(message.worker)->end(message, status, 0);
  ucp_request_free(request);
}

void UcxWorker::State::received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                                void* data) {
  auto& message = *static_cast<UcxMessage*>(data);
  static_cast<State*>(message.worker)->end(message, status, status == UCS_OK ? info->length : 0);
  ucp_request_free(request);
}

bool UcxWorker::State::wait_for(void* request, const Deadline& deadline) {
  if (!UCS_PTR_IS_PTR(request)) return request == nullptr;
  while (ucp_request_check_status(request) == UCS_INPROGRESS && !deadline.passed())
    ucp_worker_progress(worker);
  const bool ended = ucp_request_check_status(request) != UCS_INPROGRESS;
  ucp_request_free(request);
  return ended;
}

UcxWorker::UcxWorker(const UcxChoice& choice) : state_(std::make_unique<State>()) {
  try {
    state_->start(choice);
  } catch (...) {
    state_->stop();
    throw;
  }
}

UcxWorker::~UcxWorker() { state_->stop(); }

const std::vector<std::byte>& UcxWorker::address() const { return state_->address; }

std::set<std::string> UcxWorker::connect(int rank, std::span<const std::byte> address) {
  auto [found, is_new] = state_->peers.try_emplace(rank);
  State::Peer& peer = found->second;
  if (!is_new) return {};
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.arg = &peer;
  params.err_handler.cb = [](void* which, ucp_ep_h, ucs_status_t status) {
    static_cast<State::Peer*>(which)->lost = ucs_status_string(status);
  };
  const ucs_status_t status = ucp_ep_create(state_->worker, &params, &peer.endpoint);
  if (status != UCS_OK) {
    peer.endpoint = nullptr;
    throw Error(Exit::runtime, fmt::format("rank {} cannot be reached", rank), ucs_status_string(status),
                "Do all nodes have the device of checkpoint.network?");
  }
  char* text = nullptr;
  std::size_t bytes = 0;
  std::FILE* stream = open_memstream(&text, &bytes);
  expects(stream != nullptr, "there is memory for a text");
  ucp_ep_print_info(peer.endpoint, stream);
  std::fclose(stream);
  const auto lanes = lanes_in({text, bytes});
  std::free(text);
  return lanes;
}

const char* UcxWorker::lost(int rank) const {
  const auto found = state_->peers.find(rank);
  return found == state_->peers.end() ? nullptr : found->second.lost;
}

void UcxWorker::send(int rank, std::uint64_t tag, std::span<const std::byte> bytes, UcxMessage& message) {
  ucp_request_param_t how = state_->begin(message);
  how.cb.send = State::sent;
  ucp_ep_h endpoint = state_->peers.at(rank).endpoint;
  state_->keep(ucp_tag_send_nbx(endpoint, bytes.data(), bytes.size(), tag, &how), message);
}

void UcxWorker::receive(std::uint64_t tag, std::span<std::byte> bytes, UcxMessage& message) {
  ucp_request_param_t how = state_->begin(message);
  how.cb.recv = State::received;
  state_->receiving.push_back(&message);
  state_->keep(ucp_tag_recv_nbx(state_->worker, bytes.data(), bytes.size(), tag, ~std::uint64_t{0}, &how),
               message);
}

bool UcxWorker::progress() { return ucp_worker_progress(state_->worker) != 0; }

std::vector<UcxMessage*> UcxWorker::finished() {
  if (state_->finished.empty()) return {};
  std::erase_if(state_->receiving, [](const UcxMessage* message) { return message->done; });
  return std::exchange(state_->finished, {});
}

void UcxWorker::sleep(int wake, std::chrono::milliseconds limit) {
  if (ucp_worker_arm(state_->worker) != UCS_OK) return;  // something came in between
  pollfd both[] = {{state_->descriptor, POLLIN, 0}, {wake, POLLIN, 0}};
  ::poll(both, 2, static_cast<int>(limit.count()));
}

void UcxWorker::flush(std::chrono::milliseconds limit) {
  ucp_request_param_t how{};
  state_->wait_for(ucp_worker_flush_nbx(state_->worker, &how), Deadline::in(limit));
}

}  // namespace holdfast::comm
