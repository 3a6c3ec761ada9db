// The lines of messages.jsonl, which processes of a run append to.
//
// Thread safety: reads the file system only.

#ifndef TTRACE_SRC_RUN_MESSAGE_LINES_H_
#define TTRACE_SRC_RUN_MESSAGE_LINES_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace ttrace {

// Each line that is a JSON object, in order. What is unreadable is passed over:
// messages only help to explain.
std::vector<nlohmann::json> ReadMessageLines(const std::string& trace_folder);

// The text at `key`, or "".
std::string MessageText(const nlohmann::json& message, const char* key);

}  // namespace ttrace

#endif  // TTRACE_SRC_RUN_MESSAGE_LINES_H_
