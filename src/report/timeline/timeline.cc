#include "src/report/timeline/timeline.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "src/report/timeline/clocks.h"
#include "src/report/timeline/findings.h"
#include "src/report/timeline/leg_slices.h"

namespace ttrace {
namespace {

std::string PlaceInMesh(const Trace& trace, int rank) {
  std::string out;
  const auto& dims = trace.mesh().dims;
  const Coordinate& at = trace.coordinate(rank);
  for (size_t d = 0; d < dims.size() && d < at.size(); ++d) {
    out += (d > 0 ? " " : "") + dims[d].name + "=" + std::to_string(at[d]);
  }
  return out;
}

// What is one communication on all its ranks, as each of them counts: the k-th
// of its kind in a group, as the library itself matches them.
class CollectiveMatch {
 public:
  using Key = std::tuple<int, std::string, std::string, std::vector<int>, int>;

  Key KeyOf(const Collective& call) {
    std::string kind = call.kind;
    std::vector<int> members = call.members;
    if ((kind == "send" || kind == "recv") && members.size() == 2) {
      // From the one to the other, whichever of them says it.
      const bool forth = (kind == "send") == (members.front() == call.rank);
      kind = "send and recv";
      if (!forth) std::swap(members[0], members[1]);
    }
    auto seen = std::tuple(call.rank, call.iteration, kind, call.op, members);
    const int count = counts_[std::move(seen)]++;
    return {call.iteration, std::move(kind), call.op, std::move(members),
            count};
  }

 private:
  std::map<std::tuple<int, int, std::string, std::string, std::vector<int>>,
           int>
      counts_;
};

// Of the folder of the real leg: others note none.
void AddCollectives(const Trace& trace, const RunClock& clock,
                    const std::map<int, LegSlices>& real, Timeline* out) {
  std::map<CollectiveMatch::Key, std::vector<TimelineCollective*>> groups;
  CollectiveMatch match;
  std::map<int, std::vector<TimelineCollective>*> of_rank;
  for (TimelineRank& rank : out->ranks) {
    of_rank[rank.rank] = &rank.collectives;
  }
  std::map<int, int64_t> last;
  for (Collective& call : ReadCollectives(trace).seen) {
    const auto slices = real.find(call.rank);
    if (slices == real.end()) continue;
    std::optional<int64_t> at;
    if (clock.axis() == Timeline::Axis::kTime && call.time_us >= 0) {
      at = clock.At(0, call.rank, call.time_us);
    } else {
      at = slices->second.EndOf(call);
    }
    if (!at) continue;
    // They are in the order of their calls.
    int64_t& before = last[call.rank];
    before = std::max(before, *at);
    of_rank[call.rank]->push_back({before, 0, std::move(call)});
  }
  for (TimelineRank& rank : out->ranks) {
    for (TimelineCollective& one : rank.collectives) {
      groups[match.KeyOf(one.call)].push_back(&one);
    }
  }
  uint64_t flow = 0;
  for (const auto& [key, calls] : groups) {
    if (calls.size() < 2) continue;
    ++flow;
    for (TimelineCollective* one : calls) one->flow = flow;
  }
}

// The legs of one rank, in the order in which they were run.
class RankLegs {
 public:
  void Add(const Record& record, int64_t at_us, Findings& findings) {
    const auto [found, is_new] =
        places_.try_emplace(record.leg(), legs_.size());
    if (is_new) legs_.push_back({{record.leg().name(), {}, {}}, {}});
    OneLeg& leg = legs_[found->second];
    const bool flagged = findings.IsFlagged(record);
    leg.slices.Add(record, at_us, flagged);
    if (!flagged) return;
    for (TimelineMark& mark : findings.Mark(record, at_us)) {
      leg.out.marks.push_back(std::move(mark));
    }
  }

  const LegSlices* real() const {
    const auto found = places_.find(kReal);
    return found == places_.end() ? nullptr : &legs_[found->second].slices;
  }

  std::vector<TimelineLeg> Take() {
    std::vector<TimelineLeg> out;
    for (OneLeg& leg : legs_) {
      leg.out.slices = leg.slices.Take();
      std::stable_sort(leg.out.marks.begin(), leg.out.marks.end(),
                       [](const TimelineMark& a, const TimelineMark& b) {
                         return a.at_us < b.at_us;
                       });
      out.push_back(std::move(leg.out));
    }
    return out;
  }

 private:
  struct OneLeg {
    TimelineLeg out;
    LegSlices slices;
  };
  std::map<Leg, size_t> places_;
  std::vector<OneLeg> legs_;
};

}  // namespace

Timeline MakeTimeline(const std::vector<std::shared_ptr<const Trace>>& traces,
                      const ResultFile& result) {
  const RunClock clock(traces);
  Findings findings(result);
  std::map<int, RankLegs> legs;
  for (size_t i = 0; i < traces.size(); ++i) {
    for (const Record& record : traces[i]->records()) {
      legs[record.rank()].Add(
          record, clock.TimesOf(i, record.rank()).at(record.sequence()),
          findings);
    }
  }
  Timeline out;
  out.axis = clock.axis();
  out.machines = clock.machines();
  out.folder = traces.front()->folder();
  out.missing_ranks = traces.front()->missing_ranks();
  out.unplaced = findings.unplaced();
  std::map<int, LegSlices> real;
  for (const RankTrace& rank : traces.front()->ranks()) {
    TimelineRank& added = out.ranks.emplace_back();
    added.rank = rank.meta.rank;
    added.place = PlaceInMesh(*traces.front(), added.rank);
    RankLegs& of_rank = legs[added.rank];
    if (of_rank.real() != nullptr) real[added.rank] = *of_rank.real();
    added.legs = of_rank.Take();
  }
  AddCollectives(*traces.front(), clock, real, &out);
  return out;
}

}  // namespace ttrace
