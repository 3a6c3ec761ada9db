"""What capture writes of Megatron runs that are not the plain dense case."""

from __future__ import annotations

from math import prod

import pytest

from captured_run import index, run

pytest.importorskip("megatron.core")

SMALL = [
    *("--layers", "2", "--hidden", "32", "--ffn", "64", "--seq", "16", "--vocab", "64"),
    *("--global-batch", "4", "--micro-batch", "2", "--steps", "2"),
]


def captured(tmp_path, arguments, processes=1, name="trace", rank=0, **variables):
    """Notes by kind, and records, of one rank."""
    out = tmp_path / name
    run([*SMALL, *arguments], processes=processes, TTRACE_OUT=out, **variables)
    entries = index(out, rank)
    assert entries[-1]["complete"], entries[-1]
    notes = {}
    for entry in entries:
        if entry["type"] == "note":
            notes.setdefault(entry["kind"], []).append(entry["data"])
    return notes, [entry for entry in entries if entry["type"] == "record"]


def roles_of(records, fqn):
    return {record["role"] for record in records if record["fqn"] == fqn}


PARAMETER_ROLES = {"param", "grad_local", "grad_reduced", "param_updated", "optim_state"}


def test_an_unknown_module_has_parameters_all_the_same(tmp_path):
    notes, records = captured(tmp_path, ["--feed-forward", "own", "--tp", "2", "--sp"], processes=2)
    gain = "decoder.layers.1.mlp.gain"
    assert roles_of(records, gain) == PARAMETER_ROLES
    reduced = [r for r in records if r["fqn"] == gain and r["role"] == "grad_reduced"]
    assert all(r["reduced_over"] == ["tp"] for r in reduced)
    assert {n["class"] for n in notes["not_observed"]} == {"GainedFeedForward"}
    # Linears inside, of a class that is known, are observed.
    assert "output" in roles_of(records, "decoder.layers.1.mlp.up")
    # Nothing tells whether tensor parallelism cuts the buffer.
    assert {n["fqn"] for n in notes["not_recorded"]} == {
        f"decoder.layers.{layer}.mlp.shift" for layer in range(2)
    }


@pytest.mark.parametrize("dtype", [[], ["--bf16"]])
def test_how_large_the_parts_of_a_gradient_are_is_noted(tmp_path, dtype):
    notes, records = captured(tmp_path, [*dtype, "--micro-batch", "4"], name="whole")
    (norms, later), (squares, _) = notes["gradient_norms"], notes["gradient_parts"]
    assert norms["iteration"] == squares["iteration"] == 0 and later["iteration"] == 1
    assert set(squares["squares"]) == {r["fqn"] for r in records if r["role"] == "grad_local"}
    # Of one micro-batch the part is the gradient.
    roots = {fqn: square**0.5 for fqn, square in squares["squares"].items()}
    assert roots == pytest.approx(norms["norms"], rel=1e-3)
    notes, _ = captured(tmp_path, dtype, name="parts")
    cut = notes["gradient_parts"][0]["squares"]
    assert set(cut) == set(roots) and cut != pytest.approx(squares["squares"], rel=1e-3)


def test_a_graft_reaches_unknown_parameters_and_tells_where_buffers_lie(tmp_path):
    arguments = ["--feed-forward", "own"]
    captured(tmp_path, arguments, name="reference")
    notes, records = captured(
        tmp_path,
        [*arguments, "--seed", "9", "--tp", "2", "--sp"],
        processes=2,
        TTRACE_GRAFT=tmp_path / "reference",
    )
    assert "not_grafted" not in notes
    assert "not_recorded" not in notes
    assert roles_of(records, "decoder.layers.0.mlp.shift") == {"buffer"}
    (first, second) = (n for n in notes["graft"] if n["what"] == "weights")
    assert first["of"] == second["of"] == len({r["fqn"] for r in records if r["role"] == "param"})


def test_layers_under_other_names_are_observed_like_megatrons_own(tmp_path):
    topology = ["--tp", "2", "--sp"]
    other = [*topology, "--linears", "te", "--norm", "own"]
    notes, records = captured(tmp_path, other, processes=2, name="other")
    _, expected = captured(tmp_path, topology, processes=2, name="core")
    assert "not_observed" not in notes

    def activations(of):
        roles = ("input", "output", "grad_input", "grad_output")
        return {(r["fqn"], r["role"], r["arg"], r["placements"]) for r in of if r["role"] in roles}

    assert activations(records) == activations(expected)


