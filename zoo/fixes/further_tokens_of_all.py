"""The loss of a further token that is predicted is divided by the mean of the numbers of tokens
that the context-parallel ranks have, as one number for all of them.

Rolling a sequence by one leaves one rank with a token less than the others. A quotient of each
rank's own sum and number, averaged, is not the quotient of the sums.
"""

from __future__ import annotations


def apply() -> None:
    from megatron.core.models.gpt import GPTModel

    from source_edit import edited

    loss = "mtp_loss = self.compute_language_model_loss(mtp_labels, mtp_logits)\n"
    GPTModel._postprocess = edited(
        GPTModel._postprocess,
        loss,
        "num_tokens = num_tokens.float() / self.cp_group.size(); "
        f"torch.distributed.all_reduce(num_tokens, group=self.cp_group); {loss}",
    )
