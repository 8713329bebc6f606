#!/usr/bin/python3
"""make_golden.py [--out FOLDER] [--check]

Writes the golden values of tests/golden/ (see its README.md): a tiny LLaMA's loss, logits and gradients, 30 AdamW
steps and 30 CompAct steps, all computed in float64 with PyTorch and NumPy and stored as float32 safetensors.
Nothing here shares code with the engine. Made for Debian 12's python3-torch (1.13) and python3-numpy:

    /usr/bin/python3 scripts/make_golden.py

--check compares gradients with finite differences, Philox with its published vectors, and the runs with themselves
in float32 (how far plain rounding takes a run), and writes nothing.
"""
import argparse
import json
import math
import pathlib
import struct

import numpy as np
import torch

torch.set_num_threads(1)

V, C, F, L, H = 64, 32, 88, 2, 4  # vocabulary, hidden, MLP, layers, heads
D = C // H
B, T = 4, 16
EPS, BASE = 1e-6, 10000.0
STEPS = 30
IGNORE = -100

ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]
MLP = ["gate_proj", "up_proj", "down_proj"]


# ---- Philox 4x32-10 and the projection ---------------------------------------------------------------------------

def philox(counter, key):
    """Salmon et al. 2011. `counter` [..., 4] and `key` (low, high): 32-bit words, kept in uint64."""
    mask = np.uint64(0xFFFFFFFF)
    c = [np.array(counter[..., i], dtype=np.uint64) for i in range(4)]
    k = [int(key[0]), int(key[1])]
    for _ in range(10):
        a = np.uint64(0xD2511F53) * c[0]
        b = np.uint64(0xCD9E8D57) * c[2]
        c = [(b >> np.uint64(32)) ^ c[1] ^ np.uint64(k[0]), b & mask,
             (a >> np.uint64(32)) ^ c[3] ^ np.uint64(k[1]), a & mask]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.stack(c, axis=-1)


def projection(seed, identity, window, n, r):
    """P [n, r]: element (i, j) from counter (j // 4, i, window, 1 << 24 | identity), rounded to float32 once."""
    blocks = (r + 3) // 4
    counter = np.zeros((n, blocks, 4), dtype=np.uint64)
    counter[..., 0] = np.arange(blocks)[None, :]
    counter[..., 1] = np.arange(n)[:, None]
    counter[..., 2] = window
    counter[..., 3] = 1 << 24 | identity
    w = philox(counter, (seed & 0xFFFFFFFF, seed >> 32)).astype(np.float64)
    u = (w + 0.5) / 2.0**32
    normal = np.empty((n, blocks, 4))
    for first in (0, 2):
        radius, angle = np.sqrt(-2.0 * np.log(u[..., first])), 2.0 * math.pi * u[..., first + 1]
        normal[..., first] = radius * np.cos(angle)
        normal[..., first + 1] = radius * np.sin(angle)
    p = normal.reshape(n, 4 * blocks)[:, :r] / math.sqrt(r)
    return torch.from_numpy(p.astype(np.float32).astype(np.float64))


# ---- the model ---------------------------------------------------------------------------------------------------

def weight_shapes(kv_heads):
    shapes = {"model.embed_tokens.weight": (V, C)}
    for layer in range(L):
        p = f"model.layers.{layer}."
        shapes[p + "input_layernorm.weight"] = (C,)
        shapes[p + "self_attn.q_proj.weight"] = (C, C)
        shapes[p + "self_attn.k_proj.weight"] = (kv_heads * D, C)
        shapes[p + "self_attn.v_proj.weight"] = (kv_heads * D, C)
        shapes[p + "self_attn.o_proj.weight"] = (C, C)
        shapes[p + "post_attention_layernorm.weight"] = (C,)
        shapes[p + "mlp.gate_proj.weight"] = (F, C)
        shapes[p + "mlp.up_proj.weight"] = (F, C)
        shapes[p + "mlp.down_proj.weight"] = (C, F)
    shapes["model.norm.weight"] = (C,)
    shapes["lm_head.weight"] = (V, C)
    return shapes


