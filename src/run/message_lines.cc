#include "src/run/message_lines.h"

#include <filesystem>
#include <sstream>
#include <utility>

#include "src/trace/file.h"
#include "src/trace/note_json.h"

namespace ttrace {

std::vector<nlohmann::json> ReadMessageLines(const std::string& trace_folder) {
  constexpr size_t kMaxBytes = 16 << 20;
  std::vector<nlohmann::json> out;
  const auto path = std::filesystem::path(trace_folder) / "messages.jsonl";
  const auto text = ReadWholeFile(path.string(), kMaxBytes);
  if (!text.ok()) return out;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    auto message = ParseJson(line);
    if (message.is_object()) out.push_back(std::move(message));
  }
  return out;
}

std::string MessageText(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string()
             ? found->get<std::string>()
             : "";
}

}  // namespace ttrace
