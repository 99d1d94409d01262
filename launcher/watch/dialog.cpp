#include "launcher/watch/dialog.hpp"

#include <algorithm>
#include <cctype>

namespace holdfast::launcher::watch {
namespace {

using Verb = control::Order::Verb;

constexpr char escape_key = '\x1b', backspace = '\b', rubout = '\x7f';
constexpr std::size_t longest_name = 64;

std::string question(const Confirmed& order) {
  switch (order.verb) {
    case Verb::save:
      return "Save a checkpoint after the current step?";
    case Verb::pause:
      return "Hold all ranks after the current step?";
    case Verb::resume:
      return "Let the ranks go on?";
    case Verb::evict:
      return "Save, then take " + order.node + " out?";
    case Verb::stop:
      return "Save, then end the run and its job for good?";
    case Verb::spares:
      break;
  }
  return "";
}

}  // namespace

void Dialog::begin(char key, const Situation& now) {
  if (key == 'q') quit_ = true;
  if (key == 'r' && now.over) replay_ = true;
  if (now.over) return;
  order_ = {};
  switch (key) {
    case 's':
      order_.verb = Verb::save;
      break;
    case 'p':
      order_.verb = now.paused ? Verb::resume : Verb::pause;
      break;
    case 'e':
      order_.verb = Verb::evict;
      break;
    case 'x':
      order_.verb = Verb::stop;
      break;
    default:
      return;
  }
  state_ = order_.verb == Verb::evict ? State::node : State::sure;
}

void Dialog::type(char key) {
  if (key == escape_key)
    state_ = State::keys;
  else if (key == '\r' || key == '\n')
    state_ = order_.node.empty() ? State::keys : State::sure;
  else if ((key == backspace || key == rubout) && !order_.node.empty())
    order_.node.pop_back();
  else if ((std::isalnum(static_cast<unsigned char>(key)) || key == '-' || key == '.' || key == '_') &&
           order_.node.size() < longest_name)
    order_.node += key;
}

std::optional<Confirmed> Dialog::take(char key, const Situation& now) {
  if (state_ == State::keys) {
    begin(key, now);
  } else if (state_ == State::node) {
    type(key);
  } else {
    state_ = State::keys;
    if (key == 'y' || key == 'Y') return order_;
  }
  return std::nullopt;
}

std::string Dialog::line(const Situation& now) const {
  if (state_ == State::node) return "Which node is to leave? " + order_.node + "_   (Enter; Esc: none)";
  if (state_ == State::sure) return question(order_) + " y: yes, any other key: no";
  if (now.over) return "r replay  q quit";
  return std::string("s save  p ") + (now.paused ? "resume" : "pause") + "  e evict a node  x stop  q quit";
}

}  // namespace holdfast::launcher::watch