def test_norms_within_linears_are_recorded_as_those_before_linears(tmp_path):
    topology = ["--tp", "2", "--sp", "--layers", "1", "--no-gated"]
    fused = [*topology, "--linears", "te-fused", "--fused-wgrad"]
    notes, records = captured(tmp_path, fused, processes=2, name="fused")
    _, expected = captured(tmp_path, topology, processes=2, name="core")

    def points(of):
        names = ("fqn", "role", "arg", "placements", "global_shape", "reduced_over")
        return {tuple(map(str, (record[name] for name in names[:5]))) for record in of}

    layer = "decoder.layers.0"
    absent = {
        *((f"{layer}.{norm}_layernorm", role) for norm in ("input", "pre_mlp")
          for role in ("output", "grad_output")),
        *((f"{layer}.{name}", role)
          for name in ("self_attention", "self_attention.linear_qkv", "mlp", "mlp.linear_fc1")
          for role in ("input", "grad_input")),
    }  # fmt: skip
    assert points(records) == {p for p in points(expected) if p[:2] not in absent}
    told = {
        (fqn, role) for n in notes["fused"] for fqn, roles in n["absent"].items() for role in roles
    }
    assert told == absent
    (first, second) = notes["fused"]
    assert first["within"] == f"{layer}.self_attention.linear_qkv"
    assert first["names"][f"{layer}.input_layernorm.bias"] == f"{first['within']}.layer_norm_bias"
    assert second["class"] == "TELayerNormColumnParallelLinear"
    # Marked as TransformerEngine marks them, which is as megatron-core needs it.
    assert "attribute" not in notes


def test_fp16_gradients_are_recorded_with_the_loss_scale(tmp_path):
    notes, records = captured(tmp_path, ["--fp16", "--loss-scale", "1024"])
    assert notes["loss_scale"] == [{"iteration": i, "scale": 1024.0} for i in (0, 1)]
    scales = {
        role: {tuple(r["scale"]) for r in records if r["role"] == role}
        for role in (
            "grad_output",
            "grad_input",
            "grad_local",
            "grad_reduced",
            "output",
            "grad_norm",
        )
    }
    assert scales.pop("output") == scales.pop("grad_norm") == {(1, 1)}
    assert all(scale == {(1, 1024)} for scale in scales.values()), scales


def test_a_step_that_the_optimizer_skips_is_said(tmp_path):
    notes, _ = captured(tmp_path, ["--fp16", "--initial-loss-scale", str(2.0**32)])
    assert [note["iteration"] for note in notes["skipped_step"]] == [0, 1]


def test_a_step_that_megatron_repeats_is_one_iteration(tmp_path):
    def checksums(records):
        return [(r["iteration"], r["fqn"], r["role"], r["xxh3"]) for r in records]

    _, repeated = captured(tmp_path, ["--repeat"], name="repeated", TTRACE_LEGS="replay")
    _, plain = captured(tmp_path, [], name="plain", TTRACE_LEGS="replay")
    assert checksums(repeated) == checksums(plain)


def test_a_repeated_step_of_a_grafted_run_computes_on_the_reference_data(tmp_path):
    def computed(records):
        return {
            (r["iteration"], r["fqn"], r["role"], r["arg"], r["micro_batch"], r["xxh3"])
            for r in records
            if r["leg"] == "real" and r["role"] in ("input", "output", "grad_local")
        }

    _, reference = captured(tmp_path, ["--repeat"], name="reference")
    notes, records = captured(
        tmp_path, ["--repeat", "--seed", "9"], TTRACE_GRAFT=tmp_path / "reference",
        TTRACE_LEGS="replay", TTRACE_KEEP_VALUES="1",
    )  # fmt: skip
    assert computed(records) == computed(reference)
    assert not [n for n in notes.get("notice", ()) if "gradients changed" in n["text"]]


def test_the_padded_vocabulary_is_a_fact_of_the_computation(tmp_path):
    notes, _ = captured(tmp_path, [])
    (fact,) = notes["computation"]
    assert (fact["name"], fact["value"]) == ("padded_vocab_size", 64)
    assert "--make-vocab-size-divisible-by" in fact["option"]


