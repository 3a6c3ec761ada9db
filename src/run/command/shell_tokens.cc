#include "src/run/command/shell_tokens.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

namespace ttrace {
namespace {

constexpr std::string_view kOperatorLetters = "<>&|;";

bool IsIn(char c, std::string_view letters) {
  return letters.find(c) != std::string_view::npos;
}

class ShellTokenizer {
 public:
  explicit ShellTokenizer(const std::string& text) : text_(text) {}

  std::vector<ShellToken> Read() && {
    while (at_ < text_.size()) ReadOne();
    EndWord();
    return std::move(tokens_);
  }

 private:
  ShellToken& Word() {
    if (!word_) word_.emplace();
    return *word_;
  }

  void EndWord() {
    if (word_) tokens_.push_back(*std::move(word_));
    word_.reset();
  }

  void AddOperator(std::string text) {
    // The number of a file, as in "2>log", is no word of the command.
    const bool number =
        word_ && !word_->text.empty() &&
        std::all_of(word_->text.begin(), word_->text.end(),
                    [](char c) { return c >= '0' && c <= '9'; });
    if (number && IsIn(text.front(), "<>")) word_.reset();
    EndWord();
    tokens_.push_back({std::move(text), true, true});
  }

  void ReadOne() {
    const char c = text_[at_];
    if (c == '\'' || c == '"') {
      ReadQuoted(c);
    } else if (c == '\\') {
      ++at_;
      // A line that goes on.
      if (at_ < text_.size() && text_[at_] != '\n') Word().text += text_[at_];
      ++at_;
    } else if (IsIn(c, kOperatorLetters)) {
      const size_t end = std::min(
          text_.find_first_not_of(kOperatorLetters, at_), text_.size());
      AddOperator(text_.substr(at_, end - at_));
      at_ = end;
    } else if (c == '(' || c == ')' || c == '\n') {
      AddOperator(c == '\n' ? ";" : std::string(1, c));
      ++at_;
    } else if (IsIn(c, " \t\r")) {
      EndWord();
      ++at_;
    } else if (c == '#' && !word_) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else {
      const bool home = c == '~' && !word_;
      Word().text += c;
      if (home || IsIn(c, "$`*?[")) word_->is_literal = false;
      ++at_;
    }
  }

  void ReadQuoted(char quote) {
    Word();  // an empty one is a word, too
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size() &&
          IsIn(text_[at_ + 1], "\"\\$`\n")) {
        ++at_;
        if (text_[at_] == '\n') continue;
      } else if (quote == '"' && IsIn(text_[at_], "$`")) {
        word_->is_literal = false;
      }
      word_->text += text_[at_];
    }
    ++at_;
  }

  const std::string& text_;
  size_t at_ = 0;
  std::optional<ShellToken> word_;  // that is being read
  std::vector<ShellToken> tokens_;
};

}  // namespace

std::vector<ShellToken> ShellTokens(const std::string& command) {
  return ShellTokenizer(command).Read();
}

}  // namespace ttrace
