#pragma once
// Which snapshot buffer comes next. Pure.
//
//   a buffer is  while                                     and the next state
//   live         it holds the newest state                 goes to it, unless it is a snapshot
//   held         a save is written from it                 goes elsewhere
//   kept         it is the newest snapshot with a copy on  goes elsewhere, when there is an elsewhere
//                another node
//   free         else: an older snapshot, or nothing       goes to the one that has been free longest
//
// The newest snapshot is live or was left last, and is written over only after the next one is whole. Ranks
// that wait for each other between "my snapshot of step t is sealed" and the step after it (agreeing on the
// update of a step is such a point) therefore always have a snapshot of one common step: while some write
// t + 1, t is sealed everywhere. That takes a buffer more than these two where one is held.
#include <algorithm>
#include <vector>

#include "src/base/as_size.hpp"
#include "src/base/error.hpp"

namespace holdfast::train {

class BufferRotation {
 public:
  /// `live`: where the state lies at first; nothing there needs to stay.
  BufferRotation(int buffers, int live) : live_(live), left_(as_size(buffers), 0) {
    expects(buffers >= 1 && live >= 0 && live < buffers, "a rotation has a buffer at least");
  }

  int live() const { return live_; }
  bool live_is_snapshot() const { return snapshot_; }

  /// Where the next state is written: the live buffer itself while it is no snapshot, or where there is no
  /// other one. Only while one that is neither live nor held is there, or the live one is not held.
  int next() const {
    if (!snapshot_ || left_.size() == 1) return checked(live_);
    int best = -1;
    for (int buffer = 0; buffer < static_cast<int>(left_.size()); ++buffer)
      if (buffer != live_ && buffer != held_ && (best < 0 || before(buffer, best))) best = buffer;
    return checked(best);
  }
  /// The newest state lies in `buffer` from now on, and is no snapshot yet.
  void move(int buffer) {
    left_.at(live_) = ++clock_;
    live_ = buffer;
    snapshot_ = false;
  }
  /// What the live buffer holds now is a snapshot.
  void snapshot() { snapshot_ = true; }
  /// Instead of what was kept so far.
  void keep(int buffer) {
    expects(buffer >= 0 && buffer < static_cast<int>(left_.size()), "a buffer of the local level");
    kept_ = buffer;
  }
  /// The live buffer, a snapshot, is held until release().
  void hold() {
    expects(snapshot_ && held_ < 0, "one snapshot is held at a time");
    held_ = live_;
  }
  void release() { held_ = -1; }
  bool holds() const { return held_ >= 0; }

 private:
  int checked(int buffer) const {
    expects(buffer >= 0 && buffer != held_, "there is a buffer that nobody reads");
    return buffer;
  }
  bool before(int a, int b) const {
    if ((a == kept_) != (b == kept_)) return b == kept_;
    return left_[a] < left_[b];
  }

  int live_, kept_ = -1, held_ = -1;
  bool snapshot_ = false;
  long clock_ = 0;
  std::vector<long> left_;  ///< when a buffer was live last
};

}  // namespace holdfast::train
