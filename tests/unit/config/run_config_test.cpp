#include "compact/train/run_config.h"

#include <limits>

#include "config_testing.h"

namespace compact {
namespace {

RunConfig parse(std::string_view from, std::string_view to) {
  return parse_run_config(replaced(kSmallRun, from, to), "run.json");
}

std::string refused(std::string_view from, std::string_view to) {
  return input_error_of([&] { parse(from, to); });
}

TEST(RunConfig, ReadsWhatIsWrittenAndFillsInDefaults) {
  const RunConfig c = parse_run_config(kSmallRun, "run.json");
  EXPECT_EQ(c.model, "model.json");
  EXPECT_EQ(c.data.train, "train.bin");
  EXPECT_EQ(c.data.sequence_length, 16);
  EXPECT_EQ(c.batch.tokens_per_step, 128);
  EXPECT_EQ(c.batch.micro_batch, 4);
  EXPECT_EQ(c.optimizer.name, "compact");
  EXPECT_EQ(c.optimizer.lr, 0.01);
  EXPECT_EQ(c.optimizer.betas[1], 0.999);
  EXPECT_FALSE(c.optimizer.clip_norm.has_value());
  EXPECT_EQ(c.compact.rank, 0.25);
  EXPECT_EQ(c.compact.layers.size(), 6u);
  EXPECT_EQ(c.schedule.warmup, (Period{10, Period::Unit::Percent}));
  EXPECT_EQ(c.train.eval_every, (Period{2, Period::Unit::Steps}));
  EXPECT_EQ(c.train.keep, 2);
  EXPECT_EQ(c.precision, "fp32");
  EXPECT_EQ(c.seed, 42u);
}

TEST(RunConfig, ResolvedTextReadsBackToTheSameConfig) {
  const RunConfig c = parse_run_config(
      R"({"init_from": "a \"folder\"\\\u00e9", "data": {"train": "x"}, "batch": {"tokens_per_step": 1024, "micro_batch": 2},
          "optimizer": {"name": "compact", "lr": 2e-3, "betas": [0.8, 0.95], "eps": 1e-8, "weight_decay": 0.1,
                        "clip_norm": 1, "state_dtype": "bf16", "gradient_dtype": "bf16"},
          "compact": {"rank": 32, "alpha": 0.5, "update_gap": 7, "out_scale": 1, "sharing": "per_weight",
                      "layers": ["down", "q"]},
          "memory": {"preset": "block", "logits_chunk_bytes": 1},
          "schedule": {"name": "wsd", "warmup": "1e4t", "decay": "33.3%", "final_fraction": 0},
          "eval": {"protocol": "galore", "max_tokens": 1e6},
          "train": {"steps": 1e3, "eval_every": "10%", "checkpoint_every": "5s", "keep": 0, "max_skipped": 1,
                    "out_dir": "o"},
          "precision": "bf16", "device": "cuda", "threads": 1024, "seed": 18446744073709551615})",
      "run.json");
  EXPECT_EQ(c.init_from, "a \"folder\"\\\xC3\xA9");
  EXPECT_EQ(c.compact.layers, (std::vector<std::string>{"q", "down"}));  // in the schema's order
  EXPECT_EQ(c.eval.max_tokens, 1000000);
  EXPECT_EQ(c.train.steps, 1000);
  EXPECT_EQ(c.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(c.schedule.warmup, (Period{1e4, Period::Unit::Tokens}));
  const std::string text = resolved_json(c);
  const RunConfig again = parse_run_config(text, "resolved");
  EXPECT_EQ(resolved_json(again), text);
  EXPECT_TRUE(compare_configs(c, again).empty());
  EXPECT_NE(text.find("\"decay\": \"33.3%\""), std::string::npos) << text;
  EXPECT_NE(text.find("\"eps\": 1e-08"), std::string::npos) << text;
}

TEST(RunConfig, EveryValueThatAResumeCouldSeeIsInTheResolvedText) {
  const RunConfig was = parse_run_config(kSmallRun, "run.json");
  RunConfig now = was;
  now.optimizer.lr = 0.5;
  now.optimizer.clip_norm = 1.0;
  now.batch.micro_batch = 8;
  now.threads = 3;
  now.memory.preset = "block";
  now.train.steps = 50;
  now.train.eval_every = {10, Period::Unit::Percent};
  now.optimizer.block_scale = 0.5;  // idle with compact
  std::string seen;
  for (const ConfigDifference& d : compare_configs(was, now)) {
    seen += d.key + " " + d.was + " " + d.now + (d.may_change ? " may\n" : " must not\n");
  }
  EXPECT_EQ(seen,
            "batch.micro_batch 4 8 may\n"
            "optimizer.lr 0.01 0.5 must not\n"
            "optimizer.clip_norm null 1.0 must not\n"
            "optimizer.block_scale 1.0 0.5 may\n"
            "memory.preset \"lean\" \"block\" may\n"
            "train.steps 40 50 must not\n"
            "train.eval_every 2 \"10%\" may\n"
            "threads 0 3 may\n");
}

TEST(RunConfig, NamesSettingsThatChangeNothing) {
  RunConfig c = parse("\"compact\"", "\"adamw\"");
  EXPECT_TRUE(unused_settings(c).empty());
  c.compact.rank = 0.5;
  c.schedule.decay = {5, Period::Unit::Steps};
  EXPECT_EQ(unused_settings(c), (std::vector<std::string>{"compact.rank", "schedule.decay"}));
  c.optimizer.name = "compact";
  EXPECT_EQ(unused_settings(c), (std::vector<std::string>{"schedule.decay"}));
}

TEST(RunConfig, CudaSection) {
  const RunConfig was = parse_run_config(kSmallRun, "run.json");
  EXPECT_EQ(was.cuda.device, 0);
  EXPECT_TRUE(was.cuda.graph);
  EXPECT_FALSE(was.cuda.sync_checks);
  EXPECT_FALSE(was.cuda.tf32);
  RunConfig now =
      parse("\"seed\": 42",
            R"("device": "cuda", "cuda": {"device": 1, "graph": false, "sync_checks": true, "tf32": true})");
  EXPECT_EQ(now.cuda.device, 1);
  EXPECT_FALSE(now.cuda.graph);
  EXPECT_TRUE(now.cuda.sync_checks);
  EXPECT_TRUE(now.cuda.tf32);
  EXPECT_TRUE(unused_settings(now).empty());
  std::string seen;
  for (const ConfigDifference& d : compare_configs(was, now)) {
    seen += d.key + " " + d.was + " " + d.now + (d.may_change ? " may\n" : " must not\n");
  }
  EXPECT_EQ(seen,
            "cuda.device 0 1 may\n"
            "cuda.graph true false may\n"
            "cuda.sync_checks false true may\n"
            "cuda.tf32 false true may\n"
            "device \"cpu\" \"cuda\" may\n");
  const RunConfig again = parse_run_config(resolved_json(now), "resolved");
  EXPECT_TRUE(compare_configs(now, again).empty());

  now.device = "cpu";
  EXPECT_EQ(unused_settings(now),
            (std::vector<std::string>{"cuda.device", "cuda.graph", "cuda.sync_checks", "cuda.tf32"}));
  for (const ConfigDifference& d : compare_configs(was, now)) EXPECT_TRUE(d.may_change) << d.key;
  expect_words(refused("\"seed\": 42", "\"cuda\": {\"device\": -1}"), {"cuda.device is -1", "from 0"});
  expect_words(refused("\"seed\": 42", "\"cuda\": {\"graph\": 1}"), {"cuda.graph is 1", "true or false"});
  expect_words(refused("\"seed\": 42", "\"cuda\": {\"sync_check\": true}"),
               {"did you mean cuda.sync_checks?"});
}

TEST(RunConfig, WrongTypesNameKeyLineAndValue) {
  expect_words(refused("\"steps\": 40", "\"steps\": true"),
               {"run.json line 6", "train.steps", "true", "integer"});
  expect_words(refused("\"micro_batch\": 4", "\"micro_batch\": 4.5"),
               {"run.json line 4", "batch.micro_batch", "4.5"});
  expect_words(refused("0.01", "\"1e-3\""),
               {"run.json line 5", "optimizer.lr", "\"1e-3\"", "without quotes"});
  expect_words(refused("\"steps\": 40", "\"steps\": 99999999999999999999"),
               {"train.steps", "99999999999999999999"});
  expect_words(refused("128", "9223372036854775807"), {"batch.tokens_per_step", "9223372036854775807"});
  expect_words(refused("\"seed\": 42", "\"seed\": \"42\""), {"seed", "\"42\""});
  expect_words(refused("\"seed\": 42", "\"seed\": -1"), {"seed", "-1"});
  expect_words(refused("\"seed\": 42", "\"seed\": 18446744073709551616"), {"seed", "18446744073709551616"});
  expect_words(refused("\"seed\": 42", "\"precision\": \"fp16\""), {"precision", "fp16", "fp32", "bf16"});
  expect_words(refused("\"lr\": 0.01", "\"betas\": [0.9, 0.95, 0.999]"),
               {"optimizer.betas", "[0.9, 0.95, 0.999]", "two"});
  expect_words(refused("\"lr\": 0.01", "\"betas\": [0.9, 1]"), {"optimizer.betas", "1", "below 1"});
  expect_words(refused("\"lr\": 0.01", "\"clip_norm\": \"no\""), {"optimizer.clip_norm", "\"no\"", "null"});
  expect_words(refused("\"lr\": 0.01", "\"clip_norm\": 0"), {"optimizer.clip_norm", "is 0"});
  expect_words(refused("\"lr\": 0.01", "\"lr\": null"), {"optimizer.lr", "null"});
  expect_words(refused("\"lr\": 0.01", "\"lr\": 0"), {"optimizer.lr", "above 0"});
  expect_words(refused("\"lr\": 0.01", "\"eps\": -1e-8"), {"optimizer.eps", "-1e-8"});
  expect_words(refused("\"lr\": 0.01", "\"eps\": 0"), {"optimizer.eps", "is 0"});
  expect_words(refused("\"out\"", "\"\""), {"train.out_dir", "\"\"", "not empty"});
  expect_words(refused("\"out\"", "\"a\\u0000b\""), {"train.out_dir", "NUL"});
  expect_words(refused("{\"tokens_per_step\": 128, \"micro_batch\": 4}", "16"),
               {"line 4", "batch is 16", "section"});
}

TEST(RunConfig, WholeNumbersMayBeWrittenAsFloats) {
  EXPECT_EQ(parse("\"steps\": 40", "\"steps\": 1e6").train.steps, 1000000);
  EXPECT_EQ(parse("\"steps\": 40", "\"steps\": 50.0").train.steps, 50);
}

TEST(RunConfig, UnknownKeysGetTheNearestOne) {
  const auto unknown = [](const std::string& key) { return refused("\"lr\": 0.01", "\"" + key + "\": 1"); };
  expect_words(unknown("weigth_decay"), {"run.json line 5", "weigth_decay", "optimizer.weight_decay?"});
  expect_words(unknown("WeightDecay"), {"optimizer.weight_decay?"});
  expect_words(unknown("LR"), {"LR", "optimizer.lr?"});
  expect_words(unknown("update_gap"), {"belongs in the section compact"});
  expect_words(unknown("seed"), {"belongs at the top level"});
  expect_words(unknown("nothing_like_it"), {"the keys of optimizer are name, lr, betas"});
  expect_words(unknown(""), {"the keys of optimizer are"});
  expect_words(unknown(std::string(5000, 'x')), {"the keys of optimizer are"});
  expect_words(refused("\"seed\"", "\"lr\""), {"lr belongs in the section optimizer"});
  expect_words(refused("\"seed\"", "\"name\""), {"optimizer or in the section schedule"});
  expect_words(refused("\"optimizer\"", "\"optimiser\""), {"optimiser", "did you mean optimizer?"});
  expect_words(refused("\"seed\"", "\"optimizer.eps\""), {"optimizer.eps", "written as an object"});
  expect_words(refused("\"seed\"", "\"?\""), {"the keys at the top level are model, init_from", "train"});
}

TEST(RunConfig, RequiredKeys) {
  expect_words(refused("\"steps\": 40, ", ""), {"run.json", "train.steps", "missing"});
  expect_words(refused(", \"out_dir\": \"out\"", ""), {"train.out_dir", "missing"});
  expect_words(refused("\"train\": \"train.bin\", ", ""), {"data.train", "missing"});
  expect_words(refused(", \"micro_batch\": 4", ""), {"batch.micro_batch", "missing"});
}

TEST(RunConfig, Periods) {
  const auto every = [](const std::string& json) {
    return parse("\"eval_every\": 2", "\"eval_every\": " + json).train.eval_every;
  };
  EXPECT_EQ(every("7"), (Period{7, Period::Unit::Steps}));
  EXPECT_EQ(every("\"7s\""), (Period{7, Period::Unit::Steps}));
  EXPECT_EQ(every("\"1e3s\""), (Period{1000, Period::Unit::Steps}));
  EXPECT_EQ(every("\"1e6t\""), (Period{1e6, Period::Unit::Tokens}));
  EXPECT_EQ(every("\"12.5%\""), (Period{12.5, Period::Unit::Percent}));
  EXPECT_EQ(every("0"), (Period{0, Period::Unit::Steps}));
  for (const char* wrong :
       {"\"10x\"", "\"s\"", "\"\"", "\"10\"", "\"10 s\"", "\" 10s\"", "\"-1s\"", "\"1.5s\"", "1.5", "-1",
        "\"101%\"", "\"nan%\"", "\"inft\"", "\"0x10s\"", "true", "null", "[1]", "\"1e400t\"", "1e10"}) {
    expect_words(input_error_of([&] { every(wrong); }), {"run.json line 6", "train.eval_every", "\"10%\""});
  }
  expect_words(input_error_of([&] { every("\"1%\""); }), {"train.eval_every", "less than one step"});
  expect_words(input_error_of([&] { every("\"127t\""); }), {"train.eval_every", "less than one step"});
}

TEST(RunConfig, PeriodsInSteps) {
  const auto steps = [](double value, Period::Unit unit, std::int64_t total) {
    return Period{value, unit}.steps(total, 1000);
  };
  EXPECT_EQ(steps(10, Period::Unit::Percent, 1005), 100);
  EXPECT_EQ(steps(10, Period::Unit::Percent, 9), 0);
  EXPECT_EQ(steps(32.3, Period::Unit::Percent, 1000), 323);  // 322.99999999999994 in doubles
  EXPECT_EQ(steps(0.57, Period::Unit::Percent, 10000), 57);
  EXPECT_EQ(steps(100, Period::Unit::Percent, 7), 7);
  EXPECT_EQ(steps(2999, Period::Unit::Tokens, 7), 2);
  EXPECT_EQ(steps(3000, Period::Unit::Tokens, 7), 3);
  EXPECT_EQ(steps(12, Period::Unit::Steps, 7), 12);
}

TEST(RunConfig, NoRunFile) {
  expect_words(input_error_of([] { parse_run_config("null", "run.json"); }), {"run.json", "null", "braces"});
  expect_words(input_error_of([] { parse_run_config("[]", "run.json"); }), {"run.json", "braces"});
  expect_words(input_error_of([] { load_run_config("/no/such/run.json", {}); }), {"/no/such/run.json"});
  expect_words(input_error_of([] { load_run_config("/", {}); }), {"/"});
}

}  // namespace
}  // namespace compact
