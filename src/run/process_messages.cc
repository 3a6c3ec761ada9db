#include "src/run/process_messages.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "src/base/format.h"
#include "src/run/last_error.h"
#include "src/run/message_lines.h"

namespace ttrace {
namespace {

constexpr size_t kLongestMessages = 400;

bool Flag(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_boolean() && found->get<bool>();
}

// "rank 3: text", where the process knew its rank.
std::string WithRank(const nlohmann::json& message, const std::string& text) {
  const std::string shown = ShortenMiddle(Printable(text), kLongestMessages);
  const std::string rank = MessageText(message, "rank");
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
  for (const nlohmann::json& message : ReadMessageLines(trace_folder)) {
    const std::string kind = MessageText(message, "kind");
    messages.loaded += kind == "loaded";
    if (kind == "refused") {
      AddOnce(&messages.refusals,
              WithRank(message, MessageText(message, "text")));
    } else if (kind == "error") {
      AddOnce(&messages.errors,
              WithRank(message, MessageText(message, "text")));
    } else if (kind == "ended") {
      ++messages.ended;
      messages.with_torch += Flag(message, "torch");
      messages.with_framework += Flag(message, "framework");
      const auto ran = message.find("iterations");
      if (ran != message.end() && ran->is_number_integer()) {
        messages.iterations =
            std::max(messages.iterations, ran->get<int64_t>());
      }
    }
  }
  std::stable_partition(messages.errors.begin(), messages.errors.end(),
                        [](const std::string& e) { return !IsConsequence(e); });
  return messages;
}

}  // namespace ttrace
