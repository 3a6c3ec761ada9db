"""Real megatron-core in the hands of another author: other sizes, other habits than `train_gpt`.

An own loop with an evaluation inside, an own function that finishes gradients, learned absolute
positions, GELU, an untied LM head, no grouped queries, an explicit attention mask, the older loss
function that returns (loss, report), one row a micro-batch, unequal pipeline stages.

    torchrun --nproc-per-node 2 zoo/own_loop.py --tp 2 --sp
"""

import argparse
import os
import sys

import megatron_cpu

megatron_cpu.enable()

import torch
import torch.distributed
from megatron.core import parallel_state as mpu
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
)
from megatron.core.distributed import finalize_model_grads as reduce_gradients
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

LENGTH = 24
VOCABULARY = 96


class CountingText:
    """Rows that count upwards by a step of their own; endless, this replica's share only."""

    def __init__(self, replica, replicas):
        self.replica, self.replicas, self.row = replica, replicas, 0

    def __iter__(self):
        return self

    def __next__(self):
        number = self.row * self.replicas + self.replica
        self.row += 1
        text = (torch.arange(LENGTH + 1) * (1 + number % 7) + number * 11) % VOCABULARY
        visible = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        return {
            "loss_mask": torch.ones(1, LENGTH),
            "labels": text[None, 1:],
            "attention_mask": ~visible[None, None],
            "position_ids": torch.arange(LENGTH)[None],
            "tokens": text[None, :-1],
            "row": number,
            "document": None,
        }


def build(options):
    first = options.layers - (options.pp - 1)
    config = TransformerConfig(
        num_layers=options.layers,
        hidden_size=48,
        num_attention_heads=6,
        tensor_model_parallel_size=options.tp,
        pipeline_model_parallel_size=options.pp,
        sequence_parallel=options.sp,
        # All but one layer for each later stage go to the first one.
        num_layers_in_first_pipeline_stage=first if options.pp > 1 else None,
        pipeline_dtype=torch.float32,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        use_cpu_initialization=True,
        masked_softmax_fusion=False,
        bias_activation_fusion=False,
        bias_dropout_fusion=False,
        gradient_accumulation_fusion=False,
        persist_layer_norm=False,
        batch_p2p_comm=False,
        batch_p2p_sync=False,
    )
    net = GPTModel(
        config=config,
        transformer_layer_spec=get_gpt_layer_local_spec(),
        vocab_size=VOCABULARY,
        max_sequence_length=LENGTH,
        pre_process=mpu.is_pipeline_first_stage(),
        post_process=mpu.is_pipeline_last_stage(),
        position_embedding_type="learned_absolute",
    )
    wrapped = DistributedDataParallel(
        config, ddp_config=DistributedDataParallelConfig(), module=net
    )
    return config, wrapped


def by_hand(number):
    """The batch of that number, which nothing hands out."""
    return next(CountingText(number, 1))


def step_of(iterator, net):
    return step_on(next(iterator), net)


def step_of_hidden_text(iterator, net):
    return step_on(next(hidden_text), net)


def step_by_hand(iterator, net):
    global made
    replicas = mpu.get_data_parallel_world_size()
    made += 1
    return step_on(by_hand((made - 1) * replicas + mpu.get_data_parallel_rank() + offset), net)


hidden_text = None
made = 0  # batches so far
offset = 0


def step_on(item, net):
    output = net(
        item["tokens"],
        item["position_ids"],
        attention_mask=item["attention_mask"],
        labels=item["labels"],
    )

    def loss_of(losses):
        mask = item["loss_mask"]
        loss = (losses.float() * mask).sum() / mask.sum()
        return loss, {"loss": loss.detach().clone()}

    return output, loss_of


def finish(chunks, num_tokens=None, **keywords):
    reduce_gradients(chunks, num_tokens, **keywords)


def average(reports):
    value = torch.stack([report["loss"] for report in reports]).mean()
    torch.distributed.all_reduce(value, group=mpu.get_data_parallel_group())
    return value.item() / mpu.get_data_parallel_world_size()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--pp", type=int, default=1)
    parser.add_argument("--sp", action="store_true")
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument(
        "--batches",
        choices=("iterator", "hidden", "by-hand"),
        default="iterator",
        help="hidden: from a global iterator; by-hand: made in the forward step",
    )
    parser.add_argument("--first-row", type=int, default=0, help="of the text made by hand")
    parser.add_argument("--evaluate", action="store_true", help="one pass without gradients a step")
    options = parser.parse_args()

    for name, value in dict(RANK=0, WORLD_SIZE=1, MASTER_ADDR="127.0.0.1", MASTER_PORT=0).items():
        os.environ.setdefault(name, str(value))
    torch.distributed.init_process_group(backend="gloo")
    mpu.initialize_model_parallel(options.tp, options.pp, create_gloo_process_groups=False)
    model_parallel_cuda_manual_seed(7)
    config, net = build(options)
    adam = get_megatron_optimizer(
        OptimizerConfig(lr=2e-3, weight_decay=0.1, clip_grad=0.5),
        [net],
        use_gloo_process_groups=False,
    )
    config.finalize_model_grads_func = finish

    data = CountingText(mpu.get_data_parallel_rank(), mpu.get_data_parallel_world_size())
    global hidden_text, offset
    hidden_text, offset = data, options.first_row
    step = {"hidden": step_of_hidden_text, "by-hand": step_by_hand}.get(options.batches, step_of)
    if step is not step_of:
        data = None
    calls = options.global_batch // mpu.get_data_parallel_world_size()
    run = get_forward_backward_func()
    sizes = dict(seq_length=LENGTH, micro_batch_size=1, num_microbatches=calls)
    for i in range(options.steps):
        net.zero_grad_buffer()
        adam.zero_grad()
        reports = run(
            forward_step_func=step, data_iterator=data, model=net, forward_only=False, **sizes
        )
        norm = adam.step()[1]
        text = f"iteration {i}"
        if mpu.is_pipeline_last_stage():
            text += f": loss {average(reports):.9g}, norm {float(norm):.9g}"
        if options.evaluate:
            net.eval()
            with torch.no_grad():
                unseen = CountingText(mpu.get_data_parallel_rank() + 1000, 1)
                reports = run(
                    forward_step_func=step_of,
                    data_iterator=unseen,
                    model=net,
                    forward_only=True,
                    **sizes,
                )
            net.train()
            if mpu.is_pipeline_last_stage():
                text += f", evaluation {average(reports):.9g}"
        if torch.distributed.get_rank() == torch.distributed.get_world_size() - 1:
            sys.stdout.write(text + "\n")
            sys.stdout.flush()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
