#include "src/report/html/mesh_drawing.h"

#include <fmt/format.h>

#include <algorithm>

#include "src/base/count_words.h"
#include "src/report/html/html_text.h"
#include "src/report/html/severity.h"

namespace ttrace {
namespace {

constexpr size_t kMostAcross = 32;
constexpr size_t kMostDown = 40;
constexpr size_t kMostWithNumbers = 256;
constexpr size_t kMeshWidth = 460;  // pixels
constexpr size_t kGroupGap = 8;
constexpr size_t kPanelGap = 14;

// Colour by share of the rank that has most.
Severity LevelOf(int64_t count, int64_t most) {
  if (count == 0) return Severity::kEqual;
  if (count * 3 < most) return Severity::kOut;
  return count * 3 < most * 2 ? Severity::kFarOut : Severity::kVeryFarOut;
}

// How many ranks stand side by side, below each other in a panel, and how many
// panels there are.
struct MeshForm {
  size_t square = 30;
  size_t inner = 1;  // of the last axis
  size_t wide = 1;
  size_t down = 1;
  size_t panels = 1;
  size_t panels_a_line = 1;
  size_t label = 0;       // height above a panel
  size_t outer_axes = 0;  // that tell panels apart

  size_t step() const { return square + 3; }
  size_t panel_width() const {
    return wide * step() + (wide - 1) / inner * kGroupGap;
  }
  size_t panel_height() const { return label + down * step(); }
  size_t width() const {
    return std::min(panels, panels_a_line) * (panel_width() + kPanelGap);
  }
  size_t height() const {
    return (panels + panels_a_line - 1) / panels_a_line *
               (panel_height() + kPanelGap / 2) +
           4;
  }
  size_t x(size_t slot) const {
    const size_t column = slot % wide;
    return 2 + Panel(slot) % panels_a_line * (panel_width() + kPanelGap) +
           column * step() + column / inner * kGroupGap;
  }
  size_t y(size_t slot) const {
    return 2 + label +
           Panel(slot) / panels_a_line * (panel_height() + kPanelGap / 2) +
           slot / wide % down * step();
  }

 private:
  size_t Panel(size_t slot) const { return slot / (wide * down); }
};

MeshForm FormOf(const MeshPlaces& places, size_t world) {
  MeshForm form;
  form.square = world <= kMostWithNumbers ? 30 : 9;
  size_t axis = places.axes.size();
  const auto next = [&] {
    return static_cast<size_t>(places.axes[axis - 1].size);
  };
  if (axis == 0) {
    form.wide = form.inner = std::min<size_t>(world, 16);
  } else {
    form.wide = form.inner = std::min(next(), kMostAcross);
    const bool whole = next() <= kMostAcross;
    --axis;
    if (whole && axis > 0 && form.wide * next() <= kMostAcross / 2) {
      form.wide *= next();
      --axis;
    }
  }
  const size_t rows = (world + form.wide - 1) / form.wide;
  while (axis > 0 && form.down * next() <= kMostDown) {
    form.down *= next();
    --axis;
  }
  if (form.down == 1) form.down = std::min(rows, kMostDown);
  form.outer_axes = axis;
  form.panels = (rows + form.down - 1) / form.down;
  form.label = form.panels > 1 && axis > 0 ? 13 : 0;
  form.panels_a_line =
      std::max<size_t>(1, kMeshWidth / (form.panel_width() + kPanelGap));
  return form;
}

// Place of each rank in the drawing: by its coordinates, row-major.
std::vector<size_t> SlotsOf(const MeshPlaces& places, size_t world) {
  std::vector<size_t> slots(world);
  for (size_t rank = 0; rank < world; ++rank) {
    slots[rank] = rank;
    if (rank >= places.coordinates.size()) continue;
    const auto& at = places.coordinates[rank];
    if (at.size() != places.axes.size() || at.empty()) continue;
    size_t slot = 0;
    bool inside = true;
    for (size_t i = 0; i < at.size(); ++i) {
      inside = inside && at[i] >= 0 && at[i] < places.axes[i].size;
      slot = slot * static_cast<size_t>(places.axes[i].size) +
             static_cast<size_t>(std::max<int64_t>(at[i], 0));
      inside = inside && slot < world;
    }
    // A grid with holes or of other ranks: one after the other.
    if (!inside) return SlotsOf({}, world);
    slots[rank] = slot;
  }
  return slots;
}

std::string PanelLabels(const MeshForm& form, const MeshPlaces& places,
                        const std::vector<size_t>& slots) {
  std::string svg;
  if (form.label == 0) return svg;
  MeshPlaces outer = places;
  outer.axes.resize(form.outer_axes);
  for (size_t rank = 0; rank < slots.size(); ++rank) {
    if (slots[rank] % (form.wide * form.down) != 0) continue;
    svg +=
        fmt::format("<text x={} y={}>{}</text>", form.x(slots[rank]),
                    form.y(slots[rank]) - 4,
                    HtmlText(PlaceOfRank(outer, static_cast<int64_t>(rank))));
  }
  return svg;
}

std::string RankSquare(size_t rank, const RankMark& mark, int64_t most,
                       size_t x, size_t y, const MeshForm& form,
                       const std::string& place, bool with_title) {
  const auto level = static_cast<int>(LevelOf(mark.out, most));
  const size_t size = form.square;
  std::string svg = fmt::format("<rect class=s{} x={} y={} width={} height={}>",
                                level, x, y, size, size);
  if (with_title) {
    svg += fmt::format(
        "<title>rank {}{}: {} out of bounds{}</title>", rank,
        place.empty() ? "" : " (" + HtmlText(place) + ")",
        Counted(mark.out, "tensor"),
        mark.copies > 0 ? "; other copies of " + Counted(mark.copies, "tensor")
                        : "");
  }
  svg += "</rect>";
  if (size > 20) {
    svg += fmt::format("<text class=t{} x={} y={} text-anchor=middle>{}</text>",
                       level, x + size / 2, y + size / 2 + 4, rank);
  }
  if (mark.copies > 0) {
    svg += fmt::format("<path class=copies d=\"M{} {}h{}v{}z\"/>",
                       x + size - size / 3, y, size / 3, size / 3);
  }
  if (mark.blamed) {
    svg += fmt::format("<rect class=ring x={} y={} width={} height={} />",
                       x - 1, y - 1, size + 2, size + 2);
  }
  return svg;
}

}  // namespace

std::string MeshSvg(const std::vector<RankMark>& marks,
                    const MeshPlaces& places) {
  const size_t world = marks.size();
  int64_t most = 1;
  for (const RankMark& mark : marks) most = std::max(most, mark.out);
  const std::vector<size_t> slots = SlotsOf(places, world);
  const MeshForm form = FormOf(places, world);
  std::string svg = PanelLabels(form, places, slots);
  for (size_t rank = 0; rank < world; ++rank) {
    const RankMark& mark = marks[rank];
    // A thousand titles of "nothing" would be most of the page.
    const bool with_title =
        world <= kMostWithNumbers || mark.out > 0 || mark.copies > 0;
    svg += RankSquare(
        rank, mark, most, form.x(slots[rank]), form.y(slots[rank]), form,
        with_title ? PlaceOfRank(places, static_cast<int64_t>(rank)) : "",
        with_title);
  }
  return fmt::format(
      "<svg class=mesh width={0} height={1} viewBox=\"0 0 {0} {1}\" role=img "
      "aria-label=\"Ranks of the candidate\">{2}</svg>",
      form.width(), form.height(), svg);
}

}  // namespace ttrace
