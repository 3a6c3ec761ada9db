"""The runs that this project promises to judge rightly: clean topologies and zoo bugs.

`make test` runs the cases marked `quick`, `make matrix` all of them.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from runs import ROOT, launch

sys.path.insert(0, str(ROOT / "zoo"))
import bug_catalog

STEPS = ("--steps", "3")
DTYPES = {"fp32": (), "bf16": ("--bf16",)}


@dataclass(frozen=True)
class Topology:
    nproc: int
    flags: tuple[str, ...]


TOPOLOGIES = {
    "single": Topology(1, ()),
    "tp2": Topology(2, ("--tp", "2")),
    "tp2sp": Topology(2, ("--tp", "2", "--sp")),
    "cp2": Topology(2, ("--cp", "2")),
    "tp2sp_cp2": Topology(4, ("--tp", "2", "--sp", "--cp", "2")),
    "pp2": Topology(2, ("--pp", "2")),
    "dp2": Topology(2, ()),
    "tp2sp_pp2": Topology(4, ("--tp", "2", "--sp", "--pp", "2")),
    "tp2sp_recompute": Topology(2, ("--tp", "2", "--sp", "--recompute")),
    "tp2_cp2": Topology(4, ("--tp", "2", "--cp", "2")),
}

_DISTRIBUTED = ("--distributed-optimizer",)
_OVERLAPS = (*_DISTRIBUTED, "--overlap-grad-reduce", "--overlap-param-gather")
_VPP = ("--pp", "2", "--vpp", "2")
# The axes beyond dense models, each against one process.
OTHER_AXES = {
    "pp2_vpp2": Topology(2, _VPP),
    "dp2_distopt": Topology(2, _DISTRIBUTED),
    "dp2_distopt_overlap": Topology(2, (*_OVERLAPS, "--bucket-size", "20000")),
    "tp2sp_dp2_distopt": Topology(4, ("--tp", "2", "--sp", *_DISTRIBUTED)),
    "pp2_vpp2_dp2_distopt_overlap": Topology(4, (*_VPP, *_OVERLAPS)),
}
# With four experts.
EXPERT_AXES = {
    "ep2": Topology(2, ("--ep", "2")),
    "tp2sp_etp2": Topology(2, ("--tp", "2", "--sp", "--etp", "2")),
    "tp2sp_ep2": Topology(2, ("--tp", "2", "--sp", "--ep", "2", "--etp", "1")),
    "ep2_cp2": Topology(2, ("--ep", "2", "--cp", "2")),
    "ep2_pp2": Topology(4, ("--ep", "2", "--pp", "2")),
    "ep2_dp2_distopt_overlap": Topology(4, ("--ep", "2", *_OVERLAPS)),
    "tp2sp_etp2_ep2": Topology(4, ("--tp", "2", "--sp", "--etp", "2", "--ep", "2")),
    "ep2_pp2_vpp2_distopt": Topology(4, ("--ep", "2", *_VPP, *_DISTRIBUTED)),
}
# Options of layers of experts, and where each is tried.
EXPERT_FEATURES = {
    "aux": ("--aux-loss", "aux_loss"),
    "bias": ("--expert-bias", "--router-scores", "sigmoid"),
    "shared": ("--shared-expert-ffn", "64", "--shared-expert-gate"),
    "allgather": ("--dispatcher", "allgather"),
    "every2": ("--moe-layer-freq", "2"),
    "z": ("--z-loss", "0.01"),
}
EXPERTS = ("--experts", "4")

# As megatron-core 0.16.1 would compute it but for two of its bugs.
LATENT = ("--mla", "--qk-layernorm", "--fix", "latent_keys_summed,latent_norm_once")
# Features of the model and the data, which both runs have.
FEATURES = {
    "": (),
    "window": ("--window", "8", "--window-skip", "3"),
    "recompute2": ("--recompute", "--recompute-layers", "2"),
    "qknorm": ("--qk-layernorm",),
    "frozen": ("--freeze", "linear_fc1"),
    "learned": ("--positions", "learned"),
    "uneven": ("--loss-mask", "uneven", "--per-token-loss"),
    "uniform": ("--init-std", "0.002"),
    "latent": LATENT,
    "latent-experts": (*LATENT, "--query-rank", "0", "--experts", "4"),
    "latent-recompute": (*LATENT, "--recompute-modules", "mla_up_proj"),
    # Of these, sequence parallelism needs no correction.
    "latent-duplicated": ("--mla", "--qk-layernorm", "--linears", "te"),
    "further": ("--mtp", "2"),
    "further-untied": ("--mtp", "1", "--no-tied"),
    "dropout": ("--dropout", "0.1"),
}
# Where each feature meets the topology that makes it hard.
FEATURE_TOPOLOGIES = (
    ("window", "pp2"),
    ("window", "cp2"),
    ("recompute2", "tp2sp"),
    ("recompute2", "pp2"),
    ("qknorm", "tp2"),
    ("qknorm", "tp2sp"),
    ("frozen", "tp2"),
    ("frozen", "pp2"),
    ("learned", "tp2sp"),
    ("learned", "cp2"),
    ("uneven", "dp2"),
    ("uneven", "cp2"),
    ("uniform", "cp2"),
    ("dropout", "tp2sp"),
    ("dropout", "dp2"),
    ("dropout", "pp2"),
    ("latent", "tp2"),
    ("latent", "cp2"),
    ("latent", "dp2"),
    ("latent-experts", "pp2"),
    ("latent-recompute", "tp2sp"),
    ("latent-duplicated", "tp2sp"),
    ("further", "pp2"),
    ("further-untied", "tp2sp_pp2"),
)


@dataclass(frozen=True)
class Case:
    """One candidate against one reference."""

    name: str
    script: str
    reference: tuple[int, tuple[str, ...]]  # processes, flags
    candidate: tuple[int, tuple[str, ...]]
    bugs: tuple[str, ...] = ()  # file names of the zoo; none: clean
    quick: bool = False

    @property
    def reference_command(self) -> str:
        return launch(self.reference[0], self.script, *self.reference[1])

    @property
    def candidate_command(self) -> str:
        return launch(self.candidate[0], self.script, *self.candidate[1])


def _gpt(
    name: str,
    reference: Topology,
    candidate: Topology,
    dtype: str,
    *,
    shared: tuple[str, ...] = (),
    bugs: tuple[str, ...] = (),
    quick: bool = False,
) -> Case:
    """`shared` are flags of both runs."""
    both = (*STEPS, *shared, *DTYPES[dtype])
    injected = ("--bug", ",".join(bugs)) if bugs else ()
    return Case(
        name,
        "train_gpt.py",
        (reference.nproc, (*both, *reference.flags)),
        (candidate.nproc, (*both, *candidate.flags, *injected)),
        bugs,
        quick,
    )


# One of each mechanism in one precision, alternating, so that the quick part sees
# every axis and every class of bug. Features that need a reference of their own
# cost one more launch: one of them is here. The control MG1 is TP2's clean run.
# T1, T10 and OT8 are all in one run of SEVERAL.
QUICK_CLEAN = {
    ("tp2sp_pp2", "bf16"),
    ("dropout-tp2sp", "fp32"),
}
QUICK_BUGS = {
    ("t3_cp_gradient_scale", "bf16"),
    ("t11_sp_layernorm_not_reduced", "bf16"),
    ("t12_cp_kv_gradient", "fp32"),
    ("mg1_reduce_noncontiguous", "bf16"),
    ("mg21_rope_positions", "fp32"),
    ("do1_data_parallel_masks", "fp32"),
    ("t5_shared_embedding_bucket", "fp32"),
    ("t6_router_not_reduced", "bf16"),
    ("t8_parameters_not_gathered", "fp32"),
    ("mg8_expert_gradient_scale", "bf16"),
}


def clean_cases() -> list[Case]:
    cases = []
    single = TOPOLOGIES["single"]
    for dtype in DTYPES:
        for name, topology in TOPOLOGIES.items():
            if name == "single":
                continue
            quick = (name, dtype) in QUICK_CLEAN
            cases.append(_gpt(f"clean-{name}-{dtype}", single, topology, dtype, quick=quick))
        for feature, name in FEATURE_TOPOLOGIES:
            cases.append(
                _gpt(
                    f"clean-{feature}-{name}-{dtype}",
                    single,
                    TOPOLOGIES[name],
                    dtype,
                    shared=FEATURES[feature],
                    quick=(f"{feature}-{name}", dtype) in QUICK_CLEAN,
                )
            )
        for name in ("tp2sp", "pp2"):
            cases.append(
                _gpt(
                    f"clean-{name}-against-tp2-{dtype}",
                    TOPOLOGIES["tp2"],
                    TOPOLOGIES[name],
                    dtype,
                )
            )
    return cases


def axis_cases() -> list[Case]:
    """Virtual stages, the distributed optimizer, mixtures of experts."""
    single = TOPOLOGIES["single"]
    quick = {
        ("pp2_vpp2_dp2_distopt_overlap", "fp32"),
        ("ep2_dp2_distopt_overlap", "fp32"),
    }
    cases = []
    for dtype in DTYPES:
        for shared, axes in (((), OTHER_AXES), (EXPERTS, EXPERT_AXES)):
            for name, topology in axes.items():
                case = f"clean-{name}-{dtype}"
                fast = (name, dtype) in quick
                cases.append(_gpt(case, single, topology, dtype, shared=shared, quick=fast))
        for name, flags in EXPERT_FEATURES.items():
            for axis in ("ep2", "tp2sp_etp2"):
                case = f"clean-experts-{name}-{axis}-{dtype}"
                shared = (*EXPERTS, *flags)
                cases.append(_gpt(case, single, EXPERT_AXES[axis], dtype, shared=shared))
    return cases


def bug_cases() -> list[Case]:
    """Controls too, of which nothing may be said."""
    cases = []
    for name in bug_catalog.names():
        bug = bug_catalog.load(name)
        shared = bug_catalog.reference_flags(bug)
        for dtype in DTYPES:
            cases.append(
                _gpt(
                    f"bug-{bug.ID}-{dtype}",
                    TOPOLOGIES["single"],
                    Topology(bug.NPROC, bug_catalog.own_flags(bug)),
                    dtype,
                    shared=shared,
                    bugs=(name,),
                    quick=(name, dtype) in QUICK_BUGS,
                )
            )
    return cases


# A dispatcher's rows, a router's probabilities, a bucket that is reduced in part: of rules that no
# other quick case needs.
QUICK_PLANTED = {"PL4", "PL6", "PL14"}


def planted_cases() -> list[Case]:
    """Faults that no report stands behind."""
    cases = []
    for name in bug_catalog.planted():
        bug = bug_catalog.load(name)
        cases.append(
            _gpt(
                f"planted-{bug.ID}",
                TOPOLOGIES["single"],
                Topology(bug.NPROC, bug_catalog.own_flags(bug)),
                "fp32",
                shared=bug_catalog.reference_flags(bug),
                bugs=(name,),
                quick=bug.ID in QUICK_PLANTED,
            )
        )
    return cases


# Independent bugs in one run: topology, features of both runs, bugs.
SEVERAL = (
    (Topology(4, ("--tp", "2", "--cp", "2")), (), ("T1", "T12", "T3")),
    (TOPOLOGIES["tp2"], (), ("OT8", "T10", "T1")),
    (TOPOLOGIES["tp2sp"], FEATURES["learned"], ("M7452-6", "T11")),
    (TOPOLOGIES["pp2"], FEATURES["window"], ("T9", "OT8")),
)


def several_cases() -> list[Case]:
    return [
        _gpt(
            f"bugs-{'+'.join(bugs)}-{dtype}",
            TOPOLOGIES["single"],
            topology,
            dtype,
            shared=shared,
            bugs=bugs,
            quick=(bugs[0], dtype) == ("OT8", "bf16"),
        )
        for topology, shared, bugs in SEVERAL
        for dtype in DTYPES
    ]


# Layers of other classes than megatron-core's, and faults that no report stands behind: features of
# both runs, topology, bugs.
OTHER_CLASSES = ("--linears", "te", "--norm", "own", "--feed-forward", "own")
OTHER_LAYERS = (
    ("other-layers", OTHER_CLASSES, "tp2sp", ()),
    ("other-layers", OTHER_CLASSES, "tp2", ("t10_tp_dgrad_no_allreduce",)),
    ("other-layers", OTHER_CLASSES, "tp2sp", ("t11_sp_layernorm_not_reduced",)),
    ("other-layers", OTHER_CLASSES, "pp2", ()),
    ("compiled", ("--compile", "mlp"), "tp2sp", ()),
    ("repeated", ("--repeat",), "tp2sp", ()),
    ("gradients-bf16", ("--bf16", "--grad-reduce-in-bf16"), "tp2sp", ()),
    ("gradients-bf16", ("--bf16", "--grad-reduce-in-bf16"), "dp2", ()),
    ("gradients-fp16", ("--fp16", "--grad-reduce-in-bf16"), "pp2", ()),
    ("fp16", ("--fp16",), "tp2sp", ()),
    ("fp16", ("--fp16",), "dp2", ()),
    ("fp16", ("--fp16",), "tp2", ("t10_tp_dgrad_no_allreduce",)),
    ("latent", FEATURES["latent"], "tp2sp", ("pl23_latent_norm_not_marked",)),
    ("further", FEATURES["further-untied"], "pp2", ("pl24_copy_of_embedding_not_added",)),
    # Too large for the gradients of the first iteration, and not for those of the second.
    ("fp16-overflow", ("--fp16", "--initial-loss-scale", "680000"), "tp2", ()),
)


def other_cases() -> list[Case]:
    return [
        _gpt(
            f"{name}-{'-'.join((topology, *(bug.split('_')[0] for bug in bugs)))}",
            TOPOLOGIES["single"],
            TOPOLOGIES[topology],
            "fp32",
            shared=shared,
            bugs=bugs,
            quick=not bugs and (name, topology) in {("fp16", "tp2sp"), ("gradients-bf16", "dp2")},
        )
        for name, shared, topology, bugs in OTHER_LAYERS
    ]


# As with TransformerEngine on a GPU: norms are part of the linears behind them, which add weight
# gradients to the buffer themselves.
FUSED = ("--linears", "te-fused", "--fused-wgrad")


def fused_cases() -> list[Case]:
    """One of the two runs has norms of their own, or both have none."""
    single = TOPOLOGIES["single"]

    def fused(topology: Topology) -> Topology:
        return Topology(topology.nproc, (*topology.flags, *FUSED))

    cases = [
        _gpt(f"fused-{name}-bf16", single, fused(axes[name]), "bf16")
        for axes, name in (
            (TOPOLOGIES, "tp2sp"),
            (TOPOLOGIES, "tp2"),
            (TOPOLOGIES, "pp2"),
            (OTHER_AXES, "dp2_distopt_overlap"),
        )
    ]
    tp2sp, experts = TOPOLOGIES["tp2sp"], fused(EXPERT_AXES["tp2sp_ep2"])
    cases.append(_gpt("fused-both-tp2sp-bf16", fused(single), fused(tp2sp), "bf16"))
    cases.append(_gpt("fused-reference-tp2sp-bf16", fused(single), tp2sp, "bf16"))
    cases.append(_gpt("fused-experts-tp2sp_ep2-bf16", single, experts, "bf16", shared=EXPERTS))
    for bug in ("t10_tp_dgrad_no_allreduce", "t11_sp_layernorm_not_reduced"):
        name = "tp2" if bug.startswith("t10") else "tp2sp"
        topology = fused(TOPOLOGIES[name])
        case = f"fused-{name}-{bug.split('_')[0]}"
        cases.append(_gpt(case, single, topology, "bf16", bugs=(bug,)))
    return cases


def style_cases() -> list[Case]:
    """Scripts of other authors, and plain torch."""
    own = ("--steps", "3")
    return [
        Case(
            "own-loop-tp2",
            "own_loop.py",
            (1, own),
            (2, (*own, "--tp", "2")),
            quick=True,
        ),
        Case(
            "own-loop-pp2-evaluate",
            "own_loop.py",
            (1, (*own, "--evaluate")),
            (2, (*own, "--pp", "2", "--evaluate")),
        ),
        *(
            Case(
                f"own-loop-{batches}-tp2",
                "own_loop.py",
                (1, (*own, "--batches", batches)),
                (2, (*own, "--batches", batches, "--tp", "2")),
            )
            for batches in ("hidden", "by-hand")
        ),
        Case("ddp-toy", "ddp_toy.py", (1, own), (2, own)),
        Case(
            "tensor-parallel-toy",
            "tensor_parallel_toy.py",
            (1, own),
            (2, own),
        ),
    ]


def all_cases() -> list[Case]:
    return [
        *clean_cases(),
        *axis_cases(),
        *bug_cases(),
        *planted_cases(),
        *several_cases(),
        *other_cases(),
        *fused_cases(),
        *style_cases(),
    ]
