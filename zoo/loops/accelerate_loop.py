"""The loop of accelerate's documentation: prepare, accumulate, backward, clip, step.

python zoo/loops/accelerate_loop.py --accumulate 4
torchrun --nproc-per-node 2 zoo/loops/accelerate_loop.py --accumulate 2
"""

import argparse

import tiny_llama
import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--accumulate", type=int, default=2)
options = parser.parse_args()

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=options.accumulate)
model = tiny_llama.model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0)
loader = torch.utils.data.DataLoader(tiny_llama.Text(), batch_size=2)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

steps = 0
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        steps += 1
        accelerator.print(f"step {steps} loss {loss.item():.6f}")
    if steps == 3:
        break
accelerator.end_training()