def test_a_compiled_module_is_named_and_its_parameters_are_recorded(tmp_path):
    notes, records = captured(tmp_path, ["--compile", "mlp"], TTRACE_LEGS="replay")
    assert [n["fqn"] for n in notes["compiled"]] == [f"decoder.layers.{i}.mlp" for i in range(2)]
    assert roles_of(records, "decoder.layers.0.mlp.linear_fc1.weight") == PARAMETER_ROLES
    assert {"input", "output"} <= roles_of(records, "decoder.layers.0.mlp")
    assert not any("_orig_mod" in record["fqn"] for record in records)


def test_what_cannot_be_judged_is_named_and_captured(tmp_path):
    flags = ["--mtp", "1", "--positions", "learned", "--pp", "2"]
    notes, records = captured(tmp_path, flags, 2, rank=1, TTRACE_LEGS="replay")
    (note,) = notes["unsupported"]
    assert note["what"] == "multi-token prediction with learned positions over pipeline stages"
    roles = {record["role"] for record in records}
    assert {"param", "output", "grad_local", "grad_reduced", "param_updated"} <= roles


def test_the_last_stage_embeds_where_the_model_does_it_the_second_time(tmp_path):
    """One forward of the whole model calls the embedding for its tokens, then for further ones."""
    notes, records = captured(tmp_path, ["--mtp", "1", "--pp", "2"], 2, rank=1)
    calls = {
        r["call"] for r in records if r["fqn"].startswith("embedding") and "output" in r["role"]
    }
    assert calls == {1}
    assert {r["call"] for r in records if r["fqn"] == "output_layer" and r["role"] == "output"} == {
        0,
        1,
    }
    weight = "embedding.word_embeddings.weight"
    assert roles_of(records, weight) == PARAMETER_ROLES
    (reduced,) = {
        tuple(r["reduced_over"])
        for r in records
        if r["fqn"] == weight and r["role"] == "grad_reduced"
    }
    assert reduced == ("pp",)
    # Megatron gives the tied head a weight here too, and does not use it.
    assert not roles_of(records, "output_layer.weight")
    assert any("output_layer.weight" in note["text"] for note in notes["notice"])
    assert "not_observed" not in notes


def test_a_rank_records_its_own_part_of_what_is_reduced(tmp_path):
    """Of each parameter, the boxes of both ranks make up the whole, and nothing twice."""
    held: dict[tuple[str, str], int] = {}
    whole: dict[tuple[str, str], int] = {}
    captured(tmp_path, ["--distributed-optimizer"], 2)
    for rank in range(2):
        for entry in index(tmp_path / "trace", rank):
            if entry["type"] != "record" or "RaggedShard" not in entry["placements"]:
                continue
            if (entry["role"], entry["pass"], entry["arg"]) == ("grad_reduced", "backward", ""):
                name = entry["fqn"], str(entry["iteration"])
                held[name] = held.get(name, 0) + prod(entry["shape"])
                whole[name] = prod(entry["global_shape"])
    assert held
    assert held == whole


def test_steps_say_what_they_started_from_and_what_they_left(tmp_path):
    _, records = captured(tmp_path, ["--bf16"])
    name = "decoder.layers.0.mlp.linear_fc1.weight"
    states = {
        (r["iteration"], r["arg"], r["pass"])
        for r in records
        if r["role"] == "optim_state" and r["fqn"] == name
    }
    after = {"updated", "master", "exp_avg", "exp_avg_sq", "step"}
    assert {arg for _, arg, pass_ in states if pass_ == "optimizer"} == after
    # What one step left the next one finds, and is not written twice.
    assert {(i, arg) for i, arg, pass_ in states if pass_ == "forward"} == {
        (0, "updated"),
        (0, "master"),
    }


def test_random_numbers_of_a_module_are_noted_and_those_of_dropout_not(tmp_path):
    noisy = ["--experts", "2", "--router-jitter", "0.01", "--dropout", "0.1"]
    notes, _ = captured(tmp_path, noisy, TTRACE_ITERATIONS="0:1")
    draws = notes["random_draws"]
    assert {n["fqn"] for n in draws} == {f"decoder.layers.{layer}.mlp.router" for layer in range(2)}
    assert all(len(n["draws"]) == 2 for n in draws)  # micro-batches
    assert notes["dropout"][0]["calls"] > 0
