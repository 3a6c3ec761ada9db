#include "fuzz/mutation.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <regex>
#include <utility>

#include "src/base/check.h"
#include "src/trace/format.h"

namespace ttrace {
namespace {

namespace fs = std::filesystem;

std::string Bytes(const std::string& path, int64_t offset, size_t count) {
  std::string bytes(count, '\0');
  const int file = ::open(path.c_str(), O_RDONLY);
  TTRACE_CHECK(file >= 0, path);
  const ssize_t got = ::pread(file, bytes.data(), count, offset);
  ::close(file);
  bytes.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return bytes;
}

void SetBytes(const std::string& path, int64_t offset,
              const std::string& bytes) {
  const int file = ::open(path.c_str(), O_WRONLY);
  TTRACE_CHECK(file >= 0, path);
  const ssize_t put = ::pwrite(file, bytes.data(), bytes.size(), offset);
  ::close(file);
  TTRACE_CHECK(put == static_cast<ssize_t>(bytes.size()), path);
}

void Swap(const std::string& a, const std::string& b) {
  const std::string spare = a + ".spare";
  fs::rename(a, spare);
  fs::rename(b, a);
  fs::rename(spare, b);
}

}  // namespace

class Mutator {
 public:
  Mutator(const Pair& pair, std::mt19937_64& random, Mutation* out)
      : pair_(pair), random_(random), out_(out) {}

  // Damage of bytes.

