// SARIF 2.1.0, OASIS standard of 27 March 2020:
// https://docs.oasis-open.org/sarif/sarif/v2.1.0/

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

#include "src/base/format.h"
#include "src/localize/bug_class.h"
#include "src/report/exports/exports.h"
#include "src/report/exports/place_words.h"
#include "ttrace/version.h"

namespace ttrace {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kNoClass = "unclassified";
constexpr const char* kInconclusive = "inconclusive";

// As RFC 3986 has a path: relative to `root`, or an absolute file.
std::string Uri(std::string file, const std::string& root, bool* is_relative) {
  if (!root.empty()) {
    const std::string folder = root.back() == '/' ? root : root + "/";
    if (file.rfind(folder, 0) == 0) file.erase(0, folder.size());
  }
  *is_relative = file.empty() || file.front() != '/';
  std::string out = *is_relative ? "" : "file://";
  for (const char c : file) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) != 0 ||
                                       std::string_view("/-._~").find(c) !=
                                           std::string_view::npos);
    out += plain ? std::string(1, c) : fmt::format("%{:02X}", byte);
  }
  return out;
}

std::string RuleOf(const ResultFile::Place& place) {
  return place.classes.empty() ? kNoClass : place.classes.front().letter;
}

Json TextJson(const std::string& text) { return {{"text", Printable(text)}}; }

// Several lines, each printable.
Json LinesJson(const std::string& first,
               const std::vector<std::string>& others) {
  std::string text = first;
  for (const std::string& line : others) text += "\n" + line;
  return {{"text", std::move(text)}};
}

Json Rules(const ResultFile& result) {
  std::map<std::string, std::string> rules = {
      {kNoClass, "The tensor is out of bounds, and no class of bug fits."},
      {kInconclusive, "It could not be decided whether the runs agree."}};
  for (const auto* places : {&result.culprits, &result.contested}) {
    for (const ResultFile::Place& place : *places) {
      if (!place.classes.empty()) {
        // A rule is of all places, its name none of one of them.
        const std::string_view name = NameOfLetter(RuleOf(place));
        rules.emplace(RuleOf(place),
                      name.empty() ? place.classes.front().name : name);
      }
    }
  }
  Json out = Json::array();
  for (const auto& [id, words] : rules) {
    out.push_back({{"id", id}, {"shortDescription", TextJson(words)}});
  }
  return out;
}

Json Locations(const ResultFile::Place& place, const std::string& root) {
  Json out = {{"logicalLocations",
               Json::array({{{"fullyQualifiedName", PlaceName(place.fqn)},
                             {"kind", "module"}}})}};
  if (!place.source_file.empty()) {
    bool is_relative = false;
    Json file = {{"uri", Uri(place.source_file, root, &is_relative)}};
    if (is_relative) file["uriBaseId"] = "SRCROOT";
    Json physical = {{"artifactLocation", std::move(file)}};
    if (place.source_line > 0) {
      physical["region"] = {{"startLine", place.source_line}};
    }
    out["physicalLocation"] = std::move(physical);
  }
  return Json::array({std::move(out)});
}

// The same place in the result of another day: what is found there may have
// another size.
std::string Fingerprint(const ResultFile::Place& place) {
  const std::string text = place.fqn + '\n' + place.role + '\n' +
                           place.direction + '\n' + place.stage + '\n' +
                           RuleOf(place);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

Json PlaceResult(const ResultFile::Place& place, const char* level,
                 const std::string& root) {
  return {{"ruleId", RuleOf(place)},
          {"level", level},
          {"message", LinesJson(PlaceHeading(place), PlaceLines(place))},
          {"locations", Locations(place, root)},
          {"partialFingerprints", {{"place/v1", Fingerprint(place)}}}};
}

}  // namespace

std::string RenderSarif(const ResultFile& result, const std::string& root) {
  Json results = Json::array();
  for (const ResultFile::Place& place : result.culprits) {
    results.push_back(PlaceResult(place, "error", root));
  }
  for (const ResultFile::Place& place : result.contested) {
    results.push_back(PlaceResult(place, "note", root));
  }
  if (result.verdict == kInconclusive) {
    results.push_back({{"ruleId", kInconclusive},
                       {"level", "warning"},
                       {"message", TextJson(result.reason)}});
  }
  const Json driver = {{"name", "TTrace"},
                       {"version", std::string(kVersion)},
                       {"rules", Rules(result)}};
  const Json run = {
      {"tool", {{"driver", driver}}},
      {"invocations",
       Json::array({{{"executionSuccessful", true},
                     {"exitCode", result.exit_code},
                     {"exitCodeDescription", Printable(result.reason)}}})},
      {"results", std::move(results)}};
  const Json log = {
      {"$schema",
       "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/"
       "sarif-schema-2.1.0.json"},
      {"version", "2.1.0"},
      {"runs", Json::array({run})}};
  return log.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace ttrace
