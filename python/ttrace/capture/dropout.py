"""Dropout in captured iterations: its masks are audited, or it is switched off.

Masks of two topologies cannot agree, so runs that are to be compared tensor by tensor run without
dropout (`off`): the original function still draws its random numbers and its mask is still looked
at, but the value is handed on as it is, as with a probability of 0. Otherwise nothing is changed:
the mask is read out of the values before and after.

Only the real leg is audited, and of each iteration the first two micro-batches of a rank: enough to
see that masks repeat. Attention kernels keep their masks to themselves and are counted only.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from ttrace.capture.patches import Patches
from ttrace.capture.placed import Moment
from ttrace.capture.random_draws import RandomDraws
from ttrace.capture.session import Session
from ttrace.capture.tensor_bytes import digest_of, host_view

# Of torch.nn.functional. Modules call them by these names, and so do attention functions.
_ELEMENTWISE = ("dropout",)
# Zero channels, or put other values than zero: no mask can be read, but they can be switched off.
_OTHER = ("alpha_dropout", "feature_alpha_dropout", "dropout1d", "dropout2d", "dropout3d")
_ATTENTION = "scaled_dot_product_attention"
_AUDITED_MICRO_BATCHES = 2
_SAMPLES = 16


class Dropout:
    """One per capture; patches torch until `remove`. To be made before the first forward: what is
    compiled then stays as it is, with dropout or without."""

    def __init__(
        self,
        session: Session,
        innermost: Callable[[], str | None],
        alike: Callable[[], dict[str, Any]],
        draws: RandomDraws | None = None,
    ) -> None:
        """`innermost` names the module whose forward runs. `alike`: {"dims", "why"} if the
        framework is known to seed ranks along these mesh dimensions alike, else empty; asked at
        the end of an iteration. `draws` is told which random numbers are dropout's."""
        self._session = session
        self._innermost = innermost
        self._alike = alike
        self._draws = draws
        self._off = session.settings.dropout_off
        self._calls = 0
        self._p_max = 0.0
        self._noted = False
        self._audited: set[tuple[int, int]] = set()  # (iteration, micro-batch)
        self._patches = Patches()
        functional = nn.functional
        for name in (*_ELEMENTWISE, *_OTHER):
            audited = name in _ELEMENTWISE
            self._patches.replace(functional, name, self._wrap(getattr(functional, name), audited))
        attention = self._wrap_attention(getattr(functional, _ATTENTION))
        self._patches.replace(functional, _ATTENTION, attention)

    def remove(self) -> None:
        self._patches.undo()

    def end_iteration(self) -> None:
        """Before the iteration is sealed."""
        if self._calls and not self._noted:
            self._noted = True
            alike = self._alike()
            values: dict[str, Any] = {"seeded_alike": alike} if alike else {}
            self._session.note(
                "dropout", p_max=self._p_max, calls=self._calls, off=self._off, **values
            )

    @property
    def _captured(self) -> bool:
        session = self._session
        return session.recording and session.iteration in session.settings.iterations

    @property
    def _is_off(self) -> bool:
        """Before the first captured iteration too: a compiled forward is not compiled anew."""
        return self._off and not self._session.over

    def _wrap(self, original: Callable[..., Any], audited: bool) -> Callable[..., Any]:
        off = self._off

        @functools.wraps(original)
        def dropout(
            input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
        ) -> Any:
            if torch.compiler.is_compiling():
                return original(input, 0.0 if off else p, training, inplace)
            plain = not torch.is_tensor(input) or not 0.0 <= p <= 1.0
            if plain or not (self._captured or self._is_off):
                return original(input, p, training, inplace)
            if not training or p == 0.0:
                if audited:
                    self._session.guarded(self._note_idle)()
                return original(input, p, training, inplace)
            self._count(p)
            before = self._session.guarded(self._look)(input) if audited else None
            with self._drawing():
                if not off:
                    result = original(input, p, training, inplace)
                else:
                    # The same random numbers are drawn; a zero in the input would look like a
                    # dropped one.
                    with torch.no_grad():
                        result = original(torch.ones_like(input), p, training, False)
            self._session.guarded(self._note_mask)(before, result, p)
            return input if off else result

        return dropout

    def _wrap_attention(self, original: Callable[..., Any]) -> Callable[..., Any]:
        off = self._off

        @functools.wraps(original)
        def scaled_dot_product_attention(
            query: Any,
            key: Any,
            value: Any,
            attn_mask: Any = None,
            dropout_p: float = 0.0,
            *args: Any,
            **kwargs: Any,
        ) -> Any:
            if torch.compiler.is_compiling():
                p = 0.0 if off else dropout_p
                return original(query, key, value, attn_mask, p, *args, **kwargs)
            if dropout_p > 0.0 and (self._captured or self._is_off):
                self._count(dropout_p)
                if off:
                    dropout_p = 0.0
            with self._drawing():
                return original(query, key, value, attn_mask, dropout_p, *args, **kwargs)

        return scaled_dot_product_attention

    @contextlib.contextmanager
    def _drawing(self) -> Iterator[None]:
        """Random numbers drawn in here are those of dropout."""
        if self._draws is not None:
            self._session.guarded(self._draws.look)()
        yield
        if self._draws is not None:
            self._session.guarded(self._draws.begin)()

    def _count(self, p: float) -> None:
        if self._captured and self._session.leg == self._session.settings.leg:
            self._calls += 1
            self._p_max = max(self._p_max, float(p))

    def _audits(self, moment: Moment | None) -> bool:
        session = self._session
        if moment is None or session.leg != "real" or not self._captured:
            return False
        place = moment.iteration, moment.micro_batch
        if place not in self._audited:
            of_iteration = sum(iteration == place[0] for iteration, _ in self._audited)
            if of_iteration >= _AUDITED_MICRO_BATCHES:
                return False
            self._audited.add(place)
        return True

    def _look(self, value: torch.Tensor) -> dict[str, Any] | None:
        """What is noted of the input, which a call in place overwrites."""
        moment = self._session.moment
        if not self._audits(moment) or type(value) not in (torch.Tensor, nn.Parameter):
            return None
        value = host_view(value).contiguous()
        if value.numel() == 0 or not torch.isfinite(value).all():
            return None  # 0 x NaN is NaN: no mask can be read
        flat = value.reshape(-1)
        places = torch.arange(_SAMPLES) * (flat.numel() - 1) // (_SAMPLES - 1)
        return {
            "fqn": self._innermost() or "",
            "shape": list(value.shape),
            "input": digest_of(value),
            "sample": flat[places].double().tolist(),
            "repeats": _repeats(value),
            "known": value != 0,  # elsewhere the mask does not show
        }

    def _note_idle(self) -> None:
        """A call that drops nothing: of probability 0, or of a module in evaluation mode."""
        if self._audits(self._session.moment):
            nothing = {"elements": 0, "mask": "", "input": "", "sample": [], "repeats": False}
            self._note_call(self._innermost() or "", p=0.0, **nothing)

    def _note_mask(self, before: dict[str, Any] | None, result: torch.Tensor, p: float) -> None:
        if before is None:
            return
        known = before.pop("known")
        mask = (host_view(result) != 0).contiguous()
        fqn = before.pop("fqn")
        self._note_call(fqn, p=p, mask=digest_of(mask), elements=int(known.sum()), **before)

    def _note_call(self, fqn: str, **values: Any) -> None:
        session, moment = self._session, self._session.moment
        if moment is None:
            return
        session.note(
            "dropout_mask",
            iteration=moment.iteration,
            fqn=fqn,
            call=moment.next_call(fqn, f"dropout {session.pass_}"),
            micro_batch=moment.micro_batch,
            **{"pass": session.pass_},
            **values,
        )


def _repeats(value: torch.Tensor) -> bool:
    """Whether the tensor holds one slice twice. What repeats within a rank (uniform attention, a
    row of padding) may repeat on another rank that holds other data."""
    for dim, size in enumerate(value.shape):
        if size > 1 and torch.equal(value.select(dim, 0), value.select(dim, size - 1)):
            return True
    return False
