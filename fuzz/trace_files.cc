#include "fuzz/trace_files.h"

#include <fstream>
#include <iterator>
#include <set>

#include "src/base/check.h"
#include "src/trace/format.h"
#include "src/trace/index/index_chain.h"
#include "src/trace/reader.h"

namespace ttrace {

TraceFiles FindTraceFiles(const std::string& folder) {
  const auto trace = Trace::Open(folder);
  TTRACE_CHECK(trace.ok(), trace.error().message());
  TraceFiles files;
  files.folder = folder;
  files.manifest = folder + "/" + std::string(kManifestFile);
  for (const RankTrace& rank : (*trace)->ranks()) {
    RankFiles one;
    one.rank = rank.meta.rank;
    one.folder = rank.folder;
    one.meta = rank.folder + "/" + std::string(kMetaFile);
    one.index = rank.folder + "/" + std::string(kIndexFile);
    std::set<int> segments;
    for (const Record& record : (*trace)->records()) {
      if (record.rank() != one.rank || record.extent().bytes == 0) continue;
      one.tensors.push_back(record.extent());
      segments.insert(record.extent().segment);
    }
    for (const int segment : segments) {
      one.segments.push_back(rank.folder + "/" + SegmentFileName(segment));
    }
    files.ranks.push_back(std::move(one));
  }
  return files;
}

std::string ReadText(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  TTRACE_CHECK(in.good(), path);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

void WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  TTRACE_CHECK(out.good(), path);
}

std::vector<std::string> SplitLines(const std::string& index) {
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < index.size();) {
    const size_t end = index.find('\n', begin);
    if (end == std::string::npos) break;
    lines.push_back(index.substr(begin, end + 1 - begin));
    begin = end + 1;
  }
  return lines;
}

std::string Chained(const std::string& meta_json,
                    const std::vector<std::string>& lines) {
  IndexChain chain(meta_json);
  std::string index;
  for (std::string line : lines) {
    const size_t at = line.rfind(",\"chain\":\"");
    if (at != std::string::npos) line = line.substr(0, at) + "}\n";
    if (!line.ends_with("}\n")) continue;
    chain.Add(line);
    index += line;
  }
  return index;
}

}  // namespace ttrace
