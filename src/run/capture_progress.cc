#include "src/run/capture_progress.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <vector>

#include "src/trace/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

// Shorter, and a rate would jump with every flush; longer, and it would be that
// of another leg.
constexpr double kRateSeconds = 5;

// -1: it is not there.
int64_t SizeOfSegment(const std::string& folder, int segment) {
  std::error_code missing;
  const auto size =
      fs::file_size(fs::path(folder) / SegmentFileName(segment), missing);
  return missing ? -1 : static_cast<int64_t>(size);
}

}  // namespace

CaptureMeter::Rank::Rank(int restart_, std::string folder_)
    : restart(restart_),
      folder(std::move(folder_)),
      index((fs::path(folder) / kIndexFile).string()) {}

void CaptureMeter::FindRanks() {
  std::error_code ignored;
  for (const fs::directory_entry& entry :
       fs::directory_iterator(folder_, ignored)) {
    const auto name = ParseRankFolderName(entry.path().filename().string());
    if (!name) continue;
    const auto known = ranks_.find(name->rank);
    if (known != ranks_.end() && known->second.restart >= name->restart) {
      continue;
    }
    ranks_.insert_or_assign(name->rank,
                            Rank(name->restart, entry.path().string()));
  }
}

void CaptureMeter::Measure(Rank* rank) {
  rank->index.Update();
  int64_t size = SizeOfSegment(rank->folder, rank->segment);
  if (size < 0) return;
  // A segment is done with when the next one is there.
  for (int64_t next = 0;
       (next = SizeOfSegment(rank->folder, rank->segment + 1)) >= 0;) {
    rank->bytes_before += SizeOfSegment(rank->folder, rank->segment);
    ++rank->segment;
    size = next;
  }
  const int64_t headers = kSegmentHeaderBytes * (rank->segment + 1);
  rank->bytes = std::max(rank->bytes, rank->bytes_before + size - headers);
}

PartsToCome CaptureMeter::ToCome(const Rank& slowest) const {
  const int fp32_legs = cost_ ? cost_->fp32_legs : 0;
  const int plain_legs = 1 + (cost_ ? cost_->legs - fp32_legs : 0);
  PartsToCome parts;
  parts.fp32 = iterations_.count() * fp32_legs;
  parts.as_trained = iterations_.count() * plain_legs;
  for (const auto& [iteration, leg] : slowest.index.sealed()) {
    --(leg.is_fp32() ? parts.fp32 : parts.as_trained);
  }
  return parts;
}

CaptureProgress CaptureMeter::Look(double seconds) {
  FindRanks();
  CaptureProgress progress;
  progress.seconds = seconds;
  Rank* slowest = nullptr;
  for (auto& [number, rank] : ranks_) {
    Measure(&rank);
    progress.records += rank.index.records();
    progress.bytes += rank.bytes;
    if (slowest == nullptr ||
        rank.index.sealed().size() < slowest->index.sealed().size()) {
      slowest = &rank;
    }
  }
  if (slowest == nullptr) return progress;
  progress.iteration = slowest->index.iteration();
  progress.leg = slowest->index.leg();
  const auto& sealed = slowest->index.sealed();
  progress.parts = static_cast<int>(sealed.size());
  if (sealed.size() > parts_) {
    std::vector<Leg> ended;
    for (size_t i = parts_; i < sealed.size(); ++i) {
      ended.push_back(sealed[i].second);
    }
    time_left_.Ended(ended, seconds);
    parts_ = sealed.size();
  }
  if (!has_reruns_ || cost_) {
    progress.parts_total =
        iterations_.count() * (1 + (cost_ ? cost_->legs : 0));
    progress.seconds_left = time_left_.Of(ToCome(*slowest), seconds);
  }

  bytes_then_.emplace_back(seconds, progress.bytes);
  while (bytes_then_.size() > 2 &&
         seconds - bytes_then_[1].first >= kRateSeconds) {
    bytes_then_.pop_front();
  }
  const auto& [then, before] = bytes_then_.front();
  if (seconds > then) {
    progress.bytes_per_second =
        static_cast<double>(progress.bytes - before) / (seconds - then);
  }
  return progress;
}

}  // namespace ttrace
