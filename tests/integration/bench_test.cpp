#include <cmath>

#include "process.h"

/// `compact bench`: its two outputs say the same, and their parts add up. No time is expected of anything.
namespace compact::testing {
namespace {

// Speeds are cached in the test's folder, not in the user's.
constexpr const char* kOwnCache = "export XDG_CACHE_HOME=$PWD/cache OMP_WAIT_POLICY=passive;";

void check_step(const nlohmann::json& step) {
  const double whole = step["split_seconds"];
  EXPECT_GT(whole, 0);
  double shares = step["budget"]["waiting"].get<double>() / whole, flops = 0;
  double products = 0, attention = 0, update = 0, other = 0;
  for (const nlohmann::json& op : step["ops"]) {
    const std::string name = op["name"];
    SCOPED_TRACE(name);
    const double seconds = op["seconds"];
    EXPECT_GT(seconds, 0);
    EXPECT_GT(op["calls"].get<int>(), 0);
    EXPECT_NEAR(op["share"].get<double>(), seconds / whole, 1e-9);
    EXPECT_NEAR(op["floor_fraction"].get<double>(), op["floor_seconds"].get<double>() / seconds, 1e-9);
    shares += op["share"].get<double>();
    flops += op["flops"].get<double>();
    (name == "matrix products"                      ? products
     : name == "attention"                          ? attention
     : name == "optimizer" || name == "global norm" ? update
                                                    : other) += seconds;
  }
  EXPECT_NEAR(shares, 1, 1e-9);
  const nlohmann::json& budget = step["budget"];
  EXPECT_NEAR(budget["gemm"].get<double>(), products, 1e-9);
  EXPECT_NEAR(budget["attention"].get<double>(), attention, 1e-9);
  EXPECT_NEAR(budget["optimizer"].get<double>(), update, 1e-9);
  EXPECT_NEAR(budget["other"].get<double>(), other, 1e-9);
  EXPECT_GE(budget["waiting"].get<double>(), 0);
  EXPECT_EQ(flops, step["step_flops"].get<double>()) << "the ops' operations are the plan's";
}

TEST(Bench, ReportsAStepThatAddsUp) {
  const Workplace w;
  for (const char* settings : {"", " precision=bf16", " optimizer.name=adamw batch.micro_batch=8"}) {
    SCOPED_TRACE(settings);
    const Finished f = w.run(std::string("bench run.json --json --repeats 3") + settings, kOwnCache);
    ASSERT_EQ(f.code, 0) << f.err;
    const nlohmann::json bench = nlohmann::json::parse(f.out);
    EXPECT_GT(bench["machine"]["bytes_per_second"].get<double>(), 0);
    EXPECT_TRUE(bench["shapes"].empty());
    ASSERT_EQ(bench["steps"].size(), 1u);
    const nlohmann::json& step = bench["steps"][0];
    check_step(step);
    double flops = 0, seconds = 0;
    for (const nlohmann::json& g : step["gemms"]) {
      const double calls = g["calls"];
      flops += 2 * calls * g["M"].get<double>() * g["K"].get<double>() * g["N"].get<double>();
      seconds += calls * g["seconds"].get<double>();
      EXPECT_LE(g["peak_fraction"].get<double>(), 1) << "the peak is at least what was seen";
      EXPECT_TRUE(bench["machine"]["gemm_peak"].contains(g["operands"].get<std::string>()));
    }
    EXPECT_GT(seconds, 0);
    const auto is_products = [](const nlohmann::json& op) { return op["name"] == "matrix products"; };
    const auto products = std::find_if(step["ops"].begin(), step["ops"].end(), is_products);
    ASSERT_NE(products, step["ops"].end());
    EXPECT_EQ((*products)["flops"].get<double>(), flops);
    EXPECT_EQ(step["gemms"][0]["operands"], step["precision"]);
  }
}

TEST(Bench, TextNamesEveryOpOfTheJson) {
  const Workplace w;
  const Finished json = w.run("bench run.json --json --repeats 1", kOwnCache);
  const Finished text = w.run("bench run.json --repeats 1", kOwnCache);
  ASSERT_EQ(json.code, 0) << json.err;
  ASSERT_EQ(text.code, 0) << text.err;
  const nlohmann::json step = nlohmann::json::parse(json.out)["steps"][0];
  EXPECT_GE(step["ops"].size(), 7u);
  for (const nlohmann::json& op : step["ops"])
    EXPECT_NE(text.out.find("\n" + op["name"].get<std::string>() + " "), std::string::npos) << op["name"];
  for (const char* part : {"of floor", "waiting", "tokens/s", "step / products"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part;
  EXPECT_EQ(text.out.find("nan"), std::string::npos) << text.out;
}

TEST(Bench, StepsOnlyTimesNoProductAlone) {
  const Workplace w;
  const Finished f = w.run("bench run.json --json --repeats 2 --steps-only", kOwnCache);
  ASSERT_EQ(f.code, 0) << f.err;
  const nlohmann::json step = nlohmann::json::parse(f.out)["steps"][0];
  check_step(step);
  EXPECT_TRUE(step["gemms"].empty());
  EXPECT_TRUE(step["gemm_seconds"].is_null());
  EXPECT_GE(step["resident_peak_bytes"].get<double>(), 0.9 * step["peak_bytes"].get<double>());
}

TEST(Bench, NeedsNoRunFile) {
  const Workplace w;
  const Finished f = w.run("bench --json --repeats 1 --steps-only", kOwnCache);
  ASSERT_EQ(f.code, 0) << f.err;
  const nlohmann::json steps = nlohmann::json::parse(f.out)["steps"];
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0]["precision"], "fp32");
  EXPECT_EQ(steps[1]["precision"], "bf16");
  for (const nlohmann::json& step : steps) {
    check_step(step);
    EXPECT_EQ(step["tokens"], 2048);
    EXPECT_EQ(step["parameters"], 58073600);
  }
  EXPECT_EQ(w.run("bench ''", kOwnCache).code, 2);
  EXPECT_EQ(w.run("bench run.json --device cuda", kOwnCache).code, 2) << "the run file names its device";
}

}  // namespace
}  // namespace compact::testing
