#include <cstdlib>
#include <fstream>

#include "compact/io/file.h"
#include "compact/train/run_config.h"
#include "config_testing.h"

namespace compact {
namespace {

// COMPACT_WRITE_DOCS=1 test_config --gtest_filter='ConfigDocs.*' writes the page anew.
TEST(ConfigDocs, ThePageIsWhatTheSchemaSays) {
  const std::string path = COMPACT_SOURCE_DIR "/docs/config.md";
  if (std::getenv("COMPACT_WRITE_DOCS")) write_text_atomically(path, config_reference_markdown());
  EXPECT_EQ(read_text(path), config_reference_markdown())
      << "docs/config.md is out of date; run with COMPACT_WRITE_DOCS=1 to write it";
}

TEST(ConfigDocs, HelpNamesEveryKeyOfTheResolvedConfig) {
  const std::string help = config_help();
  const std::string page = config_reference_markdown();
  for (const char* key :
       {"model", "init_from", "data.val", "batch.micro_batch", "optimizer.block_scale", "compact.rank",
        "memory.preset", "schedule.decay", "eval.max_tokens", "train.max_skipped", "seed"}) {
    EXPECT_NE(help.find(std::string("  ") + key + " "), std::string::npos) << key;
    EXPECT_NE(page.find(std::string("| `") + key + "` |"), std::string::npos) << key;
  }
}

}  // namespace
}  // namespace compact
