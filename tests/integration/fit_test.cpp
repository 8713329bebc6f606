#include <regex>

#include "process.h"

/// `compact plan --fit`: what it prints, put into the run file, stays inside.
namespace compact::testing {
namespace {

// The run-file lines of a plan's text, as JSON.
nlohmann::json printed_lines(const std::string& text) {
  std::smatch lines;
  if (!std::regex_search(text, lines, std::regex("\n( *\"batch\": .*\n *\"memory\": .*)\n"))) return nullptr;
  return nlohmann::json::parse("{" + lines[1].str() + "}");
}

// The least that any variant of run.json needs, from the sentence that refuses a single byte.
std::int64_t least_bytes(const Workplace& w) {
  const Finished refused = w.run("plan run.json --fit 1");
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(std::count(refused.err.begin(), refused.err.end(), '\n'), 1) << refused.err;
  std::smatch least;
  const bool found = std::regex_search(refused.err, least, std::regex("the least is .*\\(([0-9]+) bytes\\)"));
  EXPECT_TRUE(found) << refused.err;
  return found ? std::stoll(least[1].str()) : 0;
}

void check_budgets(const Workplace& w, const nlohmann::json& changes) {
  w.write_run(changes);
  const std::int64_t least = least_bytes(w);
  const Finished roomy = w.run("plan run.json --fit 1TiB --json");
  ASSERT_EQ(roomy.code, 0) << roomy.err;
  const std::int64_t most = nlohmann::json::parse(roomy.out)["peak_bytes"];
  ASSERT_GT(least, 0);
  ASSERT_LT(least, most);
  EXPECT_EQ(w.run("plan run.json --fit " + std::to_string(least - 1)).code, 1);

  double last_cost = 0;
  for (const int percent : {0, 10, 30, 60, 100}) {
    const std::int64_t budget = least + (most - least) * percent / 100;
    SCOPED_TRACE(std::to_string(budget) + " bytes");
    const Finished json = w.run("plan run.json --json --fit " + std::to_string(budget));
    const Finished text = w.run("plan run.json --fit " + std::to_string(budget));
    ASSERT_EQ(json.code, 0) << json.err;
    ASSERT_EQ(text.code, 0) << text.err;
    const nlohmann::json plan = nlohmann::json::parse(json.out), lines = printed_lines(text.out);
    ASSERT_TRUE(lines.is_object()) << text.out;
    EXPECT_LE(plan["peak_bytes"], budget);
    EXPECT_EQ(lines["memory"]["preset"], plan["settings"]["preset"]);
    EXPECT_EQ(lines["memory"]["logits_chunk_bytes"], plan["settings"]["logits_chunk_bytes"]);
    EXPECT_EQ(lines["batch"]["micro_batch"], plan["settings"]["micro_batch"]);

    const double cost = plan["step_flops"].get<double>() + 8 * plan["step_bytes"].get<double>();
    if (last_cost > 0) {
      EXPECT_LE(cost, last_cost) << "more memory makes no run slower";
    }
    last_cost = cost;

    nlohmann::json fitted = changes;
    fitted.merge_patch(lines);
    fitted.merge_patch(
        {{"train", {{"steps", 10}, {"eval_every", 5}, {"out_dir", "at_" + std::to_string(percent)}}}});
    w.write_run(fitted);
    const Finished run = w.run("train run.json");
    ASSERT_EQ(run.code, 0) << run.err;
    const auto end = w.events("end", "at_" + std::to_string(percent)).back();
    EXPECT_EQ(end["measured_peak_bytes"], plan["peak_bytes"]);
    EXPECT_LE(end["measured_peak_bytes"], budget);
    w.write_run(changes);
  }
}

TEST(Fit, FiveBudgetsHoldForCompAct) {
  const Workplace w;
  check_budgets(w, {{"compact", {{"update_gap", 4}}}});
}

TEST(Fit, FiveBudgetsHoldForFullRankInBf16) {
  const Workplace w;
  check_budgets(w, {{"optimizer", {{"name", "adamw"}}}, {"compact", nullptr}, {"precision", "bf16"}});
}

TEST(Fit, PerLayerUpdatesKeepTheirOneMicroBatch) {
  const Workplace w;
  w.write_run({{"optimizer", {{"update", "per_layer"}}}, {"batch", {{"micro_batch", 8}}}});
  for (const std::string& budget : std::vector<std::string>{std::to_string(least_bytes(w)), "1GiB"}) {
    const Finished plan = w.run("plan run.json --json --fit " + budget);
    ASSERT_EQ(plan.code, 0) << plan.err;
    EXPECT_EQ(nlohmann::json::parse(plan.out)["settings"]["micro_batch"], 8);
  }
}

}  // namespace
}  // namespace compact::testing
