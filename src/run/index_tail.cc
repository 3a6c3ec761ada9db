#include "src/run/index_tail.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>

#include "src/trace/file.h"
#include "src/trace/format.h"

namespace ttrace {
namespace {

// The text after the first `key` in `line`. What stands before it in the lines
// that are asked is made of numbers, so that no name can be taken for a key.
std::optional<std::string_view> After(std::string_view line,
                                      std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(at + key.size());
}

std::optional<std::pair<int, Leg>> ExecutionOf(std::string_view line) {
  const auto iteration = After(line, "\"iteration\":");
  const auto leg = After(line, "\"leg\":\"");
  if (!iteration || !leg) return std::nullopt;
  int number = -1;
  std::from_chars(iteration->data(), iteration->data() + iteration->size(),
                  number);
  const size_t end = leg->find('"');
  if (number < 0 || end == 0 || end == std::string_view::npos) {
    return std::nullopt;
  }
  return std::pair(number, Leg(leg->substr(0, end)));
}

}  // namespace

void IndexTail::Update() {
  // Longer than any line, and thousands of usual ones.
  constexpr size_t kMost = 4 * kMaxIndexLineBytes;
  const Result<File> file = File::Open(path_);
  if (!file.ok()) return;
  const Result<int64_t> size = file->Size();
  if (!size.ok() || *size <= position_) return;
  std::string text(std::min(static_cast<size_t>(*size - position_), kMost),
                   '\0');
  const Result<size_t> got =
      file->ReadAt(std::as_writable_bytes(std::span<char>(text)), position_);
  if (!got.ok()) return;
  text.resize(*got);
  size_t begin = 0;
  for (size_t end = text.find('\n'); end != std::string::npos;
       end = text.find('\n', begin)) {
    Take(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
  position_ += static_cast<int64_t>(begin);
}

void IndexTail::Take(std::string_view line) {
  constexpr std::string_view kRecordLine = R"({"type":"record",)";
  constexpr std::string_view kSealLine = R"({"type":"seal",)";
  const bool seal = line.starts_with(kSealLine);
  if (!seal && !line.starts_with(kRecordLine)) return;
  records_ += !seal;
  auto execution = ExecutionOf(line);
  if (!execution) return;
  std::tie(iteration_, leg_) = *execution;
  if (seal) sealed_.push_back(*std::move(execution));
}

}  // namespace ttrace