  void FlipInTensor() {
    const RankFiles& rank = Rank();
    if (rank.tensors.empty()) return;
    const Extent& at = Pick(rank.tensors);
    Flip(SegmentOf(rank, at), at.offset, at.bytes);
  }
  void FlipInIndex() {
    const RankFiles& rank = Rank();
    Flip(rank.index, 0, Size(rank.index));
  }
  void FlipInMeta() {
    const RankFiles& rank = Rank();
    Flip(rank.meta, 0, Size(rank.meta));
  }
  void FlipInManifest() {
    const TraceFiles& side = Side();
    Flip(side.manifest, 0, Size(side.manifest));
  }
  void FlipInHeader() {
    const RankFiles& rank = Rank();
    if (rank.segments.empty()) return;
    // The entries, mostly, and now and then the padding.
    const int64_t end = Below(8) == 0 ? kSegmentHeaderBytes : 4096;
    Flip(Pick(rank.segments), 0, end);
  }
  void ZeroTensor() {
    const RankFiles& rank = Rank();
    if (rank.tensors.empty()) return;
    const Extent& at = Pick(rank.tensors);
    Overwrite(SegmentOf(rank, at), at.offset,
              std::string(static_cast<size_t>(at.bytes), '\0'));
  }
  void ReplaceTensor() {
    const RankFiles& from = Rank();
    const RankFiles& to = Rank();
    if (from.tensors.empty() || to.tensors.empty()) return;
    const Extent& source = Pick(from.tensors);
    const Extent& target = Pick(to.tensors);
    Overwrite(SegmentOf(to, target), target.offset,
              Bytes(SegmentOf(from, source), source.offset,
                    static_cast<size_t>(std::min(source.bytes, target.bytes))));
  }
  void Scribble() {
    const RankFiles& rank = Rank();
    const std::string path = AnyFile(rank);
    const int64_t size = Size(path);
    if (size == 0) return;
    const int64_t at = Below(size);
    std::string bytes(
        static_cast<size_t>(std::min<int64_t>(size - at, 1 + Below(4096))),
        '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    Overwrite(path, at, bytes);
  }

  // Damage of files.

  void CutSegment() {
    const RankFiles& rank = Rank();
    if (rank.segments.empty()) return;
    Cut(Pick(rank.segments));
  }
  void CutMeta() { Cut(Below(4) == 0 ? Side().manifest : Rank().meta); }
  void RemoveFile() {
    const RankFiles& rank = Rank();
    Move(Below(8) == 0 ? Side().manifest : AnyFile(rank));
  }
  void RemoveRank() { Move(Rank().folder); }
  void SwapSegmentsOfRanks() {
    const TraceFiles& side = Side();
    const RankFiles& a = Pick(side.ranks);
    const RankFiles& b = Pick(side.ranks);
    if (a.segments.empty() || b.segments.empty()) return;
    SwapFiles(Pick(a.segments), Pick(b.segments));
  }
  void SwapSegmentsOfSides() {
    const RankFiles& a = Pick(pair_.reference.ranks);
    const RankFiles& b = Pick(pair_.candidate.ranks);
    if (a.segments.empty() || b.segments.empty()) return;
    SwapFiles(Pick(a.segments), Pick(b.segments));
  }
  void SwapIndices() {
    const RankFiles& a = Rank();
    const RankFiles& b = Rank();
    SwapFiles(a.index, b.index);
  }
  void SwapRanks() {
    const TraceFiles& side = Side();
    SwapFiles(Pick(side.ranks).folder, Pick(side.ranks).folder);
  }
  void TakeRankOfOtherRun() {
    const auto i = static_cast<size_t>(
        Below(static_cast<int64_t>(pair_.candidate.ranks.size())));
    if (pair_.candidate.ranks.size() < 2) return;  // All of it is another run.
    SwapFiles(pair_.candidate.ranks[i].folder, pair_.other_run.ranks[i].folder);
  }
  void TakeSegmentOfOtherRun() {
    const auto i = static_cast<size_t>(
        Below(static_cast<int64_t>(pair_.candidate.ranks.size())));
    const RankFiles& a = pair_.candidate.ranks[i];
    const RankFiles& b = pair_.other_run.ranks[i];
    if (a.segments.empty() || a.segments.size() != b.segments.size()) return;
    const auto s =
        static_cast<size_t>(Below(static_cast<int64_t>(a.segments.size())));
    SwapFiles(a.segments[s], b.segments[s]);
  }

  // Damage of lines.

  void RemoveLines() {
    EditLines([&](std::vector<std::string>* lines) {
      const size_t at = IndexIn(*lines);
      const size_t count = 1 + static_cast<size_t>(Below(4));
      const size_t end = std::min(lines->size(), at + count);
      lines->erase(lines->begin() + static_cast<std::ptrdiff_t>(at),
                   lines->begin() + static_cast<std::ptrdiff_t>(end));
    });
  }
  void RepeatLine() {
    EditLines([&](std::vector<std::string>* lines) {
      const std::string line = Pick(*lines);
      lines->insert(
          lines->begin() + static_cast<std::ptrdiff_t>(IndexIn(*lines)), line);
    });
  }
  void SwapLines() {
    EditLines([&](std::vector<std::string>* lines) {
      std::swap((*lines)[IndexIn(*lines)], (*lines)[IndexIn(*lines)]);
    });
  }
  void EditLine() {
    EditLines([&](std::vector<std::string>* lines) {
      EditNumber(&(*lines)[IndexIn(*lines)]);
    });
  }

  // What a killed process leaves.

  void CutIndex() { Cut(Rank().index); }
  void KillRanks() {
    // All ranks of a side, each at a line of its own.
    const TraceFiles& side = Side();
    for (const RankFiles& rank : side.ranks) {
      std::vector<std::string> lines = SplitLines(ReadText(rank.index));
      lines.resize(
          static_cast<size_t>(Below(static_cast<int64_t>(lines.size()) + 1)));
      std::string index;
      for (const std::string& line : lines) index += line;
      Replace(rank.index, index);
    }
    Say(side.folder, "all ranks killed");
  }

  // Forgery: checksums are made to fit.

  void ForgeNumbers() {
    ForgeLines([&](std::vector<std::string>* lines) {
      for (int64_t i = 1 + Below(3); i > 0; --i) {
        EditNumber(&(*lines)[IndexIn(*lines)]);
      }
    });
  }
  void ForgeShape() {
    // A batch that is declared to be huge, of one tensor or of all.
    const bool all = Below(2) == 0;
    const int64_t huge = int64_t{1} << (20 + Below(43));
    ForgeLines([&](std::vector<std::string>* lines) {
      std::vector<std::string*> batches;
      for (std::string& line : *lines) {
        if (line.find("\"batch_dim\":") != std::string::npos) {
          batches.push_back(&line);
        }
      }
      if (batches.empty()) return;
      const size_t chosen = IndexIn(batches);
      for (size_t i = 0; i < batches.size(); ++i) {
        if (all || i == chosen) DeclareRows(batches[i], huge);
      }
    });
  }
  void ForgeRemoval() {
    ForgeLines([&](std::vector<std::string>* lines) {
      std::erase_if(*lines, [&](const std::string& line) {
        const bool seal = line.find("\"type\":\"seal\"") != std::string::npos;
        return Below(seal ? 2 : 16) == 0;
      });
    });
  }
  void ForgeWords() {
    ForgeLines([&](std::vector<std::string>* lines) {
      // The role, dtype, placement, ... of one line in another.
      static const std::regex field(
          "\"(role|dtype|pass|placements|leg|fqn|arg|"
          "kind)\":\"([^\"]*)\"");
      std::string& line = (*lines)[IndexIn(*lines)];
      const std::string& other = (*lines)[IndexIn(*lines)];
      std::smatch mine;
      std::smatch theirs;
      if (!std::regex_search(line, mine, field) ||
          !std::regex_search(other, theirs, field)) {
        return;
      }
      line.replace(static_cast<size_t>(mine.position(2)),
                   static_cast<size_t>(mine.length(2)), theirs.str(2));
    });
  }

 private:
  int64_t Below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }
  template <typename T>
  size_t IndexIn(const std::vector<T>& all) {
    return static_cast<size_t>(Below(static_cast<int64_t>(all.size())));
  }
  template <typename T>
  const T& Pick(const std::vector<T>& all) {
    return all[IndexIn(all)];
  }
  const TraceFiles& Side() {
    return Below(2) == 0 ? pair_.reference : pair_.candidate;
  }
  const RankFiles& Rank() { return Pick(Side().ranks); }
  std::string AnyFile(const RankFiles& rank) {
    const int64_t which = Below(4);
    if (which == 0) return rank.meta;
    if (which == 1 || rank.segments.empty()) return rank.index;
    return Pick(rank.segments);
  }
  static std::string SegmentOf(const RankFiles& rank, const Extent& at) {
    return rank.folder + "/" + SegmentFileName(at.segment);
  }
  static int64_t Size(const std::string& path) {
    return static_cast<int64_t>(fs::file_size(path));
  }
  void Say(const std::string& path, const std::string& what) {
    out_->what_ += (out_->what_.empty() ? "" : "; ") + path + ": " + what;
  }
  void OnUndo(std::function<void()> undo) {
    out_->undo_.push_back(std::move(undo));
  }

