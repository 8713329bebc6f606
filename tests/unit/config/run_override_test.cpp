#include "compact/train/run_config.h"
#include "config_testing.h"

namespace compact {
namespace {

RunConfig load(const std::vector<std::string>& overrides) {
  const FileForTest file("run.json", kSmallRun);
  return load_run_config(file.path(), overrides);
}

std::string refused(const std::string& text) {
  return input_error_of([&] { load({text}); });
}

TEST(RunOverrides, ReplaceValuesOfEveryKind) {
  const RunConfig c =
      load({"optimizer.lr=2e-3", "optimizer.betas=[0.8,0.95]", "optimizer.clip_norm=1.5",
            "optimizer.clip_norm=null", "train.eval_every=2s", "schedule.warmup=25%", "seed=7",
            "compact.layers=[\"q\"]", "model=other model.json", "precision=\"bf16\"", "eval.max_tokens=100"});
  EXPECT_EQ(c.optimizer.lr, 0.002);
  EXPECT_EQ(c.optimizer.betas[0], 0.8);
  EXPECT_FALSE(c.optimizer.clip_norm.has_value());
  EXPECT_EQ(c.train.eval_every, (Period{2, Period::Unit::Steps}));
  EXPECT_EQ(c.schedule.warmup, (Period{25, Period::Unit::Percent}));
  EXPECT_EQ(c.seed, 7u);
  EXPECT_EQ(c.compact.layers, (std::vector<std::string>{"q"}));
  EXPECT_EQ(c.model, "other model.json");
  EXPECT_EQ(c.precision, "bf16");
  EXPECT_EQ(c.eval.max_tokens, 100);
}

TEST(RunOverrides, TextKeysTakeAnyText) {
  EXPECT_EQ(load({"train.out_dir=2024"}).train.out_dir, "2024");
  EXPECT_EQ(load({"train.out_dir=null"}).train.out_dir, "null");
  EXPECT_EQ(load({"train.out_dir=a=b"}).train.out_dir, "a=b");
  EXPECT_EQ(load({"train.out_dir=\"quoted\""}).train.out_dir, "quoted");
  EXPECT_EQ(load({"data.val="}).data.val, "");
  EXPECT_EQ(load({"model=", "init_from=folder"}).init_from, "folder");
  EXPECT_EQ(load({"train.out_dir=\xC3\xBC"}).train.out_dir, "\xC3\xBC");
}

TEST(RunOverrides, MistakesNameTheOverride) {
  expect_words(refused("optimizer.lr=nan"), {"override 'optimizer.lr=nan'", "\"nan\"", "number"});
  expect_words(refused("train.steps=4abc"), {"train.steps", "4abc"});
  expect_words(refused("train.steps=many"), {"train.steps", "many"});
  expect_words(refused("train.steps="), {"train.steps", "\"\""});
  expect_words(refused("optimizer.lr=1e400"), {"optimizer.lr", "1e400"});
  expect_words(refused("optimizer..lr=1"), {"optimizer..lr"});
  expect_words(refused("optimizer.lr"), {"override 'optimizer.lr'", "key.path=value"});
  expect_words(refused("=1"), {"key.path=value"});
  expect_words(refused(""), {"key.path=value"});
  expect_words(refused("seed.low=1"), {"seed.low=1", "seed is a single value"});
  expect_words(refused("optimizer.lrate=0.1"), {"optimizer.lrate", "the keys of optimizer are"});
  expect_words(refused("optimizer.weight_decai=0.1"), {"did you mean optimizer.weight_decay?"});
  expect_words(refused("lr=0.1"), {"lr belongs in the section optimizer"});
  expect_words(refused("optimizer={\"lr\":1}"), {"optimizer is a section"});
  expect_words(refused("train.out_dir=\xFF"), {"UTF-8"});
  expect_words(refused("optimizer.betas=[0.9"), {"optimizer.betas", "list of two numbers"});
  EXPECT_EQ(refused("train.steps=0").find("line"), std::string::npos);
}

TEST(RunOverrides, CannotHideABrokenSection) {
  const FileForTest file("run.json", replaced(kSmallRun, "\"seed\": 42", "\"memory\": 3"));
  expect_words(input_error_of([&] { load_run_config(file.path(), {"memory.preset=block"}); }),
               {"memory is 3", "section"});
}

}  // namespace
}  // namespace compact
