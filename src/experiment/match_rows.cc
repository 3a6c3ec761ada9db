#include "src/experiment/match_rows.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace ttrace {
namespace {

// How far rows are looked at for what follows: natural text of this length is
// hardly ever there twice.
constexpr size_t kAhead = 32;

class Matcher {
 public:
  Matcher(const RowKeys& theirs, const RowKeys& own)
      : theirs_(theirs), own_(own), taken_(theirs.size(), false) {
    for (size_t r = 0; r < theirs.size(); ++r) places_[theirs[r]].push_back(r);
  }

  std::vector<int64_t> Run() {
    std::vector<int64_t> out;
    out.reserve(own_.size());
    size_t next = 0;  // what follows the last one's place
    for (size_t i = 0; i < own_.size(); ++i) {
      const size_t place = PlaceOf(i, next);
      taken_[place] = true;
      out.push_back(static_cast<int64_t>(place));
      next = place + 1;
    }
    return out;
  }

 private:
  // Rows from `place` on that are free and those from `i` on, in turn.
  size_t Ahead(size_t i, size_t place) const {
    size_t n = 0;
    while (n < kAhead && i + n < own_.size() && place + n < theirs_.size() &&
           !taken_[place + n] && theirs_[place + n] == own_[i + n]) {
      ++n;
    }
    return n;
  }

  // The free place of the same key from which most rows go on alike; of equal
  // ones the next, else the first.
  size_t PlaceOf(size_t i, size_t next) {
    std::vector<size_t>& places = places_.at(own_[i]);
    std::erase_if(places, [&](size_t place) { return taken_[place]; });
    size_t best = places.front();
    size_t most = 0;
    if (next < theirs_.size() && !taken_[next] && theirs_[next] == own_[i]) {
      best = next;
      most = Ahead(i, next);
      if (most == kAhead) return best;
    }
    if (places.size() == 1) return best;
    for (const size_t place : places) {
      const size_t ahead = Ahead(i, place);
      if (ahead > most) {
        most = ahead;
        best = place;
      }
      if (most == kAhead) break;
    }
    return best;
  }

  const RowKeys& theirs_;
  const RowKeys& own_;
  std::vector<bool> taken_;
  std::unordered_map<uint64_t, std::vector<size_t>> places_;
};

// Sets of digests that are known to be of one row.
class SameRows {
 public:
  void Join(uint64_t a, uint64_t b) { parent_[Root(a)] = Root(b); }
  uint64_t Root(uint64_t digest) {
    const auto [found, is_new] = parent_.try_emplace(digest, digest);
    if (is_new || found->second == digest) return digest;
    const uint64_t root = Root(found->second);
    parent_[digest] = root;
    return root;
  }

 private:
  std::unordered_map<uint64_t, uint64_t> parent_;
};

}  // namespace

std::vector<int64_t> MatchRows(const RowKeys& theirs, const RowKeys& own) {
  return Matcher(theirs, own).Run();
}

bool Contains(const RowKeys& theirs, const RowKeys& own) {
  RowKeys all = theirs;
  RowKeys some = own;
  std::sort(all.begin(), all.end());
  std::sort(some.begin(), some.end());
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

RowKeys Joined(const RowKeys& a, const RowKeys& b) {
  RowKeys out(a.size());
  for (size_t r = 0; r < a.size(); ++r) {
    // Multiplication by an odd number keeps different keys different.
    uint64_t key = a[r] * 0x9e3779b97f4a7c15 ^ b[r];
    key ^= key >> 32;
    out[r] = key * 0xd6e8feb86659fd93;
  }
  return out;
}

size_t CountFound(const RowKeys& theirs, const RowKeys& own) {
  const std::unordered_set<uint64_t> known(theirs.begin(), theirs.end());
  return static_cast<size_t>(
      std::count_if(own.begin(), own.end(),
                    [&](const uint64_t key) { return known.contains(key); }));
}

int64_t CountDistinct(const RowKeys& keys) {
  return static_cast<int64_t>(
      std::unordered_set<uint64_t>(keys.begin(), keys.end()).size());
}

PaddedKeys KeysWithoutPadding(const RowDigests& theirs, const RowDigests& own,
                              Padding padding) {
  SameRows same;
  for (const RowDigests* rows : {&theirs, &own}) {
    const auto join = [&](const RowKeys& rest) {
      for (size_t r = 0; r < rest.size(); ++r) {
        same.Join(rows->whole[r], rest[r]);
      }
    };
    join(padding.at_begin ? rows->without_begin : rows->without_end);
    if (padding.cut) join(padding.at_begin ? rows->cut_begin : rows->cut_end);
  }
  PaddedKeys out;
  for (const uint64_t digest : theirs.whole) {
    out.theirs.push_back(same.Root(digest));
  }
  for (const uint64_t digest : own.whole) {
    out.own.push_back(same.Root(digest));
  }
  return out;
}

}  // namespace ttrace