  void Flip(const std::string& path, int64_t begin, int64_t size) {
    if (size == 0) return;
    const int64_t at = begin + Below(size);
    const std::string before = Bytes(path, at, 1);
    if (before.empty()) return;
    const auto flipped = static_cast<char>(before[0] ^ (1 << Below(8)));
    Overwrite(path, at, std::string(1, flipped));
  }
  void Overwrite(const std::string& path, int64_t at,
                 const std::string& bytes) {
    const std::string before = Bytes(path, at, bytes.size());
    if (before == bytes) return;
    SetBytes(path, at, bytes);
    OnUndo([=] { SetBytes(path, at, before); });
    Say(path, std::to_string(bytes.size()) + " bytes at " + std::to_string(at));
  }
  void Replace(const std::string& path, const std::string& text) {
    const std::string before = ReadText(path);
    if (before == text) return;
    WriteText(path, text);
    OnUndo([=] { WriteText(path, before); });
  }
  void Cut(const std::string& path) {
    const int64_t size = Size(path);
    if (size == 0) return;
    const int64_t left = Below(size);
    const std::string rest =
        Bytes(path, left, static_cast<size_t>(size - left));
    TTRACE_CHECK(::truncate(path.c_str(), left) == 0, path);
    OnUndo([=] { SetBytes(path, left, rest); });
    Say(path, "cut at " + std::to_string(left));
  }
  void Move(const std::string& path) {
    // Beside the trace, where nobody looks.
    const std::string away = pair_.other_run.folder + ".away";
    fs::rename(path, away);
    OnUndo([=] { fs::rename(away, path); });
    Say(path, "removed");
  }
  void SwapFiles(const std::string& a, const std::string& b) {
    if (a == b) return;
    Swap(a, b);
    OnUndo([=] { Swap(a, b); });
    Say(a, "swapped with " + b);
  }
  void EditLines(const std::function<void(std::vector<std::string>*)>& edit) {
    const RankFiles& rank = Rank();
    std::vector<std::string> lines = SplitLines(ReadText(rank.index));
    if (lines.empty()) return;
    edit(&lines);
    std::string index;
    for (const std::string& line : lines) index += line;
    Replace(rank.index, index);
    Say(rank.index, "lines edited");
  }
  void ForgeLines(const std::function<void(std::vector<std::string>*)>& edit) {
    // Of both sides and all their ranks alike, or of one rank.
    const bool everywhere = Below(2) == 0;
    const RankFiles& chosen = Rank();
    const std::mt19937_64 same = random_;
    for (const TraceFiles* side : {&pair_.reference, &pair_.candidate}) {
      for (const RankFiles& rank : side->ranks) {
        if (!everywhere && &rank != &chosen) continue;
        std::vector<std::string> lines = SplitLines(ReadText(rank.index));
        if (lines.empty()) continue;
        random_ = same;
        const std::vector<std::string> before = lines;
        edit(&lines);
        if (lines == before) continue;
        Replace(rank.index, Chained(ReadText(rank.meta), lines));
        Say(rank.index, "forged");
      }
    }
  }
  // Puts another number in place of one in the line.
  void EditNumber(std::string* line) {
    std::vector<std::pair<size_t, size_t>> numbers;  // begin, length
    for (size_t i = 0; i < line->size(); ++i) {
      const auto digit = [&](size_t at) {
        return at < line->size() && (*line)[at] >= '0' && (*line)[at] <= '9';
      };
      if (!digit(i)) continue;
      const size_t begin = i;
      while (digit(i)) ++i;
      numbers.emplace_back(begin, i - begin);
    }
    if (numbers.empty()) return;
    const auto [begin, length] = Pick(numbers);
    int64_t value = 0;
    std::from_chars(line->data() + begin, line->data() + begin + length, value);
    const int64_t values[] = {0,
                              1,
                              2,
                              value + 1,
                              value * 2,
                              -1,
                              (int64_t{1} << 31) - 1,
                              int64_t{1} << 36,
                              std::numeric_limits<int64_t>::max()};
    line->replace(begin, length,
                  std::to_string(values[Below(std::size(values))]));
  }
  // In the line of a spec with a batch.
  static void DeclareRows(std::string* line, int64_t huge) {
    static const std::regex batch(R"("batch_dim":(\d+))");
    static const std::regex shape(R"("global_shape":\[([^\]]*)\])");
    std::smatch found;
    if (!std::regex_search(*line, found, batch)) return;
    const auto dim = static_cast<size_t>(std::stoll(found.str(1)));
    if (!std::regex_search(*line, found, shape)) return;
    std::string sizes;
    size_t d = 0;
    std::string rest = found.str(1) + ",";
    for (size_t comma; (comma = rest.find(',')) != std::string::npos; ++d) {
      sizes += (d == 0 ? "" : ",") +
               (d == dim ? std::to_string(huge) : rest.substr(0, comma));
      rest.erase(0, comma + 1);
    }
    line->replace(static_cast<size_t>(found.position(1)),
                  static_cast<size_t>(found.length(1)), sizes);
  }