def initial_weights(kv_heads, seed):
    """N(0, 0.08), large enough that softmax and SiLU are far from linear; norms around 1. Exact in float32."""
    random = np.random.RandomState(seed)
    weights = {}
    for name, shape in weight_shapes(kv_heads).items():
        value = (1.0 if "norm" in name else 0.0) + 0.08 * random.standard_normal(shape)
        weights[name] = torch.from_numpy(value.astype(np.float32).astype(np.float64))
    return weights


def plain_linear(name, x, weight):
    return x @ weight.T


def rms_norm(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + EPS) * weight


def rope(x):
    """x [B, heads, T, D]; channel i turns with channel i + D/2, as in Hugging Face's Llama."""
    half = D // 2
    frequency = torch.tensor([BASE**(-2.0 * i / D) for i in range(half)], dtype=x.dtype)
    angle = torch.arange(x.shape[2], dtype=x.dtype)[:, None] * frequency[None, :]
    cos, sin = torch.cos(angle), torch.sin(angle)
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def attention(q, k, v, kv_heads):
    """Causal; q [B, T, H D], k and v [B, T, Hkv D]. Query head h reads key/value head h // (H / Hkv)."""
    b, t = q.shape[0], q.shape[1]
    q = rope(q.view(b, t, H, D).transpose(1, 2))
    k = rope(k.view(b, t, kv_heads, D).transpose(1, 2))
    v = v.view(b, t, kv_heads, D).transpose(1, 2)
    k, v = (x.repeat_interleave(H // kv_heads, dim=1) for x in (k, v))
    scores = q @ k.transpose(2, 3) / math.sqrt(D)
    hidden = torch.ones(t, t, dtype=torch.bool).triu(1)
    probabilities = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
    return (probabilities @ v).transpose(1, 2).reshape(b, t, H * D)


def model_logits(w, ids, kv_heads, linear):
    """Logits [B, T, V]. `linear(name, x, weight)` computes the products inside the blocks."""
    x = w["model.embed_tokens.weight"][ids]
    for layer in range(L):
        p = f"model.layers.{layer}."

        def product(name, value):
            return linear(p + name, value, w[p + name + ".weight"])

        y = rms_norm(x, w[p + "input_layernorm.weight"])
        q, k, v = (product("self_attn." + name, y) for name in ("q_proj", "k_proj", "v_proj"))
        x = x + product("self_attn.o_proj", attention(q, k, v, kv_heads))
        y = rms_norm(x, w[p + "post_attention_layernorm.weight"])
        gate, up = product("mlp.gate_proj", y), product("mlp.up_proj", y)
        x = x + product("mlp.down_proj", gate * torch.sigmoid(gate) * up)
    return rms_norm(x, w["model.norm.weight"]) @ w["lm_head.weight"].T


def loss_sum(logits, labels):
    """Sum of the cross-entropies of the labels that count."""
    flat, wanted = logits.reshape(-1, V), labels.reshape(-1)
    rows = torch.nonzero(wanted != IGNORE).squeeze(1)
    return (torch.logsumexp(flat[rows], dim=1) - flat[rows, wanted[rows]]).sum()


def as_leaves(weights, dtype=torch.float64):
    return {name: w.to(dtype).clone().requires_grad_() for name, w in weights.items()}


def random_batches(seed, steps):
    """ids and labels [steps, B, T]. About an eighth of the labels are masked, in some rows all from a point on."""
    random = np.random.RandomState(seed)
    text = random.randint(0, V, size=(steps, B, T + 1))
    # A pattern that can be learnt: every other token follows from the one before it.
    text[:, :, 1::2] = (text[:, :, 0:T:2] * 5 + 3) % V
    labels = text[:, :, 1:].copy()
    labels[random.uniform(size=labels.shape) < 0.05] = IGNORE
    for step in range(steps):
        labels[step, random.randint(B), random.randint(T // 2, T):] = IGNORE
    return torch.from_numpy(text[:, :, :-1].copy()), torch.from_numpy(labels)


# ---- training ----------------------------------------------------------------------------------------------------

def cosine_lr(peak, step):
    """Linear warm-up over a tenth of the run from 0, cosine to a tenth of the peak."""
    warmup = STEPS // 10
    if step < warmup:
        return peak * step / max(1, warmup)
    x = min(1.0, (step - warmup) / max(1, STEPS - warmup))
    return peak * (0.1 + 0.9 * (1 + math.cos(math.pi * x)) / 2)


class Adam:
    """Moments of one tensor; `direction` is m^ / (sqrt(v^) + eps)."""

    def __init__(self, like, betas, eps):
        self.m, self.v, self.t = torch.zeros_like(like), torch.zeros_like(like), 0
        self.betas, self.eps = betas, eps

    def direction(self, gradient):
        b1, b2 = self.betas
        self.t += 1
        self.m = b1 * self.m + (1 - b1) * gradient
        self.v = b2 * self.v + (1 - b2) * gradient * gradient
        return self.m / (1 - b1**self.t) / (torch.sqrt(self.v / (1 - b2**self.t)) + self.eps)


def is_block_matrix(name):
    return "_proj." in name


def train_adamw(weights, ids, labels, kv_heads, settings, dtype=torch.float64):
    w = as_leaves(weights, dtype)
    states = {name: Adam(value.detach(), settings["betas"], settings["eps"]) for name, value in w.items()}
    losses = []
    for step in range(STEPS):
        loss = loss_sum(model_logits(w, ids[step], kv_heads, plain_linear), labels[step])
        loss = loss / (labels[step] != IGNORE).sum()
        losses.append(loss.item())
        gradients = dict(zip(w, torch.autograd.grad(loss, list(w.values()))))
        with torch.no_grad():
            for name, value in w.items():
                lr = cosine_lr(settings["lr"], step)
                if is_block_matrix(name):
                    lr *= settings["block_scale"]
                if "norm" not in name:
                    value *= 1 - lr * settings["weight_decay"]
                value -= lr * states[name].direction(gradients[name])
    return losses, {name: value.detach() for name, value in w.items()}, states


class CompressedLinear(torch.autograd.Function):
    """o = x W^T exactly; keeps z = x P instead of x. The weight has no gradient of its own: z^T dO is added to `sums`."""

    @staticmethod
    def forward(context, x, weight, p, sums, name):
        context.save_for_backward(x @ p, weight)
        context.sums, context.name = sums, name
        return x @ weight.T

    @staticmethod
    def backward(context, dout):
        z, weight = context.saved_tensors
        r, m = z.shape[-1], dout.shape[-1]
        estimate = z.reshape(-1, r).T @ dout.reshape(-1, m)  # [r, m]
        context.sums[context.name] = context.sums.get(context.name, 0) + estimate
        return dout @ weight, None, None, None, None


def projection_ids(per_input):
    """The identity of each weight's P: layer * 8 + its place in the block, or that of the first of its group."""
    order = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
             "mlp.up_proj", "mlp.down_proj"]
    first = {"self_attn.k_proj": "self_attn.q_proj", "self_attn.v_proj": "self_attn.q_proj",
             "mlp.up_proj": "mlp.gate_proj"}
    ids = {}
    for layer in range(L):
        for name in order:
            if name != "self_attn.o_proj":
                source = first.get(name, name) if per_input else name
                ids[f"model.layers.{layer}.{name}"] = layer * 8 + order.index(source)
    return ids


def train_compact(weights, ids, labels, kv_heads, settings, dtype=torch.float64):
    w = as_leaves(weights, dtype)
    identity = projection_ids(settings["sharing"] == "per_input")
    compressed = {name + ".weight" for name in identity}
    width = {name: w[name].shape[1] for name in compressed}                       # n
    rank = {name: round(settings["rank"] * n) for name, n in width.items()}       # r, half to even
    states = {name: Adam(torch.zeros(rank[name], value.shape[0], dtype=dtype) if name in compressed else value.detach(),
                         settings["betas"], settings["eps"]) for name, value in w.items()}
    plain = [name for name in w if name not in compressed]
    micro = settings["micro_batch"]
    losses = []
    for step in range(STEPS):
        window = step // settings["update_gap"]
        p = {name: projection(settings["seed"], identity[name[:-len(".weight")]], window, width[name],
                              rank[name]).to(dtype) for name in compressed}
        sums = {}

        def linear(name, x, weight):
            if name not in identity:
                return plain_linear(name, x, weight)
            return CompressedLinear.apply(x, weight, p[name + ".weight"], sums, name + ".weight")

        count, total = (labels[step] != IGNORE).sum(), 0.0
        gradients = {name: 0 for name in plain}
        for first in range(0, B, micro):
            rows = slice(first, first + micro)
            loss = loss_sum(model_logits(w, ids[step][rows], kv_heads, linear), labels[step][rows]) / count
            total += loss.item()
            for name, gradient in zip(plain, torch.autograd.grad(loss, [w[name] for name in plain])):
                gradients[name] = gradients[name] + gradient
        losses.append(total)
        lr = cosine_lr(settings["lr"], step)
        with torch.no_grad():
            for name, value in w.items():
                if name in compressed:
                    direction = p[name] @ states[name].direction(sums[name])     # [n, m]
                    value -= lr * settings["alpha"] * direction.T
                else:
                    scale = settings["alpha"] * settings["out_scale"] if "o_proj" in name else 1.0
                    value -= lr * scale * states[name].direction(gradients[name])
    return losses, {name: value.detach() for name, value in w.items()}, states


# ---- files -------------------------------------------------------------------------------------------------------

def write_safetensors(path, tensors, metadata):
    """8 bytes header length, JSON header, float32 data."""
    header, data, at = {"__metadata__": metadata}, [], 0
    for name, value in tensors.items():
        array = np.ascontiguousarray(np.asarray(value, dtype=np.float32))
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [at, at + array.nbytes]}
        data.append(array.tobytes())
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))
    print(f"{path}: {len(tensors)} tensors, {path.stat().st_size} bytes")


