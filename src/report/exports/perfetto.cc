// A timeline as ui.perfetto.dev opens it. A rank is a group of tracks: its
// findings, its collectives, and a track for each leg.

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/report/exports/exports.h"
#include "src/report/timeline/track_events.h"

namespace ttrace {
namespace {

constexpr size_t kLongestEventName = 200;  // in code points
// Process 0 is the idle one to the viewer, which does not show it.
constexpr int kFirstPid = 1;

std::string ShownName(const std::string& text) {
  return ShortenMiddle(Printable(text), kLongestEventName);
}

// What a reader has to know before he believes the time axis.
std::string AxisWords(const Timeline& timeline) {
  if (timeline.axis == Timeline::Axis::kOrder) {
    return "this trace has no times: a microsecond stands for a record, in the "
           "order of each rank by itself; ranks are not aligned";
  }
  if (timeline.machines == 1) {
    return "times are those at which capture recorded a tensor; all ranks read "
           "one clock";
  }
  return fmt::format(
      "times are those at which capture recorded a tensor; ranks of {} "
      "machines are laid side by side by their wall clocks, taken to be "
      "synchronised",
      timeline.machines);
}

void AddHead(const Timeline& timeline, const ResultFile& result,
             TrackEvents* out) {
  std::string verdict = result.verdict;
  std::replace(verdict.begin(), verdict.end(), '_', ' ');
  const Track head = out->AddProcess(kFirstPid, "TTrace: " + verdict);
  TrackEvents::Event event{
      ShownName(result.reason),
      "verdict",
      {{"axis", AxisWords(timeline)}, {"trace", Printable(timeline.folder)}}};
  if (!timeline.missing_ranks.empty()) {
    event.facts.emplace_back(
        "missing",
        Counted(static_cast<int64_t>(timeline.missing_ranks.size()), "rank") +
            " of this run left no trace");
  }
  if (timeline.unplaced > 0) {
    event.facts.emplace_back("not shown",
                             Counted(timeline.unplaced, "finding") +
                                 " about what this trace has no record of");
  }
  out->Instant(out->AddTrack(head, "verdict"), 0, event);
}

TrackEvents::Event EventOf(const TimelineCollective& collective) {
  const Collective& call = collective.call;
  TrackEvents::Event event;
  event.name = call.kind + (call.op.empty() ? "" : " " + Printable(call.op)) +
               fmt::format(", ranks {}", fmt::join(call.members, " "));
  event.name = ShownName(event.name);
  event.category = "collective";
  event.flow = collective.flow;
  event.facts = {
      {"elements", fmt::format("{} {}", call.elements, Printable(call.dtype))}};
  if (!call.phase.empty()) event.facts.emplace_back("phase", call.phase);
  if (!call.fqn.empty())
    event.facts.emplace_back("module", ShownName(call.fqn));
  if (!call.parameters.empty()) {
    event.facts.emplace_back(
        "gradients of",
        ShownName(call.parameters.front()) +
            (call.parameters.size() == 1
                 ? ""
                 : fmt::format(" and {} more", call.parameters.size() - 1)));
  }
  return event;
}

void AddLane(const std::vector<TimelineSlice>& slices, size_t begin, size_t end,
             Track track, TrackEvents* out) {
  std::vector<int64_t> open;  // ends, the innermost last
  // In a lane, what does not end within the one before begins after it.
  const auto close_before = [&](int64_t end_us) {
    for (; !open.empty() && open.back() < end_us; open.pop_back()) {
      out->End(track, open.back());
    }
  };
  for (size_t i = begin; i < end; ++i) {
    const TimelineSlice& slice = slices[i];
    close_before(slice.end_us);
    TrackEvents::Event event{ShownName(slice.name), slice.category};
    if (slice.micro_batch >= 0) {
      event.facts.emplace_back("micro-batch",
                               std::to_string(slice.micro_batch));
    }
    if (slice.flagged) {
      event.name += " (out of bounds)";
      event.category = "out of bounds";
    }
    out->Begin(track, slice.begin_us, event);
    open.push_back(slice.end_us);
  }
  close_before(std::numeric_limits<int64_t>::max());
}

void AddLeg(const TimelineLeg& leg, Track rank, TrackEvents* out) {
  const std::string name = ShownName(leg.leg);
  if (!leg.marks.empty()) {
    const Track marks = out->AddTrack(rank, name + ": findings");
    for (const TimelineMark& mark : leg.marks) {
      out->Instant(marks, mark.at_us,
                   {ShownName(mark.name), mark.category, mark.facts});
    }
  }
  const auto& slices = leg.slices;
  for (size_t begin = 0; begin < slices.size();) {
    size_t end = begin;
    while (end < slices.size() && slices[end].lane == slices[begin].lane) ++end;
    const Track lane =
        out->AddTrack(rank, begin == 0 ? name : name + ": what runs beside it");
    AddLane(slices, begin, end, lane, out);
    begin = end;
  }
}

}  // namespace

std::string RenderPerfetto(const Timeline& timeline, const ResultFile& result) {
  TrackEvents out;
  AddHead(timeline, result, &out);
  for (const TimelineRank& rank : timeline.ranks) {
    const Track track = out.AddProcess(
        kFirstPid + 1 + rank.rank,
        ShownName(fmt::format("rank {} {}", rank.rank, rank.place)));
    bool has_collectives = rank.collectives.empty();
    for (const TimelineLeg& leg : rank.legs) {
      AddLeg(leg, track, &out);
      if (std::exchange(has_collectives, true)) continue;
      // Below the leg of which they are.
      const Track calls = out.AddTrack(track, "collectives");
      for (const TimelineCollective& one : rank.collectives) {
        out.Instant(calls, one.at_us, EventOf(one));
      }
    }
  }
  return out.Take();
}

}  // namespace ttrace
