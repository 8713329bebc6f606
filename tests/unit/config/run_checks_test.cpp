#include "compact/model/config.h"
#include "compact/train/run_config.h"
#include "config_testing.h"

namespace compact {
namespace {

RunConfig parse(std::string_view from, std::string_view to) {
  return parse_run_config(replaced(kSmallRun, from, to), "run.json");
}

std::string refused(std::string_view from, std::string_view to) {
  return input_error_of([&] { parse(from, to); });
}

ModelConfig small_model() {
  ModelConfig model;
  model.vocab_size = 64;
  model.hidden_size = 32;
  model.intermediate_size = 88;
  model.layers = 2;
  model.heads = model.kv_heads = 4;
  return model;
}

TEST(RunChecks, OneStart) {
  expect_words(refused("  \"model\": \"model.json\",\n", ""), {"run.json", "model", "init_from"});
  expect_words(refused("\"seed\": 42", "\"init_from\": \"x\""),
               {"run.json", "\"model.json\"", "\"x\"", "one of the two"});
}

TEST(RunChecks, BatchFits) {
  expect_words(refused("128", "100"), {"batch.tokens_per_step is 100", "sequence_length 16", "96 or 112"});
  expect_words(refused("128", "10"), {"batch.tokens_per_step is 10", "16 would do"});
  expect_words(refused("\"micro_batch\": 4", "\"micro_batch\": 3"),
               {"batch.micro_batch is 3", "8 sequences", "2 or 4"});
  expect_words(refused("\"micro_batch\": 4", "\"micro_batch\": 9"),
               {"batch.micro_batch is 9", "; 8 would do"});
  expect_words(refused("\"micro_batch\": 4", "\"micro_batch\": 1048576"), {"; 8 would do"});
  // Of a large prime number of sequences too, the divisors are found at once.
  const std::string prime =
      replaced(replaced(kSmallRun, "128", "7999999957"), "\"sequence_length\": 16", "\"sequence_length\": 1");
  expect_words(input_error_of([&] { parse_run_config(prime, "run.json"); }), {"is 4", "1 or 7999999957"});
}

TEST(RunChecks, ScheduleFitsTheRun) {
  const auto schedule = [](const std::string& keys) { return "\"schedule\": {" + keys + "}"; };
  expect_words(refused("\"seed\": 42", schedule("\"warmup\": \"200s\"")),
               {"schedule.warmup", "200 steps", "40"});
  expect_words(refused("\"seed\": 42", schedule("\"warmup\": \"150%\"")),
               {"line 7", "schedule.warmup", "150%"});
  EXPECT_EQ(parse("\"seed\": 42", schedule("\"warmup\": 40")).schedule.warmup.value, 40);
  expect_words(refused("\"seed\": 42", schedule("\"name\": \"wsd\", \"warmup\": 30, \"decay\": 11")),
               {"schedule.warmup (30", "schedule.decay (11", "40"});
  EXPECT_EQ(parse("\"seed\": 42", schedule("\"name\": \"wsd\", \"warmup\": 30, \"decay\": 10"))
                .schedule.decay.value,
            10);
  EXPECT_EQ(parse("\"seed\": 42", schedule("\"warmup\": 30, \"decay\": 11")).schedule.decay.value,
            11);  // idle
}

TEST(RunChecks, Compact) {
  const auto compact = [](const std::string& keys) { return "\"compact\": {" + keys + "}"; };
  expect_words(refused("\"seed\": 42", compact("\"rank\": 1.5")),
               {"compact.rank is 1.5", "fraction", "whole number"});
  expect_words(refused("\"seed\": 42", compact("\"rank\": -0.25")), {"compact.rank", "-0.25"});
  expect_words(refused("\"seed\": 42", compact("\"rank\": 0")), {"compact.rank is 0"});
  expect_words(refused("\"seed\": 42", compact("\"layers\": [\"q\", \"w1\"]")),
               {"compact.layers", "\"w1\"", "\"down\""});
  expect_words(refused("\"seed\": 42", compact("\"layers\": [\"q\", \"q\"]")),
               {"compact.layers", "\"q\" twice"});
  expect_words(refused("\"seed\": 42", compact("\"layers\": []")), {"compact.layers", "[]"});
  expect_words(refused("\"seed\": 42", compact("\"layers\": \"q\"")), {"compact.layers", "list"});
  expect_words(refused("\"lr\": 0.01", "\"block_scale\": 0.1"), {"optimizer.block_scale is 0.1", "adamw"});
}

TEST(RunChecks, RankFitsTheModel) {
  const auto check = [](const std::string& keys) {
    check_against_model(parse("\"seed\": 42", "\"compact\": {" + keys + "}"), small_model(), "run.json");
  };
  check("\"rank\": 32");
  check("\"rank\": 1");
  check("\"rank\": 88, \"layers\": [\"down\"]");
  check("\"rank\": 0.016");  // 0.512 of 32: rounds to 1
  expect_words(input_error_of([&] { check("\"rank\": 33"); }),
               {"run.json", "compact.rank is 33", "input of q", "32 wide"});
  expect_words(input_error_of([&] { check("\"rank\": 89, \"layers\": [\"down\"]"); }), {"89", "down", "88"});
  expect_words(input_error_of([&] { check("\"rank\": 0.015625"); }),
               {"0.015625", "32", "0.03125"});  // half: to even, 0
  RunConfig full_rank = parse("\"compact\"", "\"adamw\"");
  full_rank.compact.rank = 1000;
  check_against_model(full_rank, small_model(), "run.json");
}

TEST(RunChecks, UpdateInBackwardFitsTheRun) {
  const auto optimizer = [](std::string_view keys) {
    return refused("\"lr\": 0.01", std::string("\"lr\": 0.01, ") + std::string(keys));
  };
  // Eight sequences a step in micro-batches of four.
  expect_words(optimizer("\"update\": \"per_layer\""), {"per_layer", "batch.micro_batch is 4", "to 8"});
  expect_words(optimizer("\"update\": \"per_layer\", \"clip_norm\": 2.0"),
               {"per_layer", "clip_norm is 2.0", "null"});
  expect_words(optimizer("\"gradient_dtype\": \"bf16\""),
               {"optimizer.gradient_dtype", "precision is \"fp32\""});
}

}  // namespace
}  // namespace compact
