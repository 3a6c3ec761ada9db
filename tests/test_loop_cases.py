"""Loops of plain torch as people write them, each standing for its kind: what is honest is not
accused, and what is wrong in one of them is found and called what it is.

An honest loop computes the same on one rank and on two, in float64 to the last digits. "Within" is
its right verdict wherever both runs have the same values; where something cannot be compared yet,
undecided with its reason is right too, and a culprit never is.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from runs import Outcome, launch, ttrace

WITHIN, DIVERGED, UNDECIDED = 0, 1, 2
# A noise leg gives bounds, the isolated ones places. More would measure the same more finely.
LEGS = ("--reference-legs", "replay,noise:1,isolated.noise:1", "--legs", "isolated")


@dataclass(frozen=True)
class Case:
    script: str
    flags: tuple[str, ...] = ()
    # What the candidate is told beyond `flags`, and how many ranks it has.
    candidate: tuple[str, ...] = ()
    ranks: int = 2
    options: tuple[str, ...] = ()
    legs: tuple[str, ...] = LEGS  # empty: those of a diff that is told nothing
    codes: tuple[int, ...] = (WITHIN,)
    # What must be said wherever the verdict is not within, or, `always`, in any case.
    phrase: str = ""
    always: bool = False
    letter: str = ""
    stage: str = ""
    needs: str = ""
    quick: bool = False

    @property
    def name(self) -> str:
        words = (self.script, *self.flags, *self.candidate, *self.options)
        return " ".join(word.lstrip("-") for word in words)


OPEN = (WITHIN, UNDECIDED)
BUG = ("--bug",)

CASES = (
    # Gradients: what torch was told of them, who reduces and who scales them.
    Case("declared_partial_gradient", quick=True),
    Case("declared_partial_gradient", candidate=BUG, codes=(DIVERGED,), letter="P"),
    Case("gradients_averaged_by_hand", phrase="no wrapper", always=True),
    Case("gradients_averaged_by_hand", candidate=BUG, codes=(DIVERGED,), letter="R", stage="input",
         phrase="replicas differ"),
    Case("gradients_reduced_by_hand", ("one",)),
    Case("gradients_reduced_by_hand", ("flat",)),
    Case("gradients_reduced_by_hand", ("joined",)),
    Case("gradients_reduced_by_hand", ("coalesced",)),
    Case("gradients_reduced_by_hand", ("async",)),
    Case("gradients_reduced_by_hand", ("bfloat16",), phrase="loop itself, which sends bfloat16",
         always=True),
    Case("gradients_reduced_by_hand", ("parts",), ranks=4),
    Case("gradients_reduced_by_hand", ("summed",), phrase="convention", always=True),
    Case("gradients_reduced_by_hand", ("hook",)),
    Case("gradients_reduced_by_hand", ("accumulated",)),
    Case("gradients_reduced_by_hand", ("each",)),
    Case("gradients_reduced_by_hand", ("flat",), ("--bug", "missing"), codes=(DIVERGED,),
         letter="P", stage="communication", phrase="first at layers.1.down.weight"),
    Case("gradients_reduced_by_hand", ("one",), ("--bug", "missing"), codes=(DIVERGED,),
         letter="P", stage="communication", phrase="0 reductions over dp seen for 1 of 16"),
    Case("gradients_reduced_by_hand", ("one",), ("--bug", "sum"), codes=(DIVERGED,), letter="K",
         phrase="how it reduces, scales"),
    Case("gradients_reduced_by_hand", ("one",), ("--bug", "early"), codes=(DIVERGED,),
         letter="P", stage="communication", phrase="came after the reduction had begun"),
    Case("gradients_reduced_by_hand", ("accumulated",), ("--bug", "early"), codes=(DIVERGED,),
         letter="P", stage="communication", phrase="came after the reduction had begun"),
    Case("gradients_reduced_by_hand", ("flat",), ("--bug", "stale"), codes=(DIVERGED,),
         letter="R", stage="communication"),
    Case("gradients_reduced_by_hand", ("one",), ("--bug", "group"), codes=(DIVERGED,),
         letter="P", stage="communication", phrase="first at layers.1.down.weight"),
    Case("gradients_reduced_by_hand", ("one",), ("--bug", "rank"), codes=(DIVERGED,),
         letter="R", stage="communication", phrase="first at layers.1.down.weight"),
    Case("gradients_reduced_by_hand", ("one",), ("--bug", "never"), codes=(UNDECIDED,),
         phrase="no collective reduced the 16 gradients"),
    Case("parameter_of_some_rows"),
    Case("parameter_of_some_rows", candidate=BUG, codes=(DIVERGED,), letter="K",
         phrase="first at mark"),
    Case("compressed_reduction", codes=OPEN, phrase="hook"),
    Case("gradients_scaled_otherwise", ("hook",), phrase="convention", always=True),
    Case("gradients_scaled_otherwise", ("after",), phrase="convention", always=True, quick=True),
    Case("gradients_scaled_otherwise", ("after",), BUG, codes=(DIVERGED,)),
    Case("slope_penalty"),
    Case("slope_penalty", candidate=BUG, codes=(DIVERGED,), stage="compute"),
    Case("clipping_by_hand"),
    Case("clipping_by_hand", candidate=BUG, legs=(), codes=(DIVERGED,), letter="K",
         stage="optimizer", phrase="clips|scales"),
    Case("bias_without_gradient"),
    Case("tensor_and_data_parallel_by_hand", ranks=4, phrase="no wrapper", always=True),
    Case("tensor_and_data_parallel_by_hand", candidate=BUG, ranks=4, codes=(DIVERGED,),
         letter="P", stage="communication", phrase="first at layers.1.down.weight"),
    Case("parts_of_unlike_sizes", ranks=4),
    Case("parts_of_unlike_sizes", candidate=BUG, ranks=3, codes=(DIVERGED,), letter="S",
         phrase="blocks.1.up.weight"),
    Case("parameter_without_a_step"),
    Case("parameter_without_a_step", candidate=BUG, codes=(DIVERGED,), letter="S", quick=True,
         phrase="momentum_buffer: the candidate has no"),
    Case("bias_on_every_rank"),
    Case("bias_on_every_rank", candidate=BUG, codes=(DIVERGED,), phrase="bias", letter="K"),
    Case("few_rows_in_unequal_parts", legs=()),
    Case("few_rows_in_unequal_parts", candidate=BUG, codes=(DIVERGED,)),
    # Steps: who is called in which order, and what is stepped.
    Case("step_with_closure", quick=True),
    Case("lightning_module", needs="lightning"),
    # Several models, and optimizers that step in turn.
    Case("generator_and_critic"),
    Case("generator_and_critic", candidate=("--dealt",)),
    Case("generator_and_critic", ("--without-gradients",)),
    Case("generator_and_critic", candidate=("--bug", "half"), codes=(DIVERGED,), letter="L",
         phrase="first at loss"),
    Case("generator_and_critic", candidate=("--bug", "one wrapped"), codes=(DIVERGED,),
         letter="R", stage="communication", phrase="first at critic.score.bias"),
    Case("generator_and_critic", candidate=("--bug", "keeps gradients"), codes=(DIVERGED,),
         letter="S", phrase="first at critic.inner.bias"),
    Case("generator_and_critic", candidate=("--bug", "attached"), codes=(DIVERGED,),
         phrase="first at generator.out.bias"),
    Case("generator_and_critic", candidate=("--bug", "steps both"), codes=(DIVERGED,),
         stage="optimizer", phrase="first at critic.inner.weight"),
    Case("teacher_and_student"),
    Case("teacher_and_student", candidate=BUG, codes=(DIVERGED,), phrase="first at teacher.norm"),
    Case("lightning_in_turn", needs="lightning"),
    Case("lightning_in_turn", candidate=BUG, codes=(DIVERGED,), letter="L", needs="lightning",
         phrase="first at loss"),
    Case("two_tasks_a_step", candidate=("--in-turn",), ranks=1, codes=OPEN, phrase="twice"),
    Case("average_of_weights"),
    Case("average_of_weights", candidate=BUG, codes=(WITHIN, DIVERGED),
         phrase="average|not compared", always=True),
    Case("normalised_by_running_mean"),
    Case("normalised_by_running_mean", candidate=BUG, codes=(DIVERGED,), phrase="mean"),
    # Rows: whose they are when they are not one block of the global batch in its order.
    Case("two_views_in_one_batch", quick=True),
    Case("chosen_and_rejected"),
    Case("preference_trainer", needs="trl"),
    Case("called_twice_in_other_orders", options=("--graft", "weights"), quick=True),
    Case("noise_of_the_loop", quick=True),
    # A loop that draws otherwise is no fault by itself: what it made is said to be other.
    Case("noise_of_the_loop", candidate=BUG, codes=(DIVERGED, UNDECIDED),
         phrase="other values"),
    Case("uneven_batch", quick=True),
    Case("labels_in_pairs"),
    Case("labels_in_pairs", candidate=BUG, codes=(DIVERGED,), phrase="read the same rows"),
    Case("drawn_with_replacement"),
    Case("whole_batch_on_each_rank", ("rows",)),
    Case("whole_batch_on_each_rank", ("rows",), BUG, codes=(DIVERGED,), letter="Z",
         phrase="are fed the same rows"),
    Case("whole_batch_on_each_rank", ("loss",), quick=True),
    Case("whole_batch_on_each_rank", ("loss",), BUG, codes=(DIVERGED,), stage="compute"),
    Case("ranks_of_other_sizes", ("none",), quick=True),
    Case("ranks_of_other_sizes", ("filled",)),
    Case("ranks_of_other_sizes", ("filled",), BUG, codes=(DIVERGED,), stage="compute"),
    Case("constant_targets", quick=True),
    Case("contrastive_gathered"),
    # Batches whose first dimension is no row, or whose shape depends on who else is in them.
    Case("graphs", codes=OPEN, phrase="index|indices"),
    Case("graphs", ("--equal",), codes=OPEN, phrase="index|indices"),
    Case("graphs", options=("--graft", "weights"), codes=OPEN, phrase="row|index|indices"),
    Case("bags_with_offsets"),
    Case("bags_with_offsets", options=("--graft", "weights")),
    Case("lists_of_images", codes=OPEN, phrase="list|row"),
    Case("lists_of_images", options=("--graft", "weights"), codes=OPEN, phrase="list|row"),
    Case("ragged_rows_in_a_list"),
    Case("packed_sequences", codes=OPEN, phrase="packed|row"),
    # Labels that only the mask of the loss tells apart from wrong ones.
    Case("packed_sequences", ("--rolled",), codes=OPEN, phrase="data target"),
    Case("tagger_of_padded_rows"),
    Case("tagger_of_padded_rows", options=("--graft", "weights")),
    Case("tagger_of_padded_rows", candidate=("--bug", "same"), codes=(DIVERGED,), letter="Z",
         phrase="read the same rows"),
    Case("tagger_of_padded_rows", candidate=("--bug", "mean"), codes=(DIVERGED,), letter="L",
         phrase="another constant"),
    Case("time_before_batch"),
    Case("carried_state"),
    Case("carried_state", candidate=BUG, codes=(DIVERGED, UNDECIDED), phrase="'state"),
    Case("mean_of_padded_rows"),
    Case("mean_of_padded_rows", candidate=BUG, codes=(DIVERGED,),
         phrase="padding that the candidate alone has takes part"),
    Case("sequence_cut_by_hand", codes=OPEN, phrase="sequence|communicat"),
    Case("sequence_cut_by_hand", ("--declare",)),
    Case("sequence_cut_by_hand", ("--declare",), BUG, codes=(DIVERGED,), phrase="layers.0",
         stage="forward"),
    # Numbers.
    Case("float8_linears", codes=OPEN, phrase="(?i)float8", needs="torchao"),
)  # fmt: skip


def compared(case: Case, folder: Path) -> Outcome:
    script = f"loop_cases/{case.script}.py"
    return ttrace(
        "diff",
        "-o",
        folder,
        "--reference",
        launch(1, script, *case.flags),
        "--candidate",
        launch(case.ranks, script, *case.flags, *case.candidate),
        *case.legs,
        *case.options,
        folder=folder,
    )


def named(case: Case) -> object:
    return pytest.param(case, id=case.name, marks=() if case.quick else pytest.mark.matrix)


@pytest.mark.parametrize("case", [named(case) for case in CASES])
def test_a_loop_gets_the_verdict_that_it_deserves(case: Case, tmp_path: Path) -> None:
    if case.needs and importlib.util.find_spec(case.needs) is None:
        pytest.skip(f"{case.needs} is not installed: scripts/loop_libraries.sh")
    outcome = compared(case, tmp_path / "report")
    log = tmp_path / "report" / "candidate.log"
    assert "Traceback" not in (log.read_text() if log.exists() else ""), outcome.explain()
    assert outcome.code in case.codes, outcome.explain()
    if case.phrase and (case.always or outcome.code != WITHIN):
        assert re.search(case.phrase, " ".join(outcome.text.split())), outcome.explain()
    if outcome.code == DIVERGED:
        assert not case.letter or case.letter in outcome.letters, outcome.explain()
        assert not case.stage or outcome.first["stage"] == case.stage, outcome.explain()
    elif outcome.result:
        assert outcome.result["culprits"] == [], outcome.explain()


@pytest.mark.matrix
def test_a_run_that_is_refused_is_refused_before_its_reference_was_recorded(tmp_path: Path) -> None:
    case = Case("gradients_reduced_by_hand", ("one",), ("--bug", "never"))
    outcome = compared(case, tmp_path / "report")
    assert outcome.code == UNDECIDED, outcome.explain()
    assert not (tmp_path / "report" / "reference").exists(), outcome.explain()


def test_a_parameter_without_a_gradient_needs_no_step(tmp_path: Path) -> None:
    """torch steps no parameter whose gradient is None; a check without a reference knows it."""
    trace, report = tmp_path / "trace", tmp_path / "report"
    command = launch(1, "loop_cases/branch_not_in_every_step.py").split()
    recorded = ttrace("record", "-o", trace, "--iterations", "0:4", "--", *command)
    assert recorded.code == 0, recorded.explain()
    outcome = ttrace("check", trace, "-o", report, folder=report)
    assert outcome.code == WITHIN, outcome.explain()
    assert outcome.result["culprits"] == [], outcome.explain()
    assert "step that was not made" not in outcome.text, outcome.explain()
