#include "compact/nn/lm_head_loss.h"
#include "compact/train/evaluator.h"
#include "engine_testing.h"

/// The right values of ../shared/cases/numeric that concern the whole model, the planner and the evaluation.
namespace compact::testing {
namespace {

ModelConfig model_of_row(const nlohmann::json& row) {
  static const std::map<std::string, std::array<std::int64_t, 5>> sizes = {
      {"9M", {128, 352, 4, 4, 4}},       {"60M", {512, 1376, 8, 8, 8}},
      {"130M", {768, 2048, 12, 12, 12}}, {"350M", {1024, 2736, 24, 16, 16}},
      {"1B", {2048, 5461, 24, 32, 32}},  {"7B", {4096, 11008, 32, 32, 32}}};
  const auto& s = sizes.at(row.at("name").get<std::string>());
  ModelConfig m;
  m.vocab_size = 32000;
  m.hidden_size = s[0];
  m.intermediate_size = s[1];
  m.layers = s[2];
  m.heads = s[3];
  m.kv_heads = s[4];
  return m;
}

// Kept activations exactly: with one block more, the peak of a pass grows by what a block keeps.
std::int64_t kept_per_block(const RunConfig& run, ModelConfig model) {
  const auto kept = [&](std::int64_t layers) {
    model.layers = layers;
    return plan_run(run, model).at_peak[static_cast<std::size_t>(Category::Activations)];
  };
  return kept(9) - kept(8);
}

TEST(Numeric, MemoryCounts) {
  COMPACT_NUMERIC_CASE(c, "memory_counts");
  for (const auto& row : c["expected"]["rows"]) {
    const ModelConfig model = model_of_row(row);
    RunConfig run = small_run();
    run.data.sequence_length = 256;
    run.batch = {32768, 128};
    run.memory.logits_chunk_bytes = 64 << 20;
    run.precision = run.optimizer.state_dtype = run.optimizer.gradient_dtype = "bf16";
    run.compact.rank = row["rank"].get<double>();
    const std::int64_t tokens = 32768, L = model.layers;
    EXPECT_EQ(model.parameters(), row["parameters"].get<std::int64_t>());
    EXPECT_EQ(projected_width(run.compact.rank, model.hidden_size), row["ranks"]["C"].get<std::int64_t>());
    EXPECT_EQ(projected_width(run.compact.rank, model.intermediate_size),
              row["ranks"]["F"].get<std::int64_t>());
    for (const char* optimizer : {"adamw", "compact"}) {
      run.optimizer.name = optimizer;
      const char* kind = run.optimizer.name == "adamw" ? "full" : "compact";
      const RunPlan plan = plan_run(run, model);
      EXPECT_EQ(plan.gradient_elements, row["gradient_elements"][kind].get<std::int64_t>());
      // Bytes differ from elements only by the alignment of tensors that are no multiple of 64 bytes.
      const auto states = plan.at_peak[static_cast<std::size_t>(Category::Optimizer)];
      const auto want = 2 * row["optimizer_elements"][kind].get<std::int64_t>();
      EXPECT_GE(states, want);
      EXPECT_LE(states, want + 64 * 40 * L);
      const std::int64_t statistics = row["statistics_bytes_fp32"]["rstd"].get<std::int64_t>() / L +
                                      row["statistics_bytes_fp32"]["lse"].get<std::int64_t>() / L;
      for (const char* preset : {"block", "tight", "lean", "paper"}) {
        run.memory.preset = preset;
        run.compact.sharing = "per_weight";
        const std::string key = std::string(preset) != "paper" ? preset : std::string("table6_") + kind;
        const std::int64_t elements = row["kept_elements_per_token_and_layer"][key].get<std::int64_t>();
        EXPECT_EQ(kept_per_block(run, model),
                  2 * elements * tokens + (std::string(preset) == "block" ? 0 : statistics))
            << row["name"] << " " << optimizer << " " << preset;
      }
    }
  }
}

// Our reference points: GiB without workspace at micro-batch 128 x 256 in bf16, within 10 %.
TEST(Plan, ReferencePoints) {
  struct Point {
    const char *file, *preset;
    double gib;
  };
  for (const Point& p :
       {Point{"c4_60m_adamw", "lean", 3.5}, Point{"c4_130m_adamw", "lean", 7.6},
        Point{"c4_350m_adamw", "lean", 20.0}, Point{"c4_1b_adamw", "lean", 44},
        Point{"c4_60m_compact_n4", "tight", 2.1}, Point{"c4_130m_compact_n4", "tight", 4.3},
        Point{"c4_350m_compact_n4", "tight", 10.8}, Point{"c4_1b_compact_n4", "tight", 23.6},
        Point{"c4_350m_compact_n4", "block", 4.0}, Point{"c4_1b_compact_n4", "block", 10.0}}) {
    const std::string path = COMPACT_SOURCE_DIR "/configs/run/" + std::string(p.file) + ".json";
    RunConfig run =
        load_run_config(path, {"batch.micro_batch=128", std::string("memory.preset=") + p.preset});
    const RunPlan plan = plan_run(run, load_model_config(COMPACT_SOURCE_DIR "/" + run.model));
    const std::int64_t bytes = plan.peak - plan.at_peak[static_cast<std::size_t>(Category::Workspace)];
    EXPECT_NEAR(static_cast<double>(bytes) / (1 << 30), p.gib, 0.1 * p.gib) << p.file << " " << p.preset;
  }
}

TEST(Numeric, Flops) {
  COMPACT_NUMERIC_CASE(c, "flops");
  for (const auto& row : c["expected"]["rows"]) {
    const ModelConfig model = model_of_row(row);
    RunConfig run = small_run();
    run.data.sequence_length = 256;
    run.batch = {2048, 8};
    run.memory.logits_chunk_bytes = 64 << 20;
    run.compact.rank = row["rank"].get<double>();
    run.memory.preset = "paper";
    for (const char* kind : {"full", "compact_per_weight", "compact_per_input"}) {
      const std::string name = kind;
      run.optimizer.name = name == "full" ? "adamw" : "compact";
      run.compact.sharing = name == "compact_per_weight" ? "per_weight" : "per_input";
      const RunPlan plan = plan_run(run, model);
      const double per_token = static_cast<double>(plan.micro_batch.gemm + plan.micro_batch.attention) / 2048;
      const double want = row[name]["total"].get<double>();
      EXPECT_NEAR(per_token, want, 1e-9 * want) << row["name"] << " " << name;
      const double update = name == "full" ? 0 : row["back_projection_flops_per_step"].get<double>();
      EXPECT_EQ(static_cast<double>(plan.update.gemm), update) << row["name"] << " " << name;
    }
  }
}

std::vector<float> values_of(const nlohmann::json& tensor) {
  return tensor["data"].get<std::vector<float>>();
}

TEST(Numeric, TinyModel) {
  COMPACT_NUMERIC_CASE(c, "tiny_model");
  const auto& config = c["inputs"]["config"];
  ModelConfig model;
  model.vocab_size = config["vocab_size"];
  model.hidden_size = config["hidden_size"];
  model.intermediate_size = config["intermediate_size"];
  model.layers = config["num_hidden_layers"];
  model.heads = config["num_attention_heads"];
  model.kv_heads = config["num_key_value_heads"];
  for (const char* precision : {"fp32", "bf16"})
    for (const char* preset : {"paper", "lean", "tight", "block"})
      for (std::int64_t micro : {1, 2}) {
        RunConfig run = small_run("adamw", preset);
        run.precision = precision;
        run.data.sequence_length = c["inputs"]["ids"]["shape"][1];
        run.batch = {2 * run.data.sequence_length, micro};
        EngineRun e(run, model);
        for (const NamedTensor& t : e.engine.model().named_weights())
          fill_from(t.data, values_of(c["inputs"]["weights"][t.name]));
        StepBatch batch;
        batch.sequences = 2;
        batch.inputs = c["inputs"]["ids"]["data"].get<std::vector<std::int32_t>>();
        batch.labels = c["inputs"]["labels"]["data"].get<std::vector<std::int32_t>>();
        for (std::int32_t label : batch.labels) batch.targets += label != -100;
        const double loss = c["expected"]["loss"].get<double>();
        const double tolerance = run.precision == "fp32" ? 5e-5 : c["tolerance"]["bf16"].get<double>();
        EXPECT_NEAR(e.step(batch, 0, 0.0).loss, loss, tolerance * loss);
        for (const auto& [name, gradient] : gradients(e.engine))
          expect_near_largest(gradient, values_of(c["expected"]["gradients"][name]), tolerance, name);
      }
}

TEST(Numeric, GradientAccumulationAndChunkedHead) {
  COMPACT_NUMERIC_CASE(accumulation, "gradient_accumulation");
  COMPACT_NUMERIC_CASE(chunked, "chunked_head");
  for (const DType type : {DType::F32, DType::BF16}) {
    const bool bf16 = type == DType::BF16;
    Arena arena(Device::Cpu, 16 << 20);
    Context context(arena);
    const auto tensor = [&](const nlohmann::json& j, DType dtype) {
      const Tensor t = arena.persistent("t", {j["shape"][0], j["shape"][1]}, dtype, Category::Weights);
      fill_from(t, values_of(j));
      return t;
    };
    const auto labels_of = [&](const nlohmann::json& j) {
      const auto v = j["data"].get<std::vector<std::int32_t>>();
      const Tensor t =
          arena.persistent("labels", {static_cast<std::int64_t>(v.size())}, DType::I32, Category::Weights);
      std::copy(v.begin(), v.end(), t.i32());
      return t;
    };
    const auto total = [](const Tensor& loss) {
      double sum = 0;
      for (std::int64_t i = 0; i < loss.elements(); ++i) sum += static_cast<double>(loss.f32()[i]);
      return sum;
    };
    const auto result = [&](const Tensor& W, Pass pass, const nlohmann::json& hidden,
                            const nlohmann::json& labels, const Tensor& dW, std::int64_t chunk_rows,
                            double loss_sum, const nlohmann::json& dhidden) {
      const Tensor h = tensor(hidden, type);
      const double tolerance = bf16 ? chunked["tolerance"]["bf16"].get<double>() : 1e-5;
      const Tensor loss = arena.persistent("loss", {h.rows()}, DType::F32, Category::Weights);
      LmHeadLoss(W, dW, type, chunk_rows * W.rows() * size_of(type), false)
          .forward_backward(context, pass, h, labels_of(labels), loss);
      EXPECT_NEAR(total(loss), loss_sum, tolerance * (1 + loss_sum));
      expect_near_largest(floats(h), values_of(dhidden), tolerance, "dhidden");
    };
    {
      const Tensor W = tensor(accumulation["inputs"]["W"], type),
                   dW = tensor(accumulation["inputs"]["W"], DType::F32);
      Pass pass;
      pass.loss_scale = 1.0f / accumulation["inputs"]["divisor"].get<float>();
      const auto& micro = accumulation["inputs"]["micro_batches"];
      for (std::size_t i = 0; i < micro.size(); ++i, pass.first = false) {
        const auto& want = accumulation["expected"]["micro_batches"][i];
        result(W, pass, micro[i]["hidden"], micro[i]["labels"], dW, 3, want["loss_sum"], want["dhidden"]);
      }
      expect_near_largest(floats(dW), values_of(accumulation["expected"]["dW"]), bf16 ? 0.02 : 1e-5, "dW");
    }
    for (std::int64_t rows : chunked["inputs"]["chunk_sizes"]) {
      const Tensor W = tensor(chunked["inputs"]["W"], type), dW = tensor(chunked["inputs"]["W"], DType::F32);
      Pass pass;
      pass.loss_scale = 1.0f / chunked["inputs"]["divisor"].get<float>();
      result(W, pass, chunked["inputs"]["hidden"], chunked["inputs"]["labels"], dW, rows,
             chunked["expected"]["loss_sum"], chunked["expected"]["dhidden"]);
      expect_near_largest(floats(dW), values_of(chunked["expected"]["dW"]), bf16 ? 0.02 : 1e-5, "dW");
    }
  }
}

TEST(Numeric, Evaluation) {
  COMPACT_NUMERIC_CASE(c, "evaluation");
  EvaluationSum sum;
  const auto losses = c["inputs"]["batch_mean_loss"].get<std::vector<double>>();
  const auto tokens = c["inputs"]["batch_tokens"].get<std::vector<std::int64_t>>();
  for (std::size_t i = 0; i < losses.size(); ++i)
    sum.add(losses[i] * static_cast<double>(tokens[i]), tokens[i]);
  const Evaluation e = sum.result(*make_local_communicator());
  EXPECT_NEAR(e.loss, c["expected"]["exact"]["loss"].get<double>(), 1e-6);
  EXPECT_NEAR(e.perplexity(), c["expected"]["exact"]["perplexity"].get<double>(), 1e-4);
  EXPECT_NEAR(e.galore_loss, c["expected"]["galore"]["loss"].get<double>(), 1e-6);
  EXPECT_NEAR(e.galore_perplexity(), c["expected"]["galore"]["perplexity"].get<double>(), 1e-4);
}

// A fresh model's loss is ln V + C std² / 2 (the smallest width only: the rule is the same for all).
TEST(Numeric, InitLoss) {
  COMPACT_NUMERIC_CASE(c, "init_loss");
  const auto& row = c["expected"]["rows"][0];
  ModelConfig model;
  model.hidden_size = row["hidden"];
  model.vocab_size = row["vocabulary"];
  model.initializer_range = row["init_std"];
  model.intermediate_size = 352;
  model.layers = 1;
  model.heads = model.kv_heads = 4;
  RunConfig run = small_run();
  run.data.sequence_length = 128;
  run.batch = {4096, 32};
  run.memory.logits_chunk_bytes = 64 << 20;
  EngineRun e(run, model);
  const StepBatch batch = random_batch(32, 128, model.vocab_size, 11);
  const LossSum sum = e.engine.evaluate(batch.inputs, batch.labels, 32);
  EXPECT_NEAR(sum.sum / static_cast<double>(sum.tokens), row["loss"].get<double>(),
              row["within"].get<double>());
}

}  // namespace
}  // namespace compact::testing