  const Pair& pair_;
  std::mt19937_64& random_;
  Mutation* out_;
};

namespace {

struct Way {
  MutationKind kind;
  void (Mutator::*apply)();
};

constexpr Way kWays[] = {
    {{"bit flipped in a tensor", Expected::kNoticed}, &Mutator::FlipInTensor},
    {{"bit flipped in an index", Expected::kNoticed}, &Mutator::FlipInIndex},
    {{"bit flipped in meta.json", Expected::kNoticed}, &Mutator::FlipInMeta},
    {{"bit flipped in manifest.json", Expected::kNoticed},
     &Mutator::FlipInManifest},
    {{"bit flipped in a segment's header", Expected::kNoticed},
     &Mutator::FlipInHeader},
    {{"tensor zeroed", Expected::kNoticed}, &Mutator::ZeroTensor},
    {{"tensor replaced by another", Expected::kNoticed},
     &Mutator::ReplaceTensor},
    {{"up to 4 KiB of noise in any file", Expected::kNoticed},
     &Mutator::Scribble},
    {{"segment cut", Expected::kNoticed}, &Mutator::CutSegment},
    {{"meta.json or manifest.json cut", Expected::kNoticed}, &Mutator::CutMeta},
    {{"file removed", Expected::kNoticed}, &Mutator::RemoveFile},
    {{"rank removed", Expected::kNoticed}, &Mutator::RemoveRank},
    {{"segments swapped between ranks", Expected::kNoticed},
     &Mutator::SwapSegmentsOfRanks},
    {{"segments swapped between sides", Expected::kNoticed},
     &Mutator::SwapSegmentsOfSides},
    {{"indices swapped", Expected::kNoticed}, &Mutator::SwapIndices},
    {{"folders of ranks swapped", Expected::kNoticed}, &Mutator::SwapRanks},
    {{"rank of another run", Expected::kNoticed}, &Mutator::TakeRankOfOtherRun},
    {{"segment of another run", Expected::kNoticed},
     &Mutator::TakeSegmentOfOtherRun},
    {{"index lines removed", Expected::kNoticed}, &Mutator::RemoveLines},
    {{"index line repeated", Expected::kNoticed}, &Mutator::RepeatLine},
    {{"index lines swapped", Expected::kNoticed}, &Mutator::SwapLines},
    {{"number in an index line changed", Expected::kNoticed},
     &Mutator::EditLine},
    {{"index cut at any byte", Expected::kNoOtherVerdict}, &Mutator::CutIndex},
    {{"all ranks of a side killed", Expected::kNoOtherVerdict},
     &Mutator::KillRanks},
    {{"forged: numbers", Expected::kAnyReport}, &Mutator::ForgeNumbers},
    {{"forged: a batch of 2^20 to 2^62 rows", Expected::kAnyReport},
     &Mutator::ForgeShape},
    {{"forged: lines and seals removed", Expected::kAnyReport},
     &Mutator::ForgeRemoval},
    {{"forged: words of other lines", Expected::kAnyReport},
     &Mutator::ForgeWords},
};

}  // namespace

const std::vector<MutationKind>& MutationKinds() {
  static const std::vector<MutationKind> kinds = [] {
    std::vector<MutationKind> all;
    for (const Way& way : kWays) all.push_back(way.kind);
    return all;
  }();
  return kinds;
}

void Mutation::Apply(const Pair& pair, size_t kind, std::mt19937_64& random) {
  Mutator mutator(pair, random, this);
  (mutator.*kWays[kind].apply)();
}

void Mutation::Undo() {
  while (!undo_.empty()) {
    undo_.back()();
    undo_.pop_back();
  }
}

}  // namespace ttrace
