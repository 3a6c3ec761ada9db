#include "src/report/exports/place_words.h"

#include <fmt/format.h>

#include "src/base/format.h"

namespace ttrace {

std::string PlaceName(const std::string& fqn) {
  return fqn.empty() ? "(the model itself)" : Printable(fqn);
}

std::string PlaceTitle(const ResultFile::Place& place) {
  std::string out = fmt::format(
      "{}, {}, {}, iteration {}", Printable(place.role),
      Printable(place.direction), Printable(place.stage), place.iteration);
  if (place.ranks.empty()) return out;
  return out + ", " + FormatRanks(place.ranks, 0);
}

std::string PlaceHeading(const ResultFile::Place& place) {
  return PlaceName(place.fqn) + ": " + PlaceTitle(place);
}

std::vector<std::string> PlaceLines(const ResultFile::Place& place) {
  std::vector<std::string> out;
  if (!place.source_text.empty()) out.push_back(Printable(place.source_text));
  if (!place.name_in_candidate.empty()) {
    out.push_back("in the candidate: " + Printable(place.name_in_candidate));
  }
  if (!place.where.empty()) out.push_back(Printable(place.where));
  out.push_back(fmt::format("headroom {}: its error is so many times its bound",
                            FormatHeadroom(place.headroom)));
  if (place.affected > 1) {
    out.push_back(
        fmt::format("{} of {} {} tensors show it", FormatCount(place.affected),
                    FormatCount(place.affected_of), Printable(place.role)));
  }
  for (const ResultFile::Class& one : place.classes) {
    out.push_back(fmt::format("class {}, {}: {}", Printable(one.letter),
                              Printable(one.name), Printable(one.evidence)));
  }
  for (const std::string& hint : place.hints) {
    out.push_back("look at: " + Printable(hint));
  }
  return out;
}

}  // namespace ttrace
