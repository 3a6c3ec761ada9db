#include "src/run/process_messages.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "src/base/format.h"
#include "src/run/last_error.h"
#include "src/trace/file.h"

namespace ttrace {
namespace {

constexpr size_t kMaxBytes = 16 << 20;
constexpr size_t kLongest = 400;

std::string Text(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string()
             ? found->get<std::string>()
             : "";
}

bool Flag(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_boolean() && found->get<bool>();
}

// "rank 3: text", where the process knew its rank.
std::string WithRank(const nlohmann::json& message, const std::string& text) {
  const std::string shown = ShortenMiddle(Printable(text), kLongest);
  const std::string rank = Text(message, "rank");
  return rank.empty() ? shown : "rank " + Printable(rank) + ": " + shown;
}

void AddOnce(std::vector<std::string>* list, const std::string& text) {
  if (std::find(list->begin(), list->end(), text) == list->end()) {
    list->push_back(text);
  }
}

}  // namespace

ProcessMessages ReadProcessMessages(const std::string& trace_folder) {
  ProcessMessages messages;
  const auto path = std::filesystem::path(trace_folder) / "messages.jsonl";
  const auto text = ReadWholeFile(path.string(), kMaxBytes);
  if (!text.ok()) return messages;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const auto message = nlohmann::json::parse(line, nullptr, false);
    if (!message.is_object()) continue;
    const std::string kind = Text(message, "kind");
    messages.loaded += kind == "loaded";
    if (kind == "refused") {
      AddOnce(&messages.refusals, WithRank(message, Text(message, "text")));
    } else if (kind == "error") {
      AddOnce(&messages.errors, WithRank(message, Text(message, "text")));
    } else if (kind == "ended") {
      ++messages.ended;
      messages.with_torch += Flag(message, "torch");
      messages.with_framework += Flag(message, "framework");
    }
  }
  std::stable_partition(messages.errors.begin(), messages.errors.end(),
                        [](const std::string& e) { return !IsConsequence(e); });
  return messages;
}

}  // namespace ttrace