def model_config(kv_heads):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": V, "hidden_size": C,
            "intermediate_size": F, "num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": kv_heads,
            "max_position_embeddings": T, "hidden_act": "silu", "rms_norm_eps": EPS, "rope_theta": BASE,
            "attention_bias": False, "tie_word_embeddings": False, "initializer_range": 0.02, "bos_token_id": 1,
            "eos_token_id": 2}


MODELS = {"mha": (4, 11), "gqa": (2, 12)}  # key/value heads, seed of the weights
ADAMW = {"lr": 0.005, "betas": [0.9, 0.999], "eps": 1e-6, "weight_decay": 0.1, "block_scale": 1.0}
COMPACT = {"lr": 0.01, "betas": [0.9, 0.999], "eps": 1e-6, "rank": 0.25, "alpha": 0.25, "update_gap": 12,
           "out_scale": 0.5, "micro_batch": 2, "seed": 0x1234567890ABCDEF}
RUNS = {
    "adamw": ("mha", 21, train_adamw, ADAMW),
    "adamw_block_scale": ("mha", 21, train_adamw, {**ADAMW, "block_scale": 0.1}),
    "compact_per_weight": ("gqa", 22, train_compact, {**COMPACT, "sharing": "per_weight"}),
    "compact_per_input": ("gqa", 22, train_compact, {**COMPACT, "sharing": "per_input"}),
}


