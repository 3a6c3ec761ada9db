#include "src/cli/progress_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/base/format.h"

namespace ttrace {
namespace {

std::string RateWords(double bytes_per_second) {
  if (bytes_per_second < 1) return "";
  return FormatBytes(bytes_per_second) + "/s";
}

std::string LeftWords(const std::optional<double>& seconds) {
  if (!seconds) return "";
  return "about " + DurationWords(*seconds) + " left";
}

nlohmann::ordered_json Rounded(const std::optional<double>& value) {
  if (!value) return nullptr;
  return std::round(*value * 1000) / 1000;
}

}  // namespace

std::string DurationWords(double seconds) {
  const int64_t whole = std::llround(std::max(seconds, 0.0));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600)
    return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
}

std::vector<std::string> ProgressWords(const std::string& who,
                                       const CaptureProgress& progress) {
  const std::string time = DurationWords(progress.seconds);
  if (progress.world_size == 0) {
    return {who + ": waiting for the first rank", time};
  }
  const auto volume = [&] {
    return std::vector<std::string>{
        FormatCount(progress.records) + " records",
        FormatBytes(static_cast<double>(progress.bytes))};
  };
  if (progress.ranks_closed >= progress.world_size) {
    std::vector<std::string> words = {who + ": capture has ended", time};
    for (std::string& word : volume()) words.push_back(std::move(word));
    return words;
  }
  std::vector<std::string> words;
  if (progress.iteration < 0) {
    words.push_back(who + ": before the first record");
  } else {
    words.push_back(fmt::format("{}: iteration {}", who, progress.iteration));
    words.push_back("leg " + Printable(progress.leg.name()));
  }
  if (progress.parts_total > 0) {
    words.push_back(fmt::format("{} of {} steps", FormatCount(progress.parts),
                                FormatCount(progress.parts_total)));
  } else if (progress.parts > 0) {
    words.push_back(FormatCount(progress.parts) +
                    (progress.parts == 1 ? " step" : " steps"));
  }
  if (progress.parts != progress.parts_total) {
    words.push_back(LeftWords(progress.seconds_left));
  }
  words.push_back(time);
  std::vector<std::string> last = volume();
  words.push_back(std::move(last[1]));
  words.push_back(RateWords(progress.bytes_per_second));
  words.push_back(std::move(last[0]));
  if (progress.ranks_closed > 0) {
    words.push_back(fmt::format("{} of {} ranks are done",
                                FormatCount(progress.ranks_closed),
                                FormatCount(progress.world_size)));
  }
  return words;
}

std::vector<std::string> ProgressWords(const std::string& who,
                                       const CheckProgress& progress) {
  const std::string time = DurationWords(progress.seconds);
  if (progress.tensors_total == 0) {
    return {who + ": reading what the traces hold", time};
  }
  if (progress.done >= 1) return {who + ": judging and explaining", time};
  return {
      fmt::format("{}: {} of {} tensors", who, FormatCount(progress.tensors),
                  FormatCount(progress.tensors_total)),
      fmt::format("{:.0f} %", std::floor(100 * progress.done)),
      LeftWords(progress.seconds_left),
      time,
      FormatBytes(static_cast<double>(progress.bytes)),
      RateWords(progress.bytes_per_second)};
}

nlohmann::ordered_json ProgressFields(const CaptureProgress& progress) {
  nlohmann::ordered_json fields;
  fields["ranks"] = progress.world_size;
  fields["ranks_done"] = progress.ranks_closed;
  if (progress.iteration < 0) {
    fields["iteration"] = nullptr;
    fields["leg"] = nullptr;
  } else {
    fields["iteration"] = progress.iteration;
    fields["leg"] = Printable(progress.leg.name());
  }
  fields["steps"] = progress.parts;
  if (progress.parts_total > 0) {
    fields["steps_total"] = progress.parts_total;
  } else {
    fields["steps_total"] = nullptr;
  }
  fields["records"] = progress.records;
  fields["bytes"] = progress.bytes;
  fields["bytes_per_second"] = Rounded(progress.bytes_per_second);
  fields["seconds"] = Rounded(progress.seconds);
  fields["seconds_left"] = Rounded(progress.seconds_left);
  return fields;
}

nlohmann::ordered_json ProgressFields(const CheckProgress& progress) {
  nlohmann::ordered_json fields;
  fields["tensors"] = progress.tensors;
  if (progress.tensors_total > 0) {
    fields["tensors_total"] = progress.tensors_total;
  } else {
    fields["tensors_total"] = nullptr;
  }
  fields["done"] = Rounded(progress.done);
  fields["bytes"] = progress.bytes;
  fields["bytes_per_second"] = Rounded(progress.bytes_per_second);
  fields["seconds"] = Rounded(progress.seconds);
  fields["seconds_left"] = Rounded(progress.seconds_left);
  return fields;
}

}  // namespace ttrace
