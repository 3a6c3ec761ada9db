#include "src/cli/inspected_leg.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "src/base/format.h"
#include "src/base/misspelling.h"
#include "src/experiment/leg_names.h"
#include "src/trace/format.h"
#include "src/trace/note_json.h"

namespace ttrace {
namespace {

std::string Listed(const std::vector<std::string>& names) {
  return Printable(fmt::format("{}", fmt::join(names, ", ")));
}

// Those of the trace and of its legs' folders.
std::vector<std::string> NamesOfLegs(const Trace& trace) {
  std::set<std::string> names;
  for (const Record& record : trace.records()) {
    names.insert(record.leg().name());
  }
  for (const std::string& folder : FindLegFolders(trace.folder())) {
    names.insert(std::filesystem::path(folder).filename().string());
  }
  return {names.begin(), names.end()};
}

// "noise" of noise.1 and noise.2.
std::vector<std::string> NumberedLegs(const std::vector<std::string>& names,
                                      const std::string& family) {
  std::vector<std::string> out;
  for (const std::string& name : names) {
    if (!name.starts_with(family + ".")) continue;
    const std::string number = name.substr(family.size() + 1);
    if (number.find_first_not_of("0123456789") == std::string::npos) {
      out.push_back(name);
    }
  }
  return out;
}

// Why a rank did not run it; "": none says.
std::string WhySkipped(const Trace& trace, const std::string& leg) {
  std::string why;
  ForEachNote(trace, {"leg_skipped"}, [&](const ParsedNote& note) {
    if (TextAt(note.json, "leg") == leg) why = TextAt(note.json, "reason");
  });
  return why;
}

}  // namespace

bool HoldsLeg(const Trace& trace, const Leg& leg) {
  for (const Record& record : trace.records()) {
    if (record.leg() == leg) return true;
  }
  return false;
}

Result<std::shared_ptr<const Trace>> OpenLegOf(const Trace& trace,
                                               const Leg& leg) {
  const std::string& name = leg.name();
  const std::vector<std::string> names = NamesOfLegs(trace);
  // No path out of the trace: it has to be one of those that are there.
  for (const std::string& folder : FindLegFolders(trace.folder())) {
    if (std::filesystem::path(folder).filename() != name) continue;
    return Trace::Open(folder, 0);
  }
  const std::string missing = "this trace has no leg '" + Printable(name) + "'";
  const std::string there = "; it has " + Listed(names);
  const auto family = NumberedLegs(names, name);
  if (!family.empty()) {
    return Error(ErrorCode::kNotFound,
                 missing + " without a number: give " +
                     (family.size() > 1 ? "one of " : "") + Listed(family));
  }
  const std::string why = WhySkipped(trace, name);
  if (!why.empty()) {
    return Error(ErrorCode::kNotFound,
                 missing + ": it was not run, as " + Printable(why) + there);
  }
  const auto known = ExpandLegs(name);
  if (!known.ok() || known->empty()) {
    return Error(ErrorCode::kNotFound, "there is no leg '" + Printable(name) +
                                           "'" + DidYouMean(name, names) +
                                           there);
  }
  const std::string way =
      leg.is_isolated() && !leg.is_noise()
          ? "record it with values of a reference: ttrace record --graft "
            "REFERENCE --legs "
          : "record it: ttrace record --legs ";
  return Error(ErrorCode::kNotFound, missing + there + "; " + way + name);
}

}  // namespace ttrace