def metadata_for(what, settings):
    return {"what": what, "made_by": "scripts/make_golden.py", "torch": torch.__version__, "numpy": np.__version__,
            "computed_in": "float64, stored as float32", "settings": json.dumps(settings)}


def gradients_of(weights, ids, labels, kv_heads):
    w = as_leaves(weights)
    logits = model_logits(w, ids, kv_heads, plain_linear)
    loss = loss_sum(logits, labels) / (labels != IGNORE).sum()
    return loss.detach(), logits.detach(), dict(zip(w, torch.autograd.grad(loss, list(w.values()))))


def write_all(out):
    out.mkdir(parents=True, exist_ok=True)
    for model, (kv_heads, seed) in MODELS.items():
        weights = initial_weights(kv_heads, seed)
        ids, labels = random_batches(seed + 100, 1)
        loss, logits, gradients = gradients_of(weights, ids[0], labels[0], kv_heads)
        tensors = dict(weights, ids=ids[0], labels=labels[0], loss=loss.reshape(1), logits=logits)
        tensors.update({"gradient." + name: g for name, g in gradients.items()})
        write_safetensors(out / f"llama_{model}.safetensors", tensors,
                          metadata_for("loss, logits and gradients of one batch", model_config(kv_heads)))
        (out / f"llama_{model}.json").write_text(json.dumps(model_config(kv_heads), indent=2) + "\n")
    for run, (model, seed, train, settings) in RUNS.items():
        kv_heads, weights_seed = MODELS[model]
        ids, labels = random_batches(seed, STEPS)
        losses, final, states = train(initial_weights(kv_heads, weights_seed), ids, labels, kv_heads, settings)
        print(f"{run}: loss {losses[0]:.4f} -> {losses[-1]:.4f}")
        tensors = {"ids": ids, "labels": labels, "losses": np.array(losses),
                   "lrs": np.array([cosine_lr(settings["lr"], step) for step in range(STEPS)])}
        tensors.update({"final." + name: value for name, value in final.items()})
        if train is train_compact:
            for name, state in states.items():
                # [r, m] of the paper lies as [m, r], like the weight it belongs to.
                turned = state.m.shape != final[name].shape
                tensors["m." + name] = state.m.T if turned else state.m
                tensors["v." + name] = state.v.T if turned else state.v
        write_safetensors(out / f"{run}.safetensors", tensors,
                          metadata_for(f"{STEPS} updates, initial weights in llama_{model}.safetensors", settings))


