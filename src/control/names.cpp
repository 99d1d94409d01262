#include "src/control/names.hpp"

#include <algorithm>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>

#include "src/control/worker.hpp"

namespace holdfast::control {

namespace {
constexpr std::size_t lookers = 16;  // threads
}

bool is_ip_address(const std::string& host) {
  std::error_code no_number;
  asio::ip::make_address(host, no_number);
  return !no_number;
}

LookedUp look_up(const std::string& host) {
  asio::io_context context;
  std::error_code error;
  LookedUp out;
  for (const auto& found : asio::ip::tcp::resolver(context).resolve(host, "", error)) {
    auto number = found.endpoint().address().to_string();
    if (std::find(out.addresses.begin(), out.addresses.end(), number) == out.addresses.end())
      out.addresses.push_back(std::move(number));
  }
  if (out.addresses.empty()) out.why = "cannot resolve the host " + host + " (" + error.message() + ")";
  return out;
}

std::map<std::string, LookedUp> look_up_all(const std::vector<std::string>& hosts, Millis limit) {
  RealLoop loop;
  std::map<std::string, LookedUp> out;
  std::size_t missing = hosts.size();
  if (missing == 0) return out;
  std::vector<std::unique_ptr<Worker>> workers(std::min(lookers, hosts.size()));
  for (auto& worker : workers) worker = std::make_unique<Worker>(loop, Millis(0));
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    out[hosts[i]].why = "the name " + hosts[i] + " has not been resolved in time";
    workers[i % workers.size()]->ask([host = hosts[i]] { return look_up(host); },
                                     [&, host = hosts[i]](LookedUp found) {
                                       std::erase_if(found.addresses, [](const std::string& number) {
                                         return asio::ip::make_address(number).is_loopback();
                                       });
                                       out[host] = std::move(found);
                                       if (--missing == 0) loop.stop();
                                     });
  }
  const auto end = loop.after(limit, [&] { loop.stop(); });
  loop.run();
  return out;
}

}  // namespace holdfast::control
