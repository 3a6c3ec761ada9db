// The candidate's ranks, laid out by their mesh.

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "src/base/count_words.h"
#include "src/base/format.h"
#include "src/report/html/html_text.h"
#include "src/report/html/mesh_drawing.h"
#include "src/report/html/mesh_places.h"
#include "src/report/html/sections.h"

namespace ttrace {
namespace {

constexpr size_t kMostRankRows = 16;
constexpr size_t kMostAxisPlaces = 32;
constexpr size_t kRankGroups = 6;  // of columns of the map

const std::array<const char*, kRankGroups> kRankGroupWords = {
    "start", "forward", "backward", "local", "reduced", "update"};

size_t RankGroupOf(const ResultFile::Id& id) {
  constexpr std::array<size_t, kMapColumns> kGroups = {0, 1, 1, 2, 2, 3, 4, 5};
  return kGroups[MapColumnOf(id)];
}

struct OfRank {
  std::array<int64_t, kRankGroups> out = {};
  int64_t all = 0;
  int64_t copies = 0;
};

struct OfRanks {
  std::vector<OfRank> ranks;
  int64_t unnamed = 0;      // out, but on no rank in particular
  int64_t with_copies = 0;  // tensors of which there are copies
  int64_t copies_differ = 0;
  // Of the axes along which copies differ: tensors, and by how much.
  std::map<std::string, std::pair<int64_t, double>> along;
};

OfRanks CountByRank(const ReportModel& model) {
  OfRanks out;
  out.ranks.resize(static_cast<size_t>(std::clamp<int64_t>(
      model.result->candidate.world_size, 0, kMostRanksShown)));
  const auto known = [&](int64_t rank) {
    return rank >= 0 && rank < static_cast<int64_t>(out.ranks.size());
  };
  for (size_t i = 0; i < model.tensors.size(); ++i) {
    const ResultFile::Tensor& tensor = *model.tensors[i];
    if (IsOut(model.severity[i])) {
      out.unnamed += tensor.ranks.empty() ? 1 : 0;
      for (const int64_t rank : tensor.ranks) {
        if (!known(rank)) continue;
        ++out.ranks[static_cast<size_t>(rank)].out[RankGroupOf(tensor)];
        ++out.ranks[static_cast<size_t>(rank)].all;
      }
    }
    if (!tensor.copies) continue;
    ++out.with_copies;
    if (tensor.copies->differing == 0) continue;
    ++out.copies_differ;
    std::string name;
    for (const std::string& axis : tensor.copies->mesh_dims) {
      name += (name.empty() ? "" : " x ") + axis;
    }
    auto& [count, worst] =
        out.along[name.empty() ? "no axis in particular" : name];
    ++count;
    worst = std::max(worst, tensor.copies->worst_rel_err);
    for (const int64_t rank : tensor.copies->ranks) {
      if (known(rank)) ++out.ranks[static_cast<size_t>(rank)].copies;
    }
  }
  return out;
}

// Of each place along each axis, how much is wrong there: equal numbers along
// an axis say that it is not that axis.
std::string AxesTable(const OfRanks& counts, const MeshPlaces& places) {
  std::string rows;
  for (size_t axis = 0; axis < places.axes.size(); ++axis) {
    std::map<int64_t, OfRank> by_place;
    for (size_t rank = 0;
         rank < std::min(counts.ranks.size(), places.coordinates.size());
         ++rank) {
      if (axis >= places.coordinates[rank].size()) continue;
      OfRank& of = by_place[places.coordinates[rank][axis]];
      of.all += counts.ranks[rank].all;
      of.copies += counts.ranks[rank].copies;
    }
    if (by_place.size() > kMostAxisPlaces) continue;
    rows += "<tr><th scope=row>" + HtmlText(places.axes[axis].name) + "<td>";
    for (const auto& [place, of] : by_place) {
      rows += fmt::format("<span class=place><b>{}</b> {}{}</span>", place,
                          FormatCount(of.all),
                          of.copies > 0 ? " / " + FormatCount(of.copies) : "");
    }
  }
  if (rows.empty()) return "";
  return "<h3>Out of bounds by place along each axis, counted on each rank (/ "
         "other copies)</h3>"
         "<table class=\"small axes\">" +
         rows + "</table>";
}

std::string RankRows(const OfRanks& counts, const MeshPlaces& places) {
  std::vector<size_t> shown;
  for (size_t rank = 0; rank < counts.ranks.size(); ++rank) {
    if (counts.ranks[rank].all > 0 || counts.ranks[rank].copies > 0) {
      shown.push_back(rank);
    }
  }
  if (shown.empty()) return "";
  std::string out =
      "<div class=scroll><table class=small><thead><tr><th scope=col>rank<th "
      "scope=col>place";
  for (const char* words : kRankGroupWords) {
    out += std::string("<th scope=col class=num>") + words;
  }
  out += "<th scope=col class=num>other copies</thead><tbody>";
  const auto cell = [](int64_t count) {
    return count == 0 ? std::string("<td class=\"num muted\">0")
                      : "<td class=num>" + FormatCount(count);
  };
  for (size_t i = 0; i < std::min(shown.size(), kMostRankRows); ++i) {
    const OfRank& of = counts.ranks[shown[i]];
    out += fmt::format(
        "<tr><th scope=row>{}<td>{}", shown[i],
        HtmlText(PlaceOfRank(places, static_cast<int64_t>(shown[i]))));
    for (const int64_t count : of.out) out += cell(count);
    out += cell(of.copies);
  }
  out += "</table></div>";
  if (shown.size() > kMostRankRows) {
    out += fmt::format("<p class=muted>{} more ranks have some.</p>",
                       shown.size() - kMostRankRows);
  }
  return out;
}

std::string CopiesList(const OfRanks& counts) {
  if (counts.with_copies == 0) {
    return "<p class=muted>No value has copies on several ranks.</p>";
  }
  if (counts.copies_differ == 0) {
    return fmt::format("<p>All copies agree ({} on several ranks).</p>",
                       Counted(counts.with_copies, "tensor") +
                           (counts.with_copies == 1 ? " lies" : " lie"));
  }
  std::string out = "<ul class=\"plain dash\">";
  for (const auto& [axis, of] : counts.along) {
    out += fmt::format("<li>Along <b>{}</b> copies of {} differ, by up to {}",
                       HtmlText(axis), Counted(of.first, "tensor"),
                       HtmlError(of.second));
  }
  return out + "</ul>";
}

}  // namespace

std::string RanksHtml(const ReportModel& model) {
  const ResultFile& result = *model.result;
  const OfRanks counts = CountByRank(model);
  if (counts.ranks.empty()) return "";
  const MeshPlaces places = PlacesOfSide(result.candidate);
  std::vector<RankMark> marks;
  for (const OfRank& rank : counts.ranks) {
    marks.push_back({rank.all, rank.copies, false});
  }
  std::string common;
  if (!result.culprits.empty()) {
    const std::vector<int64_t>& ranks = result.culprits.front().ranks;
    for (const int64_t rank : ranks) {
      if (rank >= 0 && rank < static_cast<int64_t>(marks.size())) {
        marks[static_cast<size_t>(rank)].blamed = true;
      }
    }
    common = CommonPlaces(places, ranks);
  }
  std::string caption = HtmlText(result.candidate.mesh) + ", " +
                        Counted(result.candidate.world_size, "rank");
  if (!places.axes.empty()) {
    caption += ", " + HtmlText(places.axes.back().name) + " from left to right";
  }
  if (places.assumed && places.axes.size() > 1) {
    caption += " (as its words order them)";
  }
  caption +=
      ". Stronger colour: more tensors out of bounds, over all iterations. "
      "Corner: holds other copies. Ring: where the first fault was seen.";
  if (result.candidate.world_size > kMostRanksShown) {
    caption += fmt::format(" Only the first {} are drawn.",
                           FormatCount(kMostRanksShown));
  }
  return "<div class=ranks><div><div class=scroll>" + MeshSvg(marks, places) +
         "</div><p class=muted>" + caption + "</p></div><div>" +
         (common.empty() ? ""
                         : "<p>The first fault is on <b>" + HtmlText(common) +
                               "</b>.</p>") +
         CopiesList(counts) + AxesTable(counts, places) +
         RankRows(counts, places) +
         (counts.unnamed > 0
              ? fmt::format("<p class=muted>{} out of bounds as a whole, on no "
                            "rank in particular.</p>",
                            Counted(counts.unnamed, "tensor") +
                                (counts.unnamed == 1 ? " is" : " are"))
              : "") +
         "</div></div>";
}

}  // namespace ttrace