# ---- checks ------------------------------------------------------------------------------------------------------

def apart(a, b):
    return float((a - b).abs().max() / a.abs().max())


def check():
    vectors = [([0, 0, 0, 0], [0, 0], [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
               ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD])]
    for counter, key, expected in vectors:
        assert philox(np.array(counter, dtype=np.uint64), key).tolist() == expected, "Philox"
    p = projection(7, 3, 1, 400, 100)
    assert abs(float(p.mean())) < 3e-3 and abs(float(p.var()) * 100 - 1) < 0.03, "statistics of P"

    for kv_heads, seed in MODELS.values():
        weights = initial_weights(kv_heads, seed)
        ids, labels = random_batches(seed + 100, 1)
        loss, _, gradients = gradients_of(weights, ids[0], labels[0], kv_heads)
        random, worst = np.random.RandomState(0), 0.0
        for name, gradient in gradients.items():
            for _ in range(4):
                at = tuple(random.randint(size) for size in gradient.shape)
                ends = []
                for h in (1e-4, -1e-4):
                    moved = {k: w.clone() for k, w in weights.items()}
                    moved[name][at] += h
                    ends.append(gradients_of(moved, ids[0], labels[0], kv_heads)[0])
                worst = max(worst, abs(float((ends[0] - ends[1]) / 2e-4 - gradient[at])) / float(gradient.abs().max()))
        print(f"{kv_heads} kv heads: loss {float(loss):.6f}, gradients differ from finite differences by {worst:.1e}")
        assert worst < 1e-6, "gradients"

    for run, (model, seed, train, settings) in RUNS.items():
        kv_heads, weights_seed = MODELS[model]
        ids, labels = random_batches(seed, STEPS)
        weights = initial_weights(kv_heads, weights_seed)
        losses, final, states = train(weights, ids, labels, kv_heads, settings)
        losses32, final32, states32 = train(weights, ids, labels, kv_heads, settings, torch.float32)
        of_losses = max(abs(a - b) / a for a, b in zip(losses, losses32))
        of_weights = max(apart(final[n], final32[n]) for n in final)
        of_moments = max(max(apart(states[n].m, states32[n].m), apart(states[n].v, states32[n].v)) for n in final)
        print(f"{run}: float32 differs by {of_losses:.1e} in the losses, {of_weights:.1e} in the final weights and "
              f"{of_moments:.1e} in the moments (of each tensor's largest value)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    here = pathlib.Path(__file__).resolve().parent
    parser.add_argument("--out", type=pathlib.Path, default=here.parent / "tests" / "golden")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        check()
    else:
        write_all(options.out)


if __name__ == "__main__":
    main()
